"""Bare times from the program to the file: the injection library, bare.sh and bare_ranges.py, with a real C program."""

import csv
import json
import lzma
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from analysis.formats.bare import BARE_RANGES
from analysis.formats.tools import TOOL_STATUS
from harness.instrument import bare_ranges as convert
from tests.machine import pasted

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "nsys_scripts" / "bare.sh"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("compiler"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler"),
]


class Built(NamedTuple):
    """A program with ranges, and the environment in which the library is built already."""

    player: Path
    environment: dict[str, str]


class Recorded(NamedTuple):
    """What bare.sh left."""

    answer: subprocess.CompletedProcess[str]
    folder: Path

    @property
    def rows(self) -> list[dict[str, str]]:
        return read(self.folder / "captures")

    @property
    def status(self) -> dict:
        found = json.loads((self.folder / "captures" / "bare.json").read_text())
        return TOOL_STATUS.check(found, "bare.json")


def read(captures: Path) -> list[dict[str, str]]:
    path = captures / "bare_ranges.csv"
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines())) if path.is_file() else []


def names(rows: list[dict[str, str]]) -> list[str]:
    return [row["name"] for row in rows]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("bare")
    player = folder / "player"
    source = ROOT / "tests" / "nvtx_player.c"
    subprocess.run(["cc", "-std=gnu11", "-O2", "-pthread", "-o", player, source, "-ldl"], check=True)
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH") if name in os.environ}
    return Built(
        player, kept | {"XDG_CACHE_HOME": str(folder), "PYTHON": sys.executable, "PYTHONDONTWRITEBYTECODE": "1"}
    )


