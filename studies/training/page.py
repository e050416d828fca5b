"""Write the tables of studies/training/README.md from a committed run."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd

from analysis.formats import packed
from analysis.hardware.devices import find_device
from analysis.page.text import cell
from studies.accounting.architecture import autocast_activations, block_activations, find, head_activations
from studies.accounting.budget import mfu, training_flops
from studies.accounting.workload import shape_of
from studies.publish.committed import plain, read_table
from studies.training.ways import WAYS

PARTS = ("forward", "loss", "forward_loss", "backward", "optimizer")
SHAPE = shape_of("train_b4_t1024", 4)
MEMORY = "training_memory.csv"


def text(folder: Path, gpu: str) -> str:
    """Return the time of each way's parts, blocks forward and backward, and live bytes by layer."""
    layers = read_table(folder, "layers").set_index("range")
    headers = ["way", "GPU time of a step", *PARTS, "launches", "of them AdamW", "a block, forward", "backward", "MFU"]
    times = plain(headers, [_row(way, layers, gpu) for way in WAYS if f"train_{way}" in layers.index])
    memory = pd.read_csv(packed.find(folder / MEMORY), keep_default_na=False)
    live = plain(["way", "each block", "predicted", "outside the blocks", "predicted", "together"], [*_live(memory)])
    return f"{times}\n\nLive after the forward pass, by the allocator's snapshot:\n\n{live}"


def _row(way: str, layers: pd.DataFrame, gpu: str) -> list[str]:
    root = layers.loc[f"train_{way}"]
    device, dtype = find_device(gpu), "bfloat16" if WAYS[way].get("autocast") else "float32"

    def of(path: str, column: str = "gpu_time_ns") -> float | None:
        return float(layers.at[path, column]) / root["calls"] if path in layers.index else None

    step = of(f"train_{way}") or 0.0
    blocks = [layers.index.str.fullmatch(rf"train_{way}/{part}/h\.\d+") for part in ("forward", "backward")]
    each = [layers.loc[rows, "gpu_time_ns"].mean() / root["calls"] for rows in blocks]
    used = mfu(training_flops(find("gpt2"), SHAPE), step / 1e9, device, dtype) if device else None
    parts = [of(f"train_{way}/{part}") for part in PARTS]
    launches = of(f"train_{way}", "launches"), of(f"train_{way}/optimizer", "launches")
    return [
        way,
        *(cell(value, "time_ns") for value in (step, *parts)),
        *(cell(round(value or 0), "launches") for value in launches),
        *(cell(value, "time_ns") for value in each),
        cell(used, "mfu_frac"),
    ]


def predicted(way: str) -> tuple[int, int]:
    """Return the predicted bytes of a block and of the rest that live after the forward pass of a way with ranges."""
    of = find("gpt2")
    if WAYS[way].get("autocast"):
        return autocast_activations(of, replace(SHAPE, e=2))
    return block_activations(of, SHAPE), head_activations(of, SHAPE)


def _live(memory: pd.DataFrame) -> Iterator[list[str]]:
    for way, of in memory[memory["layer"] != ""].groupby("way", sort=False):
        inside = of["layer"].str.startswith("h.")
        sizes, outside = of[inside]["live_bytes"], of[~inside]["live_bytes"]
        least, most = (cell(int(value), "live_bytes") for value in (sizes.min(), sizes.max()))
        block, rest = (cell(value, "live_bytes") for value in predicted(str(way)))
        each = least if least == most else f"{least} – {most}"
        outside, together = (cell(int(value), "live_bytes") for value in (outside.sum(), of["live_bytes"].sum()))
        yield [str(way), each, block, outside, rest, together]
