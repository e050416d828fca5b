"""Write the table of studies/dropin/README.md from a committed run."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analysis.formats import packed
from analysis.page.text import cell
from studies.dropin.files import DROPIN
from studies.publish.committed import plain

OURS, OTHERS = "kernel_ledger", ("eager", "sdpa")
MEASURED = ("token", "prompt", "memory of a prompt")
EACH = [f"{what}: {name}" for what in MEASURED for name in ("eager", "sdpa", "ours")]
HEADERS = ["model, mode, batch x tokens", *EACH, "same text"]


def text(folder: Path) -> str:
    """Return one row a model, mode and batch: times and memory of eager attention, sdpa and ours."""
    document = json.loads(packed.read_bytes(packed.find(folder / DROPIN.name)))
    return plain(HEADERS, [*_rows(document["settings"])])


def _rows(settings: list[dict[str, Any]]) -> Iterator[list[str]]:
    groups: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    for one in settings:
        key = one.get("model", "gpt2"), one["mode"], one["dtype"], one["batch"], one["context_tokens"]
        groups.setdefault(key, {})[one["attention"]] = one
    for (model, mode, _, batch, tokens), ran in groups.items():
        rows = [ran.get(name, {}) for name in (*OTHERS, OURS)]
        same = ran.get(OURS, {}).get("same_text")
        yield [
            f"{model}, {mode}, {batch} x {tokens}",
            *(cell(one.get("token_time_p50_ns"), "time_ns") for one in rows),
            *(cell(one.get("prompt_time_p50_ns"), "time_ns") for one in rows),
            *(cell(one.get("prompt_peak_bytes"), "peak_bytes") for one in rows),
            "" if same is None else "yes" if same else "no",
        ]
