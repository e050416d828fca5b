"""What breaks while files are read and written: a disk, a folder, the process itself, another writer, the clock, an input."""

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.api import analyse
from analysis.capture.load import load
from analysis.formats import moving, system, writing
from analysis.formats.report import Reason
from analysis.report import main
from tests import faults
from tests.checkout import ROOT
from tests.cpu.test_report import EXEC, RANGES, TRACE

pytestmark = pytest.mark.slow
NEW, OLD = (faults.EXPORT.format(time=time, name=name) for time, name in ((50, "new"), (70, "old")))


def exports(folder: Path) -> None:
    for name, text in (("old", OLD), ("new", NEW)):
        (folder / f"{name}.csv").write_text(text)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with two exports."""
    exports(tmp_path)
    return tmp_path


# Runs each script in its folder, with mounts that vanish with it. `report X` is a report of X.csv in out: a fork of this
# process makes it, since the first report of a process takes longest.
APART = """
import contextlib, ctypes, json, os, subprocess, sys
from analysis import pipeline, report
from analysis.formats import system
system.use_one_core()
pipeline.to_svg, pipeline.compact = (lambda figure: b"<svg></svg>"), (lambda svg: svg)  # drawing takes the time
pipeline.to_bytes = lambda figure: {"svg": b"<svg></svg>", "png": b""}
def ran(script):
    assert ctypes.CDLL(None).unshare(0x20000) == 0  # CLONE_NEWNS
    (asked, asks), (told, tells) = os.pipe(), os.pipe()
    begin = f'report() {{ echo "$1.csv ${{2:-out}}" >&{asks}; read -r code <&{told}; return $code; }}\\n'
    shell = subprocess.Popen(["bash", "-c", begin + script], pass_fds=(asks, told), stdout=2)
    os.close(asks)
    for line in os.fdopen(asked):
        file, out = line.split()
        os.write(tells, b"%d\\n" % forked(lambda: report.main([file, "--out", out, "--quiet"])))
    return shell.wait()
def forked(work):
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 70
    try:
        code = work()
    finally:
        os._exit(code)
