"""Capture and time the programs of the answer key on this machine's GPU.

    python tests/answer_key/measure.py SET… --out FOLDER [--only REGEX] [--forms a] [--seconds N]

For each program: the bare times of both forms in turn (FOLDER/SET/NAME/times.json), then a capture of each form under
nsys (FOLDER/SET/NAME/{a,b}/*.csv), with the options of nsys_scripts/nsys_capture.sh --window all. Start-up, compilation
and exports overlap; only one program at a time uses the GPU.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
REPORTS = "cuda_gpu_trace,cuda_api_trace,nvtx_pushpop_trace"
LOCK = os.environ.get("KEY_LOCK_FILE", "/tmp/answer_key.lock")  # one for each GPU that is used at once
STEPS, WORKERS, SMOKE_WORKERS, STEP_LIMIT_S = 14, 5, 14, 280


@dataclass(frozen=True)
class Program:
    """A program, its declaration and the folder of its results."""

    path: Path
    declared: dict[str, Any]
    out: Path

    @property
    def forms(self) -> str:
        return self.declared.get("forms", "ab")

    @property
    def ranks(self) -> int:
        return self.declared.get("ranks", 1)

    def command(self, mode: str, *more: object) -> list[str]:
        """Return the command that runs the program."""
        if self.path.suffix == ".cu":
            form, block = more[-1], self.declared.get("block", 1)
            words: list[object] = ["time", self.out / "times.json", block] if mode == "time" else [form, self.steps]
            return [str(self.out / "program"), *map(str, words)]
        words = [HERE / "run.py", self.path, mode, "--ranks", self.ranks, "--steps", self.steps]
        if mode == "time":
            words += ["--out", self.out / "times.json", "--forms", self.forms, "--block", self.declared.get("block", 1)]
        else:
            words += ["--form", more[-1]]
        return [sys.executable, *map(str, words)]

    @property
    def steps(self) -> int:
        return self.declared.get("steps", STEPS)


def programs(names: list[str], out: Path, only: str) -> list[Program]:
    """Return the declared programs of the sets whose name fits."""
    found = []
    for name in names:
        folder = HERE / name
        for program, declared in tomllib.loads((folder / "programs.toml").read_text(encoding="utf-8")).items():
            path = next(path for suffix in (".py", ".cu") if (path := folder / f"{program}{suffix}").exists())
            if re.search(only, program):
                found.append(Program(path, declared, out / name / program))
    return found


def run(command: list[str], log: Path, locked: bool = True, steps: int | None = None) -> bool:
    """Run a command with its output in a log; return whether it succeeded."""
    env = os.environ | ({"KEY_LOCK": LOCK} if locked else {})
    env |= {"TOKENIZERS_PARALLELISM": "false", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    with log.open("a") as output:
        print("$", *command, file=output, flush=True)
        try:
            code = subprocess.run(
                command, stdout=output, stderr=output, env=env, timeout=STEP_LIMIT_S, cwd=log.parent
            ).returncode
        except subprocess.TimeoutExpired:
            code = 124
        print("exit code", code, file=output, flush=True)
    return code == 0


def prepare(program: Program) -> bool:
    """Compile the program and run some steps of each form, so that caches are warm and failures show early."""
    program.out.mkdir(parents=True, exist_ok=True)
    log = program.out / "smoke.log"
    if program.path.suffix == ".cu":
        source = [str(program.path), f"-I{HERE}", "-o", str(program.out / "program")]
        if not run(["nvcc", "-O3", "-std=c++17", "-arch=sm_90", *source], log, False):
            return False
    return all(run([*program.command("steps", form)], log, False) for form in program.forms)


def capture(program: Program, form: str, nsys: str) -> bool:
    """Capture one form under nsys and export it."""
    folder, log = program.out / form, program.out / "capture.log"
    folder.mkdir(exist_ok=True)
    stem = folder / "timeline"
    options = [
        "-t",
        "cuda" if program.declared["framework"] == "jax" else "cuda,nvtx",  # the importer fails on XLA's NVTX strings
        "-s",
        "none",
        "--cpuctxsw=none",
        "--cuda-graph-trace=node",
        "-o",
        str(stem),
        "-f",
        "true",
    ]
    if not run([nsys, "profile", *options, *program.command("steps", form)], log):
        return False
    report = f"{stem}.nsys-rep"
    reports = REPORTS + ",cuda_kern_exec_trace" * (program.ranks > 1)  # it tells which process launched what
    stats = [nsys, "stats", "--report", reports, "--format", "csv", "--timeunit", "nsec", "--force-export=true"]
    done = run([*stats, "--output", str(folder / "nsys"), report], log)
    if program.ranks > 1:
        payloads = ["export", "--type", "sqlite", "--include-blobs=true", "--force-overwrite=true"]
        run([nsys, *payloads, "--output", f"{stem}.blobs.sqlite", report], log)
        write_extra("nccl_calls", f"{stem}.blobs.sqlite", folder / "nccl_calls.csv")
    write_extra("graph_kernels", f"{stem}.sqlite", folder / "graph_kernels.csv")
    for path in folder.glob("timeline.*"):
        path.unlink()
    return done


def write_extra(what: str, source: str, target: Path) -> None:
    """Write what a function of analysis.nsys_extras finds in an SQLite export, if it finds anything."""
    code = f"import pathlib, sys; from analysis import nsys_extras; print(end=nsys_extras.{what}(pathlib.Path(sys.argv[1])))"
    found = subprocess.run([sys.executable, "-c", code, source], cwd=ROOT, capture_output=True)
    if found.returncode == 0 and found.stdout:
        target.write_bytes(found.stdout)


def bare(program: Program) -> bool:
    """Record the program's own ranges without a profiler, as `make profile` does."""
    command = [ROOT / "nsys_scripts/bare.sh", "--out", program.out / "a/bare", "--", *program.command("steps", "a")]
    return run(list(map(str, command)), program.out / "bare.log")


