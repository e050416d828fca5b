"""The folder of a run: the finished stages, by a digest of their inputs, and the process that works in it."""

from __future__ import annotations

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

from profile_machine import shown
from profile_program import ProfileError

STATE = "stages.json"
ASKED = "profile.json"
RUNNING = "running.json"
GRACE_SECONDS = 10.0


def digest(parts: Iterable[object]) -> str:
    """A digest of any values that JSON can hold."""
    return hashlib.sha256(json.dumps(list(parts), default=str).encode()).hexdigest()


def write_json(path: Path, value: Any) -> None:
    """Write to a temporary file and rename it, so that no reader sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    partial.replace(path)


def read_json(path: Path) -> dict[str, Any]:
    """The object of a file; an empty one if the file is missing or damaged."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


class Folder:
    """RUN with raw/ (never shared) and captures/ (fit for publication)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.raw = path / "raw"
        self._running = (self.raw / RUNNING).absolute()
        self.captures = path / "captures"
        self._lock: Any = None

    def open(self) -> None:
        """Make the folder, take its lock, and end processes that a killed profile left running.

        Raises: ProfileError, if another profile works in it.
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
        """By stage: key, seconds and time of its end."""
        return read_json(self.raw / STATE)

    def kept(self, name: str, key: str, outputs: Iterable[Path]) -> bool:
        """Whether the stage was done with this key and left its files."""
        return self.records().get(name, {}).get("key") == key and all(path.exists() for path in outputs)

    def done(self, name: str, key: str, seconds: float) -> None:
        """Record a stage that succeeded."""
        ended = time.time_ns()
        write_json(
            self.raw / STATE, self.records() | {name: {"key": key, "seconds": round(seconds, 1), "ended": ended}}
        )

    def forget(self, name: str) -> None:
        """Record that a stage is not done, before it begins to replace its files."""
        records = self.records()
        if records.pop(name, None):
            write_json(self.raw / STATE, records)

    def stamp(self, name: str) -> Any:
        """A value that changes whenever a stage is done again; None before the first time."""
        return self.records().get(name, {}).get("ended")

    @contextlib.contextmanager
    def beside(self, command: list[str], where: Path, log: Path) -> Iterator[Callable[[], int]]:
        """Start a command with its output in `log`, and yield a function that waits for its exit code."""
        with log.open("wb") as said:
            process = subprocess.Popen(command, cwd=where, stdout=said, stderr=said, start_new_session=True)
            try:
                yield process.wait
            finally:
                if process.poll() is None:
                    end_session(process.pid, process.poll)

    def run(self, command: list[str], stage: str, where: Path, stdin: Path | None = None) -> int:
        """Run a command in its own session, which ends as a whole if this program is interrupted."""

        def note() -> None:  # in the new process, before it becomes the command: a kill at any time finds it noted
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
    """An identifier of this boot of the machine, or of this container."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _stat(pid: int | str) -> list[str]:
    """The fields of /proc about a process after its name: state, parent, group, session ….

    Empty without the process.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _started(pid: int) -> str | None:
    """The start of a process, in ticks since boot, which differs from that of a later process with the same number."""
    found = _stat(pid)
    return found[19] if len(found) > 19 else None


def _members(session: int) -> list[int]:
    """The running processes of a session: `timeout` puts a program into its own group, but not into its own session."""
    pids = [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    found = ((int(pid), _stat(pid)) for pid in pids)
    return [pid for pid, said in found if said and said[3] == str(session) and said[0] != "Z"]


def end_session(session: int, reap: Callable[[], object] = lambda: None) -> None:
    """Ask the processes of a session to end, and kill the rest after ten seconds; `reap` waits for our own."""
    for number, seconds in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, 1.0)):
        for pid in _members(session):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        for _ in range(int(seconds / 0.05)):
            reap()
            if not _members(session):
                return
            time.sleep(0.05)
