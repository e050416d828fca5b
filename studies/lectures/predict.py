"""Predict each study's results on an H200 from waves, tiles, roofs, launches and bytes.

    python -m studies.lectures.predict     print predictions.csv

predictions.csv holds this text from before the first measurement and does not change. A prediction holds if the
measurement lies between `low` and `high`.
"""

from __future__ import annotations

import csv
import io
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path

TABLE = Path(__file__).with_name("predictions.csv")

# Constants of one H200 from earlier committed runs: the roofs in reports/, and launches.
SMS = 132
DRAM, L2 = 4.27e12, 9.26e12  # byte/s of a copy, of reads
SUSTAINED = {"fp32": 51e12, "tf32": 414e12, "bf16": 794e12}  # FLOP/s of cuBLAS at 8192³ (fp32: at 4096³)
DATASHEET = {
    "fp32": 67e12,
    "tf32": 494.5e12,
    "bf16": 989.5e12,
    "fp16": 989.5e12,
    "int8": 1979e12,
    "fp8": 1979e12,
}
TILES = {"fp32": (128, 128), "tf32": (128, 256), "bf16": (128, 256)}
ITEM = {"fp32": 4, "tf32": 4, "bf16": 2}
LAUNCH_NS = 3_000.0  # start and drain of one independent kernel in a filled queue


@dataclass(frozen=True)
class Expected:
    """One prediction; `lecture` is the lecture's number for its GPU, blank without one."""

    study: str
    case: str
    quantity: str
    unit: str
    predicted: float
    low: float
    high: float
    lecture: str
    because: str


def about(
    study: str, case: str, quantity: str, unit: str, predicted: float, within: float, because: str, lecture: str = ""
) -> Expected:
    """Return a prediction with a tolerance of the same factor up and down."""
    low, high = predicted / (1 + within), predicted * (1 + within)
    return Expected(study, case, quantity, unit, predicted, low, high, lecture, because)


def waves(tiles: int) -> int:
    """Return the number of waves: how often all SMs take a tile."""
    return math.ceil(tiles / SMS)


def tiles_of(n: int, tile: tuple[int, int]) -> int:
    """Return the number of tiles of an n x n result."""
    return math.ceil(n / tile[0]) * math.ceil(n / tile[1])


def matmul_ns(n: int, dtype: str) -> float:
    """Return the time of an n³ product, ns: waves at a tile's time, or memory time if longer, plus one launch."""
    rows, columns = TILES[dtype]
    tile_ns = 2.0 * rows * columns * n / (SUSTAINED[dtype] / SMS) * 1e9
    memory_ns = 3.0 * n * n * ITEM[dtype] / DRAM * 1e9
    return max(waves(tiles_of(n, TILES[dtype])) * tile_ns, memory_ns) + LAUNCH_NS


# --- profiles of one operator ---

KERNELS = {
    "add 2048": (1, "one elementwise kernel"),
    "matmul 2048": (1, "one product"),
    "matmul 128": (1, "one product, of a smaller tile: with the large one, one SM would do it all"),
    "cdist 2048": (12, "squares, sums, ones, products by -2, two concatenations, a product, clamp, root"),
    "gelu manual": (8, "one kernel for each operation of its formula"),
    "gelu fused": (1, "one kernel for the formula"),
    "softmax 2048": (1, "a row stays in one block"),
    "MLP step": (18, "4 layers: forward 2 each; backward 3 of each Linear and 1 of each GELU, first input excepted; "
                      "mean 3"),
}  # fmt: skip


def profiles() -> Iterator[Expected]:
    for case, (count, why) in KERNELS.items():
        slack = 0.0 if count == 1 else 0.5 if case == "MLP step" else 0.1
        yield about("profiles", case, "kernels", "1", count, slack, why)
    yield about("profiles", "matmul 2048 against 128", "same kernel", "1", 0, 0, "the tile is chosen by shape")
    # inputs and result together fit L2 (50 of 60 MB), so nothing waits for DRAM
    yield about("profiles", "add 2048", "GPU time", "ns", 3 * 2048**2 * 4 / L2 * 1e9 + LAUNCH_NS, 0.5, "L2 holds all")


