"""Find the call of studies.sweep.measure that measured each row of a sweep, and the conditions of each call."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from analysis.capture.model import Capture
from analysis.facts import Facts
from analysis.tables.conditions import list_conditions, list_spans
from analysis.tables.declare import part

NOT_RECORDED = "not recorded"


def number_rows(capture: Capture) -> pd.Series:
    """Return the call's number for each row of sweep.csv in file order: "1", or a text if it is not recorded."""
    rows: pd.DataFrame = capture.sweep_rows
    numbers = pd.Series(NOT_RECORDED, index=rows.index, dtype="str")
    for number, call in enumerate(_calls(capture), 1):  # a call without a last row ends where the next one begins
        last = call.get("last_row") or len(rows)
        numbers.iloc[int(call["first_row"]) - 1 : int(last)] = str(number)
    return numbers


def list_calls(capture: Capture) -> list[tuple[str, str]]:
    """Return name and conditions of each call, and the number of rows without a known call."""
    numbers = number_rows(capture)
    found = [(f"call {number}", _conditions(call)) for number, call in enumerate(_calls(capture), 1)]
    unknown, total = int(numbers.eq(NOT_RECORDED).sum()), len(numbers)
    known = f"{total - unknown} of {total} rows in {len(found)} recorded calls"
    if unknown:
        found.append((f"call {NOT_RECORDED}", f"{unknown} of {total} rows: nor are their commit and their clocks"))
    return [("calls", known), *found]


def list_shared(capture: Capture) -> dict[str, str]:
    """Return versions that all rows share, by their names in a manifest; none if a row's call is unknown."""
    calls = [] if number_rows(capture).eq(NOT_RECORDED).any() else _calls(capture)
    first = calls[0] if calls else {}
    return {
        name: first[name]
        for name in ("driver", "cuda", "torch")
        if first.get(name) and all(call.get(name) == first[name] for call in calls)
    }


@part("title")
def _title(facts: Facts) -> str | None:
    gpu = facts.gpu
    if facts.capture.sweep_rows is None:
        return None
    return f"Configuration sweep on {gpu}" if gpu else "Configuration sweep, compiled only"


@part("conditions")
def _conditions_of_sweep(facts: Facts) -> list[dict[str, str]] | None:
    """Return conditions of a sweep, from all its calls; the manifest describes only the last one."""
    capture = facts.capture
    if capture.sweep_rows is None:
        return None
    manifest = {name: (capture.manifest or {}).get(name) for name in ("nsys", "ncu")}
    return list_conditions(capture, facts.gpu, facts.ncu, manifest | list_shared(capture), list_calls(capture))


def _calls(capture: Capture) -> list[dict[str, Any]]:
    return (capture.sweep or {}).get("calls") or []


def _clocks(call: Mapping[str, Any]) -> list[str]:
    clocks = call.get("clocks") or {}
    said = [" ".join(span) for span in list_spans(clocks)]
    if not said:
        return [f"clocks {call.get('clocks_reason') or NOT_RECORDED}"]
    said[0] += f", {call['sampled']}" if call.get("sampled") else ""
    return [*said, f"throttling {', '.join(clocks.get('throttle_reasons') or []) or 'none'}"]


def _conditions(call: Mapping[str, Any]) -> str:
    rows = f"rows {call['first_row']:g} to {call['last_row']:g}" if call.get("last_row") else "not ended"
    changed = ", with uncommitted changes" if call.get("git_dirty") is True else ""
    said = [
        " ".join(call["arguments"]),
        f"{rows} of sweep.csv",
        f"{call.get('time_kind') or 'chained'} times",
        f"commit {call.get('git_sha') or NOT_RECORDED}{changed}",
        *(f"{name} {call.get(name) or NOT_RECORDED}" for name in ("when", "driver", "cuda", "torch", "nvcc")),
        *_clocks(call),
    ]
    return " · ".join([*said, *filter(None, [call.get("note")])])
