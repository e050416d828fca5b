"""Fuzz every reader of analysis/capture: python -m tests.fuzz.fuzz_readers --inputs 1000000 --seed 1 --jobs 2

Input number N of a seed is always the same bytes: a whole file (tests/fuzz/seeds.py) with random damage (mutate.py).
One input in four has structural damage instead, which must not change a number (oracle.py states all promises of the
readers). The fuzzer reads all of them with the public function `load`.

It uses plain `random` on seeds made by code, and neither Atheris nor Hypothesis. The readers' hot loops are in numpy,
Arrow, SQLite and msgspec, which coverage of Python lines does not see. Atheris needs a Python built for it. Hypothesis
adds shrinking, but at a hundredth of the throughput. Findings are shrunk here, too, by cutting pieces out.

Each worker is a process with a memory limit; an input has two seconds of CPU time. A worker that dies or hangs is a
finding, and another worker continues after that input. Of findings with one cause (exception and line), the smallest is
kept. Exit code 1 if there are findings.
"""

import argparse
import contextlib
import ctypes
import gc
import json
import multiprocessing
import os
import platform
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from tqdm import tqdm

from analysis.capture.load import load
from analysis.formats.errors import LedgerError
from tests.cpu import test_capture_nsys_table as nsys
from tests.fuzz.mutate import mutate
from tests.fuzz.oracle import BrokenPromiseError, Damaged, Truth, check_message, damage, truth_of, wrong
from tests.fuzz.seeds import Seed, seeds

SECONDS = 2.0  # of CPU time for one input
HANG_SECONDS = 60.0  # of wall time, for what no signal reaches
MEMORY_BYTES = 3 << 29  # beyond what a worker maps at its start
GROWTH_BYTES = 256 << 20  # of resident memory, for one input
STRUCTURAL = 0.25
NAME = "f.dat"
# SQLite files and traces take several times as long as text: one in so many of the others.
WEIGHTS = {"sqlite": 0.1, "gzip": 0.4}
# Makes a capture of what cannot be analysed alone, with the operations that the seed graph_kernels names.
COMPANION = nsys.GPU + "".join(
    nsys.gpu_row(start, 90, name, "") for start, name in ((5000, "companion"), (7000, "other"))
)


class TooSlowError(BaseException):
    """The input took more than SECONDS; no `except Exception` may catch it."""


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise TooSlowError(f"more than {SECONDS:g} s")


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Limit the block to SECONDS of CPU time. Raises: TooSlowError."""
    signal.signal(signal.SIGPROF, _too_slow)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


class Target:
    """Writes inputs into a folder and gives them to the readers."""

    def __init__(self, folder: Path) -> None:
        os.chdir(folder)  # so that no message has to name the folder
        self.path = Path(NAME)
        self.folder = str(folder.resolve())
        self.companion = Path("companion")
        self.companion.write_text(COMPANION)
        self.truths = {seed.name: self._truth(seed) for seed in seeds() if seed.truth}

    def _truth(self, seed: Seed) -> tuple[list[Path], Truth]:
        self.path.write_bytes(seed.data)
        for paths in ([self.path], [self.path, self.companion]):
            with contextlib.suppress(LedgerError):
                truth = truth_of(load(paths))
                if truth.facts:
                    return paths, truth
        raise SystemExit(f"the seed {seed.name} is no capture")

    def read(self, data: bytes) -> str:
        """Read an input: return 'capture' or 'error', or raise an exception, which is a finding."""
        self.path.write_bytes(data)
        try:
            load([self.path])
        except LedgerError as error:
            check_message(error, NAME, self.folder)
            return "error"
        return "capture"

    def judge(self, seed: Seed, done: Damaged) -> str:
        """Read a damaged seed: return 'capture' or 'error'. Raises: BrokenPromiseError if it gives a wrong number."""
        self.path.write_bytes(done.data)
        paths, truth = self.truths[seed.name]
        try:
            capture = load(paths)
        except LedgerError as error:
            check_message(error, NAME, self.folder)
            return "error"
        found = wrong(capture, truth, done)
        if found:
            raise BrokenPromiseError(f"wrong number: {seed.name}, {done.what}: {found}")
        return "capture"


def formats() -> list[list[Seed]]:
    """Return the seeds by format: those of one tool's page or of one kind of file; all eras of SQLite are one."""
    sqlite = [one for one in seeds() if one.form == "sqlite"]
    return [*([one] for one in seeds() if one.form != "sqlite"), sqlite]


