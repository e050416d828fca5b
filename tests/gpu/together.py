"""Time several ops in one session of a GPU: check all of them at the same time, then time one after another.

    python -m tests.gpu.together --out DIR [--seconds S] [--checks S] OP[:ARGUMENTS] …
    python -m tests.gpu.together -n …              print each program, with its expected seconds on the GPU

Each op has a program of its own, `python -m tests.gpu.plain_loop --time OP`: harness.bench and, in the same process,
the plain loop. It writes the files of harness.bench, plain_loop.csv and log.txt into DIR/<op>. ARGUMENTS go to
harness.bench: "matmul:--variants compile_tuned v16_any_rows". Without OP, the ops are OPS: those that the committed
benchmarks only time in chains, and layernorm.

--tuned times the baselines that search at every shape or have their own package. Each runs with the fastest rung in a
program of its own, one after another: beside other programs, a search would choose by disturbed times. A program that
exceeds its time is ended; its results stay in build/, and the next run continues from there.

--checks: stop the check of an op after so many seconds; the op continues it before its times. --seconds: start no shape
later. Both options count from the start. The extensions and compilers' caches in build/ make the second run shorter.
Exit code 1: a program failed, or a ratio of the loop differs by more than 3 %.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
OPS = (
    "softmax", "residual_layernorm", "gelu", "bias_gelu", "residual", "encoder", "merge_heads", "split_permute",
    "attention_windowed", "layernorm",
)  # fmt: skip
# Variants that take long to check, or search for long; --tuned runs them.
LEFT_OUT = ("compile_tuned", "flex_tuned", "triton_tuned", "xformers")
# Seconds on an H200 with 16 cores. Eight small ops were checked side by side in 40 s; the times and the loop of five
# ops took 4 to 36 s, longest of attention with 20 shapes and a dozen variants.
CHECKS_S, TIMES_S, LONG_S = 45, 8, 36
LONG = ("attention", "attention_windowed", "softmax")
TUNED = ("compile_tuned", "cublaslt", "triton", "flex_tuned", "liger", "triton_tuned")
PATIENCE = 4  # times as long as reckoned a program may take for its times, or for its loop
TUNED_S = 120  # at most, of a variant that searches at every shape


class Job(NamedTuple):
    """A program: its name in DIR, its op, and arguments of harness.bench."""

    name: str
    op: str
    more: tuple[str, ...]
    seconds: int

    def command(self, out: Path, seconds: float) -> list[str]:
        ends = [] if math.isinf(seconds) else ["--seconds", f"{seconds:.0f}"]
        return [sys.executable, "-m", "tests.gpu.plain_loop", "--time", self.op, "--out", str(out / self.name), "--pause",
                *ends, *self.more]  # fmt: skip


def jobs_of(named: Sequence[str]) -> list[Job]:
    """Return the programs for OP[:ARGUMENTS] …. Raises: SystemExit for an unknown op."""
    from kernels.registry import ops

    known, found = ops(), []
    for one in named or OPS:
        op, _, more = one.partition(":")
        if op not in known:
            raise SystemExit(f"OP {op!r} is unknown: use {', '.join(known)}.")
        without = [name for name in LEFT_OUT if name in known[op].variants]
        arguments = shlex.split(more) or (["--without", *without] if without else [])
        found.append(Job(op, op, tuple(arguments), LONG_S if op in LONG else TIMES_S))
    return found


def tuned_jobs() -> list[Job]:
    """Return a program for each baseline that searches or has its own package, together with our fastest rung."""
    from kernels.registry import ops

    found = []
    for op in ops().values():
        rungs = sorted({op.best_for(dtype) for dtype in op.dtypes})
        for name in TUNED:
            if name in op.variants and (op.variants[name].tuned or op.variants[name].needs):
                more = ("--variants", op.baseline, name, *rungs)
                seconds = TUNED_S if op.variants[name].tuned else CHECKS_S
                found.append(Job(f"{op.name}-{name}", op.name, more, seconds))
    return found


class Running:
    """A started program; `said` holds the lines that it has printed."""

    def __init__(self, job: Job, out: Path, seconds: float) -> None:
        self.job, self.said = job, set[str]()
        folder = out / job.name
        folder.mkdir(parents=True, exist_ok=True)
        self._log = (folder / "log.txt").open("w", encoding="utf-8")
        self.process = subprocess.Popen(
            job.command(out, seconds), cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self.heard = threading.Condition()
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self._log, self.process.stdout:
            for line in self.process.stdout:
                self._log.write(line)
                with self.heard:
                    self.said.add(line.strip())
                    self.heard.notify_all()
        self.process.wait()
        with self.heard:
            self.heard.notify_all()

    def wait_for(self, word: str, seconds: float) -> bool:
        """Wait so many seconds; return whether the program printed a word, or ended, by then."""
        over = lambda: word in self.said or self.process.poll() is not None  # noqa: E731
        with self.heard:
            return self.heard.wait_for(over, max(seconds, 0.0) if math.isfinite(seconds) else None)

    def go_on(self) -> None:
        """Send the line that the program waits for."""
        if self.process.poll() is None and self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.write("\n")
                self.process.stdin.flush()

    def send(self, number: int) -> None:
        """Send a signal to the program and its children."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)

    def end(self) -> int:
        """End the program if it still runs; return its exit code."""
        self.send(signal.SIGKILL)
        self._reader.join()
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        return int(self.process.wait())


