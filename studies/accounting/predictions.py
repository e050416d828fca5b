"""Define the steps that the accounting is compared with, and its predictions."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from studies.accounting.architecture import (
    Architecture,
    Shape,
    activations,
    backward_products,
    find,
    flops,
    forward_products,
    kv_bytes,
    parameter_count,
)
from studies.accounting.budget import ITEM_BYTES

TABLE = Path(__file__).with_name("predictions.csv")
TRAIN, DECODE = "train", "decode"
EXACT, FLOPS_WITHIN, MEMORY_WITHIN, BYTES_WITHIN = 0.0, 0.01, 0.02, 0.03


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


def predictions(
    case: Case, batch: int, tokens: int, context: int, peak_bytes: int, read_bytes: int
) -> Iterator[dict[str, Any]]:
    """Yield the rows of predictions.csv: parameters and FLOPs of each step; memory of training; DRAM reads of decoding.

    `peak_bytes` and `read_bytes` come from measure.trace, because they depend on the order of operations.
    """
    of, shape = architecture_of(case), Shape(batch, tokens, context, ITEM_BYTES[case.dtype])
    trains = case.workload.startswith(TRAIN)
    products = forward_products(of, shape)
    needed = flops(products) + (flops(backward_products(products)) if trains else 0)
    found = [("parameters", "1", parameter_count(of), EXACT, "sizes")]
    if case.counted:
        found.append(("FLOPs of products", "FLOP", needed, FLOPS_WITHIN, "2 m n k of each product"))
    if trains:
        held = activations(of, shape, checkpointed=case.checkpointed)
        found.append(("activations", "byte", held, MEMORY_WITHIN, "what each operation keeps"))
        found.append(("peak of the step", "byte", peak_bytes, MEMORY_WITHIN, "the life of every tensor"))
    if case.counted and not trains:
        weights = (parameter_count(of) - (of.positions - tokens) * of.channels) * shape.e
        parts = f"weights {weights}, KV {kv_bytes(of, shape)}, and the inputs of each operation, cold by ncu's flush"
        found.append(("DRAM bytes read", "byte", read_bytes, BYTES_WITHIN, parts))
    for quantity, unit, predicted, within, why in found:
        yield {
            "model": case.model, "workload": case.workload, "dtype": case.dtype,
            "checkpointed": "yes" if case.checkpointed else "", "quantity": quantity, "unit": unit,
            "predicted": predicted, "within_frac": within, "of": why,
        }  # fmt: skip


COLUMNS = ("model", "workload", "dtype", "checkpointed", "quantity", "unit", "predicted", "within_frac", "of")


def text_of(rows: Iterable[dict[str, Any]]) -> str:
    """predictions.csv with these rows."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


@cache
def frozen() -> tuple[dict[str, str], ...]:
    """Return the rows of predictions.csv, which were committed before the first measurement and stay unchanged."""
    with TABLE.open(newline="", encoding="utf-8") as stream:
        return tuple(csv.DictReader(stream))
