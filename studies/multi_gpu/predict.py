"""Predict the speed-up of several GPUs from one GPU's kernel times, from bytes and from links, before any measurement.

    python -m studies.multi_gpu.predict             print predictions.csv
    python -m studies.multi_gpu.predict --gpus 4    print predictions_4.csv
    python -m studies.multi_gpu.predict --trap      print predictions_trap.csv
    … --ceilings FILE                               with the links of that ceilings.json instead of links.toml

A rank with a share of a part's work (heads, columns, vocabulary) needs that share of the part's time above its floor.
Nothing overlaps with an all-reduce. The trap does one thing after the other: allocate, copy, compute, copy back, free.
"""

import csv
import io
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from analysis.formats.console import documented, guarded, run_program
from analysis.formats.errors import InputError
from analysis.formats.run import PEER_COPY
from studies.multi_gpu import times
from studies.multi_gpu.links import ALL_GATHER, ALL_REDUCE, Links, links
from studies.multi_gpu.slices import CLAIMED_GPUS, FORWARD, OPS, Sizes
from studies.multi_gpu.times import DECODE, HEADS, INNER, PREFILL, VOCAB, step_ns

HERE = Path(__file__).parent
TABLE, TRAP_TABLE, FOUR_TABLE = (HERE / f"predictions{one}.csv" for one in ("", "_trap", "_4"))
DP, TP = "dp", "tp"
GPUS = 2  # the number of GPUs to measure
BATCHES, TOKENS = (1, 2, 4, 8, 16, 32, 64), (128, 256, 512, 1024)
FEW_BATCHES, FEW_TOKENS = (1, 8, 32), (128, 1024)  # on more GPUs than two
# Steps between two synchronisations: the GPU's queue has to hold all their launches, and holds about a thousand.
TOGETHER = 2  # prefills
NEW_TOKENS = 2  # decode steps; they end at position T
CHANNELS, HEAD_COUNT, INNER_WIDTH, VOCAB_SIZE, ITEM = 768, 12, 3072, 50257, 4
KEY = ("mode", "step", "batch", "tokens")
MEASURED = ("measured_one_ns", "measured_ns", "measured_speedup", "error_frac")
COLUMNS = (*KEY, "one_ns", "compute_ns", "exposed_ns", "predicted_ns", "speedup", "wall_speedup", *MEASURED)
TRAP_MEASURED = ("measured_one_ns", "measured_trap_ns", "measured_resident_ns")
TRAP_COLUMNS = ("op", "gpus", "shape", "one_ns", "allocate_ns", "copy_ns", "trap_ns", "trap_speedup",
                "resident_speedup", "trap_pays_from_batch", "resident_pays_from_batch", *TRAP_MEASURED)  # fmt: skip
PAYS = 1.05  # speed-up from which slicing pays
MOST_BATCH = 4096
NEVER = "never"


def larger_share(total: int, ranks: int) -> float:
    """Return the busiest rank's share of `total` things that are split over the ranks as evenly as possible."""
    return math.ceil(total / ranks) / total


def context_of(tokens: int) -> int:
    """Return the number of tokens in the cache before NEW_TOKENS decode steps that end at position `tokens`."""
    return tokens - NEW_TOKENS


def workload(step: str, batch: int, tokens: int) -> str:
    """Return the name of a workload in the form of harness/workloads.py, such as `prefill_b8_t1024`."""
    return f"{step}_b{batch}_" + (f"t{tokens}" if step == PREFILL else f"ctx{context_of(tokens)}")


# Data parallel, tensor parallel ------------------------------------------------------------------------------


def rows(ceilings: Mapping[str, Any] | None = None, gpus: int = GPUS) -> Iterator[dict[str, Any]]:
    """Yield the rows of predictions.csv, or of predictions_4.csv for CLAIMED_GPUS, without measurements."""
    between = links(times.runs().gpu, gpus, ceilings)
    for mode in (DP, TP):
        for step in (PREFILL, DECODE):
            for batch in BATCHES:
                for tokens in TOKENS:
                    if gpus != GPUS and (batch not in FEW_BATCHES or tokens not in FEW_TOKENS):
                        continue
                    yield row(mode, step, batch, tokens, between, gpus)


