"""Define the steps that the accounting is compared with, and its predictions."""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

from studies.accounting.architecture import (
    Architecture,
    find,
)

TABLE = Path(__file__).with_name("predictions.csv")
TIMES = Path(__file__).with_name("times.csv")
TRAIN, DECODE = "train", "decode"
EXACT, FLOPS_WITHIN, BYTES_WITHIN = 0.0, 0.01, 0.03


@dataclass(frozen=True)
class Case:
    """A measured step. `config`: its sizes, as for `harness.run --config`; `counted`: ncu counts it."""

    model: str
    workload: str
    dtype: str = "bfloat16"
    checkpointed: bool = False
    config: str = ""
    counted: bool = False


SMALL = "n_layer=2,n_embd=64,n_head=4,vocab_size=101,n_positions=32"
FEW_LAYERS = "n_layer=3"  # ncu replays each kernel: 3 of 12 equal layers take a quarter of the time
CASES = (
    Case("gpt2", "prefill_b1_t1024", counted=True),
    Case("gpt2", "decode_b1_ctx1023", counted=True),
    Case("gpt2 of 3 layers", "train_b1_t1024", config=FEW_LAYERS, counted=True),
    Case("gpt2", "train_b1_t1024"),
    Case("gpt2", "train_b4_t1024"),
    Case("gpt2", "train_b4_t1024", checkpointed=True),
    Case("gpt2", "train_b4_t1024", dtype="float32"),
    Case("gpt2-medium", "train_b2_t1024"),
)
CPU_CASES = (
    Case("small", "prefill_b1_t16", "float32", config=SMALL),
    Case("small", "decode_b1_ctx15", "float32", config=SMALL),
    Case("small", "train_b2_t16", "float32", config=SMALL),
)


def architecture_of(case: Case) -> Architecture:
    """Return the sizes of a case: from models.toml, with the values of its configuration in place of GPT-2's."""
    names = {"n_layer": "layers", "n_embd": "channels", "n_head": "heads", "vocab_size": "vocab",
             "n_positions": "positions"}  # fmt: skip
    if not case.config:
        return find(case.model)
    sizes = {names[name]: int(value) for name, value in (item.split("=") for item in case.config.split(","))}
    whole = {"family": "gpt2", "layers": 12, "channels": 768, "heads": 12, **sizes}
    return msgspec.convert(whole, Architecture).whole(case.model)


@cache
def frozen() -> tuple[dict[str, str], ...]:
    """Return the rows of predictions.csv, which were committed before the first measurement and stay unchanged."""
    with TABLE.open(newline="", encoding="utf-8") as stream:
        return tuple(csv.DictReader(stream))


@cache
def predicted_times() -> dict[tuple[str, ...], float]:
    """Return (model, workload, dtype, checkpointed) -> ns: times.csv, which `measure --predict` writes."""
    with TIMES.open(newline="", encoding="utf-8") as stream:
        return {tuple(row.values())[:4]: float(row["predicted_ns"]) for row in csv.DictReader(stream)}
