"""Benchmark the fused softmax alone and inside GPT-2, and count passes over its scores.

    python -m studies.softmax.measure --out DIR [--seconds 120]

or, from Python, `run_microbenchmark(out)` and `run_gpt2_benchmark(out)`. Without a GPU the first only checks, and the
second times a small model.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from analysis.formats.console import documented, guarded
from analysis.formats.errors import InputError
from harness.console import progress
from kernels.registry import ops
from studies import outputs
from studies.bench import measure as bench
from studies.dropin import measure as dropin
from studies.dropin.files import DROPIN

READS_AND_WRITES = ("aten::mul", "aten::copy_", "aten::masked_fill_", "aten::_softmax")  # each over all scores


class Passes(NamedTuple):
    """Operations of the PyTorch chain over the scores: each reads and writes all of them."""

    operations: tuple[str, ...]

    @property
    def documented(self) -> int:
        """Passes of which one is a read and a write: 4, where a fused kernel makes 1."""
        return len(self.operations)

    @property
    def moved(self) -> int:
        """Reads and writes: 8."""
        return 2 * len(self.operations)

    @property
    def counted(self) -> int:
        """Reads and writes by kernels: 6, since `masked_fill` clones its input with a copy, which ncu does not see."""
        return 2 * sum(name != "aten::copy_" for name in self.operations)


def count_passes() -> Passes:
    """Return the operations over the scores that PyTorch runs for scale, mask and softmax, in their order."""
    from torch.profiler import ProfilerActivity, profile

    softmax = ops()["softmax"]
    shape = (1, 2, 64, 64)
    scores, scale = softmax.make_inputs(shape, "float32")
    run = softmax.variants["torch"].fn
    run(scores, scale)  # builds the mask, which GPT-2 keeps
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        run(scores, scale)
    events = sorted(recorded.events(), key=lambda event: event.time_range.start)
    over = [event.name for event in events if event.name in READS_AND_WRITES and list(shape) in event.input_shapes[:1]]
    return Passes(tuple(over))


def run_microbenchmark(
    out: Path,
    dtypes: Sequence[str] = ("fp32", "bf16"),
    shapes: Sequence[str] = ("b8_t1024",),
    rounds: int = bench.ROUNDS,
) -> int:
    """Check every softmax against float64, then time all that pass side by side; write their files to `out`.

    dtypes   fp32, bf16
    shapes   names of the op's shapes, such as b8_t1024
    rounds   samples of each variant

    Returns 1 if a variant fails its check, else 0. Without a GPU it writes correctness.txt alone.
    """
    passes = count_passes()
    progress(
        f"PyTorch's chain: {passes.documented} passes that read and write, {passes.counted} reads and writes by kernels"
    )
    options = ["--dtype", *dtypes, "--shapes", *shapes, "--rounds", str(rounds), "--out", str(out)]
    return bench.main(["softmax", *options])


def run_gpt2_benchmark(
    out: Path, weights: str = "random", seconds: float = 120.0, models: Sequence[str] = ("gpt2",)
) -> dict[str, Any]:
    """Time a decode step of GPT-2 with each attention in turn, ours and the fused softmax among them.

    weights  "random", a hub name or a folder
    seconds  begin nothing later
    models   names of studies.dropin.models.MODELS; without a GPU they have two small layers

    Returns the content of dropin.json, which it writes to `out`.
    Raises: InputError if the GPU cannot hold a model.
    """
    code = dropin.main(["--out", str(out), "--weights", weights, "--seconds", str(seconds), "--models", *models])
    if code:
        raise InputError("The benchmark of GPT-2 ended early; the lines above say why.")
    return outputs.read_json(out / DROPIN.name) or {}


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module's docstring."""
    parser = documented("python -m studies.softmax.measure", __doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the files of both")
    parser.add_argument("--seconds", type=float, default=120.0, help="of GPT-2: begin nothing later")
    options = parser.parse_args(arguments)

    def program() -> int:
        status = run_microbenchmark(options.out)
        run_gpt2_benchmark(options.out, seconds=options.seconds)
        return status

    return guarded(program)


if __name__ == "__main__":
    sys.exit(main())