def _say(start: float, *words: Any) -> None:
    print(f"[{time.monotonic() - start:6.1f} s]", *words, flush=True)


def run(jobs: Sequence[Job], out: Path, seconds: float, checks: float, grace: float = 5.0) -> int:
    """Run the programs. Return 1 if one failed."""
    start = time.monotonic()

    def left(until: float) -> float:
        return start + until - time.monotonic()

    running = [Running(job, out, seconds) for job in jobs]
    try:
        late = [one for one in running if not one.wait_for("checked", left(checks))]
        for one in late:
            _say(start, one.job.name, "is not checked in time: it waits until the others are timed")
            one.send(signal.SIGSTOP)
        in_order = [one for one in running if one not in late] + late
        for stage, then in (("checked", "timed"), ("timed", "looped")):
            for one in in_order:
                began = time.monotonic()
                one.send(signal.SIGCONT)
                patience = min(left(seconds) + grace, PATIENCE * one.job.seconds)
                there = one.wait_for(stage, patience)
                if there:
                    one.go_on()
                if not (there and one.wait_for(then, patience)):
                    _say(start, one.job.name, "took too long and is ended")
                    one.end()
                _say(start, one.job.name, then, one.process.poll(), f"{time.monotonic() - began:.1f} s")
        codes = [one.end() for one in running]
        return int(any(codes))
    finally:
        for one in running:
            one.end()


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu.together", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ops", nargs="*", metavar="OP[:ARGUMENTS]")
    parser.add_argument("-n", action="store_true", dest="dry", help="print the programs, run nothing")
    parser.add_argument("--tuned", action="store_true", help="the baselines that search, a program each")
    parser.add_argument("--out", type=Path, default=Path("runs/together"))
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--checks", type=float, default=math.inf)
    options = parser.parse_args(arguments)
    jobs = tuned_jobs() if options.tuned else jobs_of(options.ops)
    if options.dry:
        for job in jobs:
            print(shlex.join(["python", *job.command(options.out, options.seconds)[1:]]), f"# {job.seconds} s")
        seconds = sum(job.seconds for job in jobs)
        together = f"about {CHECKS_S} s of checks side by side, then {seconds} s: {CHECKS_S + seconds} s of the GPU"
        print(f"# at most {seconds} s of the GPU, one after another" if options.tuned else f"# {together}")
        return 0
    if not options.tuned:
        return run(jobs, options.out, options.seconds, options.checks)
    start, failed = time.monotonic(), 0
    for job in jobs:
        left = start + options.seconds - time.monotonic()
        if left <= 0:
            print(f"{job.name} is not begun: --seconds had passed")
            continue
        failed |= run([job], options.out, min(left, job.seconds), math.inf)
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