def measure(program: Program, nsys: str, captured: str) -> str:
    """Time a program and capture some of its forms; return what failed."""
    failed = []
    program.out.mkdir(parents=True, exist_ok=True)
    if not run(program.command("time", "a"), program.out / "time.log"):
        failed.append("times")
    if captured:
        failed += [f"capture {form}" for form in captured if not capture(program, form, nsys)]
        if program.declared.get("ranges") and not bare(program):
            failed.append("bare")
        if program.declared.get("trace"):
            trace = ["--trace", str(program.out / "trace.json")]
            if not run([*program.command("steps", "a"), *trace], program.out / "trace.log"):
                failed.append("trace")
    return ", ".join(failed)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--captures", default=".", help="capture only programs whose name fits")
    parser.add_argument("--forms", default="ab", help="capture only these forms")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--nsys", default="nsys")
    parser.add_argument("--seconds", type=float, default=3600, help="start no further program after so many seconds")
    options = parser.parse_args()
    started = time.monotonic()
    listed = [one for one in programs(options.sets, options.out.resolve(), options.only) if one.ranks == options.ranks]

    def said(*words: object) -> None:
        print(f"{time.monotonic() - started:6.1f} s", *words, flush=True)

    def prepared(program: Program) -> bool:
        good = prepare(program)
        if not good:
            said("FAILED in its first steps:", program.path.stem)
        return good

    def measured(program: Program) -> None:
        if time.monotonic() - started > options.seconds:
            said("no time left:", program.path.stem)
            return
        captured = program.forms if re.search(options.captures, program.path.stem) else ""
        failed = measure(program, options.nsys, "".join(form for form in captured if form in options.forms))
        said(program.path.stem, f"FAILED: {failed}" if failed else "done")

    good = listed
    if options.ranks == 1:
        with ThreadPoolExecutor(SMOKE_WORKERS) as pool:
            good = [one for one, fine in zip(listed, pool.map(prepared, listed), strict=True) if fine]
    said(f"{len(good)} of {len(listed)} programs run")
    with ThreadPoolExecutor(WORKERS if options.ranks == 1 else 2) as pool:
        list(pool.map(measured, good))
    said("end")
    return 0


if __name__ == "__main__":
    sys.exit(main())