# --- matmul scaling ---

SIZES = (1024, 2048, 4096, 8192, 16384)
A100_MS = {1024: (0.22, 9.80), 2048: (1.28, 13.40), 4096: (9.32, 14.74), 8192: (59.71, 18.41), 16384: (462.52, 19.02)}


def matmul() -> Iterator[Expected]:
    for dtype in TILES:
        for n in SIZES:
            lecture = f"A100 {A100_MS[n][0]} ms at {A100_MS[n][1]} TFLOP/s" if dtype == "fp32" else ""
            rows, columns = TILES[dtype]
            count = tiles_of(n, TILES[dtype])
            why = f"{count} tiles of {rows}x{columns} in {waves(count)} waves, at the rate of a large product"
            yield about("matmul", f"{dtype} {n}", "GPU time", "ns", matmul_ns(n, dtype), 0.25, why, lecture)


# --- MLP scaling ---

MLP_DIM, MLP_LAYERS, MLP_BATCH, MLP_STEPS = 256, 4, 256, 2
TIMES = (2, 3, 4, 5)
LECTURE_MLP = {"steps": 4.47, "layers": 3.65, "batch": 0.96, "dim": 0.93}  # at x 5
CALL_NS = 20_000.0  # a call with its synchronisation
STEP_NS = 60_000.0  # CPU time of the step's mean and of starting the backward pass
LAYER_NS = 75_000.0  # CPU time of a layer, both passes: 2 + 6 launches, and autograd
SMALL_KERNEL_NS = 2_500.0  # on the GPU, whatever the size
MLP_RATE = 35e12  # FLOP/s of fp32 products of these sizes
LARGER = {"batch": (8, 16, 32, 64), "dim": (8, 16)}


def mlp_parts(steps: int, layers: int, batch: int, dim: int) -> tuple[float, float]:
    """Return (CPU, GPU) time in ns of forward and backward passes; the longer one hides the other."""
    cpu = steps * (STEP_NS + layers * LAYER_NS)
    products = 3 * max(2.0 * batch * dim * dim / MLP_RATE * 1e9, 2 * SMALL_KERNEL_NS)
    moved = 10.0 * batch * dim * 4 / L2 * 1e9 + 5 * SMALL_KERNEL_NS + 4.0 * dim * dim * 4 / L2 * 1e9
    return cpu, steps * layers * (products + moved)


def mlp_ns(steps: int = MLP_STEPS, layers: int = MLP_LAYERS, batch: int = MLP_BATCH, dim: int = MLP_DIM) -> float:
    """Return the wall time of a call in ns: the longer of launching and working."""
    return CALL_NS + max(mlp_parts(steps, layers, batch, dim))


def mlp_sizes() -> dict[str, int]:
    return {"steps": MLP_STEPS, "layers": MLP_LAYERS, "batch": MLP_BATCH, "dim": MLP_DIM}


def mlp_scaled(axis: str, times: int) -> float:
    """Return the wall time in ns with one axis enlarged by a factor."""
    return mlp_ns(**(mlp_sizes() | {axis: mlp_sizes()[axis] * times}))


def first_costly(axis: str) -> int:
    """Return the least factor of an axis at which the GPU takes longer than the launches."""
    return next(times for times in range(1, 1000) if mlp_scaled(axis, times) > 1.05 * mlp_ns())


