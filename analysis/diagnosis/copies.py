"""Find copies and sets that take much of the GPU operations' time, and say why as far as the file tells."""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.diagnosis.claims import Claim, cell
from analysis.formats.report import Cell, kinds
from analysis.formats.words import begin, count_of, duration, share

LEAST_SHARE = 0.1  # of the time of all GPU operations
SLOW_LINK = 0.5  # of the link's bandwidth; below it, pinned memory and larger pieces help
BESIDE = 0.5  # of the copies' time; below it, too few kernels run at the same time
LARGE_BYTES = 1 << 20  # from here on, starting a copy takes less than a tenth of it
SMALL_BYTES = 65_536  # a smaller copy spends most of its time on starting
PIN = "Pin the host's memory (`pin_memory=True`, cudaHostAlloc) and copy with `non_blocking=True`."
SHORT_NS = 5_000  # a shorter copy spends most of its time on starting
MANY = 100  # copies
COPY_LESS = (
    "Copy less, and keep data on the GPU; pinned memory copies faster, if the host's memory is pageable. "
    "`nsys export --type sqlite` tells which memory it is."
)
_LINK = ("Host-to-Device", "Device-to-Host", "Host-to-Array", "Array-to-Host")
_KEY = ("device", "kind", "direction", "memory")


@dataclass(frozen=True)
class _Why:
    """Why copies take their time: the cause or "", a headline, a sentence without its full stop, what to do or ""."""

    kind: str
    headline: str
    said: str
    do: str = ""


def large_copies(copies: pd.DataFrame, *, most: int = 2) -> list[Claim]:
    """Return findings on the copies, sets and migrations with most time, at most `most`. Shape: `copies` copies.csv."""
    if copies.empty:
        return []
    rows = copies[copies["share_frac"].astype(float) >= LEAST_SHARE]
    rows = rows.sort_values("time_ns", ascending=False, kind="stable")
    several = copies["device"].nunique() > 1
    of_link = copies[copies["direction"].isin(_LINK) & copies["kind"].eq("memcpy") & copies["overlapped_frac"].isna()]
    together = of_link.groupby("device", dropna=False)["time_ns"].transform("sum")
    return [
        _finding(row, several=several, weight_ns=float(together.get(at, row["time_ns"])))
        for at, row in rows.head(most).iterrows()
    ]


def _finding(row: Any, *, several: bool, weight_ns: float) -> Claim:
    """Return the finding on one row. `weight_ns`: copies over the link count together, as one change ends them."""
    what = _name(row)
    where = {name: row[name] for name in _KEY if pd.notna(row[name])}
    cells = [cell("copies", where, name, row[name]) for name in ("time_ns", "count") if pd.notna(row[name])]
    why = _reasons(row, where, cells)
    won = _time_to_win(row, cells)
    if won:
        least = duration(float(row["time_ns"]) - won)
        why.append(_Why("pageable_copy", "", f"at the link's bandwidth they would take {least}"))
    part = share(float(row["share_frac"]))
    on = f" on {row['device']}" if several else ""
    takes = count_of(int(row["count"]), f"{what[1]} takes", f"{what[2]} take")
    return Claim(
        kind=next((one.kind for one in why if one.kind), "copy_bound"),
        title=f"{what[0]}{on}, {part} of the GPU operations' time: {why[0].headline}",
        sentence=" ".join([f"{takes} {duration(float(row['time_ns']))}.", *(f"{begin(one.said)}." for one in why)]),
        do=" ".join(dict.fromkeys(one.do for one in why if one.do)),
        bound_ns=won,
        cells=tuple(cells),
        weight_ns=weight_ns,
    )


def _time_to_win(row: Any, cells: list[Cell]) -> int | None:
    """Return the time that pinned memory saves at most: copies at the link's bandwidth take the rest. Units: ns."""
    known = any(one.column == "link_frac" for one in cells)
    if not known or not _copies_pageable(row) or float(row["link_frac"]) >= SLOW_LINK:
        return None
    return int(float(row["time_ns"]) * (1 - float(row["link_frac"])))


def _name(row: Any) -> tuple[str, str, str]:
    """Return (title, singular, plural) of what a row counts."""
    direction = "" if pd.isna(row["direction"]) else str(row["direction"]).replace("-", " ").lower()
    if row["kind"] == "migration":
        return f"Migrations of unified memory {direction}".rstrip(), "migration", "migrations"
    if row["kind"] == "memset":
        return "Sets of memory", "set", "sets"
    several = f"copies {direction}".rstrip()
    return several.capitalize(), several.replace("copies", "copy"), several