def row(mode: str, step: str, batch: int, tokens: int, between: Links, ranks: int = GPUS) -> dict[str, Any]:
    """Return one prediction: GPU times of a step in ns, their speed-up, and the speed-up with the CPU's launches."""
    length = tokens if step == PREFILL else context_of(tokens)
    one = step_ns(step, batch, length)
    compute, exposed, more = (data_parallel if mode == DP else tensor_parallel)(step, batch, length, between, ranks)
    cpu = times.launches(step) * times.launch_ns()
    wall = max(compute + exposed, cpu + more * times.launch_ns())
    return {
        "mode": mode, "step": step, "batch": batch, "tokens": tokens, "one_ns": round(one),
        "compute_ns": round(compute), "exposed_ns": round(exposed), "predicted_ns": round(compute + exposed),
        "speedup": round(one / (compute + exposed), 3), "wall_speedup": round(max(one, cpu) / wall, 3),
    }  # fmt: skip


def data_parallel(step: str, batch: int, tokens: int, between: Links, ranks: int) -> tuple[float, float, int]:
    """Return (ns of the busiest rank's sequences, ns of gathering that nothing hides, additional launches) of a step.

    Decode steps gather their tokens once, after the last step. Each prefill but the last hides its gather behind the
    next prefill. So several steps share the time of one gather.
    """
    share = math.ceil(batch / ranks)
    together = TOGETHER if step == PREFILL else NEW_TOKENS
    return step_ns(step, share, tokens), between[ALL_GATHER].time_ns(8 * batch) / together, 1


def tensor_parallel(step: str, batch: int, tokens: int, between: Links, ranks: int) -> tuple[float, float, int]:
    """Return the same for ranks that share heads, columns and vocabulary.

    They need two all-reduces a layer, and one all-gather of the largest logits.
    """
    whole = {HEADS: HEAD_COUNT, INNER: INNER_WIDTH, VOCAB: VOCAB_SIZE}
    shares = {name: larger_share(total, ranks) for name, total in whole.items()}
    size = batch * (tokens if step == PREFILL else 1) * CHANNELS * ITEM
    reduced = 2 * times.LAYERS * between[ALL_REDUCE].time_ns(size)
    return step_ns(step, batch, tokens, shares), reduced + between[ALL_GATHER].time_ns(16 * batch), 2 * times.LAYERS + 6


# The trap ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moved:
    """What an op moves and allocates: input and output bytes a sequence, bytes of weights, and numbers of tensors."""

    inputs: int
    outputs: int
    weights: int
    input_tensors: int
    weight_tensors: int
    within: int = 0  # tensors that it allocates while it computes


def moved(op: str, sizes: Sizes) -> Moved:
    """Return what an op moves. GPT-2 has 50 weights of 1 MiB or more, and needs about 10 buffers at once."""
    row = sizes.tokens * sizes.channels * ITEM
    square = sizes.channels**2 * ITEM
    return {
        "residual": Moved(2 * row, row, 0, 2, 0),
        "attention": Moved(3 * row, row, 0, 3, 0),
        "matmul": Moved(row, 4 * row, 4 * square + 4 * sizes.channels * ITEM, 1, 1),
        "layernorm": Moved(row, row, 2 * sizes.channels * ITEM, 1, 0),
        FORWARD: Moved(8 * sizes.tokens, VOCAB_SIZE * ITEM, 124_439_808 * ITEM, 0, 50, 10),
    }[op]


def one_ns(op: str, batch: int, tokens: int = 1024) -> float:
    """Return the time in ns of an op of the claims, or of the forward pass, on one GPU."""
    eight = (("b1_t1024", 1024), ("b8_t1024", 8192))
    product = (("fc", 1024), ("fc_b8", 8192))
    timed: dict[str, Callable[[], float]] = {
        "residual": lambda: times.op_ns("residual", batch, eight),
        "attention": lambda: times.op_ns("attention", batch, eight, "sdpa_efficient"),
        "matmul": lambda: times.op_ns("matmul", batch, product),
        "layernorm": lambda: times.op_ns("layernorm", batch, eight),
        FORWARD: lambda: step_ns(PREFILL, batch, tokens),
    }
    return timed[op]()