def mlp() -> Iterator[Expected]:
    base = mlp_ns()
    yield about("mlp", "base", "wall time", "ns", base, 0.4, "launches: 20 µs a call, 60 a step, 75 a layer")
    for axis, lecture in LECTURE_MLP.items():
        for times in TIMES:
            cpu, gpu = mlp_parts(**(mlp_sizes() | {axis: mlp_sizes()[axis] * times}))
            why = f"launches {cpu / 1e3:.0f} µs, their work {gpu / 1e3:.0f} µs"
            said = str(lecture) if times == 5 else ""
            factor = mlp_scaled(axis, times) / base
            yield about("mlp", f"{axis} x {times}", "factor", "1", factor, 0.15, why, said)
    for axis, sizes in LARGER.items():
        for times in sizes:
            cpu, gpu = mlp_parts(**(mlp_sizes() | {axis: mlp_sizes()[axis] * times}))
            why = f"launches {cpu / 1e3:.0f} µs, their work {gpu / 1e3:.0f} µs"
            yield about("mlp", f"{axis} x {times}", "factor", "1", mlp_scaled(axis, times) / base, 0.5, why)
        why = "where the work of a step outgrows its launches"
        yield Expected("mlp", axis, "costs from", "1", first := first_costly(axis), first / 2, first * 2, "", why)


# --- the five tricks ---

ELEMENTS = 1 << 26  # 268 MB in fp32: four times L2
SIDE = 8192  # side of the matrix for coalescing
TILED_N = 2048


def passes_ns(passes: float, item: int = 4) -> float:
    """Return time in ns of `passes` reads or writes of all elements."""
    return passes * ELEMENTS * item / DRAM * 1e9 + LAUNCH_NS


def tricks() -> Iterator[Expected]:
    yield about("tricks", "ReLU fp32", "GPU time", "ns", passes_ns(2), 0.1, "a read and a write: 8 bytes a FLOP", "8 B")
    yield about("tricks", "ReLU bf16", "GPU time", "ns", passes_ns(2, 2), 0.1, "half of the bytes: 4 a FLOP", "4 B")
    for case, slow, fast, kernels, lecture in (
        ("sin² + cos²", 4 * 2 + 3, 2, 5, "5 kernels → 1"),
        ("GeLU", 2 * 6 + 3 * 2, 2, 8, "8 kernels → 1"),
    ):
        yield about("tricks", f"{case} eager", "kernels", "1", kernels, 0, "one for each operation", lecture)
        yield about("tricks", f"{case} eager", "GPU time", "ns", passes_ns(slow) + kernels * LAUNCH_NS, 0.1,
                    f"{slow} passes over the elements")  # fmt: skip
        yield about("tricks", f"{case} fused", "kernels", "1", 1, 0, "one for all operations", lecture)
        yield about("tricks", f"{case} fused", "GPU time", "ns", passes_ns(fast), 0.15, "2 passes over the elements")
    for case, count in (("stored", 8), ("computed again", 5)):
        why = f"{count} passes: what lies between is {case}"
        yield about("tricks", f"three sigmoids {case}", "GPU time", "ns", passes_ns(count), 0.1, why, f"{count} passes")
        reads, writes = (4, 4) if case == "stored" else (3, 2)
        yield about("tricks", f"three sigmoids {case}", "DRAM bytes read", "byte", reads * ELEMENTS * 4, 0.02, why)
        yield about("tricks", f"three sigmoids {case}", "DRAM bytes written", "byte", writes * ELEMENTS * 4, 0.12,
                    f"{why}; what was written last still lies in L2")  # fmt: skip
    yield from _checkpoints()
    yield from _coalescing()
    yield from _tiling()


BLOCKS, WIDTH, ROWS = 16, 2048, 16384


def _checkpoints() -> Iterator[Expected]:
    """Linear and GELU, 16 times, bf16. A block keeps its input and GELU's, 2 rows of WIDTH; a checkpoint keeps one."""
    row = ROWS * WIDTH * 2
    whole, again = 2 * BLOCKS * row, (BLOCKS + 2) * row
    why = f"two tensors of {row / 1e6:.0f} MB a block"
    yield about("tricks", "checkpoints off", "activations", "byte", whole, 0.05, why)
    yield about("tricks", "checkpoints on", "activations", "byte", again, 0.1, "one a block, and one block's own")
    yield about(
        "tricks", "checkpoints", "time, on over off", "1", 4 / 3, 0.08, "forward, backward 2, and forward again"
    )