def _reasons(row: Any, where: dict[str, Any], cells: list[Cell]) -> list[_Why]:
    """Return each known reason, the strongest first. Add what they cite to `cells`.

    Without a known reason, say so; the result is never empty.
    """
    found = []
    moved = float(row["bytes"]) if pd.notna(row["bytes"]) else 0.0
    each = moved / int(row["count"])
    if row["kind"] == "migration":
        touched = "a page moves when a kernel or the host touches it"
        found.append(_Why("migration", "pages move on demand", touched, kinds()["migration"]["cure"]))
    elif moved and each < SMALL_BYTES:
        said = f"one moves {_bytes(each)} on average, so it spends most of its time on starting"
        found.append(_Why("small_copies", f"small ones, {_bytes(each)} each", said, kinds()["small_copies"]["cure"]))
    if _copies_pageable(row):
        said = f"the memory is {row['memory']}: pinned memory copies faster, and kernels can overlap it"
        found.append(_Why("pageable_copy", "from or to pageable memory", said, PIN))
    found += _rate(row, where, cells)
    if pd.notna(row["overlapped_frac"]):
        frac = float(row["overlapped_frac"])
        cells.append(cell("copies", where, "overlapped_frac", frac))
        told = "other kernels wait meanwhile" if frac < BESIDE else "it costs little extra time"
        amount = share(frac) if frac else "none"
        found.append(_Why("", f"kernels overlap {amount} of it", f"kernels overlap {amount} of that time: {told}"))
    return found or [_unsized(row)]


def _unsized(row: Any) -> _Why:
    """Return what times alone tell: many short copies spend their time on starting."""
    mean = float(row["time_ns"]) / int(row["count"])
    untold = f"the file does not tell how many bytes {'it moves' if int(row['count']) == 1 else 'they move'}"
    if row["kind"] == "memcpy" and mean < SHORT_NS and int(row["count"]) >= MANY:
        said = f"one takes {duration(mean)} on average, so it spends most of its time on starting"
        return _Why("small_copies", f"small ones, {duration(mean)} each", said, kinds()["small_copies"]["cure"])
    over_link = row["kind"] == "memcpy" and row["direction"] in _LINK
    return _Why("", "the file states neither bytes nor memory", untold, COPY_LESS if over_link else "")


def is_pageable(memory: object) -> bool:
    """Return whether the memory at one end of a copy, such as `Pageable -> Device`, is pageable."""
    return pd.notna(memory) and "pageable" in str(memory).lower()


def _copies_pageable(row: Any) -> bool:
    """Return whether a row is of copies from or to pageable memory; migrations and sets cannot use pinned memory."""
    return row["kind"] == "memcpy" and is_pageable(row["memory"])


def _rate(row: Any, where: dict[str, Any], cells: list[Cell]) -> list[_Why]:
    """Return the copies' bandwidth, relative to their limit if its bandwidth is known."""
    if pd.isna(row["rate_byte_per_s"]):
        return []
    rate = float(row["rate_byte_per_s"])
    in_gpu = row["kind"] == "memset" or str(row["direction"]) == "Device-to-Device"
    if pd.isna(row["link_frac"]) or row["kind"] == "migration" or row["kind"] == "memset":
        cells.append(cell("copies", where, "rate_byte_per_s", rate))
    if pd.isna(row["link_frac"]):
        unknown = "" if row["kind"] == "migration" else f"; the {'DRAM' if in_gpu else 'link'}'s bandwidth is unknown"
        told = pd.notna(row["memory"]) and str(row["memory"]) != ""
        do = COPY_LESS if row["kind"] == "memcpy" and row["direction"] in _LINK and not told else ""
        return [_Why("", f"at {rate / 1e9:,.3g} GB/s", f"they run at {rate / 1e9:,.3g} GB/s{unknown}", do)]
    frac = float(row["link_frac"])
    if row["kind"] == "memset":
        said = f"they write {rate / 1e9:,.0f} GB/s, {share(frac)} of the DRAM bandwidth"
        do = "Set less, or let the kernel that follows write these values."
        return [_Why("redundant_copy", f"at {share(frac)} of the DRAM bandwidth", said, do)]
    if row["kind"] == "migration":
        return [_Why("", "", f"they run at {rate / 1e9:,.3g} GB/s")]
    cells.append(cell("copies", where, "link_frac", frac))
    limit = "half the DRAM bandwidth, as each byte is read and written" if in_gpu else "the link's bandwidth"
    title = f"at {share(frac)} of {'half the DRAM bandwidth' if in_gpu else 'the link’s rate'}".replace("’", "'")
    return [_Why("", title, f"they reach {share(frac)} of {limit}: {_faster(row, frac, in_gpu=in_gpu)}")]


def _faster(row: Any, frac: float, *, in_gpu: bool) -> str:
    """Return what makes copies faster that run at this share of their limit."""
    if frac >= SLOW_LINK:
        return "fewer bytes make it faster still" if is_pageable(row["memory"]) else "only fewer bytes make it faster"
    moved = float(row["bytes"]) if pd.notna(row["bytes"]) else 0.0
    remedies = ["larger pieces"] if moved / int(row["count"]) < LARGE_BYTES else []
    if not in_gpu and "Pinned" not in str(row["memory"]):
        remedies.append("pinned memory")
    if remedies:
        return f"{' and '.join(remedies)} {'are' if 'larger pieces' in remedies else 'is'} faster"
    if in_gpu:
        return "look at what else uses the DRAM meanwhile"
    return (
        "the pieces are large and the memory is pinned, so look at the link: its lanes and generation "
        "(`nvidia-smi -q`), and which other device shares it"
    )


def _bytes(count: float) -> str:
    return f"{count:,.0f} bytes" if count < 1e4 else f"{count / 1e3:,.0f} kB"