def trap_parts(op: str, batch: int, gpus: int, between: Links) -> tuple[float, float, float]:
    """Return the trap's (ns of allocating and freeing, ns of copying, ns of computing a slice); they do not overlap."""
    sizes = Sizes(batch=batch)
    of, used = moved(op, sizes), min(gpus, batch)
    # For each GPU also its result and the result's copy on the first GPU; then, once, the whole result.
    allocations = used * (of.input_tensors + of.weight_tensors + of.within + 2) + 1
    others = used - 1
    share = batch / used
    away = others * (of.input_tensors + of.weight_tensors + 1)
    sent = others * (share * (of.inputs + of.outputs) + of.weights)
    link = between[PEER_COPY]
    copies = away * link.time_ns(sent / away) if away else 0.0
    inside = share * (of.inputs + of.outputs) + of.weights + batch * of.outputs
    copies += 2 * inside / times.copy_rate() * 1e9
    allocate = allocations * times.api_ns("cudaMalloc", "cudaFree")
    return allocate, copies, one_ns(op, math.ceil(share))


def speedups(op: str, batch: int, gpus: int, between: Links) -> tuple[float, float]:
    """Return the speed-ups over one GPU of the trap and of resident slices."""
    one, parts = one_ns(op, batch), trap_parts(op, batch, gpus, between)
    return one / sum(parts), one / parts[-1]


def pays_from(op: str, gpus: int, between: Links, way: int) -> int | str:
    """Return the smallest power of two from which slicing pays at every batch up to MOST_BATCH; NEVER if at none.

    `way` is the place of the speed-up in the result of `speedups`: 0 for the trap, 1 for resident slices.
    """
    last: int | str = NEVER
    batch = MOST_BATCH
    while batch >= 1 and speedups(op, batch, gpus, between)[way] >= PAYS:
        last, batch = batch, batch // 2
    return last


def trap_rows(ceilings: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows of predictions_trap.csv: each op on GPUS GPUs, and on CLAIMED_GPUS, the project's number."""
    for op in (*OPS, FORWARD):
        for gpus in (GPUS, CLAIMED_GPUS):
            between = links(times.runs().gpu, gpus, ceilings)
            sizes = Sizes()
            allocate, copies, compute = trap_parts(op, sizes.batch, gpus, between)
            one = one_ns(op, sizes.batch)
            trap, resident = speedups(op, sizes.batch, gpus, between)
            yield {
                "op": op, "gpus": gpus, "shape": sizes.words, "one_ns": round(one), "allocate_ns": round(allocate),
                "copy_ns": round(copies), "trap_ns": round(allocate + copies + compute),
                "trap_speedup": round(trap, 4), "resident_speedup": round(resident, 3),
                "trap_pays_from_batch": pays_from(op, gpus, between, 0),
                "resident_pays_from_batch": pays_from(op, gpus, between, 1),
            }  # fmt: skip


# Files -------------------------------------------------------------------------------------------------------


def text_of(found: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Return a CSV file of the rows; a column that a row lacks stays blank."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    return stream.getvalue()


@cache
def frozen(file: Path = TABLE) -> tuple[dict[str, str], ...]:
    """Return the rows of a committed table of predictions: written before any measurement and not changed since."""
    with file.open(newline="", encoding="utf-8") as stream:
        return tuple(csv.DictReader(stream))


def ceilings_of(file: Path | None) -> Mapping[str, Any] | None:
    if file is None:
        return None
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{file.name} cannot be read ({error}): give a ceilings.json, or leave --ceilings out."
        ) from None
    if not content.get("links"):
        raise InputError(f"{file.name} has no links: measure them on two GPUs first, or leave --ceilings out.")
    return dict(content)


def main(argv: Sequence[str] | None = None) -> int:
    parser = documented("python -m studies.multi_gpu.predict", __doc__)
    parser.add_argument("--trap", action="store_true", help="the ops of the claims and the forward pass")
    parser.add_argument("--gpus", type=int, default=GPUS, help="GPUs of the models' steps (default: 2)")
    parser.add_argument("--ceilings", type=Path, help="a ceilings.json with measured links")
    options = parser.parse_args(argv)

    def program() -> int:
        found = ceilings_of(options.ceilings)
        print(
            text_of(trap_rows(found), TRAP_COLUMNS) if options.trap else text_of(rows(found, options.gpus), COLUMNS),
            end="",
        )
        return 0

    return guarded(program)


if __name__ == "__main__":
    sys.exit(run_program(main))
