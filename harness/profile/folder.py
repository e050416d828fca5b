"""Keep the folder of a run: its lock, the finished stages with a digest of their inputs, and the running command."""

import contextlib
import fcntl
import hashlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from analysis.formats import place
from analysis.formats.writing import read_json, write_json
from harness.profile.machine import shown
from harness.profile.program import ProfileError

STATE = "stages.json"
ASKED = "profile.json"
RUNNING = "running.json"
GRACE_SECONDS = 10.0


def digest(parts: Iterable[object]) -> str:
    """Return a digest of values; a value that JSON cannot hold counts by its str()."""
    return hashlib.sha256(json.dumps(list(parts), default=str).encode()).hexdigest()


class Folder:
    """A run folder: raw/ holds paths of this machine, captures/ may be published."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.raw = path / "raw"
        self._running = (self.raw / RUNNING).absolute()
        self.captures = path / "captures"
        self._lock: Any = None

    def continued(self) -> str:
        """Say which command goes on with this run."""
        path = shown(self.path)
        return place.here(f"RUN={path} make profile continues", f"`kernel-ledger profile --run {path}` continues")

    def open(self) -> None:
        """Create the folder, take its lock, and end processes that a killed profile left running.

        Raises: ProfileError if another profile works in it.
        """
        for path in (self.raw, self.captures):
            path.mkdir(parents=True, exist_ok=True)
        self._lock = (self.raw / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            sentence = f"Another profile works in {shown(self.path)}: wait for its end, or give another --run."
            raise ProfileError(2, sentence) from None
        for folder in (self.raw, self.captures):
            for partial in folder.glob(".*.[0-9]*"):  # what a killed profile was writing; nobody else writes here now
                partial.unlink(missing_ok=True)
        left = read_json(self._running)
        if left and left.get("boot") == _boot() and _started(left["session"]) in (None, left["started"]):
            if _members(left["session"]):  # no other session can have this number while one of its processes runs
                print(f"Ending {left['stage']}, which a killed profile left running.", flush=True)
            end_session(left["session"])
        self._running.unlink(missing_ok=True)

    def close(self) -> None:
        """Release the lock."""
        if self._lock:
            self._lock.close()

    def records(self) -> dict[str, Any]:
        """Return the finished stages: name -> `key`, `seconds` and `ended` (ns since 1970)."""
        return read_json(self.raw / STATE)

    def kept(self, name: str, key: str, outputs: Iterable[Path]) -> bool:
        """Return whether the stage finished with this key and its output files exist."""
        return self.records().get(name, {}).get("key") == key and all(path.exists() for path in outputs)

    def done(self, name: str, key: str, seconds: float) -> None:
        """Record that a stage succeeded, and its duration in seconds."""
        ended = time.time_ns()
        write_json(
            self.raw / STATE, self.records() | {name: {"key": key, "seconds": round(seconds, 1), "ended": ended}}
        )

    def forget(self, name: str) -> None:
        """Forget that a stage was done, before it starts to replace its files."""
        records = self.records()
        if records.pop(name, None):
            write_json(self.raw / STATE, records)

    def stamp(self, name: str) -> Any:
        """Return a value that changes each time a stage is done; None before the first time."""
        return self.records().get(name, {}).get("ended")

    @contextlib.contextmanager
    def beside(self, command: list[str], where: Path, log: Path) -> Iterator[Callable[[], int]]:
        """Run a command beside the block, with its output in `log`; yield a function that waits for its exit code.

        If it still runs at the end of the block, end it.
        """
        with log.open("wb") as said:
            process = subprocess.Popen(command, cwd=where, stdout=said, stderr=said, start_new_session=True)
            try:
                yield process.wait
            finally:
                if process.poll() is None:
                    end_session(process.pid, process.poll)

    def run(self, command: list[str], stage: str, where: Path, stdin: Path | None = None) -> int:
        """Run a command in a session of its own and return its exit code. An interruption ends the whole session.

        `stdin` is the file that the command reads; without it, the input is empty.
        """

        def note() -> None:  # runs in the new process before the command starts, so running.json never misses it
            mine = os.getpid()
            noted = {"stage": stage, "session": mine, "started": _started(mine), "boot": _boot()}
            write_json(self._running, noted)

        with (stdin or Path(os.devnull)).open("rb") as source:
            process = subprocess.Popen(command, cwd=where, stdin=source, start_new_session=True, preexec_fn=note)
        try:
            return process.wait()
        except BaseException:
            end_session(process.pid, process.poll)
            raise
        finally:
            self._running.unlink(missing_ok=True)


def _boot() -> str:
    """Return an identifier of this boot of the machine; "" if there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _stat(pid: int | str) -> list[str]:
    """Return the fields of /proc/PID/stat after the name (state, parent, group, session …); [] without a process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _started(pid: int) -> str | None:
    """Return when a process started, in ticks since boot: a later process with the same number started later."""
    found = _stat(pid)
    return found[19] if len(found) > 19 else None


def _members(session: int) -> list[int]:
    """Return the running processes of a session. A group is not enough: `timeout` gives the program its own group."""
    pids = [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    found = ((int(pid), _stat(pid)) for pid in pids)
    return [pid for pid, said in found if said and said[3] == str(session) and said[0] != "Z"]


def end_session(session: int, reap: Callable[[], object] = lambda: None) -> None:
    """End the processes of a session with SIGTERM, and after ten seconds with SIGKILL.

    `reap` collects the exit code of our own child, so that it does not stay as a zombie.
    """
    for number, seconds in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, 1.0)):
        for pid in _members(session):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        for _ in range(int(seconds / 0.05)):
            reap()
            if not _members(session):
                return
            time.sleep(0.05)
