"""Committed tables of what a GPU said: made of logs, and what they say of the sources as they are."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

from tests.gpu import tables

ROOT = Path(__file__).resolve().parents[2]
LOG = """========= COMPUTE-SANITIZER
rows: 12 launches so far
========= Uninitialized __global__ memory read of size 16 bytes
=========     at void inner<(int)64, (bool)1>(const Maps &, int)+0xc80 in tile.cuh:165
=========     by thread (0,0,0) in block (0,0,0)
=========         Device Frame: void matmul_v16<(int)64>(Maps, int)+0x10 in v16.cu:63
=========
========= Uninitialized __global__ memory read of size 16 bytes
=========     at void inner<(int)64, (bool)1>(const Maps &, int)+0xc80 in tile.cuh:165
=========         Device Frame: void matmul_v16<(int)64>(Maps, int)+0x10 in v16.cu:63
=========
========= Invalid __global__ write of size 4 bytes
=========     at gelu_v01(float *)+0x10 in v01.cu:7
=========
37 launches
========= ERROR SUMMARY: 3 errors
========= ERROR SUMMARY: 50 errors were not printed. Use --print-limit option to adjust the number of printed errors
"""
RACE = "37 launches\n========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
JUNIT = """<testsuites><testsuite>
<testcase classname="tests.gpu.test_ops" name="test_a[x]" time="1.26"/>
<testcase classname="tests.gpu.test_ops" name="test_b" time="0.1"><failure message="no&#10;more">why</failure></testcase>
<testcase classname="tests.gpu.test_ops" name="test_c" time="0"><skipped message="no GPU"/></testcase>
</testsuite></testsuites>
"""


def test_tables_of_logs(tmp_path: Path) -> None:
    for name, log, status in (("initcheck", LOG, 1), ("racecheck", RACE, 0)):
        (tmp_path / f"{name}-default-matmul.log").write_text(log)
        (tmp_path / f"{name}-default-matmul.status").write_text(f"{name} default matmul {status} 37\n")
    (tmp_path / "junit.xml").write_text(JUNIT)
    said = ["--gpu", "a GPU", "--driver", "1", "--tool", "2", "--when", "now", "--sources", "abc"]
    out = tmp_path / "out"
    assert tables.main(["--out", str(out), "--sanitize", str(tmp_path), *said]) == 0
    assert tables.main(["--out", str(out), "--tests", str(tmp_path / "junit.xml"), *said]) == 0
    assert (out / "sanitize.csv").read_text().splitlines() == [
        ",".join(tables.RUN),
        "initcheck,default,matmul,37,3,1,37,,,,,abc",
        "initcheck,default,matmul,,,,,Invalid __global__ write of size 4 bytes,v01.cu:7,gelu_v01,1,abc",
        "initcheck,default,matmul,,,,,Uninitialized __global__ memory read of size 16 bytes,tile.cuh:165,matmul_v16,2,abc",
        "racecheck,default,matmul,37,0,0,37,,,,,abc",
    ]
    assert (out / "tests.csv").read_text().splitlines()[1:] == [
        "test_ops::test_a[x],passed,1.3,,abc", "test_ops::test_b,failed,0.1,no,abc",
        "test_ops::test_c,skipped,0.0,no GPU,abc",
    ]  # fmt: skip
    (tmp_path / "other.xml").write_text(JUNIT.replace("test_ops", "test_waiting"))
    assert tables.main(["--out", str(out), "--tests", str(tmp_path / "other.xml"), *said]) == 0
    modules = [line.partition(":")[0] for line in (out / "tests.csv").read_text().splitlines()[1:]]
    assert modules == ["test_ops"] * 3 + ["test_waiting"] * 3
    about = {"gpu": "a GPU", "driver": "1", "when": "now", "sources": "abc"}
    assert json.loads((out / "checks.json").read_text()) == {
        "sanitize": about | {"compute_sanitizer": "2"}, "tests": about,
    }  # fmt: skip


def test_a_second_run_of_one_tool_keeps_the_rows_of_the_others(tmp_path: Path) -> None:
    said = ["--driver", "1", "--tool", "2", "--when", "now", "--sources", "abc", "--out", str(tmp_path / "out")]

    def runs_after(gpu: str, *runs: str) -> list[str]:
        logs = tmp_path / "-".join(runs)
        logs.mkdir(exist_ok=True)
        for run in runs:
            (logs / f"{run}.log").write_text(RACE)
            (logs / f"{run}.status").write_text(f"{run} default matmul 0 1\n")
        assert tables.main([*said, "--gpu", gpu, "--sanitize", str(logs)]) == 0
        lines = (tmp_path / "out" / "sanitize.csv").read_text().splitlines()[1:]
        return [line.partition(",")[0] for line in lines]

    assert runs_after("a GPU", "memcheck", "racecheck") == ["memcheck", "racecheck"]
    assert runs_after("a GPU", "initcheck", "racecheck") == ["initcheck", "memcheck", "racecheck"]
    assert runs_after("another", "initcheck", "racecheck") == ["initcheck", "racecheck"]


def test_a_log_without_an_end_has_no_number_of_findings(tmp_path: Path) -> None:
    (tmp_path / "memcheck-tuned-memory.log").write_text("rows: 12 launches so far\n")
    (tmp_path / "memcheck-tuned-memory.status").write_text("memcheck tuned memory 124 60\n")
    (row,) = tables.read_sanitize(tmp_path)
    assert (row["launches"], row["findings"], row["exit_status"]) == ("", "", "124")


def test_the_committed_findings_are_those_that_the_page_explains() -> None:
    folder = ROOT / "reports" / "h200-checks"
    rows = list(csv.DictReader(io.StringIO((folder / "sanitize.csv").read_text("utf-8"))))
    runs = [row for row in rows if not row["what"]]
    assert {row["tool"] for row in runs} == {"memcheck", "racecheck", "synccheck", "initcheck"}
    assert {row["build"] for row in runs} == {"default", "tuned"}
    assert all(row["launches"] for row in runs), "every run came to its end"
    found = {(row["where"], row["kernel"]) for row in rows if row["what"]}
    page = (ROOT / "reports" / "README.md").read_text("utf-8")
    for where, kernel in found:
        assert where.partition(":")[0] in page
        assert kernel in page
    assert len(json.loads((folder / "checks.json").read_text("utf-8"))["sanitize"]["sources"]) == 12
