"""Write the generated text on decoding: the rungs in kernels/decode/README.md, and one line of README.md."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from analysis.page import cells, markdown, text
from analysis.tables.declare import section

WIDE = 0.1  # of the median: processes then differ in more than noise
STALE_MARK = "‡"
STALE = f"{STALE_MARK} measured with an earlier version of these kernels."
HEADERS = ["rung", "µs a token (95 % interval)", "of the floor", "launches", "GPU busy (µs)", "what was expected"]


def _time(row: object, of: str = "token_") -> str:
    """Return the time and its interval in µs, such as `94.5 (91.0 – 98.0)`; a dash without a time."""
    median, low, high = (getattr(row, f"{of}{end}ns") for end in ("", "low_", "high_"))
    if text.is_missing(median):
        return text.MISSING
    ends = "" if text.is_missing(low) else f" ({low / 1e3:,.1f} – {high / 1e3:,.1f})"
    return f"{median / 1e3:,.1f}{ends}"


def _is_older(row: object, today: Mapping[str, str]) -> bool:
    """Return whether the kernels of a rung have changed since it was measured. `today`: rung -> its source's digits."""
    name, source, reason = (getattr(row, what) for what in ("rung", "source", "reason"))
    return name in today and source != today[name] and text.is_missing(reason)


def _verdict(verdict: object, ratio: object) -> str:
    """Return the verdict on a bound and the ratio, or why there is none: not measured, or in too few processes."""
    if text.is_missing(ratio):
        return "not measured" if text.is_missing(verdict) else str(verdict)
    if not text.is_missing(verdict):
        return f"{verdict} ({ratio:.3g})"
    return f"{ratio:.3g} times, from too few processes for an interval"


@section("decode")
def write_decode(decode: pd.DataFrame, decode_bounds: pd.DataFrame) -> str:
    """Return the table of rungs: a row for each, with its time or why it has none, and the verdict on each bound."""
    return _rungs(decode, decode_bounds, {})


def _rungs(decode: pd.DataFrame, decode_bounds: pd.DataFrame, today: Mapping[str, str]) -> str:
    body = []
    for row in cells.rows(decode):
        own = decode_bounds[decode_bounds["rung"] == row.rung]
        expected = [f"{b.bound}: {_verdict(b.verdict, b.ratio)}" for b in cells.rows(own)]
        body.append(
            [
                markdown.escape(f"{row.rung} {STALE_MARK}" if _is_older(row, today) else row.rung),
                _time(row) if text.is_missing(row.reason) else markdown.escape_prose(row.reason),
                text.number(row.floor_frac, "frac"),
                text.number(row.launches),
                text.number(row.busy_ns / 1e3),
                markdown.escape("; ".join(expected)),
            ]
        )
    made = cells.table(HEADERS, body)
    return f"{made}\n\n{STALE}" if any(STALE_MARK in cell[0] for cell in body) else made


def _prefill(prefill: pd.DataFrame, bounds: pd.DataFrame) -> str:
    """Return the sentences on a pass over the whole prompt by each rung that has a time."""
    said = [
        f"`{row.rung}` takes {_time(row, 'time_')} µs{_waited(row)}, at an MFU of {text.number(row.mfu_frac, 'frac')}"
        for row in cells.rows(prefill.dropna(subset=["time_ns"]))
    ]
    own = bounds[bounds["rung"].isin(prefill["rung"])]
    judged = [f"{b.bound}: {_verdict(b.verdict, b.ratio)}" for b in cells.rows(own)]
    pass_of = f"A pass over {int(prefill['tokens'].iloc[0]):,} tokens: {'. '.join(said)}."
    return f"{pass_of} Expected: {'; '.join(judged)}."


def _waited(row: object) -> str:
    """Return the time of a pass if the host waits for each, such as ` (694.2 µs if the host waits for each)`; or ""."""
    seen = row.seen_ns  # type: ignore[attr-defined]
    return "" if text.is_missing(seen) else f" ({seen / 1e3:,.1f} µs if the host waits for each)"


def render_decode(tables: Mapping[str, pd.DataFrame], run: str, today: Mapping[str, str]) -> str:
    """Return the generated part of kernels/decode/README.md. `run` leads to the committed run from there.

    `today` has the source of each rung with kernels of ours, as kernels/decode/sources.toml says.
    """
    parts = [_rungs(tables["decode"], tables["decode_bounds"], today)]
    if len(tables.get("decode_prefill", ())):
        parts.append(_prefill(tables["decode_prefill"], tables["decode_bounds"]))
    if len(tables.get("decode_checks", ())):
        checks = tables["decode_checks"]
        good = int((checks["verdict"] == "good").sum())
        parts.append(f"{good} of {len(checks)} comparisons with the reference are good ([all]({run}/report.md)).")
    parts.append(f"![from Hugging Face's eager loop to the floor]({run}/figures/decode.svg)")
    return "\n\n".join(parts)


def render_line(by_gpu: Mapping[str, Mapping[str, pd.DataFrame]], today: Mapping[str, str]) -> str:
    """Return the line of README.md, a sentence for each GPU; "" if none has what it takes. `today` as above."""
    said = list(filter(None, (_render_gpu(gpu, tables, today) for gpu, tables in by_gpu.items())))
    return " ".join(["**One token of GPT-2.**", *said, "([Rung by rung](kernels/decode/README.md).)"]) if said else ""


def _render_gpu(gpu: str, tables: Mapping[str, pd.DataFrame], today: Mapping[str, str]) -> str:
    """Return a sentence on our fastest rung beside Hugging Face's; "" unless both have an interval."""
    rows = tables["decode"].dropna(subset=["token_low_ns"])
    ours = rows[~rows["rung"].str.startswith("hf_")].sort_values("token_ns", kind="stable")
    theirs = rows[rows["rung"].str.startswith("hf_")].sort_values("token_ns", kind="stable")
    if ours.empty or theirs.empty:
        return ""
    first, best = next(cells.rows(ours)), next(cells.rows(theirs))
    older = " (an earlier version)" if _is_older(first, today) else ""
    return (
        f"On {gpu} engine `{first.rung}`{older} takes {_time(first)} µs, Hugging Face's fastest setting "
        f"(`{best.rung}`) {_wide(best)} µs. Reading weights and cache once takes {first.floor_ns / 1e3:.1f} µs."
    )


def _wide(row: object) -> str:
    """Return a time in µs: its median and interval, or the interval alone where it spans a tenth of the median."""
    median, low, high = row.token_ns, row.token_low_ns, row.token_high_ns  # type: ignore[attr-defined]
    return f"{low / 1e3:,.1f} to {high / 1e3:,.1f}" if high - low > WIDE * median else _time(row)
