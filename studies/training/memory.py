"""Read activation memory by layer from a snapshot of PyTorch's allocator."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tabulate import tabulate

from analysis.formats.errors import InputError

BEFORE = ""  # memory from before the step: weights, gradients, the optimiser's moments


def by_layer(snapshot: Mapping[str, Any]) -> dict[str, int]:
    """Return layer -> live bytes, in the order of the first allocation; blocks without a layer are BEFORE.

    `snapshot` is what `torch.cuda.memory._snapshot()` returns right after the forward pass. Its trace has the name that
    `_set_memory_metadata` had at each allocation; the last one at an address made the live block there. Bytes are as
    requested, before rounding.

    Raises: InputError if the snapshot names no layer.
    """
    found: Counter[str] = Counter()
    allocated = [one for trace in snapshot.get("device_traces", ()) for one in trace if one["action"] == "alloc"]
    names = {one["addr"]: one.get("user_metadata") or BEFORE for one in allocated}
    for segment in snapshot.get("segments", ()):
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                found[names.get(block["address"], BEFORE)] += int(block.get("requested_size", block["size"]))
    if not found.keys() - {BEFORE}:
        raise InputError(
            "The snapshot names no layer: record it with torch.cuda.memory._record_memory_history(context='all') and "
            "_set_memory_metadata, of torch 2.10 or newer."
        )
    first_seen = list(dict.fromkeys([BEFORE, *(one.get("user_metadata") or BEFORE for one in allocated)]))
    return dict(sorted(found.items(), key=lambda item: first_seen.index(item[0])))


def text(layers: Mapping[str, int]) -> str:
    """Return a table of the bytes by layer, with shares of what the step added."""
    added = sum(size for name, size in layers.items() if name != BEFORE)
    rows = [
        [name or "weights, gradients, moments", f"{size / 1e6:,.1f} MB", f"{size / added:.1%}" if name else ""]
        for name, size in layers.items()
    ]
    return tabulate(rows, ["layer", "live after forward", "of the activations"], disable_numparse=True)
