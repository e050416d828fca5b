"""The configuration sweep without a GPU: the plan, the ledger, workers that die, the choice, tuned.toml, the figure."""

from __future__ import annotations

import json
import lzma
import re
import shutil
import sys
import textwrap
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from analysis import report as reports
from analysis.capture.load import load
from analysis.formats.errors import InputError, UsageError
from analysis.formats.sweep import SWEEP_ROWS
from analysis.page.canvas import compact, to_svg
from analysis.show import document
from kernels import build, census, combinations, tuned
from kernels.registry import ops
from kernels.variants import fingerprint
from studies.sweep import figures as heatmap
from studies.sweep import measure as sweep
from studies.sweep import measure_worker as sweep_gpu
from studies.sweep import rows as sweep_rows
from studies.sweep import tables
from tests import committed
from tests import sweep_examples as examples
from tests.declared import analyse
from tests.declared import page as page_of

GPU = sweep.Gpu("NVIDIA H200", 90)
GELU = {"GELU_V02_THREADS": (256, 64, 128), "GELU_V02_AHEAD_MB": (3, 0)}
GELU_CELLS = sum(len(op.dtypes) * len(op.shapes) for op in (ops()["gelu"], ops()["bias_gelu"]))


def others(op: str, *measured: str) -> str:
    """The shapes of `op` but the ladder's and those measured, as a recommendation names them."""
    return ", ".join(name for name in ops()[op].shapes if name not in ("large", *measured))


def rows_of(text: str) -> list[dict[str, str]]:
    import csv
    import io

    return list(csv.DictReader(io.StringIO(text)))


# --- declarations -------------------------------------------------------------------------------------------------


def test_every_tunable_is_a_guarded_macro_of_its_source_whose_default_comes_first() -> None:
    seen = 0
    for op in ops().values():
        for variant in op.variants.values():
            text = (build.FOLDER / op.folder / variant.source).read_text("utf-8") if variant.tunables else ""
            for macro, values in variant.tunables.items():
                assert f"#ifndef {macro}\n#define {macro} {values[0]}\n#endif\n" in text, (
                    f"{op.name} {variant.name} {macro}"
                )
                assert macro.startswith(f"{op.folder.upper()}_V{variant.name[1:3]}_")
                seen += 1
    assert seen > 20


def test_ops_that_share_a_macro_share_all_choices_of_its_source() -> None:
    by_macro: dict[str, dict[str, tuple[int, ...]]] = {}
    for op in ops().values():
        for variant in op.variants.values():
            for macro in variant.tunables:
                assert by_macro.setdefault(macro, dict(variant.tunables)) == dict(variant.tunables)


def test_combinations_start_with_the_source_as_it_stands() -> None:
    gelu = ops()["gelu"]
    found = combinations.combinations(gelu, gelu.variants["v02_vector"])
    assert len(found) == len(set(found)) == 20
    assert found[0].is_default
    assert found[0].flags == ()
    assert [one.flags for one in found if one.text == "GELU_V02_THREADS=64 GELU_V02_AHEAD_MB=3"] == [
        ("-DGELU_V02_THREADS=64",)
    ]
    assert combinations.combinations(gelu, gelu.variants["torch"]) == []


def test_a_plan_names_what_it_does_not_know() -> None:
    gelu, layernorm = ops()["gelu"], ops()["layernorm"]
    cells = sweep.plan([gelu, layernorm], ["v02_vector", "v05_vector"], ["bf16"], None)
    assert [cell.title for cell in cells] == [
        "gelu v02_vector bf16 large",
        "layernorm v05_vector bf16 " + layernorm.shape_name(layernorm.bench_shape),
    ]
    with pytest.raises(UsageError, match="--variants 'v99' is unknown here: use v01_naive, v02_vector"):
        sweep.plan([gelu], ["v99"], None, None)
    with pytest.raises(UsageError, match="--dtype"):
        sweep.plan([gelu], None, ["fp8"], None)


# --- the ledger ---------------------------------------------------------------------------------------------------


def test_the_ledger_keeps_rows_one_by_one_and_drops_a_line_that_was_cut_off(tmp_path: Path) -> None:
    first, second = examples.grid("gelu", "v02_vector", GELU)[:2]
    ledger = sweep.Ledger(tmp_path / "sweep.csv")
    ledger.add(first)
    ledger.add(second)
    text = (tmp_path / "sweep.csv").read_text()
    assert text == examples.text([first, second])
    (tmp_path / "sweep.csv").write_text(text[:-20])
    again = sweep.Ledger(tmp_path / "sweep.csv")
    assert again.has(first)
    assert not again.has(second)
    again.add(second)
    assert (tmp_path / "sweep.csv").read_text() == text


def test_a_packed_ledger_is_continued_and_unpacked_by_its_first_new_row(tmp_path: Path) -> None:
    first, second = examples.grid("gelu", "v02_vector", GELU)[:2]
    plain, packed = tmp_path / "sweep.csv", tmp_path / "sweep.csv.xz"
    packed.write_bytes(lzma.compress(examples.text([first]).encode()))
    ledger = sweep.Ledger(plain)
    assert ledger.has(first)
    assert not ledger.has(second)
    assert not plain.exists()  # whoever only reads leaves the folder as it is
    ledger.add(second)
    assert plain.read_text() == examples.text([first, second])
    assert not packed.exists()
    assert sweep.Ledger(plain).rows == ledger.rows


def test_a_run_with_a_packed_ledger_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = examples.grid("gelu", "v02_vector", GELU)[0]
    captures = tmp_path / "captures"
    captures.mkdir()
    (captures / "sweep.csv.xz").write_bytes(lzma.compress(examples.text([row]).encode()))
    found: list[Any] = []
    monkeypatch.setattr(sweep, "gpu_at_hand", lambda: None)
    monkeypatch.setattr(sweep, "finish", lambda out, ledger, rounds, update: found.extend(ledger.rows))
    monkeypatch.setattr(sweep, "dry_run", lambda cells, ledger, *_, every_shape: found.extend(ledger.rows))
    for more in ("--update", "--dry-run"):
        assert sweep.main(["gelu", "--out", str(tmp_path), more]) == 0
    assert [one["macros"] for one in found] == [row["macros"]] * 2
    assert [path.name for path in captures.iterdir()] == ["sweep.csv.xz"]


def test_a_damaged_packed_ledger_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sweep.csv.xz").write_bytes(lzma.compress(examples.text([]).encode())[:-8])
    with pytest.raises(InputError, match=r"sweep\.csv\.xz: is an xz file that was cut off"):
        sweep.Ledger(tmp_path / "sweep.csv")


def test_a_row_is_measured_again_where_the_source_or_the_gpu_changed(tmp_path: Path) -> None:
    row = examples.grid("gelu", "v02_vector", GELU)[0]
    ledger = sweep.Ledger(tmp_path / "sweep.csv")
    ledger.add(row)
    assert not ledger.has(row | {"fingerprint": "f" * 16})
    assert not ledger.has(row | {"gpu": "NVIDIA A100"})


def test_a_ledger_of_other_columns_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sweep.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="other columns: give another --out"):
        sweep.Ledger(tmp_path / "sweep.csv")


# --- workers that die ---------------------------------------------------------------------------------------------

WORKER = """
    import json, os, sys, time
    jobs, script = json.load(sys.stdin), json.loads(sys.argv[1])
    def say(**line):
        print(json.dumps(line), flush=True)
    for job in jobs:
        for row in job["rows"]:
            say(start=[row["id"]])
            does = script.get(row["library"], "")
            if does == "crash":
                print("CUDA error: an illegal memory access was encountered", file=sys.stderr)
                os.abort()
            if does == "hang":
                time.sleep(60)
            if does == "fail":
                say(row=row["id"], fields={"verdict": "does not run", "reason": "CUDA error: too many resources"})
        left = [row for row in job["rows"] if script.get(row["library"], "") != "fail"]
        for at in range(0, len(left), job["group"]):
            group = left[at:at + job["group"]]
            say(start=[row["id"] for row in group])
            if any(script.get(row["library"], "") == "crash when timed" for row in group):
                os._exit(7)
            for row in group:
                say(row=row["id"], fields={"verdict": "timed", "bench_time_p50_ns": 1000})
"""