def _coalescing() -> Iterator[Expected]:
    moved = 2.0 * SIDE * SIDE * 4
    yield about("tricks", "rows", "GPU time", "ns", moved / DRAM * 1e9 + LAUNCH_NS, 0.1, "every byte once")
    yield about("tricks", "rows", "sectors a request", "1", 4, 0.01, "a warp's 128 bytes are 4 sectors of 32")
    yield about("tricks", "columns", "sectors a request", "1", 32, 0.01, "each lane needs a sector of its own")
    sectors = SIDE * SIDE * 32.0
    yield about(
        "tricks", "columns", "L2 bytes read", "byte", sectors, 0.05, "a sector for each element: 8 times the data"
    )
    # 8 blocks that share sectors are SIDE / 256 blocks apart, and their data together fits L2
    yield about("tricks", "columns", "GPU time", "ns", 2 * sectors / L2 * 1e9 + LAUNCH_NS, 0.5,
                "8 times the bytes between L2 and the SMs; neighbours are found in L2")  # fmt: skip


def _tiling() -> Iterator[Expected]:
    n = float(TILED_N)
    for tile in (0, 8, 16, 32):
        loads = 2 * n**3 / 32 / (tile or 1)
        case = f"tile {tile}" if tile else "no tile"
        why = "two loads for each product" if not tile else f"each element once for {tile} products"
        yield about(
            "tricks", f"{case} {TILED_N}", "global loads", "1", loads, 0.02, why, "reads ÷ tile" if tile else ""
        )
    side = math.ceil((TILED_N + 1) / 32) * 32
    factor = (side / TILED_N) ** 3
    yield about("tricks", "tile 32, 2049 over 2048", "factor", "1", factor, 0.1,
                "65 tiles where 64 would do, and odd rows are not aligned")  # fmt: skip


# --- wave quantisation ---

WAVE_TILE = (128, 256)
WAVE_SIZES = tuple(sorted({*range(1536, 2561, 32), *range(1780, 1801), *range(2040, 2057), *range(1800, 2560, 40)}))
ALIGNED = 8  # bf16 elements in 16 bytes, the alignment of rows for TMA
UNALIGNED = 2.0  # slow-down of kernels that cannot use TMA or wgmma


def wave_ns(n: int, tile: tuple[int, int] = WAVE_TILE) -> float:
    """Return time of a bf16 product in ns from whole waves.

    Rows without 16-byte alignment need the kernels of older GPUs.
    """
    tile_ns = 2.0 * tile[0] * tile[1] * n / (SUSTAINED["bf16"] / SMS) * 1e9
    return waves(tiles_of(n, tile)) * tile_ns * (1 if n % ALIGNED == 0 else UNALIGNED) + LAUNCH_NS


def wave_study() -> Iterator[Expected]:
    for n in WAVE_SIZES:
        count = tiles_of(n, WAVE_TILE)
        why = f"{count} tiles, {waves(count)} waves" + ("" if n % ALIGNED == 0 else ", rows not at 16 bytes")
        yield about("waves", str(n), "GPU time", "ns", wave_ns(n), 0.3, why)
    one = tiles_of(1792, WAVE_TILE), tiles_of(1793, WAVE_TILE)
    why = f"{one[0]} and {one[1]} tiles are one wave of {SMS}: only the alignment is lost. 108 SMs would need a second"
    yield about("waves", "1792 → 1793", "factor", "1", UNALIGNED, 0.4, why, "step on the A100's 108 SMs")
    two = tiles_of(2048, WAVE_TILE), tiles_of(2056, WAVE_TILE)
    why = f"{two[0]} tiles are one wave of {SMS}, {two[1]} are two"
    yield about("waves", "2048 → 2056", "factor", "1", wave_ns(2056) / wave_ns(2048), 0.25, why)


