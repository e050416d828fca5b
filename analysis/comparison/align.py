"""Align the kernels of a step: by range, kernel and ordinal; where names changed, by their place in the sequence."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, count

import pandas as pd

from analysis.formats.comparison import Match


@dataclass
class Aligned:
    """Kernels of a layer that belong together. `a` and `b`: positions in the items of each side."""

    layer: str
    match: Match
    a_names: tuple[str, ...]
    b_names: tuple[str, ...]
    a: list[int] = field(default_factory=list)
    b: list[int] = field(default_factory=list)


def align(a: pd.DataFrame, b: pd.DataFrame) -> list[Aligned]:
    """Align two steps. Shape: `items` of a step (analysis.comparison.runs), in launch order; every item is in one row.

    A range that one side lacks counts as the nearest range around it that both have.
    """
    layers_a, layers_b = common(a["layer"], b["layer"]), common(b["layer"], a["layer"])
    found: dict[tuple[object, ...], Aligned] = {}
    order = dict.fromkeys([*layers_a, *layers_b])
    rows_a, rows_b = _by_layer(layers_a), _by_layer(layers_b)
    names_a, names_b = a["kernel"].astype(str).tolist(), b["kernel"].astype(str).tolist()
    for layer in order:
        for match, mine, others in _layer(rows_a[layer], rows_b[layer], names_a, names_b):
            own = tuple(dict.fromkeys(names_a[i] for i in mine))
            their = tuple(dict.fromkeys(names_b[i] for i in others))
            row = found.setdefault((layer, match, own, their), Aligned(layer, match, own, their))
            row.a += mine
            row.b += others
    return _joined(list(found.values()))


def common(layers: Iterable[str], others: Iterable[str]) -> list[str]:
    """Return each layer, or the nearest one around it that the other side has, too ('' is around all)."""
    known = {""}
    for one in set(others):
        known.update(accumulate(str(one).split("/"), "{}/{}".format))
    found = []
    for one in layers:
        layer = str(one)
        while layer not in known:
            layer = layer.rpartition("/")[0]
        found.append(layer)
    return found


def _by_layer(layers: Sequence[str]) -> defaultdict[str, list[int]]:
    rows: defaultdict[str, list[int]] = defaultdict(list)
    for row, layer in enumerate(layers):
        rows[layer].append(row)
    return rows


def _layer(
    a: list[int], b: list[int], names_a: list[str], names_b: list[str]
) -> Iterable[tuple[Match, list[int], list[int]]]:
    """Yield what belongs together in one layer: items of equal name and ordinal, then what stands between them."""
    keys_b = {key: at for at, key in enumerate(_keys(b, names_b))}
    pairs = [(at, keys_b[key]) for at, key in enumerate(_keys(a, names_a)) if key in keys_b]
    for at, to in pairs:
        yield Match.NAME, [a[at]], [b[to]]
    anchors = _increasing(pairs)
    paired_a, paired_b = {at for at, _ in pairs}, {to for _, to in pairs}
    gaps: defaultdict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for side, (items, paired) in enumerate(((a, paired_a), (b, paired_b))):
        places = [one[side] for one in anchors]
        for at, item in enumerate(items):
            if at not in paired:
                gaps[bisect_left(places, at)][side].append(item)
    for mine, others in gaps.values():
        if mine and others:
            yield Match.REPLACED, mine, others
        else:
            yield from ((Match.ONLY_A, [one], []) for one in mine)
            yield from ((Match.ONLY_B, [], [one]) for one in others)


def _keys(items: list[int], names: list[str]) -> Iterable[tuple[str, int]]:
    ordinals: defaultdict[str, Iterator[int]] = defaultdict(count)
    for item in items:
        yield names[item], next(ordinals[names[item]])


def _increasing(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest part of the pairs, sorted by their first number, that increases in the second, too."""
    ends: list[int] = []
    places: list[int] = []
    before: list[int | None] = []
    for place, (_, to) in enumerate(pairs):
        at = bisect_left(ends, to)
        before.append(places[at - 1] if at else None)
        ends[at:] = [to, *ends[at + 1 :]]
        places[at:] = [place, *places[at + 1 :]]
    chosen, last = [], places[-1] if places else None
    while last is not None:
        chosen.append(pairs[last])
        last = before[last]
    return chosen[::-1]


def _joined(rows: list[Aligned]) -> list[Aligned]:
    """Join launches that one side has besides with the row of their kernel: its number of launches differs."""
    named = {(one.layer, *one.a_names): one for one in rows if one.match is Match.NAME}
    kept = []
    for one in rows:
        own = named.get((one.layer, *one.a_names, *one.b_names)) if one.match in (Match.ONLY_A, Match.ONLY_B) else None
        if own is None:
            kept.append(one)
        else:
            own.a += one.a
            own.b += one.b
    return kept
