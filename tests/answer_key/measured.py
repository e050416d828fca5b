"""Delay, in the running programs of the answer key, what their fixes change.

    python tests/answer_key/measured.py run SET… --out FOLDER [--only REGEX] [--seconds N] [--each S]

Runs form a of each pair under `measure-fix`, on a GPU; FOLDER/SET/NAME.json holds what it measured.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT)]

from tests.answer_key.measure import Program, programs  # noqa: E402

ENDLESS, LIMIT_S = 100_000_000, 90
CALLS = re.compile("cuda|Malloc|Free|Synchronize|HostAlloc")


def asked(change: list[str]) -> list[str]:
    """Return the options of measure-fix for a change in the words of what_if.py."""
    found = []
    for kind, text in zip(change[::2], change[1::2], strict=True):
        pattern = text.rpartition("=")[0] if "=" in text and kind in ("--scale", "--host", "--stream") else text
        parts = pattern.split("|")
        calls, others = [one for one in parts if CALLS.search(one)], [one for one in parts if not CALLS.search(one)]
        if kind == "--host" and pattern != ".*":
            found += ["--host", pattern]
        elif kind in ("--graph", "--host"):
            found += ["--host", "^cuLaunchKernel|^cuMemcpy.*Async|^cuMemset.*Async|^cuGraphLaunch"]
        elif kind == "--merge":
            found += ["--host", "^cuMemcpy" if "Host" in pattern else "^cuLaunchKernel", "--kernel", pattern]
        else:
            found += ["--host", "|".join(calls)] if calls else []
            found += ["--kernel", "|".join(others)] if others else []
            if others and "Host" not in pattern and kind != "--stream":
                found += ["--remove", "|".join(others)]
    return found


def command(program: Program) -> list[str]:
    """Return the command that runs form a without an end."""
    if program.path.suffix == ".cu":
        return [str(program.out / "program"), "a", str(ENDLESS)]
    ranks = ["--ranks", str(program.ranks)]
    return [
        sys.executable,
        str(HERE / "run.py"),
        str(program.path),
        "steps",
        *ranks,
        "--form",
        "a",
        "--steps",
        str(ENDLESS),
    ]


def build(program: Program) -> bool:
    """Compile a CUDA program."""
    program.out.mkdir(parents=True, exist_ok=True)
    if program.path.suffix != ".cu":
        return True
    words = [
        "nvcc",
        "-O3",
        "-std=c++17",
        "-arch=sm_90",
        str(program.path),
        f"-I{HERE}",
        "-o",
        str(program.out / "program"),
    ]
    return subprocess.run(words, check=False).returncode == 0


def measured(program: Program, each: float) -> str:
    """Run one program, and return the last line of its errors."""
    target = program.out.with_suffix(".json")
    words = [
        "timeout",
        str(LIMIT_S),
        sys.executable,
        "-m",
        "harness.measure_fix",
        *asked(program.declared["change"]),
        "--seconds",
        str(each),
    ]
    words += ["--out", str(target), "--log", str(program.out / "program.log"), "--", *command(program)]
    env = os.environ | {
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
    }
    done = subprocess.run(words, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stdout, end="")
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["failed"])[-1]


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["run"])
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3600, help="start no further program after so many seconds")
    parser.add_argument("--each", type=float, default=2.5, help="seconds for each part")
    options = parser.parse_args()
    started = time.monotonic()
    found = [one for one in programs(options.sets, options.out.resolve(), options.only) if one.declared.get("change")]
    found = [one for one in found if one.ranks == options.ranks]
    with ThreadPoolExecutor(8) as pool:
        found = [one for one, fine in zip(found, pool.map(build, found), strict=True) if fine]
    for program in found:
        begun = time.monotonic()
        if begun - started > options.seconds:
            print("no time left:", program.path.stem, flush=True)
            continue
        print(f"== {program.path.stem}: {' '.join(program.declared['change'])}", flush=True)
        failed = measured(program, options.each)
        print(f"   {time.monotonic() - begun:.1f} s {failed}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
