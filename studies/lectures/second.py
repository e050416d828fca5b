"""Predict the MLP and the waves a second time: models fitted to one half of the rows and judged on the other.

`predict.fits` names the half, by a rule that was committed before these models. At the first look, 54 of the 55 rows of
the other halves held: 13 of 13 of the MLP, 41 of 42 of the waves.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import nnls

from studies.lectures.predict import LARGER, SMS, TIMES, Expected, fits, frozen, mlp_sizes

Points = Mapping[tuple[str, str, str], Mapping[str, Any]]
Found = dict[tuple[str, str], float]  # (case, quantity) -> value
Tile = tuple[int, int, int]  # rows, columns, parts of K


def fitted(study: str, points: Points) -> Found:
    """Return what a study's second model predicts; empty without such a model, or if rows to fit were not measured."""
    rows = [one for one in frozen() if one.study == study]
    half = {(one.case, one.quantity): points.get((study, one.case, one.quantity)) for one in rows if fits(one)}
    if study not in _MODELS or not all(half.values()):
        return {}
    return _MODELS[study](rows, {key: point for key, point in half.items() if point})


def _weights(terms: Sequence[Sequence[float]], values: Sequence[float]) -> Any:
    """Return the weights of the terms with the least relative errors; none is negative."""
    a, y = np.array(terms, float), np.array(values)
    scale = np.where(a.max(0) > 0, a.max(0), 1)
    return nnls(a / scale / y[:, None], np.ones(len(y)))[0] / scale


# The MLP: the longer of the CPU's launches and the GPU's products. `base` does not set the unit, since it runs right
# behind dim x 16 in every round: rows with the same launches, such as batch x 3, take 0.85 of its time.


def _mlp_size(case: str) -> dict[str, int]:
    axis, _, times = case.partition(" x ")
    base = mlp_sizes()
    return base | ({axis: base[axis] * int(times)} if times else {})


def _launches(case: str) -> list[float]:
    size = _mlp_size(case)
    return [size["steps"], size["steps"] * size["layers"]]


def _products(case: str) -> float:
    size = _mlp_size(case)
    return float(size["steps"] * size["batch"] * size["dim"] ** 2 * (3 * size["layers"] - 1))


def _mlp(rows: Sequence[Expected], half: Mapping[tuple[str, str], Mapping[str, Any]]) -> Found:
    factors = {case: point["value"] for (case, quantity), point in half.items() if quantity == "factor"}
    largest = max(factors, key=_products)
    host = {case: value for case, value in factors.items() if case != largest}
    launch = _weights([_launches(case) for case in host], list(host.values()))
    rate = factors[largest] / _products(largest)

    def factor(case: str) -> float:
        return float(max(launch @ _launches(case), rate * _products(case)))

    walls = [float(re.match(r"\d+", half[case, "factor"]["seen"])[0]) * 1e3 / value for case, value in host.items()]  # type: ignore[index]
    found: Found = {}
    for one in rows:
        if one.quantity == "costs from":
            tested = sorted((*TIMES, *LARGER[one.case]))
            found[one.case, one.quantity] = next((n for n in tested if factor(f"{one.case} x {n}") > 1.05), 0)
        else:
            found[one.case, one.quantity] = float(np.mean(walls)) if one.case == "base" else factor(one.case)
    return found


# Waves: a time to start, and for every wave of tiles the work of its tensor cores and the loads of its edges. Kernels
# with TMA run in clusters of two, so one side of the grid is rounded up to even. Others may cut K into parts, at a
# cost. The model assumes that the library chooses the tile with the least time.

_SIDES = [(m, n) for m in (64, 128, 192, 256, 320) for n in range(64, 257, 8) if m * n <= 40960]  # accumulators fit
_TILES: dict[str, list[Tile]] = {
    "rows at 16 bytes": [(m, n, 1) for m, n in [*_SIDES, *((n, m) for m, n in _SIDES if n == 160)]],
    "rows at 4 bytes": [(256, 128, parts) for parts in range(1, 5)],
    "odd rows": [(256, 128, parts) for parts in range(1, 5)],
}


def _rows_of(n: int) -> str:
    return "odd rows" if n % 2 else "rows at 4 bytes" if n % 8 else "rows at 16 bytes"


def waves_of(n: int, tile: Tile) -> float:
    """Return the waves of a product of n x n in such tiles, clusters and parts of K."""
    (rows, columns, parts), pair = tile, 2 if _rows_of(n) == "rows at 16 bytes" else 1
    down, across = -(-n // rows), -(-n // columns)
    tiles = min(-(-down // pair) * pair * across, down * -(-across // pair) * pair) * parts
    return -(-tiles // SMS) / parts


def _terms(n: int, tile: Tile) -> list[float]:
    rows, columns, parts = tile
    work = waves_of(n, tile) * n
    with_tma = _rows_of(n) == "rows at 16 bytes"
    return [1.0, work * rows * columns, work * (rows + columns) if with_tma else n * n * (parts > 1)]


def _time(weights: Any, n: int, tile: Tile) -> float:
    return float(weights @ _terms(n, tile))


def _area(n: int, tile: Tile) -> float:
    """Return what the busiest SM computes; fewer parts of K win a tie."""
    return waves_of(n, tile) * tile[0] * tile[1] + 5000 * tile[2]


def _waves(rows: Sequence[Expected], half: Mapping[tuple[str, str], Mapping[str, Any]]) -> Found:
    times = {int(case): point["value"] for (case, quantity), point in half.items() if quantity == "GPU time"}
    sizes = [int(one.case) for one in rows if one.quantity == "GPU time"]
    found: dict[int, float] = {}
    for kind, tiles in _TILES.items():
        fit = {n: value for n, value in times.items() if _rows_of(n) == kind}
        chosen = {n: min(tiles, key=partial(_area, n)) for n in fit}
        for _ in range(10):  # tiles from weights, weights from tiles
            weights = _weights([_terms(n, tile) for n, tile in chosen.items()], list(fit.values()))
            chosen = {n: min(tiles, key=partial(_time, weights, n)) for n in fit}
        for n in sizes:
            if _rows_of(n) == kind:
                found[n] = min(_time(weights, n, tile) for tile in tiles)
    made: Found = {(str(n), "GPU time"): value for n, value in found.items()}
    for one in rows:
        if one.quantity == "factor":
            small, large = (found[int(n)] for n in one.case.split(" → "))
            made[one.case, one.quantity] = large / small
    return made


_MODELS = {"mlp": _mlp, "waves": _waves}
