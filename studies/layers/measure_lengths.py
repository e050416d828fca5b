"""Run GPT-2 without its cache at several lengths under nsys, and say which kernels each component takes.

    nsys_scripts/nsys_capture.sh --out RUN -- python -m studies.layers.measure_lengths
    nsys_scripts/export_csv.sh RUN
    python -m studies.layers.measure_lengths --of RUN

A pass of N tokens has the range tokens_N. The table has a row for each component (blocks folded) and kernel at each
length: `launches` and `gpu_time_ns` of one pass, the median over REPEATS passes.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import torch

from analysis.capture.load import load
from analysis.facts import Facts
from analysis.formats.console import documented, guarded
from harness.ranges import NvtxTracer, attach, span
from harness.weights import build_model, load_weights
from studies.layers.measure import resolve_device

LENGTHS, REPEATS, WARMUP = range(26, 38), 6, 3
TABLE = Path(__file__).with_name("lengths.csv.xz")
COLUMNS = ["tokens", "component", "kernel", "grid"]


def run_passes(lengths: Sequence[int] = LENGTHS, repeats: int = REPEATS) -> None:
    """Run all passes in the window of a profiler, after a warm-up of each length."""
    torch.set_float32_matmul_precision("highest")
    device = resolve_device(None)
    model = build_model(load_weights(), device=device, dtype=torch.float32)
    cache = model.new_cache(1, max(lengths) + 1)
    ids = torch.randint(256, (1, max(lengths)), generator=torch.Generator().manual_seed(0)).to(device)

    def run(tokens: int) -> None:
        cache.truncate(0)
        model(ids[:, :tokens], cache)

    with torch.inference_mode():
        for tokens in lengths:
            for _ in range(WARMUP):
                run(tokens)
        if device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.cudart().cudaProfilerStart()
        tracer = NvtxTracer()
        attach(model, tracer)
        for tokens in lengths:
            for _ in range(repeats):
                with span(tracer, f"tokens_{tokens}"):
                    run(tokens)
        if device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.cudart().cudaProfilerStop()


def table(launches: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the table from launches with path, kernel, grid, duration_ns and start_ns."""
    parts = launches["path"].str.extract(r"^tokens_(?P<tokens>\d+)/gpt2/prefill/?(?P<component>.*)$")
    rows = launches.join(parts).dropna(subset=["tokens"]).sort_values("start_ns", ignore_index=True)
    rows["component"] = rows["component"].str.replace(r"^(?:blocks/)?h\.\d+", "h.*", regex=True)
    rows["tokens"] = rows["tokens"].astype(int)
    start = (rows["path"].str.endswith("/embeddings")) & ~(
        rows["path"].shift().str.endswith("/embeddings").fillna(False)
    )
    rows["pass"] = start.cumsum()
    each = rows.groupby([*COLUMNS, "pass"], sort=False)["duration_ns"].agg(["size", "sum"]).reset_index()
    found = each.groupby(COLUMNS, sort=False).agg(launches=("size", "median"), gpu_time_ns=("sum", "median"))
    return found.round().astype(int).reset_index()


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module's docstring."""
    parser = documented("python -m studies.layers.measure_lengths", __doc__)
    parser.add_argument("--of", type=Path, metavar="RUN", help="a captured run: write its table")
    parser.add_argument("--out", type=Path, default=TABLE)
    options: argparse.Namespace = parser.parse_args(arguments)

    def program() -> int:
        if options.of is None:
            run_passes()
        else:
            rows = table(Facts(load([options.of / "captures"])).launches)
            rows.to_csv(options.out, index=False, lineterminator="\n")
        return 0

    return guarded(program)


if __name__ == "__main__":
    sys.exit(main())
