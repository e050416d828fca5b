"""Kill programs that write files, at every file operation if need be, and say what they leave.

python -m tests.faults --points 200 --table tests/fuzz/KILLS.csv

`report` replaces an old report: the operation at which it gets SIGKILL is counted by an audit hook, and some kills come
while the new files move into place. `profile` is the driver with fake nsys and ncu. After each kill the old or the new
files must be there whole, and the same command, run again, must complete and leave nothing temporary.
"""

import argparse
import csv
import hashlib
import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from analysis import pipeline, report
from analysis.formats import system
from tests.cpu.test_profile import prepared
from tests.machine import FAKE_NCU, FAKE_NSYS, FAKE_SMI, Machine

WRITES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "subprocess.Popen"}
MOVING = 1000  # from here on: so many times 100 µs after the move has begun
EXPORT = "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name\n100,{time},1,8,1,1,128,1,1,32,0.0,0.0,,,,,NVIDIA L4 (0),1,,7,{name}\n"  # fmt: skip


class Kill(NamedTuple):
    """What a kill at a point left, and what came of it: `found` is old, new, mixed or whole."""

    program: str
    point: int
    killed: bool
    found: str
    rerun: int
    left: str

    @property
    def sound(self) -> bool:
        """Whether no file was lost, and the next run completed."""
        return self.found in ("old", "new", "whole") and self.rerun == 0 and not self.left


def digest(folder: Path) -> dict[str, str]:
    """Return the files of a folder with their digests, without those of a killed writer."""
    files = (path for path in folder.rglob("*") if path.is_file())
    names = {str(path.relative_to(folder)): path for path in files}
    return {n: hashlib.sha256(path.read_bytes()).hexdigest() for n, path in names.items() if not n.startswith(".")}


def temporary(folder: Path) -> str:
    """Return the names of files that only a running writer may have."""
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    return " ".join(name for name in names if Path(name).name.startswith(".") or name.endswith(".partial"))


def writes(event: str, arguments: tuple[object, ...]) -> bool:
    """Return whether an audit event changes a file system."""
    opened = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    return event in WRITES or bool(opened)


def die_at(point: int, began: int | None = None) -> None:
    """Kill this process at its file operation `point`; note on `began` when another process starts."""
    count = itertools.count()

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if not writes(event, arguments):
            return
        if next(count) == point:
            os.kill(os.getpid(), signal.SIGKILL)
        if event == "subprocess.Popen" and began is not None:
            os.write(began, b"x")

    sys.addaudithook(hook)


def forked(work: Callable[[], int], point: int = -1) -> int:
    """Do `work` in a child that is killed at `point`; return its exit code, negative for a signal."""
    heard, said = os.pipe()
    pid = os.fork()
    if not pid:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        die_at(point, said)
        code = 70
        try:
            code = work()
        finally:
            os._exit(code)
    os.close(said)
    if point >= MOVING and os.read(heard, 1):
        time.sleep((point - MOVING) * 1e-4)
        os.kill(pid, signal.SIGKILL)
    os.close(heard)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def settled(out: Path) -> None:
    """Wait for the process that moves files, which holds the lock of the folder."""
    for _ in range(600):
        try:
            system.unlock(system.lock(out))
            return
        except (BlockingIOError, FileNotFoundError):
            time.sleep(0.02)