def apart(folder, script):
    os.chdir(folder)
    os.dup2(os.open("stderr", os.O_WRONLY | os.O_CREAT), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return ran(script)
cases = json.load(sys.stdin)
with contextlib.redirect_stdout(sys.stderr):
    report.main([cases[0][0] + "/new.csv", "--out", cases[0][0] + "/first", "--quiet"])
print(json.dumps([forked(lambda: apart(*case)) for case in cases]))
"""
FULL = ["report old", "rm -rf kept", "cp -r out kept", "head -c 9m /dev/zero > out/filler 2>/dev/null || true"]
# Of a target: how it comes to be, where the report goes, and the exit code and the sentence.
TARGETS = {
    "mount point": (["mkdir out", "mount -t tmpfs none out"], "out", 0, ""),
    "mount point inside": (["mkdir -p out/tables out/figures", "mount -t tmpfs none out/tables"], "out", 0, ""),
    "read-only inside": (["mkdir -p out/tables", "mount -t tmpfs -o ro none out/tables"], "out", 3, "report.py: out/tables/*: Read-only"),
    "full inside": (["report old", "cp -r out kept", "mv out/tables t", "mkdir out/tables", "mount -t tmpfs -o size=8k none out/tables",
     "cp t/kernels.csv out/tables", "rm -r kept/tables t", "mkdir kept/tables", "cp out/tables/* kept/tables"],
     "out", 3, "report.py: out/tables/*"),
    "full": (["mkdir out", "mount -t tmpfs -o size=200k none out"], "out", 3, "report.py: out/*; free some space"),
    "full with an old report": (["mkdir out", "mount -t tmpfs -o size=2m none out", *FULL], "out", 3, "report.py: out/*; free some space"),
    "read-only": (["mkdir out", "mount -t tmpfs -o ro none out"], "out", 3, "report.py: out: Read-only file system; check*"),
    "read-only parent": (["mkdir up", "mount -t tmpfs -o ro none up"], "up/on", 3, "report.py: up/on: Read-only file system; check*"),
    "link out": (["mkdir out else", "ln -s ../else out/tables"], "out", 2, "report.py: out/tables is a link out of out; *"),
    "a file": (["touch out"], "out", 2, "report.py: --out out is a file; name a folder"),
}  # fmt: skip


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, list[str]]]:
    """The exit code and the lines of a report on each target."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("no namespaces for mounts here")
    after = [
        "code=$?",
        "ls -A out else up 2>/dev/null | grep '^[.]' && exit 90",
        "[ ! -d kept ] || diff -r -x filler kept out >&2 || exit 91",
        "ls -A else 2>/dev/null | grep . && exit 92",
        "exit $code",
    ]
    base, cases = tmp_path_factory.mktemp("targets"), []
    for name, (prepare, out, _, _) in TARGETS.items():
        (base / name).mkdir()
        exports(base / name)
        cases.append((str(base / name), "\n".join([*prepare, f"report new {out}", *after])))
    done = subprocess.run(
        ["unshare", "-rm", sys.executable, "-c", APART], cwd=ROOT, input=json.dumps(cases), capture_output=True, text=True, timeout=240
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    codes = dict(zip(TARGETS, json.loads(done.stdout), strict=True))
    return {name: (code, (base / name / "stderr").read_text().splitlines()) for name, code in codes.items()}


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_takes_a_report_or_keeps_what_it_had(targets: dict[str, tuple[int, list[str]]], name: str) -> None:
    _, _, code, said = TARGETS[name]
    ended, lines = targets[name]
    assert (ended, len(lines)) == (code, code != 0), lines
    assert not said or Path(lines[-1]).match(said) or lines[-1].startswith(said.split("*")[0])


def test_the_second_of_two_writers_ends_with_a_sentence(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = place / "out"
    with writing.exchanged(out) as (put, finish):
        put("report.md", b"of the first")
        assert main([str(place / "new.csv"), "--out", str(out), "--quiet"]) == 2
        assert capsys.readouterr().err == (
            f"report.py: {out}: another report is being written there; wait for its end, or name another folder.\n"
        )
        finish([])
    assert [path.name for path in out.iterdir()] == ["report.md"]
    assert main([str(place / "new.csv"), "--out", str(out), "--quiet"]) == 0


def test_a_failed_move_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each of its renames; the folder of the new files stays for the writer to remove."""

    def files(folder: Path) -> dict[str, str]:
        return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}

    rename = os.replace
    for failing in range(9):
        out, scratch = tmp_path / f"out{failing}", tmp_path / f"scratch{failing}"
        for folder, text, names in ((out, "old", "abd"), (scratch, "new", "abc")):
            folder.mkdir()
            for name in names:
                (folder / name).write_text(text)
        calls = iter(range(99))

        def fails(source: object, target: object, at: int = failing, calls: object = calls) -> None:
            if next(calls) == at:  # type: ignore[call-overload]
                raise OSError(28, "No space left on device", str(target))
            rename(source, target)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(moving.os, "replace", fails)
            try:
                moving.move(scratch, out, ["a", "b", "c"], ["d"])
                assert failing >= 6
            except OSError:
                pass
        assert files(out) == (
            {"a": "old", "b": "old", "d": "old"} if failing < 6 else {"a": "new", "b": "new", "c": "new"}
        )


def test_a_lock_ends_with_its_process_and_needs_no_file(tmp_path: Path) -> None:
    held = system.lock(tmp_path)
    with pytest.raises(BlockingIOError):
        system.lock(tmp_path)
    system.unlock(held)
    system.unlock(system.lock(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_writer_leaves_the_old_file_and_names_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.json"
    writing.write(file, "old")

    def full(path: Path, data: bytes) -> int:
        with path.open("wb") as stream:
            stream.write(data[:1])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left") as error:
        writing.write(file, "new")
    assert writing.failed(error.value) == f"{file}: No space left on device; free some space"
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("x.json", "old")]


def test_a_file_that_disappears_while_a_folder_is_read_is_named(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each moment at which a file is opened."""
    opened, left = Path.open, 0

    def vanishing(path: Path, *rest: object, **more: object) -> object:
        nonlocal left
        if path.name == "old.csv" and (left := left - 1) < 0:
            path.unlink(missing_ok=True)
        return opened(path, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "open", vanishing)
    folder = place / "captures"
    for moment in range(4):
        folder.mkdir()
        shutil.copy(place / "new.csv", folder / "new.csv")
        shutil.copy(place / "new.csv", folder / "old.csv")
        left = moment
        capture = load([folder])
        assert len(capture.gpu_ops) == 1
        assert (folder / "old.csv").exists() or [
            one.what for one in capture.missing if one.reason == Reason.UNREAD
        ] == ["old.csv: it cannot be read (No such file or directory)"]
        shutil.rmtree(folder)


def test_a_link_out_of_a_folder_is_named_and_not_read(place: Path) -> None:
    folder = place / "captures"
    (folder / "inside").mkdir(parents=True)
    shutil.copy(place / "new.csv", folder / "inside/new.csv")
    (folder / "again.csv").symlink_to("inside/new.csv")
    (folder / "passwd.csv").symlink_to(place / "old.csv")
    (folder / "home").symlink_to(place)
    (folder / "loop").symlink_to(folder)
    capture = load([folder])
    assert list(capture.gpu_ops["name"]) == ["new"]
    assert sorted(one.what.split(":")[0] for one in capture.missing if one.reason == Reason.UNREAD) == [
        "home",
        "passwd.csv",
    ]
    assert list(load([folder / "passwd.csv"]).gpu_ops["name"]) == ["old"]


def test_no_cell_of_a_table_is_a_formula(place: Path) -> None:
    """Names of kernels, steps, layers and files; a negative number stays one."""
    names = ["=1+1", "+1", "-1+2", "@SUM", "=cmd'!A0"]
    folder = place / "captures"
    for name in names:
        folder.mkdir()
        for file, text in (("a", TRACE), ("b", EXEC), ("c", RANGES)):
            (folder / f"{name}{file}.csv").write_text(
                text.replace("add(float *)", name).replace(":decode", f":{name}").replace(":h.0", f":{name}")
            )
        found = set()
        for file, data in analyse(load([folder]))._files():
            if file.endswith(".csv"):
                cells = {cell for row in csv.reader(io.StringIO(data.decode())) for cell in row}
                assert not {cell for cell in cells if cell.startswith(name)}, file
                found |= cells
        assert f"'{name}" in found
        shutil.rmtree(folder)


def test_a_clock_that_is_set_back_changes_no_report(place: Path) -> None:
    """An old report of the future is replaced, and a folder keeps no file of it."""
    out = place / "out"
    for name in ("old", "new"):
        assert main([str(place / f"{name}.csv"), "--out", str(out), "--quiet"]) == 0
        written = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
        for path in (*written, out):
            os.utime(path, (4e9, 4e9))
    assert b"new" in written[out / "report.md"]
