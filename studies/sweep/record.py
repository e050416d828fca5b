"""Which call of studies.sweep.run measured which rows, and under which conditions: `calls` of sweep.json.

sweep.csv only grows, so a call is the rows that it appended: `first_row` to `last_row`, counted from 1; without a
last one the call was ended from outside, and its rows go on to the next call's or to the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness import doctor, outputs
from kernels import build

_FACTS = ("arguments", "git_sha", "git_dirty", "driver", "cuda", "torch", "clocks", "clocks_reason")

Call = dict[str, Any]


def earlier(file: Path, rows: int) -> list[Call]:
    """The calls that sweep.json lists, those that were ended from outside closed; those without a row are dropped."""
    calls = (outputs.read_json(file) or {}).get("calls") or []
    ends = [*(call["first_row"] - 1 for call in calls[1:]), rows]
    closed = [
        call if call.get("last_row") else call | {"last_row": end} for call, end in zip(calls, ends, strict=False)
    ]
    return [call for call in closed if call["first_row"] <= call["last_row"]]


def begin(facts: Mapping[str, Any], rows: int) -> Call:
    """A call that starts now, after so many rows; `facts` is its manifest."""
    return {
        "first_row": rows + 1, "when": datetime.now(UTC).isoformat(timespec="seconds"),
        **{name: facts[name] for name in _FACTS}, "nvcc": doctor.tool_version(build.find_nvcc()),
        "sampled": "while timing",
    }  # fmt: skip


def end(call: Call, rows: int, clocks: Mapping[str, Any]) -> list[Call]:
    """The call with its last row and its clocks, [] where it measured nothing."""
    return [call | {"last_row": rows, **clocks}] if rows >= call["first_row"] else []