# --- latencies ---


def latencies() -> Iterator[Expected]:
    for case, cycles, within, lecture, why in (
        ("global", 600, 0.25, "290", "HBM, behind both halves of L2"),
        ("L2", 265, 0.2, "200", "microbenchmarks of the H100 found 260"),
        ("L1", 38, 0.25, "33", "microbenchmarks of the H100 found 33 to 41"),
        ("shared", 29, 0.15, "23", "microbenchmarks of the H100 found 29"),
        ("shared, store and load", 48, 0.3, "19 (store)", "a load behind a store of the same word"),
        (
            "shared, load behind a store",
            33,
            0.25,
            "19 (store)",
            "23 of the load, 5 of an addition, 5 to issue the store",
        ),
        ("constant", 30, 0.4, "", "a hit in the constant cache, indexed"),
        ("DSMEM", 190, 0.2, "", "microbenchmarks of the H100 found 180 to 213"),
    ):
        yield about("latencies", case, "latency", "cycle", cycles, within, why, lecture)


# --- SIMT and units ---

PATHS = (1, 2, 4, 8, 16, 32)
SHARES = {"fp32": 0.76, "tf32": 0.83, "bf16": 0.79, "fp16": 0.79, "int8": 0.72, "fp8": 0.72}


def units() -> Iterator[Expected]:
    for paths in PATHS[1:]:
        why = "a warp takes its paths one after the other"
        yield about("units", f"{paths} paths over 1", "factor", "1", paths, 0.1, why)
    for name, share in SHARES.items():
        why = (
            f"{share:.0%} of the datasheet's {DATASHEET[name] / 1e12:g} T: power lowers the clock of a full tensor pipe"
        )
        yield about("units", name, "rate", "1/s", share * DATASHEET[name], 0.12, why)
    for name, value in (("fp16", 0.0), ("bf16", 1.0011717677116394e-08), ("fp32", 1e-8)):
        why = "below half of the least fp16, 6e-8" if name == "fp16" else "8 bits of exponent reach 1e-38"
        yield about("units", f"1e-8 in {name}", "value", "1", value, 1e-6, why)
    for name, value in (("fp16", 1.0009765625), ("bf16", 1.0), ("fp32", 1.0010000467300415)):
        bits = {"fp16": 10, "bf16": 7, "fp32": 23}[name]
        why = f"{bits} bits behind the point: steps of 2^-{bits} at 1"
        yield about("units", f"1.001 in {name}", "value", "1", value, 1e-6, why)


STUDIES: dict[str, Callable[[], Iterator[Expected]]] = {
    "profiles": profiles,
    "matmul": matmul,
    "mlp": mlp,
    "tricks": tricks,
    "waves": wave_study,
    "latencies": latencies,
    "units": units,
}


def text() -> str:
    """Return the text of predictions.csv by today's models."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, [one.name for one in fields(Expected)], lineterminator="\n")
    writer.writeheader()
    for study in STUDIES.values():
        for expected in study():
            numbers = {
                name: f"{value:.9g}" for name, value in asdict(expected).items() if isinstance(value, int | float)
            }
            writer.writerow(asdict(expected) | numbers)
    return stream.getvalue()


@cache
def frozen() -> tuple[Expected, ...]:
    """Return the rows of the committed predictions.csv."""
    with TABLE.open(newline="", encoding="utf-8") as stream:
        return tuple(
            Expected(**{  # type: ignore[arg-type]
                name: float(value) if name in ("predicted", "low", "high") else value for name, value in row.items()
            })
            for row in csv.DictReader(stream)
        )  # fmt: skip


if __name__ == "__main__":
    sys.stdout.write(text())
