"""Write counts, times, shares and names in sentences."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from itertools import zip_longest

Names = Callable[[str], str]
_FIRST_NS, _LAST_NS = 1_167_609_600_000_000_000, 4_102_444_800_000_000_000  # 2007, when CUDA appeared, and 2100


def count_of(number: float, one: str, many: str = "") -> str:
    """Return `1 kernel`, `2 launches`: a whole number and its noun; `many` if the plural is not `one` with (e)s.

    A mean of less than one, such as that of ranks of which one has it, is one.
    """
    whole = round(number) or int(number > 0)
    return f"{whole:,} {one if whole == 1 else many or one + ('es' if one.endswith('ch') else 's')}"


def begin(said: str) -> str:
    """Return words as the begin of a sentence: with a capital letter."""
    return said[:1].upper() + said[1:]


def duration(ns: float) -> str:
    """Return `0.3 µs`, `1.71 ms`, `919 ms`: a time with the unit that tables give it, and fewer digits."""
    for most, scale, unit in ((1e6, 1e3, "µs"), (1e9, 1e6, "ms")):
        if abs(ns) < 0.9995 * most:
            return f"{ns / scale:.3g} {unit}"
    return f"{ns / 1e9:,.4g} s"


def signed(ns: float) -> str:
    """Return a difference of times with its sign."""
    return f"{'−' if ns < 0 else '+'}{duration(abs(ns))}"


def day_of(ns: int) -> str:
    """Return the day, UTC, of a time since 1970; "" if that is before 2007 or after 2100."""
    return datetime.fromtimestamp(ns // 10**9, UTC).date().isoformat() if _FIRST_NS < ns < _LAST_NS else ""


def share(frac: float) -> str:
    """Return `62%`, `1.4%`, `99.8%`: 0-1 as per cent.

    Never 0% for a positive share, and never 100% for less than all.
    """
    shown = frac * 100
    if 0 < shown < 0.1:
        return "less than 0.1%"
    near_an_end = 0 < shown < 9.95 or 99 < shown < 100
    if near_an_end and shown > 99.9:
        return "more than 99.9%"
    return f"{shown:.1f}%" if near_an_end else f"{shown:.0f}%"


def tell_apart(names: Iterable[str], cut: Callable[[str], str], width: int, whole: Names = str) -> dict[str, str]:
    """Return `cut(name)` for each of the names; equal results also show a part of `whole(name)` that differs.

    Each has at most `width` characters. Results that are still equal get a number.
    """
    shown = {name: cut(name) for name in names}
    room = max(width // 2, 4)
    by_head: dict[str, list[str]] = {}
    for label, same in _alike(shown).items():
        by_head.setdefault(label.rstrip("…")[: max(width - room - 1, 1)].rstrip("…"), []).extend(same)
    for head, same in by_head.items():
        texts = [whole(name) for name in same]
        cuts = zip(same, texts, _windows(texts, room), strict=True)
        shown |= {name: min(text, f"{head}…{window}", key=len) for name, text, window in cuts}
    for label, same in _alike(shown).items():
        shown |= {name: f"{label[: width - 6]} ({at})" for at, name in enumerate(same, 1)}
    return shown


def _alike(shown: dict[str, str]) -> dict[str, list[str]]:
    """Return the label -> its names, for labels that several names share."""
    found: dict[str, list[str]] = {}
    for name, label in shown.items():
        found.setdefault(label, []).append(name)
    return {label: same for label, same in found.items() if len(same) > 1}


def _windows(texts: list[str], room: int) -> list[str]:
    """At most `room` characters of each text, from the first difference between the texts on.

    If one such place does not suffice, the characters come from two.
    """
    start = next((at for at, letters in enumerate(zip_longest(*texts)) if len(set(letters)) > 1), len(texts[0]))
    found = [text[max(start - 2, 0) :][:room] for text in texts]
    rows_of = _alike({str(row): window for row, window in enumerate(found)})
    for window, names in rows_of.items():
        rows = [int(name) for name in names]
        some = [texts[row] for row in rows]
        if room >= 8 and len(set(some)) > 1:
            for row, inner in zip(rows, _windows(some, room // 2), strict=True):
                found[row] = f"{window[: room - room // 2 - 1]}…{inner}"
    return found