def bare(built: Built, folder: Path, *arguments: str, stdin: str = "", **environment: str) -> Recorded:
    answer = subprocess.run(
        [str(SCRIPT), "--out", "run", *arguments],
        cwd=folder,
        env=built.environment | environment,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return Recorded(answer, folder / "run")


@pytest.fixture(scope="module")
def library(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    bare(built, tmp_path_factory.mktemp("built"), "--", str(built.player), "nested")
    return next((Path(built.environment["XDG_CACHE_HOME"]) / "kernel-ledger").iterdir())


@pytest.fixture
def play(built: Built, library: Path, tmp_path: Path):
    """Records a scene of the player without the script; returns its rows."""

    def played(*scene: str, code: int = 0, before: tuple[str, ...] = (), **environment: str) -> list[dict[str, str]]:
        folder = tmp_path / "run" / "raw" / "bare"
        folder.mkdir(parents=True)
        injected = {"NVTX_INJECTION64_PATH": str(library), "KERNEL_LEDGER_BARE": str(folder)}
        done = subprocess.run(
            [*before, built.player, *scene], env=built.environment | injected | environment, check=False
        )
        assert done.returncode == code
        convert.main(["--out", str(tmp_path / "run"), "--", "player"])
        return read(tmp_path / "run" / "captures")

    return played


# --- what is recorded ---


def test_ranges_of_domains_nest_beside_those_of_none(play) -> None:
    rows = play("nested", "3")
    assert names(rows) == ["step", "model:layer", "inner"] * 3
    for step, layer, inner in (rows[at : at + 3] for at in (0, 3, 6)):
        times = [int(row[key]) for key, row in zip(("start_ns",) * 3, (step, layer, inner), strict=True)]
        times += [int(row["end_ns"]) for row in (inner, layer, step)]
        assert times == sorted(times)
    assert {row["style"] for row in rows} == {"push"}
    assert {row["process_rank"] for row in rows} == {""}


def test_threads_are_numbered_and_a_range_may_end_on_another(play) -> None:
    rows = play("threads", "3")
    assert sorted(row["thread"] for row in rows if row["name"] == "thread") == ["1", "2", "3"]
    across = next(row for row in rows if row["name"] == "across")
    assert across["style"] == "start"
    assert across["thread"] == "0"
    first = next(row for row in rows if row["name"] == "thread")
    assert int(first["start_ns"]) <= int(across["end_ns"]) <= int(first["end_ns"])


def test_threads_that_end_leave_their_room_to_others(play, tmp_path: Path) -> None:
    assert len(play("threads", "300")) == 302
    (file,) = (tmp_path / "run" / "raw" / "bare").iterdir()
    assert file.stat().st_size < 8 * 65536


def test_a_forked_process_has_a_file_of_its_own(play, tmp_path: Path) -> None:
    rows = play("forks")
    assert len(list((tmp_path / "run" / "raw" / "bare").iterdir())) == 2
    assert names([row for row in rows if row["process"] == "0"]) == ["parent", "of the parent"]
    assert names([row for row in rows if row["process"] == "1"]) == [
        "child",
        "parent",
    ]  # one name known before, one not
    parent = rows[names(rows).index("of the parent")]  # which the child tried to end
    assert int(parent["end_ns"]) > max(int(row["end_ns"]) for row in rows if row["process"] == "1")


def test_ranks_of_torchrun(play) -> None:
    rows = play("nested", RANK="5", LOCAL_RANK="1", WORLD_SIZE="8")
    assert {row["process_rank"] for row in rows} == {"5"}


def test_what_a_killed_program_recorded_is_kept(play) -> None:
    rows = play("killed", "2000", code=-signal.SIGKILL)
    assert len(rows) == 6002
    assert [row["name"] for row in rows if not row["end_ns"]] == ["open"]


def test_hostile_names(play) -> None:
    found = names(play("hostile"))
    expected = ['a,b "c" d', "(unnamed)", "café �", "load model.bin", "x" * 4096, "=1+1", "h.0/attn", "(unnamed)"]
    assert found == [*expected, "wide é 世 😀", "first", "later"]


def test_a_full_disk_ends_the_recording_and_not_the_program(play, tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk: reserving space fails in the same way."""
    rows = play("nested", "20000", before=("sh", "-c", 'ulimit -f 512; exec "$@"', "sh"))
    assert 1000 < len(rows) < 60000
    status = json.loads((tmp_path / "run" / "captures" / "bare.json").read_text())
    assert status["status"] == "failed"
    assert re.match(r"There was no room for [\d,]+ events", status["reason"])


def test_damaged_and_foreign_records_are_left_out(tmp_path: Path) -> None:
    records = tmp_path / "raw" / "bare"
    records.mkdir(parents=True)
    (records / "1-1.bare").write_bytes(b"KL-BARE")
    (records / "2-1.bare").write_bytes(b"\0" * 65536)
    (records / "3-1.bare").write_bytes(b"KL-BARE\0".ljust(65536 + 1000, b"\0"))
    assert convert.main(["--out", str(tmp_path), "--", "x"]) == 1
    assert read(tmp_path / "captures") == []


def test_a_table_that_cannot_be_written_is_one_sentence(tmp_path: Path, capsys) -> None:
    (tmp_path / "captures").write_text("in the way")
    assert convert.main(["--out", str(tmp_path), "--", "x"]) == 1
    assert (
        capsys.readouterr().err == "bare failed: File exists while writing to captures/; make room and run it again.\n"
    )


def test_a_large_table_is_packed(tmp_path: Path) -> None:
    rows = [(0, "", 0, at, at + 1, "push", "layer") for at in range(60_000)]
    (tmp_path / "bare_ranges.csv").write_text("of an earlier run")
    convert.save(rows, tmp_path)
    text = lzma.decompress((tmp_path / "bare_ranges.csv.xz").read_bytes()).decode()
    assert [path.name for path in tmp_path.iterdir()] == ["bare_ranges.csv.xz"]
    assert text.startswith(f"{BARE_RANGES.header}\n0,,0,0,1,push,layer\n")
    assert text.count("\n") == 60_001


def test_the_python_package_is_recorded(built: Built, library: Path, tmp_path: Path) -> None:
    pytest.importorskip("nvtx")
    program = (
        "import nvtx\n"
        "domain = nvtx.get_domain('model')\n"
        "with nvtx.annotate('step'):\n"
        "    domain.push_range(message='layer'); domain.pop_range()\n"
        "    nvtx.push_range('inner', domain='other'); nvtx.pop_range(domain='other')\n"
        "    ended = nvtx.start_range('load'); nvtx.end_range(ended)\n"
    )
    done = bare(built, tmp_path, "--", sys.executable, "-c", program)
    assert done.answer.returncode == 0, done.answer.stderr
    assert names(done.rows) == ["step", "model:layer", "other:inner", "load"]


# --- bare.sh ---


def test_the_script_prints_its_commands_and_runs_nothing(built: Built, tmp_path: Path) -> None:
    done = bare(built, tmp_path, "-n", "--limit", "5", "--", "python", "a b.py", XDG_CACHE_HOME=str(tmp_path / "cache"))
    lines = pasted(done.answer.stdout).splitlines()
    assert lines[0].startswith("cc -std=gnu11 -O2 -shared")
    assert lines[1].startswith("mv ")
    assert re.match(
        r"timeout -k 10 5 env NVTX_INJECTION64_PATH=\S+\.so KERNEL_LEDGER_BARE=\S+/run/raw/bare python 'a b.py' $",
        lines[2],
    )
    assert lines[3].endswith("harness.instrument.bare_ranges --out run -- python 'a b.py' ")
    assert list(tmp_path.iterdir()) == []


def test_the_status_says_how_the_program_ended(built: Built, tmp_path: Path) -> None:
    (tmp_path / "run" / "captures").mkdir(parents=True)
    (tmp_path / "run" / "captures" / "bare_ranges.csv.xz").write_bytes(b"of an earlier run")
    done = bare(built, tmp_path, "--", str(built.player), "nested", "4")
    assert done.answer.returncode == 0, done.answer.stderr
    assert "12 NVTX ranges of 1 process\n" in done.answer.stdout
    status = done.status
    assert status["status"] == "ok"
    assert status["command"] == ["player", "nested", "4"]
    assert (status["exit_code"], status["ranges"]) == (0, 12)
    assert sorted(path.name for path in (done.folder / "captures").iterdir()) == ["bare.json", "bare_ranges.csv"]


@pytest.mark.parametrize(
    ("scene", "options", "reason", "ranges"),
    [
        (["failing", "7"], [], "The program ended with exit code 7; the ranges that it had recorded are kept.", 3),
        (["failing", "124"], ["--limit", "60"], "The program ended with exit code 124; the ranges that it had recorded are kept.", 3),
        (["killed"], [], "The program was killed by signal 9; the ranges that it had recorded are kept.", 5),
        (["silent"], [], "The program opened no NVTX range, so no step has a bare time.", 0),
        (["endless"], ["--limit", "1"], "The program was ended after 1 s, its limit; the ranges that it had recorded are kept.", 3),
    ],
)  # fmt: skip
def test_programs_that_fail(
    built: Built, tmp_path: Path, scene: list[str], options: list[str], reason: str, ranges: int
) -> None:
    done = bare(built, tmp_path, *options, "--", str(built.player), *scene)
    assert done.answer.returncode == 1
    assert done.status["reason"] == reason
    assert done.status["fix"]
    assert done.status["ranges"] == len(done.rows) == ranges
    assert f"bare failed: {reason} {done.status['fix']}\n" in done.answer.stderr


def test_a_program_reads_its_own_input(built: Built, tmp_path: Path) -> None:
    assert names(bare(built, tmp_path, "--", str(built.player), "reading", stdin="typed").rows) == ["typed"]


def test_no_such_program(built: Built, tmp_path: Path) -> None:
    done = bare(built, tmp_path, "--", "./no_such_program")
    assert done.answer.returncode == 2
    assert not done.folder.exists()
    assert done.answer.stderr == "bare.sh: ./no_such_program was not found, or it is not executable.\n"


@pytest.mark.parametrize(
    ("compiler", "code", "status", "reason"),
    [
        ("no-such-cc", 127, "missing", "There is no C compiler (no-such-cc) to build the recorder of ranges with."),
        ("false", 1, "failed", "The C compiler could not build the recorder of ranges:"),
    ],
)
def test_without_a_compiler(built: Built, tmp_path: Path, compiler: str, code: int, status: str, reason: str) -> None:
    done = bare(built, tmp_path, "--", str(built.player), "nested", CC=compiler, XDG_CACHE_HOME=str(tmp_path))
    assert done.answer.returncode == code
    assert (done.status["status"], done.status["reason"].strip()) == (status, reason)
    assert f"bare {status}: {reason}" in done.answer.stderr
    assert done.rows == []


@pytest.mark.parametrize(
    "arguments",
    [[], ["--"], ["--limit"], ["--limit", "0", "--", "true"], ["--limit", "soon", "--", "true"], ["program"]],
)
def test_usage(built: Built, tmp_path: Path, arguments: list[str]) -> None:
    done = bare(built, tmp_path, *arguments)
    assert done.answer.returncode == 2
    assert "See bare.sh --help." in done.answer.stderr
    assert "usage: bare.sh" in bare(built, tmp_path, "--help").answer.stdout


# --- what it costs ---
