"""Run one program of the answer key: a form for a capture, or both forms in turn for their bare times.

    python tests/answer_key/run.py SET/NAME.py steps --form a --steps 16
    python tests/answer_key/run.py SET/NAME.py time --out FILE [--block STEPS]

A program has build(form) -> step(i). Form a has the defect, form b its fix. `time` alternates blocks of steps of both
forms in one process and synchronises only at the ends of a block. Results of a program with SAME may differ by that part.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

BLOCK_S, LEAST_ROUNDS, MOST_ROUNDS, ENOUGH = 0.06, 16, 200, 0.004
MOST_S = float(os.environ.get("KEY_SECONDS", "5"))  # of timed rounds
LIMIT_S = 60  # after the lock: a program that hangs must not keep the GPU


def locked(path: str | None) -> Any:
    """Wait until no other program runs on the GPU; the lock goes with the process."""
    file = open(path, "w") if path else None  # noqa: SIM115
    if file:
        fcntl.flock(file, fcntl.LOCK_EX)
        signal.alarm(LIMIT_S)
    return file


def wait(result: Any) -> None:
    """Wait until the GPU has done everything that the frameworks in use gave it."""
    if torch := sys.modules.get("torch"):
        torch.cuda.synchronize()
    if cupy := sys.modules.get("cupy"):
        cupy.cuda.Device().synchronize()
    if jax := sys.modules.get("jax"):
        jax.block_until_ready(result)


def agreed(value: float) -> float:
    """Return the largest value of all ranks, after all have come here."""
    torch = sys.modules.get("torch")
    if "RANK" not in os.environ or torch is None:
        return value
    shared = torch.tensor([value], device="cuda")
    torch.distributed.all_reduce(shared, torch.distributed.ReduceOp.MAX)
    return float(shared)


def half_width(a: list[float], b: list[float]) -> float:
    """Return about half the 95 % interval of the median saving of the rounds."""
    savings = [1 - y / x for x, y in zip(a, b, strict=True)]
    quarters = statistics.quantiles(savings, n=4)
    return 1.57 * (quarters[2] - quarters[0]) / len(savings) ** 0.5


def numbers(result: Any) -> Any:
    """Return a part of a result of any framework as an array of NumPy."""
    import numpy as np

    if hasattr(result, "detach"):
        found = result.detach().float().cpu().numpy().ravel()
    else:
        found = np.asarray(result.get() if hasattr(result, "get") else result).ravel()
    return found[:: found.size // 100_000 | 1].astype("D")


def compare(results: dict[str, Any], most: float) -> None:
    """Fail if the results of both forms differ by more than this part of their norm."""
    import numpy as np

    a, b = results.values()
    apart = np.linalg.norm(a - b) / np.linalg.norm(a)
    assert apart <= most, f"the forms differ by {apart:.3g}"


def timed(build: Any, block: int, forms: str, same: float | None = None) -> dict[str, Any]:
    """Return the seconds of a step in each block of each form."""
    steps, done, found = {form: build(form) for form in forms}, dict.fromkeys(forms, 0), {form: [] for form in forms}

    def run(form: str, count: int) -> float:
        result, started = None, time.perf_counter()
        for _ in range(count):
            result = steps[form](done[form])
            done[form] += 1
        wait(result)
        return time.perf_counter() - started

    for form in forms:
        run(form, max(4, block))
        run(form, max(4, block))
    if same:  # after as many steps of both
        compare({form: numbers(steps[form](done[form])) for form in forms}, same)
        done.update({form: count + 1 for form, count in done.items()})
    step = max(agreed(run(form, max(4, block)) / max(4, block)) for form in forms)
    count = block if block > 1 else max(2, min(300, round(BLOCK_S / step)))
    started = time.perf_counter()
    for number in range(MOST_ROUNDS):
        for form in forms if number % 2 else reversed(forms):
            if block == 1:
                run(form, 1)  # what the other form left behind ends here
            agreed(0.0)
            found[form].append(agreed(run(form, count) / count))
        left = agreed(time.perf_counter() - started)
        near = number + 1 >= LEAST_ROUNDS and (len(forms) == 1 or agreed(half_width(found["a"], found["b"])) < ENOUGH)
        if left > MOST_S or (near and left > MOST_S / 3):
            break
    return {"block": count, **found}


def load(path: Path) -> Any:
    """Return the module of a program."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def ranks(count: int, words: list[str], held: Any) -> int:
    """Run one process a GPU while the lock is held, and return the worst exit code."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0]  # others may run on other GPUs
    port = 29517 + (int(first) if first.isdigit() else 0)
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    started = [
        subprocess.Popen(
            [sys.executable, *words], env=os.environ | place | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        )
        for rank in range(count)
    ]
    code = max(one.wait() for one in started)
    del held
    return code


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("mode", choices=["steps", "time"])
    parser.add_argument("--form", default="a")
    parser.add_argument("--forms", default="ab")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--block", type=int, default=1, help="steps of a timed block (default: as many as take 80 ms)")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--trace", type=Path, help="also write a trace of torch.profiler of three steps")
    options = parser.parse_args()
    if options.ranks > 1 and "RANK" not in os.environ:
        held = locked(os.environ.get("KEY_LOCK"))
        return ranks(options.ranks, sys.argv, held)
    sys.path.insert(0, str(Path(__file__).parent))
    program = load(options.program)
    held = locked(os.environ.get("KEY_LOCK") if "RANK" not in os.environ else None)
    if options.mode == "time":
        found = timed(program.build, options.block, options.forms, getattr(program, "SAME", None))
        if os.environ.get("RANK", "0") == "0":
            options.out.write_text(json.dumps(found))
    else:
        step, result = program.build(options.form), None
        for number in range(options.steps):
            result = step(number)
        wait(result)
        if options.trace:
            from torch.profiler import profile

            with profile() as profiler:
                for number in range(3):
                    step(number)
                wait(None)
            profiler.export_chrome_trace(str(options.trace))
    if "RANK" in os.environ:
        sys.modules["torch"].distributed.destroy_process_group()
    del held
    return 0


if __name__ == "__main__":
    sys.exit(main())