def measured(
    tmp_path: Path, libraries: Sequence[str], does: dict[str, str], limit_s: float = 20.0
) -> dict[str, dict[str, Any]]:
    worker = tmp_path / "worker.py"
    worker.write_text(textwrap.dedent(WORKER))
    rows = [{"id": at, "wanted": True, "default": at == 0, "library": name} for at, name in enumerate(libraries)]
    found: dict[str, dict[str, Any]] = {}

    def on_row(number: int, fields: dict[str, Any]) -> None:
        assert libraries[number] not in found
        found[libraries[number]] = fields

    def start(jobs: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        return sweep.events([sys.executable, str(worker), json.dumps(does)], jobs, limit_s)

    sweep.measure([{"rows": rows, "group": 8}], on_row, start, lambda message: None)
    return found


def test_a_crash_costs_one_row(tmp_path: Path) -> None:
    found = measured(tmp_path, "abcd", {"c": "crash", "b": "fail"})
    assert {name: fields["verdict"] for name, fields in found.items()} == {
        "a": "timed", "b": "does not run", "c": "crashed", "d": "timed",
    }  # fmt: skip
    assert found["c"]["reason"] == "signal 6: CUDA error: an illegal memory access was encountered"


def test_a_crash_of_the_default_does_not_stop_the_others(tmp_path: Path) -> None:
    found = measured(tmp_path, "abc", {"a": "crash"})
    assert [found[name]["verdict"] for name in "abc"] == ["crashed", "timed", "timed"]


def test_a_crash_while_several_are_timed_is_found_one_by_one(tmp_path: Path) -> None:
    found = measured(tmp_path, "abcd", {"c": "crash when timed"})
    assert {name: fields["verdict"] for name, fields in found.items()} == {
        "a": "timed", "b": "timed", "c": "crashed", "d": "timed",
    }  # fmt: skip
    assert found["c"]["reason"].startswith("exit code 7")


def test_a_combination_that_hangs_is_left_behind(tmp_path: Path) -> None:
    found = measured(tmp_path, "ab", {"b": "hang"}, limit_s=3.0)
    assert found["a"]["verdict"] == "timed"
    assert found["b"] == {"verdict": "crashed", "reason": "it did not come to an end in 3 s"}


def test_a_worker_that_does_not_start_is_one_sentence(tmp_path: Path) -> None:
    def start(jobs: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        return sweep.events([sys.executable, "-c", "raise RuntimeError('no CUDA')"], jobs)

    rows = [{"id": 0, "wanted": True, "default": True, "library": "a"}]
    with pytest.raises(InputError, match="does not start: exit code 1: RuntimeError: no CUDA"):
        sweep.measure([{"rows": rows, "group": 8}], lambda number, fields: None, start, lambda message: None)


# --- the whole sweep, with a fake compiler, linker and worker -----------------------------------------------------


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """`compiled`, `linked` and `timed` list what was done; `dies_after`: rows, then the program is interrupted; `gain` is
    how many times as fast as the default a combination is in a job, "" where it does not run.
    """
    done: dict[str, Any] = {"compiled": [], "timed": [], "dies_after": None}
    done["gain"] = lambda name, job: "" if "THREADS=512" in name else 1.05 if "THREADS=64" in name else 1.0

    def compile_all(nvcc: str, wanted: Any, arch: int, progress: Any) -> dict[Any, combinations.Built]:
        found = {}
        for one in dict.fromkeys(wanted):
            done["compiled"].append(one)
            bad = "THREADS=128" in one.text
            found[one] = combinations.Built(one, "f" * 16, tmp_path / f"{one.text}.o", (), "a reason" if bad else "")
        return found

    def start(jobs: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for job in jobs:
            for row in job["rows"]:
                if not row["wanted"]:
                    continue
                if done["dies_after"] is not None and len(done["timed"]) == done["dies_after"]:
                    raise KeyboardInterrupt
                name = Path(row["library"]).stem
                yield {"start": [row["id"]]}
                gain = done["gain"](name, job)
                if not gain:
                    yield {
                        "row": row["id"],
                        "fields": {"verdict": "does not run", "reason": "CUDA error: too many resources"},
                    }
                    continue
                launched = {
                    "registers": 32,
                    "shared_bytes": 0,
                    "grid_blocks": 3000,
                    "block_threads": 256,
                    "kernel": "k",
                    "sm_count": 132,
                }
                seconds = [1e-5 / gain * (1 + 0.001 * (at % 3)) for at in range(20)]
                default = [1e-5 * (1 + 0.001 * (at % 3)) for at in range(20)]
                yield {"row": row["id"], "fields": launched | sweep_gpu.times(seconds, default, 16)}
                done["timed"].append((job["op"], job["dtype"], *job["shape"], name))
        yield {"end": ""}

    monkeypatch.setattr(build, "find_nvcc", lambda: "nvcc")
    monkeypatch.setattr(combinations, "fingerprints", lambda nvcc, wanted, arch: dict.fromkeys(wanted, "f" * 16))
    monkeypatch.setattr(combinations, "compile_all", compile_all)
    monkeypatch.setattr(combinations, "link_all", lambda built, progress: {})
    monkeypatch.setattr(sweep, "_start_extensions", lambda cells: [])
    done["start"] = start
    return done


def run(machine: dict[str, Any], path: Path) -> sweep.Ledger:
    cells = sweep.plan([ops()["gelu"]], ["v02_vector"], ["bf16"], None)
    ledger = sweep.Ledger(path)
    sweep.sweep(cells, ledger, GPU, 90, 20, machine["start"])
    return ledger


def test_what_fails_is_a_row_with_its_reason_and_what_works_is_timed(machine: dict[str, Any], tmp_path: Path) -> None:
    ledger = run(machine, tmp_path / "sweep.csv")
    verdicts = {row["macros"].split()[0]: (row["verdict"], row["reason"]) for row in ledger.rows}
    assert len(ledger.rows) == 20
    assert verdicts["GELU_V02_THREADS=128"] == ("does not compile", "a reason")
    assert verdicts["GELU_V02_THREADS=512"] == ("does not run", "CUDA error: too many resources")
    assert verdicts["GELU_V02_THREADS=1024"] == ("timed", "")
    timed = next(row for row in ledger.rows if row["verdict"] == "timed")
    assert (timed["dtype"], timed["shape_name"], timed["gpu"]) == ("bf16", "large", "NVIDIA H200")
    assert timed["range"] == "sweep/gelu/v02_vector/bf16/large/256x3"
    # 3000 blocks, 8 on each of 132 multiprocessors: 2.84 waves
    assert (timed["blocks_per_sm"], timed["waves"], timed["tail_frac"]) == ("8", "2.841", "0.1591")
    assert (timed["occupancy_theoretical_frac"], timed["limiter"]) == ("1", "warps")
    assert rows_of((tmp_path / "sweep.csv").read_text()) == ledger.rows


def test_an_interrupted_sweep_goes_on_where_it_stopped(machine: dict[str, Any], tmp_path: Path) -> None:
    machine["dies_after"] = 5
    with pytest.raises(KeyboardInterrupt):
        run(machine, tmp_path / "sweep.csv")
    kept = rows_of((tmp_path / "sweep.csv").read_text())
    assert sum(row["verdict"] == "timed" for row in kept) == 5
    machine["dies_after"] = None
    ledger = run(machine, tmp_path / "sweep.csv")
    assert ledger.rows[: len(kept)] == kept
    assert len(ledger.rows) == 20
    assert len(machine["timed"]) == len(set(machine["timed"]))
    count = len(machine["compiled"])
    run(machine, tmp_path / "sweep.csv")  # nothing is left to do, nor to compile
    assert len(machine["compiled"]) == count


def test_an_interrupted_program_says_how_to_go_on_and_leaves_a_run_that_can_be_reported_on(
    machine: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine["dies_after"] = 5
    monkeypatch.setattr(sweep, "gpu_at_hand", lambda: GPU)
    monkeypatch.setattr(sweep, "events", lambda command, jobs: machine["start"](jobs))
    command = ["gelu", "--variants", "v02_vector", "--dtype", "bf16", "--shapes", "large", "--out", str(tmp_path)]
    command.append("--update")
    assert sweep.main(command) == 130
    assert "interrupted; all measurements so far are kept: repeat the command with --out" in capsys.readouterr().err
    names = {path.name for path in (tmp_path / "captures").iterdir()}
    assert names == {"sweep.csv", "sweep.json", "manifest.json"}
    report = document(reports.build([tmp_path / "captures"], tmp_path / "report").report)
    assert report["figures"]


def test_each_call_keeps_its_rows_and_its_conditions(
    machine: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "gpu_at_hand", lambda: GPU)
    monkeypatch.setattr(sweep, "events", lambda command, jobs: machine["start"](jobs))
    command = ["gelu", "--variants", "v02_vector", "--dtype", "bf16", "--shapes", "large", "--out", str(tmp_path)]

    def calls() -> list[dict[str, Any]]:
        return list(json.loads((tmp_path / "captures" / "sweep.json").read_text())["calls"])

    machine["dies_after"] = 5
    assert sweep.main(command) == 130
    (first,) = calls()
    assert (first["first_row"], first["arguments"][:2], first["sampled"]) == (
        1,
        ["studies.sweep.measure", "gelu"],
        "while timing",
    )
    assert {"when", "git_sha", "driver", "nvcc", "clocks", "clocks_reason"} <= set(first)
    machine["dies_after"] = None
    assert sweep.main([*command, "--rounds", "9"]) == 0
    kept, second = calls()
    assert kept == first
    assert (second["first_row"], second["last_row"]) == (first["last_row"] + 1, 20)
    assert second["arguments"][-2:] == ["--rounds", "9"]
    assert sweep.main(command) == 0  # nothing is left to measure: no call
    assert calls() == [kept, second]
    manifest = json.loads((tmp_path / "captures" / "manifest.json").read_text())
    assert manifest["arguments"] == second["arguments"]
    report, found = analyse(load([tmp_path / "captures"]))
    named = {row["name"]: row["value"] for row in report["conditions"]}
    assert named["calls"] == "20 of 20 rows in 2 recorded calls"
    assert f"rows {second['first_row']} to 20 of sweep.csv" in named["call 2"]
    assert set(found["sweep"]["call"]) == {"1", "2"}
    assert "SM clock" not in named
    for drivers, shown in ((("580.1", "580.1"), "580.1"), (("580.1", "590.2"), None)):
        document = json.loads((tmp_path / "captures" / "sweep.json").read_text())
        for call, driver in zip(document["calls"], drivers, strict=True):
            call["driver"] = driver
        (tmp_path / "captures" / "sweep.json").write_text(json.dumps(document))
        report, _ = analyse(load([tmp_path / "captures"]))
        assert {row["name"]: row["value"] for row in report["conditions"]}.get("driver") == shown


def test_a_call_that_was_ended_from_outside_keeps_its_rows(tmp_path: Path) -> None:
    file = tmp_path / "sweep.json"
    calls = [{"first_row": 1, "last_row": 4}, {"first_row": 5}, {"first_row": 5}, {"first_row": 9}]
    file.write_text(json.dumps({"calls": calls}))
    assert sweep.earlier_calls(file, 11) == [
        {"first_row": 1, "last_row": 4}, {"first_row": 5, "last_row": 8}, {"first_row": 9, "last_row": 11},
    ]  # fmt: skip
    assert sweep.earlier_calls(tmp_path / "none.json", 3) == []


def test_rows_name_their_call_and_a_figure_the_clocks_of_its_own(tmp_path: Path) -> None:
    captures = capture_of(tmp_path, two(versus(1.09, 1.1, 1.11)) + two(versus(1.09, 1.1, 1.11), dtype="fp32"))
    seen = {"min": 345.0, "median": 1700.0, "max": 1980.0}
    call = {"arguments": ["studies.sweep.measure", "gelu"], "sampled": "while timing", "clocks": {"sm_mhz": seen}}
    document = json.loads((captures / "sweep.json").read_text())
    calls = [call | {"first_row": 1, "last_row": 2}]
    (captures / "sweep.json").write_text(json.dumps(document | {"calls": calls}))
    report = document(reports.build([captures], tmp_path / "report").report)
    named = {row["name"]: row["value"] for row in report["conditions"]}
    assert "SM clock 345–1980 MHz, median 1700, while timing" in named["call 1"]
    assert "commit not recorded" in named["call 1"]
    assert named["call not recorded"].startswith("2 of 4 rows")
    (figure,) = report["figures"]
    assert figure["caption"].endswith(
        "call 1: SM clock 345–1980 MHz, median 1700, while timing  ·  call not recorded: nor are its clocks"
    )
    svg = (tmp_path / "report" / "figures" / "sweep_gelu.svg").read_text()
    assert "v02_vector bf16 large, call 1<" in svg
    assert "v02_vector fp32 large, call not recorded<" in svg


def test_the_committed_calls_asked_for_the_rows_that_they_are_said_to_have_measured() -> None:
    for file in sweep.ROOT.glob("reports/*/captures/sweep.json"):
        rows = sweep.Ledger(file.with_name("sweep.csv")).rows
        calls = json.loads(file.read_text())["calls"]
        assert calls
        for call in calls:
            asked = set(call["arguments"])
            folders = {ops()[name].folder for name in asked & set(ops())}
            others: dict[tuple[str, ...], int] = {}
            for row in rows[call["first_row"] - 1 : call["last_row"]]:
                assert row["source"].split("/")[0] in folders
                assert "--variants" not in asked or row["variant"] in asked
                if row["op"] not in asked or ("--dtype" in asked and row["dtype"] not in asked):
                    cell = sweep_rows.cell_of(row)  # of the second stage
                    others[cell] = others.get(cell, 0) + 1
            assert max(others.values(), default=0) <= 1 + sweep_rows.FINALISTS


# --- the second stage ---------------------------------------------------------------------------------------------


def by_threads(name: str, job: dict[str, Any]) -> float | str:
    """At `large` the fewer threads the faster, with AHEAD_MB=3; at decode_b1 64 of them are slower."""
    gains = {"=64 ": 1.3, "=512 ": 1.2, "=1024 ": 1.1}
    gain = next((gain for threads, gain in gains.items() if f"THREADS{threads}" in name), 1.0)
    if "AHEAD_MB=3" not in name:
        return 1.0
    return 0.8 if gain == 1.3 and job["shape"][0] == 1 else gain if job["shape"][0] == 65536 else 1.0


@pytest.fixture
def swept(machine: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the program with the fakes: the rows and the choice of gelu v02 on bf16, by the arguments behind these."""
    monkeypatch.setattr(sweep, "gpu_at_hand", lambda: GPU)
    monkeypatch.setattr(sweep, "events", lambda command, jobs: machine["start"](jobs))
    machine["gain"] = by_threads

    def call(*more: str) -> tuple[list[dict[str, str]], dict[str, Any]]:
        command = ["gelu", "--variants", "v02_vector", "--dtype", "bf16", "--out", str(tmp_path), *more]
        machine["code"] = sweep.main(command)
        rows = rows_of((tmp_path / "captures" / "sweep.csv").read_text())
        (choice,) = json.loads((tmp_path / "captures" / "sweep.json").read_text())["choices"]
        return rows, choice

    return call


def test_the_best_are_timed_at_every_shape_of_all_that_is_compiled_from_the_source(swept: Any) -> None:
    rows, choice = swept()
    second = rows[20:]
    assert {row["macros"] for row in second} == {
        f"GELU_V02_THREADS={count} GELU_V02_AHEAD_MB=3" for count in (256, 64, 512, 1024)
    }
    cells = {sweep_rows.cell_of(row) for row in second}
    wanted = {
        (op, "v02_vector", dtype, shape)
        for op in ("gelu", "bias_gelu")
        for dtype in ("fp32", "bf16")
        for shape in ops()[op].shapes
    }
    assert cells == wanted - {("gelu", "v02_vector", "bf16", "large")}
    assert len(second) == 4 * len(cells)  # each once
    # 64 threads are slower at decode_b1, and the next best is taken
    assert (choice["macros"], choice["clear"]) == ("GELU_V02_THREADS=512 GELU_V02_AHEAD_MB=3", True)
    assert choice["gain"] == pytest.approx(1.2)
    assert len(choice["measured"]) == len(wanted)
    assert choice["not_measured"] == []
    assert choice["keeps_default"] == ""  # it runs unasked, and every shape was timed


def test_the_second_stage_goes_on_where_it_stopped(swept: Any, machine: dict[str, Any]) -> None:
    done = 4 * len(ops()["gelu"].shapes) - 2  # decode_b1 is among them, where the fastest falls
    machine["dies_after"] = 16 + done  # 128 threads do not compile
    rows, choice = swept()
    assert machine["code"] == 130
    assert len(rows) == 20 + done
    machine["dies_after"] = None
    after, choice = swept()
    assert after[: 20 + done] == rows
    assert len(after) < 20 + 4 * (GELU_CELLS - 1)  # what had fallen is not timed elsewhere
    assert len(set(machine["timed"])) == len(machine["timed"])
    assert choice["macros"] == "GELU_V02_THREADS=512 GELU_V02_AHEAD_MB=3"
    assert (len(choice["measured"]), choice["not_measured"]) == (GELU_CELLS, [])
    assert swept() == (after, choice)


def test_what_fails_at_another_shape_is_a_row_and_falls(swept: Any, machine: dict[str, Any]) -> None:
    def gain(name: str, job: dict[str, Any]) -> float | str:
        refused = job["op"] == "bias_gelu" and job["shape"][0] == 1024 and "THREADS=512" in name
        return "" if refused else by_threads(name, job)

    machine["gain"] = gain
    rows, choice = swept()
    assert [(row["dtype"], row["reason"]) for row in rows if row["verdict"] == "does not run"] == [
        (dtype, "CUDA error: too many resources") for dtype in ("fp32", "bf16")
    ]
    assert choice["macros"] == "GELU_V02_THREADS=1024 GELU_V02_AHEAD_MB=3"


def test_a_shape_that_the_default_does_not_take_is_none_of_the_source(swept: Any, machine: dict[str, Any]) -> None:
    def gain(name: str, job: dict[str, Any]) -> float | str:
        return "" if job["op"] == "bias_gelu" and job["shape"][0] == 1024 else by_threads(name, job)

    machine["gain"] = gain
    _, choice = swept()
    assert choice["macros"] == "GELU_V02_THREADS=512 GELU_V02_AHEAD_MB=3"
    assert len(choice["measured"]) == GELU_CELLS - 2
    assert choice["not_measured"] == []
    assert choice["keeps_default"] == ""


def test_with_shapes_given_there_is_no_second_stage(swept: Any, machine: dict[str, Any]) -> None:
    rows, choice = swept("--shapes", "large")
    assert len(rows) == 20
    assert choice["macros"] == "GELU_V02_THREADS=64 GELU_V02_AHEAD_MB=3"
    assert f"gelu bf16 at {others('gelu')}" in choice["not_measured"]
    assert choice["keeps_default"] != ""


def test_where_nothing_is_faster_there_is_no_second_stage(swept: Any, machine: dict[str, Any]) -> None:
    machine["gain"] = lambda name, job: 1.0
    rows, choice = swept()
    assert len(rows) == 20
    assert not choice["clear"]


def test_the_second_stage_leaves_out_what_a_variant_refuses_and_what_keeps_its_default() -> None:
    def cells_of(op: str, variant: str, macros: dict[str, int], faster: dict[str, int]) -> list[sweep.Cell]:
        found = examples.row(op, variant, macros, default=1), examples.row(op, variant, macros | faster, **at(1.1))
        rows = [{name: str(value) for name, value in row.items()} for row in found]
        return sweep.second_stage(sweep.plan([ops()[op]], [variant], None, None), rows, GPU.name)

    macros = {"ATTENTION_V01_SIDE": 16, "ATTENTION_V01_THREADS": 128, "ATTENTION_V01_ROWS": 4}
    cells = cells_of("attention", "v01_separate", macros, {"ATTENTION_V01_SIDE": 8})
    names = {ops()["attention"].shape_name(cell.shape) for cell in cells}
    assert names == {"b1_t512", "b1_t1024", "b8_t512", "b8_t1024", "b4_t4096"}  # the scores of the others do not fit
    assert {len(cell.combinations) for cell in cells} == {2}
    assert cells_of("matmul", "v01_naive", {"MATMUL_V01_TILE": 16}, {"MATMUL_V01_TILE": 8}) == []
    assert cells_of("matmul", "v05_coalesced", {"MATMUL_V05_TILE": 16}, {"MATMUL_V05_TILE": 32}) != []


def test_a_dry_run_lists_the_second_stage_as_far_as_it_is_known(
    swept: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    swept("--shapes", "large")
    capsys.readouterr()
    swept("--dry-run")
    first, second = capsys.readouterr().out.split("second stage, at every shape\n")
    assert "20 rows, 20 measured already; 20 compilations" in first
    assert "bias_gelu v02_vector fp32 decode_b1: 4 combinations" in second
    assert second.endswith(f"{4 * GELU_CELLS} rows, 4 measured already; 4 compilations\n")
    swept("--dry-run", "--shapes", "large")
    assert "second stage" not in capsys.readouterr().out
    (tmp_path / "captures" / "sweep.csv").write_text(examples.text([]))
    swept("--dry-run")
    assert "second stage, at every shape: nothing is known to be clearly faster yet" in capsys.readouterr().out


def test_without_nvcc_there_is_one_sentence(
    machine: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "find_nvcc", lambda: None)
    with pytest.raises(InputError, match="nvcc was not found"):
        run(machine, tmp_path / "sweep.csv")


def test_a_folder_that_holds_something_else_is_not_written_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "captures").mkdir()
    (tmp_path / "captures" / "timing.json").write_text("{}")
    assert sweep.main(["gelu", "--out", str(tmp_path)]) == 2
    assert "is not a run of a sweep: it holds other things and no sweep.csv" in capsys.readouterr().err
    assert [path.name for path in tmp_path.rglob("*.*")] == ["timing.json"]


def test_counters_without_a_gpu_are_not_left_out_silently(
    machine: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sweep, "gpu_at_hand", lambda: None)
    monkeypatch.setattr(sweep, "sweep", lambda *_: None)
    command = ["gelu", "--variants", "v02_vector", "--dtype", "bf16", "--out", str(tmp_path)]
    assert sweep.main([*command, "--counters"]) == 0
    assert "harness: no NVIDIA GPU, so --counters takes none\n" in capsys.readouterr().err
    assert sweep.main(command) == 0
    assert "--counters" not in capsys.readouterr().err


def test_the_program_says_what_it_would_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep.main(["gelu", "--dry-run", "--variants", "v01_naive", "--dtype", "bf16"]) == 0
    out = capsys.readouterr().out
    assert "gelu v01_naive bf16 large: 5 combinations" in out
    assert "  GELU_V01_THREADS=256 (default)\n  GELU_V01_THREADS=64\n" in out
    assert sweep.main(["gelo"]) == 2
    assert "OP 'gelo' is unknown" in capsys.readouterr().err


# --- the choice ---------------------------------------------------------------------------------------------------


def choices(rows: Sequence[dict[str, object]]) -> list[dict[str, Any]]:
    return sweep_rows.choose([{name: str(value) for name, value in row.items()} for row in rows])


def versus(p5: float, p50: float, p95: float) -> dict[str, object]:
    return {"versus_default_p5": p5, "versus_default_p50": p50, "versus_default_p95": p95}


def two(gain: dict[str, object], **more: object) -> list[dict[str, object]]:
    default = examples.row("gelu", "v02_vector", {"GELU_V02_THREADS": 256}, default=1, **more)
    return [default, examples.row("gelu", "v02_vector", {"GELU_V02_THREADS": 64}, **(gain | more))]


@pytest.mark.parametrize(
    ("gain", "clear"),
    [
        (versus(1.015, 1.02, 1.03), True),
        (versus(0.999, 1.02, 1.03), False),  # not in 95 % of the rounds
        (versus(1.002, 1.009, 1.02), False),  # less than 1 %
        (versus(0.9, 0.95, 0.99), False),
    ],
)
def test_only_a_clear_gain_is_recommended(gain: dict[str, object], clear: bool) -> None:
    (choice,) = choices(two(gain))
    assert choice["clear"] is clear
    assert choice["macros"] == ("GELU_V02_THREADS=64" if clear else "GELU_V02_THREADS=256")


def test_a_source_is_chosen_by_all_that_was_measured_of_it() -> None:
    faster, slower = versus(1.09, 1.1, 1.11), versus(0.96, 0.97, 0.98)
    (choice,) = choices([*two(faster), *two(slower, dtype="fp32")])
    assert not choice["clear"]  # slower in fp32
    unsure = versus(0.97, 0.99, 1.01)
    (choice,) = choices([*two(faster), *two(unsure, dtype="fp32")])
    assert choice["clear"]
    assert choice["gain"] == pytest.approx((1.1 * 0.99) ** 0.5)
    assert [cell["gain_p50"] for cell in choice["measured"]] == [1.1, 0.99]
    (choice,) = choices([*two(faster), two(faster, dtype="fp32")[0]])
    assert not choice["clear"]  # it was not timed in fp32
    default, other = two(faster, dtype="fp32")
    (choice,) = choices([*two(faster), default, other | {"verdict": "does not run"}])
    assert not choice["clear"]  # it does not run there
    refused = {"verdict": "does not run", "versus_default_p50": ""}
    (choice,) = choices([*two(faster), default | refused, other | refused])
    assert choice["clear"]  # nor does the default: no shape of it
    assert [cell["dtype"] for cell in choice["measured"]] == ["bf16"]
    (choice,) = choices([*two(faster), default | refused, other | {"versus_default_p50": ""}])
    assert choice["clear"]


def threads(gains: dict[int, dict[str, object]], **more: object) -> list[dict[str, object]]:
    default = examples.row("gelu", "v02_vector", {"GELU_V02_THREADS": 256}, default=1, **more)
    others = [
        examples.row("gelu", "v02_vector", {"GELU_V02_THREADS": count}, **gain, **more) for count, gain in gains.items()
    ]
    return [default, *others]


def at(gain: float) -> dict[str, object]:
    return versus(gain * 0.999, gain, gain * 1.001)


def test_where_few_are_timed_the_slower_fall_and_the_mean_stays() -> None:
    tried = threads({32: at(1.2), 64: at(1.15), 128: at(1.02), 512: at(0.9), 1024: at(1.1)})
    small = {"shape_name": "small", "shape": "1024x768"}
    few = threads({32: at(0.9), 64: at(1.0), 1024: at(1.5)}, **small)
    rows = [{name: str(value) for name, value in row.items()} for row in [*tried, *few]]
    source = "NVIDIA H200", "gelu/v02_vector.cu", ("GELU_V02_THREADS",)
    best = [f"GELU_V02_THREADS={count}" for count in (32, 64, 1024, 128)]
    assert sweep_rows.finalists(rows[: len(tried)]) == {source: best[:3]}
    assert sweep_rows.finalists(rows) == {source: best[1:]}  # one is slower at small: the next takes its place
    (choice,) = choices(tried)
    assert (choice["macros"], choice["gain"]) == (best[0], pytest.approx(1.2))
    (choice,) = choices([*tried, *few])
    assert (choice["macros"], choice["gain"]) == (best[1], pytest.approx(1.15))  # not 1024, which is faster at small
    assert [cell["gain_p50"] for cell in choice["measured"]] == [1.15, 1.0]
    few[2] |= at(0.99)
    few[3] |= at(0.99)
    (choice,) = choices([*tried, *few])
    assert not choice["clear"]  # 128 is faster where it was timed


def test_the_last_row_counts_and_older_choices_of_a_source_do_not() -> None:
    old = [examples.row("gelu", "v02_vector", {"GELU_V02_WIDTH": 4}, **versus(1.5, 1.5, 1.5))]
    again = two(versus(1.4, 1.4, 1.4))
    (choice,) = choices([*old, *again, *two(versus(1.02, 1.02, 1.02), fingerprint="f" * 16)])
    assert choice["gain"] == pytest.approx(1.02)


# --- tuned.toml ---------------------------------------------------------------------------------------------------


def test_tuned_toml_comes_back_as_it_was_written(tmp_path: Path) -> None:
    (choice,) = choices(two(versus(1.015, 1.02, 1.03)))
    entries = sweep_rows.entries_of([choice], "reports/h200-sweep")
    path = tmp_path / "tuned.toml"
    path.write_text(tuned.text(entries))
    (entry,) = tuned.read(path)
    assert entry["macros"] == {"GELU_V02_THREADS": 64}
    assert (entry["gpu"], entry["source"], entry["run"]) == ("NVIDIA H200", "gelu/v02_vector.cu", "reports/h200-sweep")
    assert entry["measured"] == choice["measured"]
    assert tuned.flags("gelu", "NVIDIA H200", path) == ["-DGELU_V02_THREADS=64"]
    assert tuned.flags("gelu", "NVIDIA A100", path) == []
    assert tuned.flags("layernorm", "NVIDIA H200", path) == []


def test_what_is_compiled_otherwise_is_another_kernel_to_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tuned.toml"
    monkeypatch.delenv(tuned.SWITCH, raising=False)
    monkeypatch.setattr(tuned.flags, "__defaults__", ("", path))
    names = ("v01_naive", "v02_vector")
    before = [fingerprint(ops()["gelu"], name) for name in names]
    (choice,) = choices(two(versus(1.015, 1.02, 1.03)))
    path.write_text(tuned.text(sweep_rows.entries_of([choice], "run")))
    after = [fingerprint(ops()["gelu"], name) for name in names]
    assert after[0] == before[0]
    assert after[1] != before[1]
    monkeypatch.setenv(tuned.SWITCH, "off")
    assert [fingerprint(ops()["gelu"], name) for name in names] == before


def test_tuned_flags_can_be_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (choice,) = choices(two(versus(1.015, 1.02, 1.03)))
    path = tmp_path / "tuned.toml"
    path.write_text(tuned.text(sweep_rows.entries_of([choice], "run")))
    monkeypatch.setenv(tuned.SWITCH, "off")
    assert tuned.flags("gelu", "NVIDIA H200", path) == []


def test_a_recommendation_names_what_it_was_not_measured_on(tmp_path: Path) -> None:
    names = "GELU_V02_THREADS", "GELU_V02_AHEAD_MB"
    default = examples.row("gelu", "v02_vector", dict(zip(names, (256, 3), strict=True)), default=1)
    faster = examples.row("gelu", "v02_vector", dict(zip(names, (64, 3), strict=True)), **versus(1.09, 1.1, 1.11))
    rows = [row | {"source": "gelu/v02_vector.cu"} for row in (default, faster)]
    (choice,) = choices(rows)
    choice["not_measured"] = sweep.not_measured(choice)
    at_others = f"gelu bf16 at {others('gelu')}"
    assert choice["not_measured"] == ["bias_gelu fp32", "bias_gelu bf16", "gelu fp32", at_others]
    entries = sweep_rows.entries_of([choice], "run")
    assert tomllib.loads(tuned.text(entries))["tuned"][0]["not_measured"] == choice["not_measured"]
    captures = capture_of(tmp_path, rows)
    (captures / "sweep.json").write_text(json.dumps({"kind": "sweep", "schema_version": 1, "choices": [choice]}))
    _, found = analyse(load([captures]))
    assert found["sweep_best"].iloc[0]["recommended"] == (
        f"THREADS=64 AHEAD_MB=3 (not measured: bias_gelu fp32; bias_gelu bf16; gelu fp32; {at_others})"
    )


def merged(op: str, variant: str, macros: dict[str, int]) -> dict[str, Any]:
    """A choice of kernels/permute that was timed at the ladder's shape in both dtypes."""
    default = examples.row(op, variant, macros, default=1)
    first = next(iter(macros))
    faster = examples.row(op, variant, macros | {first: 1024}, **at(1.1))
    rows = [
        row | {"source": f"permute/{variant}.cu", "dtype": dtype}
        for dtype in ("fp32", "bf16")
        for row in (default, faster)
    ]
    (choice,) = choices(rows)
    return choice


def test_dtypes_that_lack_the_same_shapes_are_named_together() -> None:
    choice = merged("merge_heads", "v01_element", {"PERMUTE_V01_MERGE_THREADS": 256})
    assert sweep.not_measured(choice) == [f"merge_heads fp32, bf16 at {others('merge_heads')}"]
    choice["measured"].append(choice["measured"][0] | {"shape": "decode_b1"})
    assert sweep.not_measured(choice) == [
        f"merge_heads fp32 at {others('merge_heads', 'decode_b1')}", f"merge_heads bf16 at {others('merge_heads')}",
    ]  # fmt: skip
    none_of_it = {("merge_heads", "v01_element", "bf16", name) for name in ops()["merge_heads"].shapes}
    lacking = f"merge_heads fp32 at {others('merge_heads', 'decode_b1')}"
    assert sweep.not_measured(choice, none_of_it) == [lacking]


def test_what_a_variant_does_not_take_is_not_missing() -> None:
    macros = {"ATTENTION_V01_SIDE": 16, "ATTENTION_V01_THREADS": 128, "ATTENTION_V01_ROWS": 4}
    cell = {"op": "attention", "variant": "v01_separate", "dtype": "fp32", "shape": "b8_t1024"}
    names = " ".join(f"{name}={value}" for name, value in macros.items())
    choice = {"source": "attention/v01_separate.cu", "macros": names, "measured": [cell, cell | {"dtype": "bf16"}]}
    assert sweep.not_measured(choice) == ["attention fp32, bf16 at b1_t512, b1_t1024, b8_t512, b4_t4096"]


def test_what_runs_unasked_is_not_built_with_a_choice_that_was_not_timed_at_every_shape(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    choice = merged("split_permute", "v04_by_size", {"PERMUTE_V04_AHEAD_MB": 1})
    choice["not_measured"] = sweep.not_measured(choice)
    reason = "it runs where no rung is named, and was not timed at every shape"
    assert sweep.keeps_default(choice) == reason
    assert sweep.keeps_default(choice | {"not_measured": []}) == ""
    by_name = merged("merge_heads", "v01_element", {"PERMUTE_V01_MERGE_THREADS": 256})
    assert sweep.keeps_default(by_name | {"not_measured": sweep.not_measured(by_name)}) == ""
    mma = "ATTENTION_V06_STAGES=2 ATTENTION_V06_CARVEOUT=-1"  # of bf16 alone
    small = {"source": "attention/v06_small.cu", "macros": mma, "not_measured": ["attention bf16 at b1_t1024"]}
    assert sweep.keeps_default(small) == reason
    (tmp_path / "captures").mkdir()
    ledger = sweep.Ledger(tmp_path / "captures" / "sweep.csv")
    for row in two(at(1.1)):
        ledger.add(row | {"macros": f"{row['macros']} GELU_V02_AHEAD_MB=3"})
    (found,) = sweep.describe(tmp_path, ledger, 30, [])
    assert found["keeps_default"] == reason
    sweep.finish(tmp_path, ledger, 30, update=False)
    assert f"not compiled in: {reason}\n  not measured: bias_gelu fp32; bias_gelu bf16" in capsys.readouterr().out


def test_a_loss_counts_from_a_per_cent_and_five_rounds_on() -> None:
    tried = threads({64: at(1.2), 128: at(1.1), 32: at(1.0), 512: at(1.0), 1024: at(1.0)})
    small = {"shape_name": "small", "shape": "1024x768"}
    for slower, samples, taken in ((0.9915, 30, 64), (0.99, 30, 128), (0.5, 4, 64), (0.5, 5, 128)):
        few = threads({64: at(slower) | {"samples": samples}, 128: at(1.0)}, **small)
        (choice,) = choices([*tried, *few])
        assert choice["macros"] == f"GELU_V02_THREADS={taken}", (slower, samples)
    few = threads({64: at(0.9), 128: at(0.9)}, **small)
    (choice,) = choices([*tried, *few])
    why = "2 of 6 combinations are clearly faster where all were tried, none at every shape: the default stays"
    assert (choice["clear"], choice["why"]) == (False, why)


def test_rows_of_an_older_build_choose_nothing() -> None:
    tried = threads({64: at(1.2), 128: at(1.1), 32: at(1.0), 512: at(1.0), 1024: at(1.0)})
    small = {"shape_name": "small", "shape": "1024x768"}
    older = threads({64: at(0.5), 128: at(1.3)}, **small, fingerprint="older")
    (choice,) = choices([*older, *tried])
    assert (choice["macros"], len(choice["measured"])) == ("GELU_V02_THREADS=64", 1)
    # a rung that has another macro now: of what it had before nothing is left, at any shape
    more = {"GELU_V02_THREADS": 256, "GELU_V02_AHEAD_MB": 3}
    now = [
        examples.row("gelu", "v02_vector", more, default=1),
        examples.row("gelu", "v02_vector", more | {"GELU_V02_AHEAD_MB": 6}),
    ]
    (choice,) = choices([*tried, *threads({64: at(1.3)}, **small), *now])
    assert (choice["default"], choice["clear"]) == ("GELU_V02_THREADS=256 GELU_V02_AHEAD_MB=3", False)


def test_of_few_combinations_the_first_shape_is_where_all_were_tried() -> None:
    tried = threads({64: at(1.06), 128: at(0.9)})
    few = [row for name in ("a", "b") for row in threads({64: at(1.0), 128: at(0.9)}, shape_name=name, shape=name)]
    (choice,) = choices([*tried, *few])
    assert (choice["clear"], choice["gain"], len(choice["measured"])) == (True, pytest.approx(1.06), 3)


def test_a_default_that_crashed_leaves_its_shape_unmeasured() -> None:
    def rows(verdict: str) -> list[dict[str, str]]:
        found = [*two(at(1.1)), *two({"verdict": verdict}, dtype="fp32")[:1]]
        found[2] |= {"verdict": verdict, "versus_default_p50": ""}
        return [{name: str(value) for name, value in row.items()} for row in found]

    assert sweep_rows.not_taken(rows("does not run"), "NVIDIA H200") == {("gelu", "v02_vector", "fp32", "large")}
    assert sweep_rows.not_taken(rows("crashed"), "NVIDIA H200") == set()


def test_a_source_that_keeps_its_default_is_recommended_and_not_written(tmp_path: Path) -> None:
    default = examples.row("matmul", "v01_naive", {"MATMUL_V01_TILE": 16}, default=1)
    faster = examples.row("matmul", "v01_naive", {"MATMUL_V01_TILE": 8}, **versus(1.5, 1.6, 1.7))
    rows = [row | {"source": "matmul/v01_naive.cu"} for row in (default, faster)]
    (choice,) = choices(rows)
    assert len(sweep_rows.entries_of([choice], "run")) == 1
    choice["not_measured"] = sweep.not_measured(choice)
    choice["keeps_default"] = sweep.keeps_default(choice)
    assert choice["keeps_default"] == ops()["matmul"].variant("v01_naive").keeps_default != ""
    assert sweep_rows.entries_of([choice], "run") == []
    captures = capture_of(tmp_path, rows)
    (captures / "sweep.json").write_text(json.dumps({"kind": "sweep", "schema_version": 1, "choices": [choice]}))
    _, found = analyse(load([captures]))
    recommended = f"TILE=8 (not compiled in: {choice['keeps_default']}; not measured: matmul fp32)"
    assert found["sweep_best"].iloc[0]["recommended"] == recommended


def test_a_new_sweep_replaces_what_it_swept_and_nothing_else() -> None:
    (choice,) = choices(two(versus(1.015, 1.02, 1.03)))
    old = sweep_rows.entries_of([choice], "old")
    other = [old[0] | {"source": "layernorm/v05_vector.cu"}, old[0] | {"gpu": "NVIDIA A100"}]
    other.append(old[0] | {"macros": {"GELU_V02_OF_ANOTHER_KERNEL": 2}})
    kept = tuned.replaced([*old, *other], "NVIDIA H200", "gelu/v02_vector.cu", ["GELU_V02_THREADS"], [])
    assert kept == other


@pytest.mark.parametrize(
    "text", ["[[tuned]]\ngpu = 1\n", "tuned = 3\n", "[[tuned", '[[tuned]]\ngpu="a"\nsource="b"\nmacros={"x;y"=1}\n']
)
def test_a_damaged_tuned_toml_is_one_sentence(text: str, tmp_path: Path) -> None:
    path = tmp_path / "tuned.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"kernels/tuned.toml is no table of a sweep .*: restore it with git"):
        tuned.read(path)


def test_the_committed_recommendations_are_of_todays_choices() -> None:
    known = {
        f"{op.folder}/{variant.source}": variant.tunables for op in ops().values() for variant in op.variants.values()
    }
    choices_of: dict[str, dict[str, tuple[int, ...]]] = {}
    for op in ops().values():
        for variant in op.variants.values():
            choices_of.setdefault(f"{op.folder}/{variant.source}", {}).update(variant.tunables)
    for entry in tuned.read():
        assert entry["source"] in known
        for macro, value in entry["macros"].items():
            assert value in choices_of[entry["source"]][macro]
            assert value != choices_of[entry["source"]][macro][0]


def test_tuned_toml_is_what_its_runs_recommend() -> None:
    kept = tuned.read()
    committed = {
        path.parents[1].relative_to(sweep.ROOT).as_posix() for path in sweep.ROOT.glob("reports/*/*/sweep.json")
    }
    for run in committed | {entry["run"] for entry in kept}:
        choices = json.loads((sweep.ROOT / run / "captures" / "sweep.json").read_text())["choices"]
        taken = {(entry["gpu"], entry["source"], *entry["macros"]) for entry in kept if entry["run"] != run}
        wanted = tomllib.loads(tuned.text(sweep_rows.entries_of(choices, run)))  # rounded as there
        wanted = [
            entry for entry in wanted.get("tuned", []) if (entry["gpu"], entry["source"], *entry["macros"]) not in taken
        ]
        assert [entry for entry in kept if entry["run"] == run] == wanted


def test_the_build_takes_the_flags_of_the_gpu_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    (choice,) = choices(two(versus(1.015, 1.02, 1.03)))
    path = tmp_path / "tuned.toml"
    path.write_text(tuned.text(sweep_rows.entries_of([choice], "run")))
    monkeypatch.delenv(tuned.SWITCH, raising=False)
    monkeypatch.setattr(tuned.flags, "__defaults__", ("", path))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    assert build._tuned_flags("gelu") == ["-DGELU_V02_THREADS=64"]
    with_flags = build.extension_folder("gelu")
    monkeypatch.setenv(tuned.SWITCH, "off")
    assert build._tuned_flags("gelu") == []
    assert with_flags.name.startswith(build.extension_folder("gelu").name + "-")


# --- the process on the GPU, as far as it needs none ---------------------------------------------------------------


def test_times_pair_the_rounds_with_the_defaults() -> None:
    fields = sweep_gpu.times([1e-5, 2e-5], [2e-5, 4e-5], 16)
    assert fields["bench_time_p50_ns"] == 15000
    assert fields["versus_default_p50"] == "2"
    assert "versus_default_p50" not in sweep_gpu.times([1e-5], [], 16)


def test_counters_are_taken_of_the_default_the_fastest_and_the_slowest() -> None:
    def row(threads: int, gain: float, **more: Any) -> dict[str, Any]:
        made = examples.row("gelu", "v02_vector", {"GELU_V02_THREADS": threads}, **versus(gain, gain, gain))
        return {name: str(value) for name, value in made.items()} | {"range": str(threads)} | more

    rows = [row(256, 1.0, default="1"), row(64, 1.2), row(128, 1.1), row(512, 0.9), row(1024, 0.8)]
    few = {"shape_name": "small", "shape": "1024x768"}  # of the second stage
    assert sweep.telling([*rows, row(256, 1.0, default="1", **few) | {"range": "s256"}], rows[0]["gpu"]) == {
        "256", "64", "1024",
    }  # fmt: skip
    assert sweep.telling(rows, rows[0]["gpu"]) == {"256", "64", "1024"}
    crashed = row(32, 2.0, verdict="crashed")
    # the fastest at large alone, and the best of both shapes
    small = {"shape_name": "small", "shape": "1024x768"}
    of_both = [row(256, 1.0, default="1", **small), row(64, 0.9, **small) | {"range": "s64"}, row(128, 1.1, **small)]
    of_both += [row(32, 0.5, **small), row(512, 2.0, **small) | {"range": "s512"}]
    told = sweep.telling([*rows[:4], row(32, 0.8), *of_both], rows[0]["gpu"])
    assert "128" in told
    assert sweep.telling([*rows[:1], crashed], rows[0]["gpu"]) == {"256"}
    assert sweep.telling(rows, "another GPU") == set()


FAKE_NCU = """#!/usr/bin/env bash
case $1 in
--version) echo Version 2025.3.1.0 ;;
--import)
  printf '"ID","Kernel Name","a.sum"\\n"","","byte"\\n"0","%s","1"\\n' "$(cat "$2")" ;;
*)
  while [[ $1 != -o ]]; do shift; done
  "${@:3}" > "$2.ncu-rep" || exit 9 ;;
esac
"""
# Its launches go to the report as they are; of `residual` nothing can be launched.
LAUNCHER = """
import json, sys
ops = {job["op"] for job in json.load(open(sys.argv[-1]))}
assert "residual" not in ops
print(*ops)
"""


def test_counters_are_captured_op_by_op_and_kept_where_a_later_capture_fails(
    machine: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from harness import doctor

    for name, text in (("ncu", FAKE_NCU), ("nvidia-smi", "#!/bin/sh\necho 'NVIDIA H200, 9.0'\n")):
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.setattr(doctor, "find_ncu", lambda: "ncu")
    monkeypatch.setattr(combinations, "library_of", lambda built: built.object.with_suffix(".so"))
    monkeypatch.setattr(sweep, "WORKER", (sys.executable, "-c", LAUNCHER))
    cells = sweep.plan(
        [ops()[name] for name in ("gelu", "residual", "encoder")], ["v01_element", "v01_naive"], ["bf16"], None
    )
    (tmp_path / "run" / "captures").mkdir(parents=True)
    ledger = sweep.Ledger(tmp_path / "run" / "captures" / "sweep.csv")
    sweep.sweep(cells, ledger, GPU, 90, 20, machine["start"])
    old = tmp_path / "run" / "captures" / "residual" / "ncu_raw.csv"
    for file in (old, tmp_path / "run" / "captures" / "gelu" / "old.csv"):
        file.parent.mkdir()
        file.write_text("counted before")
    sweep.capture_counters(tmp_path / "run", ledger, cells, GPU)
    said = capfd.readouterr().err
    assert "of gelu under ncu (1 of 3)" in said
    assert "ncu_capture.sh failed, so the counters of residual stay as they were" in said
    captures = tmp_path / "run" / "captures"
    assert old.read_text() == "counted before"
    for op in ("gelu", "encoder"):
        assert {path.name for path in (captures / op).iterdir()} == {"ncu.json", "ncu_raw.csv", "ncu_ratios.csv"}
        assert f'"0","{op}","1"' in (captures / op / "ncu_raw.csv").read_text()
        status = json.loads((captures / op / "ncu.json").read_text())
        assert status["status"] == "ok"
        assert set(status["counted"].values()) == {"f" * 16}
        assert {path.split("/")[1] for path in status["counted"]} == {op}
    failed = json.loads((tmp_path / "run" / "raw" / "residual" / "captures" / "ncu.json").read_text())
    assert failed["status"] == "failed"


def test_a_process_holds_no_more_libraries_than_it_has_room_for() -> None:
    def job(name: str, count: int) -> dict[str, Any]:
        return {"op": name, "rows": [{"library": f"{name}{i}.so"} for i in range(count)]}

    most = sweep_gpu.LIBRARIES
    jobs = [job("a", most - 1), job("b", 1), job("b", 1), job("c", 1), job("d", most + 1), job("e", 1)]
    found = [[one["op"] for one in batch] for batch in sweep_gpu.batches(jobs)]
    assert found == [["a", "b", "b"], ["c"], ["d"], ["e"]]
    assert list(sweep_gpu.batches([])) == []


def test_the_geometry_of_a_launch_is_that_of_the_longest_kernel_in_its_range() -> None:
    def kernel(name: str, at: float, dur: float, grid: list[int]) -> dict[str, Any]:
        about = {"grid": grid, "block": [256, 1, 1], "registers per thread": 40, "shared memory": 1024}
        return {"ph": "X", "cat": "kernel", "name": name, "ts": at, "dur": dur, "args": about}

    events = [
        {"ph": "X", "cat": "user_annotation", "name": "combination 3", "ts": 0.0, "dur": 10.0},
        {"ph": "X", "cat": "user_annotation", "name": "combination 4", "ts": 20.0, "dur": 10.0},
        kernel("void fill(int)", 1.0, 1.0, [1, 1, 1]),
        kernel("void gelu_v02<float, 4>(float const*)", 3.0, 5.0, [10, 2, 1]),
        kernel("elsewhere", 15.0, 50.0, [7, 1, 1]),
    ]
    found = sweep_gpu.read_geometry(events, ["3", "4"])
    assert found == {
        "3": {
            "kernel": "gelu_v02<float, 4>",
            "registers": 40,
            "shared_bytes": 1024,
            "grid_blocks": 20,
            "block_threads": 256,
        }
    }


def test_clocks_are_those_of_the_timing_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the process on the GPU tells, with stand-ins for what touches it, and when the clocks are sampled."""
    op = SimpleNamespace(variants={"0": None, "1": None})
    monkeypatch.setattr(sweep_gpu, "combined", lambda *_: (op, {}))

    def check(op: Any, keys: Sequence[str], dtype: str, shape: Any, say: Any) -> dict[str, float]:
        for key in keys:
            say({"start": [int(key)]})
        return dict.fromkeys(keys, 0.5)

    monkeypatch.setattr(sweep_gpu, "check", check)
    monkeypatch.setattr(sweep_gpu, "timed", lambda op, keys, *_: [(key, {"verdict": "timed"}) for key in keys])
    rows = [{"id": at, "wanted": True, "default": at == 0, "library": ""} for at in (0, 1)]
    job = {"op": "gelu", "variant": "v", "dtype": "float32", "shape": [1], "group": 1, "rounds": 2, "rows": rows}
    told: list[dict[str, Any]] = []
    sweep_gpu.run_job(job, told.append)
    sampler = SimpleNamespace(paused=True)
    seen = [
        (next(iter(event)), sampler.paused) for event in sweep.sampled([*told, {"start": [2]}, {"end": ""}], sampler)
    ]
    checked, timed = ("start", True), [("start", False), ("row", False)] * 2  # the default by itself, too
    assert seen == [*[checked] * 3, *timed, checked, ("end", True)]


# --- building -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ('/home/x/kernels/gelu/v01.cu(9): error: static assertion failed with "no such tile"\n1 error\n', "no such tile"),
        ("/a/b/kernels/gelu/v01.cu(9): error: expected a ;\n", "kernels/gelu/v01.cu(9): error: expected a ;"),
        ("ptxas error   : Entry function 'k' uses too much shared data\n", "ptxas error   : Entry function 'k' uses too much shared data"),
        ("", "the compiler said nothing"),
    ],
)  # fmt: skip
def test_the_first_error_is_the_reason(log: str, reason: str) -> None:
    assert combinations.first_error(log) == reason


@pytest.mark.skipif(build.find_nvcc() is None, reason="needs nvcc")
def test_real_combinations_compile_fail_and_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "kernels" / "toy"
    folder.mkdir(parents=True)
    source = folder / "v01_toy.cu"
    source.write_text(
        "#ifndef TOY_V01_THREADS\n#define TOY_V01_THREADS 128\n#endif\n"
        'static_assert(TOY_V01_THREADS <= 256, "a block is at most 256 threads here");\n'
        "__global__ void __launch_bounds__(TOY_V01_THREADS) toy(float* x) {\n"
        "  __shared__ float all[TOY_V01_THREADS * 64];\n"
        "  all[threadIdx.x * 64] = x[threadIdx.x];\n  __syncthreads();\n  x[threadIdx.x] = all[threadIdx.x ^ 64];\n}\n"
    )
    monkeypatch.setattr(combinations, "OBJECTS", tmp_path / "objects")
    monkeypatch.setattr(combinations, "LIBRARIES", tmp_path / "build")
    wanted = [
        combinations.Combination(
            source, (("TOY_V01_THREADS", value),), () if value == 128 else (f"-DTOY_V01_THREADS={value}",)
        )
        for value in (128, 64, 256, 512)
    ]
    said: list[tuple[str, int, int]] = []
    nvcc = build.find_nvcc()
    assert nvcc is not None
    built = combinations.compile_all(nvcc, wanted, 90, lambda *state: said.append(state))
    errors = {one.macros[0][1]: found.errors for one, found in built.items()}
    assert (errors[128], errors[64]) == ("", "")
    assert "too much shared data" in errors[256]
    assert errors[512] == "a block is at most 256 threads here"
    assert said
    fields = sweep.static_fields(90, built[wanted[0]])
    assert fields["shared_bytes"] == 128 * 64 * 4
    if combinations.max_threads(built[wanted[0]]):
        assert (fields["block_threads"], fields["limiter"], fields["blocks_per_sm"]) == (128, "shared", 6)
    before = built[wanted[0]].object.stat().st_mtime_ns
    said.clear()
    again = combinations.compile_all(nvcc, wanted[:2], 90, lambda *state: said.append(state))
    assert said == []
    assert again[wanted[0]].object.stat().st_mtime_ns == before


# --- table, figure, report ----------------------------------------------------------------------------------------


def capture_of(tmp_path: Path, rows: Sequence[dict[str, object]]) -> Path:
    folder = tmp_path / "run" / "captures"
    folder.mkdir(parents=True)
    (folder / "sweep.csv").write_text(examples.text(rows))
    document = {"kind": "sweep", "schema_version": 1, "choices": choices(rows)}
    (folder / "sweep.json").write_text(json.dumps(document))
    return folder


def test_the_table_marks_the_default_the_fastest_and_the_recommended(tmp_path: Path) -> None:
    _, found = analyse(load([capture_of(tmp_path, examples.grid("gelu", "v02_vector", GELU))]))
    table, best = found["sweep"], found["sweep_best"]
    assert dict(zip(table["combination"], table["mark"], strict=True))["THREADS=256 AHEAD_MB=3"] == "default"
    first = table.iloc[0]
    assert (first["combination"], first["mark"]) == ("THREADS=64 AHEAD_MB=0", "fastest, recommended")
    row = best.iloc[0]
    assert (row["combinations"], row["timed"], row["clear"], row["recommended"]) == (
        6,
        6,
        "yes",
        "THREADS=64 AHEAD_MB=0",
    )
    assert row["evidence"].startswith(
        "Fastest is THREADS=64 AHEAD_MB=0, 1.061 (1.056 – 1.066) times the default's speed"
    )


def test_why_is_what_differs(tmp_path: Path) -> None:
    rows = two(versus(1.09, 1.1, 1.11))
    rows[0] |= {"occupancy_theoretical_frac": 0.5, "limiter": "registers", "registers": 64}
    rows[1] |= {"bench_time_p50_ns": 9090}
    _, found = analyse(load([capture_of(tmp_path, rows)]))
    said = found["sweep_best"].iloc[0]["evidence"]
    head = "Fastest is THREADS=64, 1.100 (1.090 – 1.110) times the default's speed"
    assert said == f"{head}: theoretical occupancy 100% vs 50%, 32 registers a thread vs 64."


def test_empty_places_are_compared_where_they_are_of_one_size(tmp_path: Path) -> None:
    tail: dict[str, object] = {"waves": 1.1, "tail_frac": 0.9}
    said = why(tmp_path, default={}, fast={}, slow=tail)
    assert said[1] == ": 1.1 vs 11.6 waves, in which 45% vs 3% of the places stay empty"
    half: dict[str, object] = {"occupancy_theoretical_frac": 0.5, "limiter": "registers"}
    said = why(tmp_path / "half", default={}, fast={}, slow=tail | half)
    assert said[1] == ": theoretical occupancy 50% (limited by registers) vs 100%"


def test_fewer_blocks_than_multiprocessors_are_told(tmp_path: Path) -> None:
    said = why(tmp_path, default={}, fast={}, slow={"grid_blocks": 99, "waves": 99 / 132 / 8, "tail_frac": 0.9})
    assert said[1] == ": 99 blocks vs 12288 for 132 multiprocessors"


def test_shared_memory_alone_and_another_kernel_explain_nothing(tmp_path: Path) -> None:
    assert why(tmp_path, default={}, fast={}, slow={"shared_bytes": 65536})[1] == "; no counters of it"
    other: dict[str, object] = {"kernel": "other<float>", "registers": 255}
    assert why(tmp_path / "other", default={}, fast={}, slow=other)[1] == "; no counters of it"
    assert why(tmp_path / "same", default={}, fast={}, slow=other | {"kernel": "k<64>"})[1] != "; no counters of it"


def why(tmp_path: Path, **of_all: dict[str, object]) -> list[str]:
    """What is said of the fastest (by 10 %) and of the slowest (half as fast) of three, given each one's own fields."""
    told = {"default": {}, "fast": versus(1.09, 1.1, 1.11), "slow": versus(0.49, 0.5, 0.51)}
    rows = [
        examples.row("gelu", "v02_vector", {"GELU_V02_THREADS": threads}, default=int(name == "default"))
        | told[name]
        | {"bench_time_p50_ns": time}
        | of_all.get(name, {})
        for name, threads, time in (("default", 256, 10000), ("fast", 64, 9090), ("slow", 1024, 20000))
    ]
    _, found = analyse(load([capture_of(tmp_path, rows)]))
    evidence = found["sweep_best"].iloc[0]["evidence"].removesuffix(".")
    return [re.split(r"times the default's speed|'s time", sentence)[1] for sentence in evidence.split(". ")]


def test_what_the_fastest_and_the_slowest_share_explains_neither(tmp_path: Path) -> None:
    both: dict[str, object] = {"registers": 24, "occupancy_theoretical_frac": 1}
    said = why(tmp_path, default={"registers": 38, "occupancy_theoretical_frac": 0.75}, fast=both, slow=both)
    assert said == ["; no counters of it", "; no counters of it"]


def test_what_makes_the_reverse_likely_and_a_restatement_explain_nothing(tmp_path: Path) -> None:
    said = why(
        tmp_path,
        default={"waves": 331},
        fast={"spill_bytes": 64, "waves": 62.06},
        slow={"occupancy_theoretical_frac": 0.5, "limiter": "registers", "waves": 993},
    )
    assert said == ["; no counters of it", ": theoretical occupancy 50% (limited by registers) vs 100%"]


def test_a_little_explains_nothing(tmp_path: Path) -> None:
    said = why(tmp_path, default={"registers": 255}, fast={"registers": 254}, slow={"registers": 250})
    assert said == ["; no counters of it", "; no counters of it"]


def counted(
    rows: Sequence[dict[str, object]], counters: dict[int, dict[str, float]], tools: Sequence[dict[str, object]] = ()
) -> Any:
    """(sweep, sweep_best) of these rows, with ncu's counters by number of the row; what is not given is like a copy's."""
    import pandas as pd

    usual = {
        "duration_ns": 1e4, "sm_clock_hz": 2e9, "inst_issued": 1e7, "occupancy_achieved_frac": 0.8, "sectors_per_request_load": 16,
        "l1_hit_frac": 0, "l2_hit_frac": 0.5, "dram_read_bytes": 5e7, "dram_write_bytes": 5e7,
        "stall_long_scoreboard": 8, "stall_wait": 2,
    }  # fmt: skip
    measured = pd.DataFrame([{"path": rows[at]["range"], **usual, **fields} for at, fields in counters.items()])
    table = build_of(rows, measured, tools)["sweep"]
    return table, tables.build_best(table)


def build_of(rows: Sequence[dict[str, object]], measured: Any = None, tools: Sequence[dict[str, object]] = ()) -> Any:
    """`sweep` and `sweep_shapes` of these rows, by name."""
    import pandas as pd

    from analysis.capture.model import Capture
    from analysis.capture.ours import read_table

    frame, _ = read_table(SWEEP_ROWS, examples.text(rows).encode(), "sweep.csv")
    capture = Capture(sweep_rows=frame, sweep={"choices": choices(rows)}, tools=list(tools))
    swept = tables.build_sweep(capture, pd.DataFrame() if measured is None else measured)
    return {"sweep": tables._sweep(swept), "sweep_shapes": tables._sweep_shapes(swept)}


def test_counters_of_another_build_than_the_timed_one_explain_nothing() -> None:
    rows = two(versus(0.49, 0.5, 0.51))
    older = {
        "tool": "ncu",
        "status": "ok",
        "counted": {rows[0]["range"]: rows[0]["fingerprint"], rows[1]["range"]: "older"},
    }
    table, _ = counted(rows, {0: {}, 1: {}}, tools=[older])
    assert table.set_index("combination")["tier"].to_dict() == {"THREADS=256": "counters", "THREADS=64": "timing"}
    table, _ = counted(rows, {0: {}, 1: {}})
    assert set(table["tier"]) == {"counters"}


def slow_of_two(**static: object) -> tuple[list[dict[str, object]], str]:
    """Rows of a default and of one that takes twice its time, and how the evidence of it begins."""
    rows = two(versus(0.49, 0.5, 0.51), samples=15)
    rows[0] |= {"spill_bytes": 0}
    rows[1] |= {"bench_time_p50_ns": 20000, "samples": 12, "registers": 64, **static}
    return rows, "The default, THREADS=256, is the fastest of 2. Slowest is THREADS=64, 2 times THREADS=256's time"


def test_counters_explain_where_both_have_them_and_differ() -> None:
    rows, head = slow_of_two()
    missed = {"l1_hit_frac": 0.2, "l2_hit_frac": 0.55, "dram_read_bytes": 1.5e8, "sectors_per_request_load": 32}
    table, best = counted(rows, {0: {"l1_hit_frac": 0.6}, 1: {"duration_ns": 2e4, "stall_wait": 13, **missed}})
    assert best.iloc[0]["evidence"] == (
        f"{head}: 2.00 times the warp cycles per issued instruction (22.0 vs 11.0: wait +11.0), "
        "32 sectors/request of loads vs 16, 20% L1 hits vs 60%, 200 MB through DRAM vs 100."
    )
    assert table["dram_bytes"].tolist() == [1e8, 2e8]
    assert (table["samples"].tolist(), best.iloc[0]["samples"]) == ([15, 12], 12)
    assert table["stalls"].tolist() == ["long_scoreboard 8.00, wait 2.00", "wait 13.00, long_scoreboard 8.00"]
    assert table["warp_cycles"].tolist() == [11.0, 22.0]  # in one of them it issues
    assert table["multiprocessors"].tolist() == [132, 132]
    active = 1e7 * 11 / (132 * 64 * 0.8 * 1e4 * 2)  # warp cycles over the resident warps' in all cycles
    assert table["sm_active_frac"].tolist() == pytest.approx([active, active])
    _, best = counted(rows, {1: {}})
    assert best.iloc[0]["evidence"] == f"{head}: 64 registers a thread vs 32."
    rows, head = slow_of_two(registers=32)
    _, best = counted(rows, {1: {}})
    assert best.iloc[0]["evidence"] == f"{head}; no counters of THREADS=256."
    _, best = counted(rows, {0: {"sm_clock_hz": float("nan")}, 1: {"duration_ns": 2e4}})
    assert best.iloc[0]["evidence"] == f"{head}; neither its static figures nor its counters tell it apart."


def test_counters_of_a_launch_of_another_time_tell_nothing_and_that_is_said() -> None:
    rows, head = slow_of_two()
    for under in (0.9e4, 1e4, 1.4e4):  # half of twice the time, in logarithms, is 1.414 times
        _, best = counted(rows, {0: {}, 1: {"duration_ns": under, "inst_issued": 2e7}})
        assert best.iloc[0]["evidence"] == (
            f"{head}; alone under ncu it takes {under / 1e4:.3f} times the cycles, so its counters do not tell why; "
            "its static figures: 64 registers a thread vs 32."
        )
    _, best = counted(rows, {0: {}, 1: {"duration_ns": 1.42e4, "inst_issued": 2e7}})
    assert best.iloc[0]["evidence"].startswith(f"{head}: 2.00 times the instructions, ")


def test_the_factors_of_a_time_multiply_to_it_with_the_static_figures_that_cause_them() -> None:
    half = {"occupancy_theoretical_frac": 0.5, "blocks_per_sm": 4, "waves": 23.28}
    rows, head = slow_of_two(spill_bytes=72, **half)

    def said(**counters: float) -> str:
        _, best = counted(rows, {0: {}, 1: {"duration_ns": 2e4, **counters}})
        evidence: str = best.iloc[0]["evidence"]
        assert evidence.startswith(head)
        return evidence.removeprefix(head)

    # what changes a lot both ways is told, small changes are not
    longer = "2.00 times the warp cycles per issued instruction (22.0 vs 11.0: barrier +13.0)"
    assert said(stall_barrier=13, stall_long_scoreboard=6) == f": {longer}."
    moved = "2.00 times the warp cycles per issued instruction (22.0 vs 11.0: barrier +19.0, long_scoreboard −8.0)"
    assert said(stall_barrier=19, stall_long_scoreboard=0) == f": {moved}."
    warps = "0.50 times the achieved occupancy (40.0% vs 80.0%), theoretical occupancy 50% vs 100%"
    assert said(occupancy_achieved_frac=0.4) == f": {warps}."
    assert said(inst_issued=2e7) == ": 2.00 times the instructions, 72 bytes of spills vs 0."
    assert said(sm_clock_hz=1e9).startswith("; alone under ncu it takes 1.000 times the cycles, ")
    idle = "0.50 times the share of cycles with SMs active (40.7% vs 81.4%)"
    assert said() == f": {idle}."
    # all of them are told, what makes faster too: only together they are the time
    both = said(inst_issued=1.5e7, stall_long_scoreboard=14.6, occupancy_achieved_frac=0.96)
    assert both == (
        ": 1.50 times the instructions, 1.60 times the warp cycles per issued instruction (17.6 vs 11.0: "
        "long_scoreboard +6.6), 1.20 times the achieved occupancy (96.0% vs 80.0%), 72 bytes of spills vs 0."
    )


def test_counters_of_several_kernels_are_of_them_together() -> None:
    import pandas as pd

    from studies.sweep import counters as sweep_counters

    kernel = {"path": "sweep/a", "dram_read_bytes": 1.0, "dram_write_bytes": 1.0, "sm_clock_hz": 1e9}
    first = kernel | {"duration_ns": 3e4, "inst_issued": 1e6, "occupancy_achieved_frac": 0.4, "stall_wait": 9.0}
    second = kernel | {"duration_ns": 1e4, "inst_issued": 3e6, "occupancy_achieved_frac": 0.8, "stall_wait": 1.0}
    row = sweep_counters._counters(pd.DataFrame([first, second])).loc["sweep/a"]
    assert (row["ncu_time_ns"], row["instructions"], row["dram_bytes"]) == (4e4, 4e6, 4)
    assert row["occupancy_achieved_frac"] == pytest.approx(0.5)  # by time
    assert row["warp_cycles"] == pytest.approx(4)  # 3 of waiting, by instruction, and the one in which it issues
    assert pd.isna(row["ncu_theoretical"])


def test_ncu_knows_better_which_warps_fit() -> None:
    rows, _ = slow_of_two()
    told = {"occupancy_theoretical_frac": 0.25, "waves": 2.91, "occupancy_limiter": "shared_mem"}
    table, _ = counted(rows, {0: {"occupancy_theoretical_frac": 1.0, "waves": 9.0}, 1: {"duration_ns": 2e4, **told}})
    first, second = table.iloc[0], table.iloc[1]
    assert (first["occupancy_theoretical_frac"], first["limiter"], first["waves"]) == (1, "warps", 11.64)
    assert (second["occupancy_theoretical_frac"], second["limiter"], second["waves"]) == (0.25, "shared", 2.91)
    assert second["tail_frac"] == pytest.approx(0.09)


def test_of_several_slowest_the_one_that_is_most_like_the_default_is_explained() -> None:
    usual = {"GELU_V02_THREADS": 256, "GELU_V02_AHEAD_MB": 3, "GELU_V02_EARLY": 1}
    slow = {"bench_time_p50_ns": 20000}
    rows = [
        examples.row("gelu", "v02_vector", usual, default=1),
        examples.row("gelu", "v02_vector", usual | {"GELU_V02_THREADS": 64}, **versus(0.5, 0.503, 0.51), **slow),
        examples.row(
            "gelu",
            "v02_vector",
            usual | {"GELU_V02_THREADS": 64, "GELU_V02_EARLY": 0},
            **versus(0.5, 0.5, 0.51),
            **slow,
        ),
    ]
    _, best = counted(rows, {})
    assert (best.iloc[0]["slowest"], best.iloc[0]["slowest_versus_default"]) == ("THREADS=64 AHEAD_MB=3 EARLY=1", 0.503)
    _, best = counted(rows, {0: {}, 2: {}})  # the other has counters to tell
    assert best.iloc[0]["slowest"] == "THREADS=64 AHEAD_MB=3 EARLY=0"
    rows[1] |= versus(0.5, 0.51, 0.52)
    _, best = counted(rows, {})
    assert best.iloc[0]["slowest"] == "THREADS=64 AHEAD_MB=3 EARLY=0"


def test_another_than_the_fastest_is_recommended_with_a_reason() -> None:
    def three(dtype: str, *gains: dict[str, object]) -> list[dict[str, object]]:
        default, first = two(gains[0], dtype=dtype)
        second = examples.row("gelu", "v02_vector", {"GELU_V02_THREADS": 512}, dtype, **gains[1])
        return [default, first, second]

    faster, fast, slower = versus(1.19, 1.2, 1.21), versus(1.09, 1.1, 1.11), versus(0.89, 0.9, 0.91)
    _, best = counted([*three("fp32", faster, fast), *three("bf16", slower, fast)], {})
    assert best["recommended"].tolist() == ["THREADS=512", "THREADS=512"]
    assert (
        best["evidence"]
        .iloc[0]
        .endswith(
            "Recommended is THREADS=512, here at 1.100 (1.090 – 1.110) times the default's speed: the best over the dtypes, "
            "ops and shapes of the source at which all were tried (geometric mean), of what is slower nowhere by 1 % "
            "in the median and at all in 95 % of the rounds; THREADS=64 loses at bf16 large (0.900 ×)."
        )
    )
    assert "ecommended" not in best["evidence"].iloc[1]  # it is the fastest there
    _, best = counted([*three("fp32", faster, slower), *three("bf16", slower, slower)], {})
    assert (
        best["evidence"]
        .iloc[0]
        .endswith(
            "The default stays: nothing is 1 % faster over the dtypes, ops and shapes of the source at which all were "
            "tried (geometric mean) and slower nowhere by 1 % in the median and at all in 95 % of the rounds; THREADS=64 loses at bf16 "
            "large (0.900 ×)."
        )
    )
    assert "stays" not in best["evidence"].iloc[1]


def test_kernels_stand_by_rung_and_fp32_first_and_one_of_each_is_the_fastest() -> None:
    rows = [
        examples.row(
            "gelu", variant, {f"GELU_{variant[:3].upper()}_THREADS": threads}, dtype, default=int(threads == 8)
        )
        for variant, dtype in (("v02_vector", "bf16"), ("v01_naive", "bf16"), ("v02_vector", "fp32"))
        for threads in (4, 8)
    ]
    table, _ = counted(rows, {})
    panels = tables.heat_maps(table)["gelu"]
    assert [panel["title"] for panel in panels] == [
        "v01_naive bf16 large",
        "v02_vector fp32 large",
        "v02_vector bf16 large",
    ]
    assert table["mark"].tolist() == ["default, fastest, recommended", ""] * 3  # all are as fast as each other


def test_blocks_that_start_no_faster_are_named(tmp_path: Path) -> None:
    rows = two(versus(0.49, 0.5, 0.51))
    rows[1] |= {"bench_time_p50_ns": 20000, "grid_blocks": 49152}
    half = examples.row("gelu", "v02_vector", {"GELU_V02_THREADS": 128}, **versus(0.99, 1.0, 1.01))
    rows.append(half | {"bench_time_p50_ns": 10000, "grid_blocks": 24576, "versus_default_p50": 0.998})
    _, found = analyse(load([capture_of(tmp_path, rows)]))
    assert (
        found["sweep_best"]
        .iloc[0]["evidence"]
        .endswith(
            "Slowest is THREADS=64, 2 times THREADS=256's time: bound by the "
            "launch of blocks: one every 0.41 ns, as with THREADS=128, where each does more."
        )
    )


def test_where_only_the_best_were_tried_is_a_table_of_its_own(tmp_path: Path) -> None:
    rows = examples.grid("gelu", "v02_vector", GELU)
    macros = [{"GELU_V02_THREADS": 256, "GELU_V02_AHEAD_MB": 3}, {"GELU_V02_THREADS": 64, "GELU_V02_AHEAD_MB": 0}]
    slow: dict[str, object] = versus(0.69, 0.7, 0.71)
    few_rounds: dict[str, object] = slow | {"samples": 4}
    for shape, fields in (("decode", slow), ("small", versus(1.0, 1.01, 1.02)), ("wide", few_rounds)):
        at = {"shape_name": shape, "shape": "1x3072"}
        rows += [
            examples.row("gelu", "v02_vector", macros[0], default=1, range=f"sweep/{shape}/0", **at),
            examples.row("gelu", "v02_vector", macros[1], range=f"sweep/{shape}/1", **at, **fields),
        ]
    captured = load([capture_of(tmp_path, rows)])
    report, found = analyse(captured)
    assert set(found["sweep"]["shape"]) == set(found["sweep_best"]["shape"]) == {"large"}
    few = found["sweep_shapes"]
    assert few[["shape", "combination", "versus_default"]].values.tolist() == [
        ["decode", "THREADS=64 AHEAD_MB=0", 0.7],
        ["small", "THREADS=64 AHEAD_MB=0", 1.01],
        ["wide", "THREADS=64 AHEAD_MB=0", 0.7],
    ]
    assert not [gap for gap in report["missing"] if "no row" in gap["why"]]
    assert len(tables.heat_maps(found["sweep"])["gelu"]) == 1
    page = page_of(captured)
    said = "**decode 0.700 (0.690 – 0.710)**, small 1.010 (1.000 – 1.020), wide 0.700 (0.690 – 0.710)"
    assert said in page  # of four rounds 95 % are none
    fastest = found["sweep"].iloc[0]
    assert (fastest["combination"], fastest["slower_at"]) == ("THREADS=64 AHEAD_MB=0", "bf16 decode (0.700 ×)")
    assert found["sweep"]["slower_at"].astype(bool).sum() == 1
    (panel,) = tables.shape_maps(found["sweep"], few)
    assert panel["rows"] == ["bf16 decode", "bf16 large", "bf16 small", "bf16 wide"]
    assert panel["columns"] == ["THREADS=64\nAHEAD_MB=0"]
    assert [line[0]["excess"] for line in panel["cells"]] == pytest.approx([0.4286, -0.0574, -0.0099, 0.4286], abs=1e-3)
    figure = heatmap.plot_shapes([panel], "")
    assert figure is not None
    assert "gelu v02_vector, call not recorded" in to_svg(figure).decode()


def test_a_combination_that_is_slower_nowhere_is_in_no_panel_of_shapes(tmp_path: Path) -> None:
    rows = [row for shape in ("large", "t2", "t10") for row in two(versus(1.09, 1.1, 1.11), shape_name=shape)]
    table = build_of(rows)
    assert set(table["sweep_shapes"]["shape"]) == {"t2", "t10"}
    assert tables.shape_maps(table["sweep"], table["sweep_shapes"]) == []
    assert not table["sweep"]["slower_at"].any()
    rows[-1] |= versus(0.9, 0.91, 0.92)
    table = build_of(rows)
    (panel,) = tables.shape_maps(table["sweep"], table["sweep_shapes"])
    assert panel["rows"] == ["bf16 large", "bf16 t2", "bf16 t10"]


def test_many_places_where_the_fastest_loses_are_counted() -> None:
    rows = two(versus(1.09, 1.1, 1.11))
    for at in range(5):
        rows += two(versus(0.8 + at / 100, 0.81 + at / 100, 0.82 + at / 100), shape_name=f"t{at}")
    table = build_of(rows)
    evidence = tables.build_best(table["sweep"]).iloc[0]["evidence"]
    assert evidence.endswith("THREADS=64 loses at bf16 t0 (0.810 ×), bf16 t1 (0.820 ×), bf16 t2 (0.830 ×) and 2 more.")


def test_no_clear_difference_is_said_as_such(tmp_path: Path) -> None:
    rows = two(versus(0.99, 1.004, 1.01))
    rows[1] |= {"bench_time_p50_ns": 9960}
    _, found = analyse(load([capture_of(tmp_path, rows)]))
    row = found["sweep_best"].iloc[0]
    assert (row["clear"], row["recommended"]) == ("no", "THREADS=256")
    assert row["evidence"].startswith("No clear difference: THREADS=64 comes out at 1.004")


def test_the_heat_map_has_a_cell_for_every_pair_and_marks_it() -> None:
    import pandas as pd

    from analysis.capture.model import Capture
    from analysis.capture.ours import read_table

    choices_of = {"A_V01_ROWS": (4, 1, 2), "A_V01_AHEAD_MB": (3, 0), "A_V01_EARLY": (3, 0)}
    rows = examples.grid("a", "v01_x", choices_of)
    for row in rows:
        if "A_V01_ROWS=2 A_V01_AHEAD_MB=3" in str(row["macros"]):
            row |= {"verdict": "does not compile", "reason": "why", "bench_time_p50_ns": "", **versus(0, 0, 0)}  # type: ignore[operator]
            row |= dict.fromkeys(("versus_default_p5", "versus_default_p50", "versus_default_p95"), "")
    frame, cut = read_table(SWEEP_ROWS, examples.text(rows).encode(), "sweep.csv")
    assert not cut
    table = tables._sweep(tables.build_sweep(Capture(sweep_rows=frame), pd.DataFrame()))
    (panel,) = tables.heat_maps(table)["a"]
    assert (panel["x"], panel["columns"]) == ("AHEAD_MB · EARLY", ["0 · 0", "0 · 3", "3 · 0", "3 · 3"])
    assert (panel["y"], panel["rows"]) == ("ROWS", ["1", "2", "4"])
    cells = [cell for line in panel["cells"] for cell in line]
    assert len(cells) == len(rows)
    fastest = next(cell for cell in cells if "fastest" in cell["marks"])
    default = next(cell for cell in cells if "default" in cell["marks"])
    assert fastest["excess"] == pytest.approx(1 / 1.03**3 - 1, abs=1e-4)
    assert "clear" in fastest["marks"]
    assert sum("fastest" in cell["marks"] for cell in cells) == sum("default" in cell["marks"] for cell in cells) == 1
    assert default["time_ns"] == 10_000  # of itself, not of another combination
    assert [cell["verdict"] for cell in panel["cells"][1][2:]] == ["does not compile"] * 2


def test_both_dtypes_of_a_heat_map_have_the_same_axes() -> None:
    choices_of = {"A_V01_ROWS": (4, 1, 2), "A_V01_AHEAD_MB": (3, 0), "A_V01_EARLY": (3, 0)}
    rows = examples.grid("a", "v01_x", choices_of)
    other = examples.grid("a", "v01_x", choices_of, "fp32")
    for row in other:
        row["bench_time_p50_ns"] = 10_000 * (1 + int(str(row["macros"])[-1]))  # another choice matters most
    first, second = tables.heat_maps(counted([*rows, *other], {})[0])["a"]
    assert (first["x"], first["y"], first["columns"]) == (second["x"], second["y"], second["columns"])


def test_a_combination_without_a_row_is_drawn_as_such_and_missing(tmp_path: Path) -> None:
    rows = examples.grid("gelu", "v02_vector", GELU)
    captures = capture_of(tmp_path, [row for row in rows if "THREADS=64 GELU_V02_AHEAD_MB=3" not in str(row["macros"])])
    report, found = analyse(load([captures]))
    (panel,) = tables.heat_maps(found["sweep"])["gelu"]
    assert [cell["verdict"] for line in panel["cells"] for cell in line].count("no row") == 1
    assert "1 combination" in [gap["what"] for gap in report["missing"]]
    figure = heatmap.plot_sweep("gelu", [panel], "")
    assert figure is not None
    assert "no row" in [text.get_text().replace("\n", " ") for axes in figure.axes for text in axes.texts]


def test_a_fastest_that_is_not_clear_has_an_open_star() -> None:
    def stars(gain: dict[str, object]) -> str:
        figure = heatmap.plot_sweep("gelu", tables.heat_maps(counted(two(gain), {})[0])["gelu"], "")
        assert figure is not None
        return "".join(text.get_text()[:1] for axes in figure.axes for text in axes.texts)

    assert "☆" in stars(versus(0.99, 1.0001, 1.01))
    assert "★" in stars(versus(1.09, 1.1, 1.11))
    assert "★" in stars(versus(0.5, 0.5, 0.5))  # the default is the fastest


def test_colours_tell_a_little_from_a_lot() -> None:
    levels = [heatmap._level(times) for times in (0.25, 0.5, 1, 1.26, 3.72, 9)]
    assert levels == pytest.approx([0, 0.25, 0.5, 0.583, 0.974, 1], abs=1e-3)


def test_the_title_of_a_heat_map_says_which_call_it_is_of() -> None:
    rows = examples.grid("a", "v01_x", {"A_V01_ROWS": (4, 1, 2), "A_V01_AHEAD_MB": (3, 0), "A_V01_EARLY": (3, 0)})
    table, _ = counted(rows, {})
    figure = heatmap.plot_sweep("a", tables.heat_maps(table)["a"], "")
    assert figure is not None
    svg = to_svg(figure).decode()
    assert "a: time by compile-time choice" in svg
    assert "v01_x bf16 large, call not recorded<" in svg
    assert "time, the default's = 1" in svg
    small = compact(svg.encode()).decode()
    assert re.findall("<text.*>(.*)</text>", small) == re.findall("<text.*>(.*)</text>", svg)
    assert small.count("font-family") == 1
    rules = dict(re.findall(r"\.([-\w]+)\{([^}]*)\}", small))
    styles = [rules.get(name, said) for name, said in re.findall(r' class="([^"]*)"| style="([^"]*)"', small)]
    plain = re.sub(r"font-family: [^;\"]*;? ?", "", svg)
    assert [said for said in styles if "font-family" not in said] == re.findall(r' style="([^"]*)"', plain)
    assert len(small) < 0.7 * len(svg)


def test_the_report_has_the_figure_and_is_the_same_every_time(tmp_path: Path) -> None:
    rows = examples.grid("gelu", "v02_vector", GELU) + examples.grid(
        "gelu", "v01_naive", {"GELU_V01_THREADS": (256, 64)}
    )
    rows[3] |= {"verdict": "wrong", "reason": "error above the tolerance", "bench_time_p50_ns": ""}
    rows[3] |= dict.fromkeys(("versus_default_p5", "versus_default_p50", "versus_default_p95"), "")
    captures = capture_of(tmp_path, rows)
    report = document(reports.build([captures], tmp_path / "one").report)
    reports.build([captures], tmp_path / "two")
    assert report["title"] == "Configuration sweep on NVIDIA H200"
    assert [figure["name"] for figure in report["figures"]] == ["sweep_gelu"]
    svg = (tmp_path / "one" / "figures" / "sweep_gelu.svg").read_bytes()
    assert svg == (tmp_path / "two" / "figures" / "sweep_gelu.svg").read_bytes()
    assert "★".encode() in svg
    page = (tmp_path / "one" / "report.md").read_text()
    assert "![sweep_gelu" in page
    assert "error above the tolerance" in page
    assert [gap["what"] for gap in report["missing"]] == ["the counters of 2 of 2 kernels, dtypes and shapes"]


def test_combinations_without_counters_are_missing() -> None:
    import pandas as pd

    from analysis.capture.model import Capture
    from studies.sweep.tables import name_gaps

    rows = {"op": ["gelu", "gelu", "softmax"], "verdict": "timed", "tier": ["counters", "timing", "timing"]}
    choices_of = {"combination": ["A=1", "A=2", "A=1"], "gpu": "NVIDIA H200"}
    swept = pd.DataFrame(rows | choices_of | {"variant": "v", "dtype": "fp32", "shape": "large"})
    (gap,) = name_gaps(Capture(sweep_rows=swept), swept)
    assert gap.what == "the counters of 1 of 2 kernels, dtypes and shapes"
    assert gap.do.startswith("`make sweep RUN=… ARGS=--counters OP='softmax'`")
    ended = Capture(sweep_rows=swept, tools=[{"tool": "ncu", "status": "failed", "reason": "ended by its limit"}])
    assert gap in name_gaps(ended, swept)
    swept["tier"] = ["counters", "timing", "counters"]
    assert name_gaps(Capture(sweep_rows=swept), swept) == []


def test_captures_taken_under_different_conditions_are_told(tmp_path: Path) -> None:
    captures = capture_of(tmp_path, two(versus(1.0, 1.0, 1.0)))
    for op, cache in (("gelu", "all"), ("softmax", "none"), ("residual", "all")):
        status = {"kind": "tool-status", "schema_version": 1, "tool": "ncu", "status": "ok"}
        (captures / op).mkdir()
        (captures / op / "ncu.json").write_text(json.dumps(status | {"cache_control": cache, "clock_control": "none"}))
    report, _ = analyse(load([captures]))
    told = {row["name"]: row["value"] for row in report["conditions"]}
    assert told["ncu cache control"] == "all, none"
    assert told["ncu clock control"] == "none"


def test_rungs_that_were_not_swept_are_missing(tmp_path: Path) -> None:
    rows = examples.grid("gelu", "v02_vector", GELU)
    named = sweep.not_swept(rows)  # type: ignore[arg-type]
    assert "gelu v01_naive" in named
    assert "gelu v02_vector" not in named
    assert all(ops()[op].variant(rung).tunables for op, rung in (name.split() for name in named))
    captures = capture_of(tmp_path, rows)
    document = json.loads((captures / "sweep.json").read_text())
    (captures / "sweep.json").write_text(
        json.dumps(document | {"not_swept": ["gelu v01_naive", "gelu v03", "gemv v01"]})
    )
    report, _ = analyse(load([captures]))
    gap = report["missing"][-1]
    assert gap["what"] == "3 rungs with compile-time choices"
    assert gap["why"] == "not swept: gelu v01_naive, gelu v03, gemv v01"
    assert gap["do"] == "`make sweep RUN=… OP='gelu gemv'` with this run"


def test_a_report_of_a_sweep_alone_holds_its_own_tables_and_removes_what_another_left(tmp_path: Path) -> None:
    captures = capture_of(tmp_path, examples.grid("gelu", "v02_vector", GELU))
    out = tmp_path / "report"
    (out / "tables").mkdir(parents=True)
    (out / "figures").mkdir()
    for name in ("tables/stalls.csv", "tables/mine.csv", "figures/traffic.png", "figures/sweep_gemv.png"):
        (out / name).write_text("")
    report = document(reports.build([captures], out).report)
    assert [table["name"] for table in report["tables"]] == ["sweep_best", "sweep"]
    found = sorted(str(path.relative_to(out)) for path in out.rglob("*.*"))
    assert found == [
        "figures/sweep_gelu.svg", "report.html", "report.json", "report.md", "tables/mine.csv", "tables/sweep.csv",
        "tables/sweep_best.csv",
    ]  # fmt: skip


def test_what_cannot_be_launched_is_said_without_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sweep.cannot_launch(90, 4096, 0) == "cannot launch: 4096 threads a block, at most 1024"
    shared = sweep.cannot_launch(90, 128, 228 * 1024)
    assert shared == "cannot launch: 233,472 bytes of shared memory a block, at most 232,448"
    assert sweep.cannot_launch(90, 1024, 227 * 1024) == sweep.cannot_launch(10, 4096, 0) == ""
    usages = tuple(build.Usage(name, 32, 0, 0, 0) for name in ("small", "large"))
    bounds = {"small": 64, "large": 4096}
    monkeypatch.setattr(combinations, "max_threads", lambda built: bounds)
    monkeypatch.setattr(census, "demangle", lambda names: names)
    fields = sweep.static_fields(90, SimpleNamespace(usages=usages))
    assert (fields["kernel"], fields["block_threads"]) == ("large", 4096)
    row = examples.row("gelu", "v02_vector", {"GELU_V02_THREADS": 4096}, dtype="", shape_name="", gpu="", **fields)
    row |= {name: "" for name in row if "_p5" in name or "_p95" in name or name in ("samples", "grid_blocks")}
    page = tmp_path / "page"
    reports.build([capture_of(tmp_path, [row | {"verdict": "built"}])], page)
    text = (page / "report.md").read_text()
    assert "cannot launch: 4096 threads a block, at most 1024" in text
    assert "Compiled and not timed" not in text
    assert "No ncu counters, and nothing was timed: everything here is of tier static." in text
    assert "tier timing" not in text


def test_a_damaged_sweep_is_one_sentence(tmp_path: Path) -> None:
    rows = examples.grid("gelu", "v02_vector", GELU)
    rows[1] |= {"macros": "THREADS is 256"}
    with pytest.raises(InputError, match=r"sweep\.csv: column macros has .* in row 2 where NAME=value belongs"):
        load([capture_of(tmp_path, rows)])


def test_the_header_is_the_one_that_is_written(tmp_path: Path) -> None:
    ledger = sweep.Ledger(tmp_path / "sweep.csv")
    (row,) = examples.grid("a", "v01_x", {"A_V01_ROWS": (4,)})
    ledger.add(row)
    assert ledger.path.read_text() == examples.text([row])
    assert ledger.path.read_text().splitlines()[0] == SWEEP_ROWS.header


def test_ninja_is_found() -> None:
    assert shutil.which(build.find_ninja())


def test_the_committed_recommendations_are_written_as_they_are_said_today() -> None:
    assert tuned.TABLE.read_text("utf-8") == tuned.text(tuned.read())


def test_a_recommendation_is_said_of_dtypes_and_shapes_together() -> None:
    faster, unsure = versus(1.09, 1.1, 1.11), versus(0.97, 0.99, 1.01)
    (choice,) = choices([*two(faster), *two(unsure, dtype="fp32")])
    together = "over the dtypes and shapes at which all were tried (geometric mean)"
    assert choice["why"] == f"1.044 times as fast as the default {together}"
    assert together in " ".join(tuned.text([]).replace("#", "").split())


def test_tuned_text_is_toml() -> None:
    assert tomllib.loads(tuned.text([])) == {}


# The committed run -----------------------------------------------------------------------------------------------

COMMITTED = committed.folder("sweep")


@pytest.mark.slow
@pytest.mark.skipif(not COMMITTED.is_dir(), reason="the committed sweep is not in this checkout")
def test_the_committed_sweep_is_rebuilt_byte_for_byte(tmp_path: Path, undrawn: None) -> None:
    assert reports.main([str(COMMITTED / "captures"), "--out", str(tmp_path / "out"), "--quiet"]) == 0
    texts = [path for part in ("tables/*.csv", "report.md", "report.json") for path in sorted(COMMITTED.glob(part))]
    assert len(texts) == 5
    for path in texts:
        assert (tmp_path / "out" / path.relative_to(COMMITTED)).read_bytes() == path.read_bytes(), path.name


def test_counters_of_one_rung_are_taken_with_those_of_its_op(
    machine: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness import doctor

    (tmp_path / "captures").mkdir()
    (tmp_path / "captures" / "ncu_raw.csv").write_text("of all ops, by an earlier version")
    monkeypatch.setattr(doctor, "find_ncu", lambda: "ncu")
    monkeypatch.setattr(combinations, "library_of", lambda built: built.object.with_suffix(".so"))
    launched: list[str] = []

    def capture(run: Path, jobs: Sequence[dict[str, Any]]) -> None:
        launched.extend(row["range"] for job in jobs for row in job["rows"])
        (run / "captures").mkdir(parents=True)
        (run / "captures" / "ncu.json").write_text("{}")

    monkeypatch.setattr(sweep, "_capture", capture)
    ledger = sweep.Ledger(tmp_path / "captures" / "sweep.csv")
    sweep.sweep(sweep.plan([ops()["gelu"]], None, ["bf16"], None), ledger, GPU, 90, 20, machine["start"])
    asked = sweep.plan([ops()["gelu"]], ["v01_naive"], ["bf16"], None)
    sweep.capture_counters(tmp_path, ledger, asked, GPU)
    assert {name.split("/")[2] for name in launched} == {"v01_naive", "v02_vector"}
    assert {name.split("/")[3] for name in launched} == {"bf16"}
    assert {path.name for path in (tmp_path / "captures").iterdir()} == {"sweep.csv", "gelu"}
