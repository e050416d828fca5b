"""Hold the sizes of the studies, and their predictions: predictions.csv, from before the first measurement.

A prediction holds if the measurement lies between `low` and `high`. Commit efc60ec4 has the models that wrote the file,
from waves, tiles, roofs, launches and bytes.
"""

import csv
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TABLE = Path(__file__).with_name("predictions.csv")

SMS = 132  # of the H200
DTYPES = ("fp32", "tf32", "bf16")  # of the products


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


SIZES = (1024, 2048, 4096, 8192, 16384)  # of the products

# The MLP, and the factors by which one of its sizes grows; on a GPU also those of LARGER.
MLP_DIM, MLP_LAYERS, MLP_BATCH, MLP_STEPS = 256, 4, 256, 2
TIMES = (2, 3, 4, 5)
LARGER = {"batch": (8, 16, 32, 64), "dim": (8, 16)}


def mlp_sizes() -> dict[str, int]:
    return {"steps": MLP_STEPS, "layers": MLP_LAYERS, "batch": MLP_BATCH, "dim": MLP_DIM}


# The five tricks.
ELEMENTS = 1 << 26  # 268 MB in fp32: four times L2
SIDE = 8192  # side of the matrix for coalescing
TILED_N = 2048
BLOCKS, WIDTH, ROWS = 16, 2048, 16384  # of the checkpoints

WAVE_SIZES = tuple(sorted({*range(1536, 2561, 32), *range(1780, 1801), *range(2040, 2057), *range(1800, 2560, 40)}))


PATHS = (1, 2, 4, 8, 16, 32)  # of diverging warps


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


REFITTED = ("mlp", "waves")  # their first models missed most rows


def fits(one: Expected) -> bool:
    """Return whether a second model of the study may see this row; it is judged on the other half.

    The half with the lower SHA-256 of the names fits. The rule was committed before the second model was written.
    """
    rows = sorted(
        (hashlib.sha256(f"{row.study}/{row.case}/{row.quantity}".encode()).hexdigest(), row.case, row.quantity)
        for row in frozen()
        if row.study == one.study
    )
    return any((one.case, one.quantity) == key[1:] for key in rows[: len(rows) // 2])
