"""The analysis runs where Linux's calls are missing, and in a poor environment: no home, ASCII, umask 077, read-only."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from analysis.formats import system
from tests.checkout import ROOT
from tests.cpu.test_report import EXEC, NCU, RANGES, TRACE

pytestmark = pytest.mark.slow

# What Windows lacks, macOS in part: modules, and names of os and signal.
MODULES = ("fcntl", "grp", "posix", "pwd", "readline", "resource", "syslog", "termios", "tty")
NAMES = {
    "os": [
        "chown",
        "fork",
        "forkpty",
        "getegid",
        "geteuid",
        "getgid",
        "getloadavg",
        "getpgid",
        "getuid",
        "initgroups",
        "killpg",
        "memfd_create",
        "mkfifo",
        "nice",
        "openpty",
        "pread",
        "preadv",
        "pwrite",
        "sched_getaffinity",
        "sched_setaffinity",
        "setgid",
        "setpgid",
        "setsid",
        "setuid",
        "statvfs",
        "sync",
        "sysconf",
        "tcgetpgrp",
        "uname",
        "wait",
        "wait3",
        "wait4",
        "waitid",
    ],
    "signal": [
        "SIGALRM",
        "SIGHUP",
        "SIGKILL",
        "SIGPROF",
        "SIGUSR1",
        "alarm",
        "pause",
        "pthread_kill",
        "pthread_sigmask",
        "setitimer",
        "sigwait",
    ],
}
# The sitecustomize of every process of a command, children too. Libraries keep the modules that they have imported; what
# is imported later gets copies without these names. Only an exit ends a process here: an exception would be passed over.
STUB = f"""
import os, signal, sys, types, warnings
warnings.filterwarnings("error", category=EncodingWarning, module="analysis[.]")
import pandas, pyarrow, matplotlib.figure, rich.console, subprocess, tempfile, shutil, PIL.Image, scipy.stats
try:
    import dask, distributed, duckdb
except ImportError:
    pass
for name in {MODULES!r}:
    sys.modules[name] = None
for module, names in {NAMES!r}.items():
    copy = types.ModuleType(module)
    copy.__dict__.update((name, value) for name, value in vars(sys.modules[module]).items() if name not in names)
    sys.modules[module] = copy
from analysis.formats import system
if system.fcntl or system.resource or hasattr(system.os, "fork") or hasattr(system.signal, "pthread_sigmask"):
    sys.exit("the stub hides nothing")
"""
# Command -> a sentence of its answer.
UNDER_THE_STUB = {
    "report {} --out out": "report: out/report.html",
    "compare {} -- {}": "SAME",
    "what-if {} --scale .*=0.5": "Saves ",
    "fleet {} --out store --workers 1 --page fleet.html": "1 captures read, 0 could not be",
}


@pytest.fixture
def exports(tmp_path: Path) -> Path:
    folder = tmp_path / "exports"
    folder.mkdir()
    for name, text in (("a", TRACE), ("b", EXEC), ("c", RANGES), ("d", NCU)):
        (folder / f"{name}.csv").write_text(text)
    return folder


# Runs each command; what it prints goes to a line of JSON.
EACH = """
import contextlib, io, json, sys
from kernel_ledger import cli
for command in sys.argv[1:]:
    said, code = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True), 0
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            code = cli.main(command.split())
        except SystemExit as ended:
            code = ended.code
    print(json.dumps([code, said.buffer.getvalue().decode()]))
"""


def test_the_analysis_runs_without_what_other_systems_lack(tmp_path: Path) -> None:
    """Every text file is opened with an encoding, too: that of Windows is another one."""
    has_fleet = all(map(importlib.util.find_spec, ("distributed", "duckdb")))
    commands = [command for command in UNDER_THE_STUB if has_fleet or not command.startswith("fleet")]
    (tmp_path / "stub").mkdir()
    (tmp_path / "stub" / "sitecustomize.py").write_text(STUB)
    given = [command.replace("{}", str(ROOT / "examples/h200/two_streams")) for command in commands]
    path = os.pathsep.join([str(tmp_path / "stub"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", EACH, *given], cwd=tmp_path, capture_output=True, text=True, timeout=120,
        env=os.environ | {"PYTHONWARNDEFAULTENCODING": "1", "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for command, line in zip(commands, done.stdout.splitlines(), strict=True):
        code, said = json.loads(line)
        assert code == 0, said
        assert UNDER_THE_STUB[command] in said


@pytest.fixture
def second_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "_most_cores", 2)
    monkeypatch.setattr("threading.enumerate", lambda: [threading.main_thread()])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})


@pytest.mark.usefixtures("second_core")
def test_a_copy_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(system, "_MOST_S", 0.1)
    here, before = os.getpid(), set(psutil.Process().children())
    assert system.aside(lambda: os.getpid() if os.getpid() == here else time.sleep(1000))() == here
    assert capsys.readouterr().err == "a second process gave no answer in 0.1 s; its work is done in this one now\n"
    assert set(psutil.Process().children()) == before


@pytest.mark.usefixtures("second_core")
def test_work_aside_comes_back_from_a_copy() -> None:
    here = os.getpid()
    there, answer = system.aside(lambda: (os.getpid(), np.arange(100_000)))()
    assert there != here
    assert answer.sum() == 4999950000
    assert system.aside(lambda: os.getpid() if os.getpid() == here else os._exit(9))() == here  # the copy was killed
    with pytest.raises(ZeroDivisionError):
        system.aside(lambda: 1 // 0)()
    before = set(psutil.Process().children())  # of other tests of this process
    unused = system.aside(lambda: time.sleep(1000))
    (copy,) = set(psutil.Process().children()) - before
    del unused
    assert not copy.is_running()
    system.use_one_core()
    assert system.aside(os.getpid)() == here


POOR = """
umask 077
mount -t tmpfs none "$1"
mkdir "$1"/tmp "$1"/work && cd "$1"/work || exit
cp -R "$2" exports
mount --bind "$3" "$3" && mount -o remount,bind,ro "$3" || exit
"$4" "$3"/analysis/report.py exports --out made/report || exit
[ -z "$(find "$3"/analysis -newer exports -name '*.py*' -print -quit)" ]
ls -l made/report | grep -v -e '^total' -e '^-rw-------' -e '^drwx------' && exit 91
exit 0
"""


def test_a_fresh_machine_makes_a_report(exports: Path, tmp_path: Path) -> None:
    """No environment, no home, ASCII, umask 077, a read-only checkout: the same report, and nothing on stderr."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("no namespaces for mounts here")
    place = tmp_path / "place"
    place.mkdir()
    done = subprocess.run(
        ["unshare", "-rm", "env", "-i", "PATH=/usr/bin:/bin", f"TMPDIR={place}/tmp", "LC_ALL=C", "PYTHONUTF8=0",
         "PYTHONCOERCECLOCALE=0", shutil.which("bash") or "bash", "-c", POOR, "poor", str(place), str(exports), str(ROOT), sys.executable],
        cwd=tmp_path, capture_output=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b""), done
    assert done.stdout.isascii()
    assert b"report: made/report/report.html" in done.stdout