def pick(number: int, seed: int, only: Collection[str] = (), each: bool = False) -> tuple[Seed, Damaged | bytes]:
    """Return input `number`: the seed that it comes from, one of `only` if there are any, and the damaged file.

    `each`: the formats take turns, so that each has the same number of inputs.
    """
    rng = random.Random(seed << 40 | number)
    known = seeds()
    if each:
        one = rng.choice(formats()[number % len(formats())])
    else:
        chosen = [one for one in known if one.name in only] if only else known
        one = rng.choices(chosen, [WEIGHTS.get(one.form, 1.0) for one in chosen])[0]
    if one.truth and rng.random() < STRUCTURAL:
        return one, damage(one, rng)
    return one, mutate(one.data, one.form, rng.choice(known).data, rng)


def attempt(target: Target, one: Seed, made: Damaged | bytes) -> str:
    with limited():
        return target.judge(one, made) if isinstance(made, Damaged) else target.read(made)


def signature(error: BaseException) -> str:
    """Return what findings of one cause share: the exception and the last line of our code in its traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/analysis/" in frame.filename] or frames
    where = f"{Path(ours[-1].filename).name}:{ours[-1].name}" if ours else "?"
    text = str(error)
    if isinstance(error, BrokenPromiseError):
        said = text.split(": ")
        where = re.sub("[0-9]+", "N", said[1]) if text.startswith("wrong number") else text[:24]
    return f"{type(error).__name__} {where}"


def shrink(data: bytes, fails: Callable[[bytes], bool], tries: int = 300) -> bytes:
    """Cut pieces out of `data` for as long as it still fails, and return the rest."""
    size = max(1, len(data) // 2)
    while size and tries > 0:
        at = 0
        while at < len(data) and tries > 0:
            tries -= 1
            shorter = data[:at] + data[at + size :]
            if shorter and fails(shorter):
                data = shorter
            else:
                at += size
        size //= 2
    return data


# --------------------------------------------------------------------------------------------------------- processes

_STATE = ("number", "done", "structural", "capture", "error", "at", "until")


class Shared(ctypes.Structure):
    """The state that a worker shares: its current input's `number` and start, its counts, and when to stop."""

    _fields_ = [(name, ctypes.c_double if name in ("at", "until") else ctypes.c_longlong) for name in _STATE]


def _work(
    shared: Any, queue: Any, begin: int, end: int, step: int, seed: int, only: Collection[str], each: bool
) -> None:
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY_BYTES, mapped + MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    kinds: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        target = Target(Path(folder))
        high = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        gc.freeze()  # what is there now stays: collections need not look at it
        for number in range(begin, end, step):
            shared.number, shared.at = number, time.time()
            if shared.at > shared.until:
                break
            one, made = pick(number, seed, only, each)
            kinds[one.name] += 1
            try:
                result = attempt(target, one, made)
                now = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                grown, high = (now - high) * 1024, max(now, high)
                if grown > GROWTH_BYTES and shared.done > 500:
                    raise BrokenPromiseError(f"memory grew by {grown >> 20} MB")
                setattr(shared, result, getattr(shared, result) + 1)
            except (Exception, TooSlowError) as error:
                data = made.data if isinstance(made, Damaged) else made
                shown = "".join(traceback.format_exception(error)[-3:])
                queue.put((signature(error), number, one.name, data, str(error)[:600], shown))
            shared.structural += isinstance(made, Damaged)
            shared.done += 1
    queue.put((None, dict(kinds)))