def of_report(folder: Path, points: int) -> Iterator[Kill]:
    """Kill `report` over an older report at `points` points."""
    for name, time_ns in (("old", 50), ("new", 70)):
        (folder / f"{name}.csv").write_text(EXPORT.format(time=time_ns, name=f"{name}_kernel"))
    out = folder / "out"

    system.use_one_core()
    pipeline.to_svg, pipeline.compact = (lambda figure: b"<svg></svg>"), (lambda svg: svg)  # drawing takes the time
    pipeline.to_bytes = lambda figure: {"svg": b"<svg></svg>", "png": b""}

    def make(name: str) -> Callable[[], int]:
        return lambda: report.main([str(folder / f"{name}.csv"), "--out", str(out), "--quiet"])

    assert forked(make("new")) == 0
    new = digest(out)
    shutil.rmtree(out)
    assert forked(make("old")) == 0
    old = digest(out)
    shutil.copytree(out, folder / "kept")
    operations = 2 * len(new) + 6
    moving = points // 4
    spread = [at * operations // (points - moving) for at in range(points - moving)]
    for point in [*spread, *(MOVING + at * 400 // moving for at in range(moving))]:
        killed = forked(make("new"), point) == -signal.SIGKILL
        settled(out)
        found = digest(out)
        state = "old" if found == old else "new" if found == new else "mixed"
        again = forked(make("new"))
        state = state if digest(out) == new else "mixed"
        yield Kill("report", point, killed, state, again, temporary(out))
        shutil.rmtree(out)
        shutil.copytree(folder / "kept", out)


# Loaded by every Python of the profile; only the driver has KILL_AT to mind.
_SITE = """
import os, sys
if sys.orig_argv[1:2] and sys.orig_argv[1].endswith("/harness/profile") and "KILL_AT" in os.environ:
    sys.path.insert(0, os.path.dirname(__file__))
    from faults_hook import die_at
    die_at(int(os.environ["KILL_AT"]))
"""


def of_profile(folder: Path, points: int, operations: int = 84) -> Iterator[Kill]:
    """Kill the driver of `make profile` at `points` points, each in a folder of its own."""
    for point in (at * operations // points for at in range(points)):
        with tempfile.TemporaryDirectory(dir=folder) as place:
            yield _profile(Path(place), point)


def _profile(place: Path, point: int) -> Kill:
    machine = Machine(place)
    for name, text in (("nsys", FAKE_NSYS), ("ncu", FAKE_NCU), ("nvidia-smi", FAKE_SMI)):
        machine.put(f"bin/{name}", text)
    python = prepared(machine)
    machine.put("site/faults_hook.py", f"import itertools, os, signal, sys\n{_source()}")
    site = machine.put("site/sitecustomize.py", _SITE).parent
    run = machine.scripts.parent / "runs/x"

    def profile(**environment: str) -> int:
        arguments = ["--run", "runs/x", "--no-auto-ranges", "--", "./app"]
        given = {"PYTHON": str(python), "PYTHONPATH": str(site)} | environment
        return machine.run("profile.sh", *arguments, **given).returncode

    killed = profile(KILL_AT=str(point)) in (-signal.SIGKILL, 128 + signal.SIGKILL)
    state = "whole"
    for path in run.rglob("*.json"):
        try:
            json.loads(path.read_text())
        except ValueError:
            state = f"broken {path.relative_to(run)}"
    return Kill("profile", point, killed, state, profile(), temporary(run))


def _source() -> str:
    """Return the source of `die_at`, for a process that cannot import this module."""
    import inspect

    return f"WRITES = {WRITES!r}\n" + "\n".join(inspect.getsource(one) for one in (writes, die_at))


def main() -> int:
    """Kill each program so often, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=15, help="kills of each program")
    parser.add_argument("--only", choices=("report", "profile"))
    parser.add_argument("--table", type=Path, help="CSV file to write")
    options = parser.parse_args()
    programs = {"report": of_report, "profile": of_profile}
    kills = []
    with tempfile.TemporaryDirectory() as folder:
        for name, killing in programs.items():
            if options.only in (None, name):
                kills += list(killing(Path(folder), options.points))
    if options.table:
        with options.table.open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream, lineterminator="\n").writerows([Kill._fields, *kills])
    bad = [kill for kill in kills if not kill.sound]
    print(f"{sum(kill.killed for kill in kills)} kills at {len(kills)} points; {len(bad)} not sound", *bad, sep="\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
