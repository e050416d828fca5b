"""What runs on a Dask worker: it hands each capture to a child process, and watches over it.

Only the standard library is imported, because a worker gets this module by value.
"""

import json
import os
import subprocess
import sys
import threading
import weakref
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

_HELD = threading.local()  # the child of each thread of a worker


@dataclass(frozen=True)
class Settings:
    """How captures are read: where to, the project's folder, the limits of one capture, the key of --anonymise."""

    store: str
    tree: str
    timeout_s: float
    memory_bytes: int
    key: str


class _Child:
    def __init__(self, settings: Settings) -> None:
        command = [
            sys.executable,
            "-P",  # the current folder may have another `analysis`
            "-m",
            "analysis.store.child",
            settings.store,
            str(settings.memory_bytes),
            settings.key,
        ]
        path = os.pathsep.join([settings.tree, *filter(None, [os.environ.get("PYTHONPATH")])])
        one = {
            "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",  # the other captures have the other cores
            "MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(128 << 20),  # the next one uses it
        }  # fmt: skip
        self.process = subprocess.Popen(
            command, env=os.environ | one | {"PYTHONPATH": path}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, encoding="utf-8",
        )  # fmt: skip
        self.settings = settings
        self.close = weakref.finalize(self, _end, self.process)  # at the end of its thread, or of the program

    def ask(self, job: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Return the digest and what became of the capture; `status` hung or killed if the child did not answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        hung = threading.Event()

        def end() -> None:
            hung.set()
            self.process.kill()

        timer = threading.Timer(timeout_s, end)
        timer.start()
        answer: dict[str, Any] = {}
        try:
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()
            while not {"status", "fatal"} & set(answer) and (line := self.process.stdout.readline()):
                answer |= json.loads(line)
        except (BrokenPipeError, json.JSONDecodeError):
            pass
        finally:
            timer.cancel()
        if {"status", "fatal"} & set(answer):
            return answer
        self.close()
        if hung.is_set():
            return answer | {
                "status": "hung",
                "sentence": f"it took more than {timeout_s:g} s; raise --timeout, or add it alone.",
            }
        code = self.process.returncode
        died = f"signal {-code}" if code < 0 else f"exit code {code}"
        return answer | {
            "status": "killed",
            "sentence": f"its process ended with {died}: the memory of the machine may be too small.",
        }


def _end(process: subprocess.Popen[str]) -> None:
    """End a process, and close its pipes."""
    process.kill()
    for pipe in filter(None, (process.stdin, process.stdout)):
        with suppress(OSError):
            pipe.close()
    process.wait()


def gather(job: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """Read one capture into the store, and return what became of it; a killed process gets a second chance."""
    answer: dict[str, Any] = {}
    for _ in range(2):
        child = getattr(_HELD, "child", None)
        if child is None or child.settings != settings or child.process.poll() is not None:
            child = _HELD.child = _Child(settings)
        answer = child.ask(job, settings.timeout_s)
        if answer.get("status") != "killed":
            break
    return answer | {"address": job["address"]}