class Run:
    """All workers, their findings and their progress."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.context = multiprocessing.get_context("fork")
        self.states = [self.context.RawValue(Shared) for _ in range(options.jobs)]
        for state in self.states:
            state.until = time.time() + options.seconds
        self.queues = [self.context.SimpleQueue() for _ in range(options.jobs)]
        self.workers = [self._start(job, options.first + job) for job in range(options.jobs)]
        self.findings: dict[str, dict[str, Any]] = {}
        self.kinds: Counter[str] = Counter()

    def _start(self, job: int, begin: int) -> Any:
        self.states[job].at = time.time()
        end = self.options.first + self.options.inputs
        options = self.options
        arguments = (
            self.states[job],
            self.queues[job],
            begin,
            end,
            options.jobs,
            options.seed,
            options.only,
            options.each > 0,
        )
        worker = self.context.Process(target=_work, args=arguments, daemon=True)
        worker.start()
        return worker

    def _take(self, job: int) -> None:
        while not self.queues[job].empty():
            entry = self.queues[job].get()
            if entry[0] is None:
                self.kinds.update(entry[1])
            else:
                self._keep(*entry)

    def _keep(self, cause: str, number: int, name: str, data: bytes, text: str, shown: str) -> None:
        known = self.findings.get(cause)
        if known is None or len(data) < len(known["data"]):
            count = known["count"] if known else 0
            self.findings[cause] = {"number": number, "seed_file": name, "data": data, "text": text, "count": count}
        self.findings[cause]["count"] += 1
        if known is None:
            tqdm.write(f"FINDING {cause}\n  input {number} of {name}: {text}\n{shown}", file=sys.stderr)

    def _watch(self, job: int) -> bool:
        """Return whether the worker still works; replace one that died or hangs."""
        worker, state = self.workers[job], self.states[job]
        if worker.is_alive() and time.time() - state.at > HANG_SECONDS:
            worker.kill()
            worker.join()
        if worker.is_alive():
            return True
        if worker.exitcode == 0:
            return False
        one, made = pick(state.number, self.options.seed, self.options.only, self.options.each > 0)
        data = made.data if isinstance(made, Damaged) else made
        self._keep(f"worker died, exit {worker.exitcode}", state.number, one.name, data, "crash or hang", "")
        state.done += 1
        self.workers[job] = self._start(job, state.number + self.options.jobs)
        return True

    def stop(self, *_: object) -> None:
        """Let every worker end after its current input."""
        for state in self.states:
            state.until = 0.0

    def finish(self) -> dict[str, int]:
        """Wait for all workers, show their progress, and add up their counts."""
        began = time.time()
        with tqdm(total=self.options.inputs, unit="input", mininterval=5.0, maxinterval=20.0, smoothing=0.05) as bar:
            busy = True
            while busy:
                time.sleep(0.2)
                busy = sum([self._watch(job) for job in range(self.options.jobs)]) > 0
                for job in range(self.options.jobs):
                    self._take(job)
                bar.set_postfix(findings=len(self.findings), refresh=False)
                bar.update(sum(state.done for state in self.states) - bar.n)
        counts = {name: sum(int(getattr(state, name)) for state in self.states) for name in _STATE[1:-2]}
        return counts | {"seconds": round(time.time() - began)}


def commit() -> str:
    """Return the commit of the checkout, with `+` if the readers have changed since."""
    asked = [
        ["git", "rev-parse", "--short", "HEAD"],
        ["git", "status", "--porcelain", "analysis/capture", "tests/fuzz"],
    ]
    head, changed = (subprocess.run(one, capture_output=True, text=True, check=False).stdout.strip() for one in asked)
    return head + ("+" if changed else "")


def _same(target: Target, cause: str) -> Callable[[bytes], bool]:
    def fails(data: bytes) -> bool:
        try:
            with limited():
                target.read(data)
        except (Exception, TooSlowError) as error:
            return signature(error) == cause
        return False

    return fails


def _save(findings: dict[str, dict[str, Any]], folder: Path) -> None:
    """Write the findings as files for tests/fuzz/corpus, shrunk if they fail by themselves."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        target = Target(Path(place))
        for at, (cause, found) in enumerate(sorted(findings.items())):
            data = found["data"]
            if not cause.startswith(("worker died", "TooSlow", "BrokenPromiseError nsys", "BrokenPromiseError ncu")):
                fails = _same(target, cause)
                data = shrink(data, fails) if fails(data) else data
            try:
                content = {"text": data.decode()}
            except UnicodeDecodeError:
                content = {"hex": data.hex()}
            record = {"cause": cause, "said": found["text"], "seed_file": found["seed_file"], **content}
            (folder / f"finding-{at}.json").write_text(json.dumps(record, indent=1) + "\n")


def _append(path: Path, result: dict[str, Any]) -> None:
    """Add a run to the list of runs in a JSON file."""
    runs = json.loads(path.read_text()) if path.exists() else []
    path.write_text(json.dumps([*runs, result], indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument(
        "--each", type=int, default=0, metavar="N", help="N inputs of every format, instead of --inputs"
    )
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=86_400, help="stop after so long")
    parser.add_argument(
        "--only",
        nargs="+",
        default=(),
        choices=[seed.name for seed in seeds()],
        metavar="FILE",
        help="of tests/fuzz/seeds.py",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"), help="folder for the inputs of findings")
    parser.add_argument("--results", type=Path, help="JSON file, a list, to which the counts of the run are added")
    options = parser.parse_args()
    options.inputs = options.each * len(formats()) or options.inputs
    options.out = options.out.resolve()  # a target changes the working directory
    options.results = options.results and options.results.resolve()
    at_commit = commit()
    run = Run(options)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, run.stop)
    counts = run.finish()
    _save(run.findings, options.out)
    result = {
        "seed": options.seed, "first": options.first, "jobs": options.jobs, **({"only": options.only} if options.only else {}), **counts,
        "inputs_per_s": round(counts["done"] / max(1, counts["seconds"]), 1), "findings": {k: v["count"] for k, v in sorted(run.findings.items())},
        "commit": at_commit, "files": dict(sorted(run.kinds.items())),
        "versions": {"python": platform.python_version(), "numpy": np.__version__, "pandas": pd.__version__, "pyarrow": pa.__version__},
    }  # fmt: skip
    print(json.dumps(result, indent=1))
    if options.results:
        _append(options.results, result)
    return 1 if run.findings else 0


if __name__ == "__main__":
    sys.exit(main())
