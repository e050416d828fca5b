"""Read the raw page of ncu (`ncu --import F --csv --page raw`, or live `--csv --page raw`) of 2020 to 2026.

The page has one row a launch and one column a metric; the row under the header holds the units. The reader finds
columns by name only, since NVTX columns, `Kernel Time`, sizes and devices come and go between versions.
"""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from analysis.capture import ncu_csv
from analysis.capture.model import METRIC_INSTANCES_COLUMNS, as_table, empty_table
from analysis.capture.text import NumberStyle, decide_locale, is_missing, parse_number
from analysis.capture.units import base_unit, check_metric
from analysis.formats.errors import InputError
from analysis.formats.report import Missing, Reason

_EXPORT = ncu_csv.EXPORT.format(page="raw")
_NUMERIC_NAME = re.compile(r".*\.(?:sum|avg|min|max|ratio|pct|max_rate)(?:\.[a-z_]+)?")
# A crashed kernel still has the metrics of its launch and its device.
_CONSTANT = ("launch__", "device__", "profiler__")
_UNSCALED = frozenset({"", "inst", "warp", "sector", "request", "byte", "ns", "nsecond", "thread", "block", "cycle"})
_LEADING_ZERO = re.compile(r"\s*[-+]?0[0-9]")  # of a number that lost its decimal sign
_GLUED = re.compile(r": [0-9.,]+[^\w.,]")
_INSTANCE = re.compile(r"\s*(?:(?P<label>.*): )?(?P<value>[^:]*)")


@dataclass(frozen=True)
class RawPage:
    """Kernels of one raw page.

    counters   COUNTERS_COLUMNS, then one float64 column a metric in base units
    units      base unit of each metric
    missing       what is missing from the page
    style      how its numbers are written
    instances  METRIC_INSTANCES_COLUMNS, where the export was made with --print-metric-instances
    """

    counters: pd.DataFrame
    units: dict[str, str]
    missing: list[Missing]
    style: NumberStyle
    instances: pd.DataFrame = field(default_factory=lambda: empty_table(METRIC_INSTANCES_COLUMNS))


def crashed(metrics: dict[str, np.ndarray], length: int) -> np.ndarray:
    """Return the rows of launches that crashed: only constants of the launch and the device have values."""
    if not metrics:
        return np.zeros(length, dtype=bool)
    measured = [values for name, values in metrics.items() if not name.startswith(_CONSTANT)]
    return np.asarray(np.isnan(np.array(measured or list(metrics.values()))).all(axis=0))


def uncounted(counters: pd.DataFrame, gone: np.ndarray, where: str, found: list[tuple[str, str]]) -> Missing:
    """Return what is missing of the launches `gone` that crashed; `found` are the messages of ncu in the same file."""
    failed = counters["grid"][gone].isin(["", "0x0x0"]).any()
    if any(kind == "ERROR" for kind, _ in found):
        why = ncu_csv.explain(found)[0]
    else:
        why = "the launch failed" if failed else "ncu knows no such metric, or the launch failed"
    names = list(dict.fromkeys(counters["name"][gone]))
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return Missing(
        Reason.NCU_FAILED,
        f"{int(gone.sum())} of {len(counters)} kernels of {where} have no value in any metric",
        f"their profiling failed: {why} ({shown})",
        "run the program without ncu until it ends without an error, then capture again",
    )


def column_values(cells: list[str], style: NumberStyle, scale: float) -> np.ndarray | None:
    """float64 values of a metric times `scale`, NaN for cells without one; None for a column of text (device names).

    A power of ten is added to the decimal exponent before rounding, so 0.200960 Mbyte is exactly 200960 bytes.
    """
    if any(_LEADING_ZERO.match(cell) for cell in cells):
        return None
    exponent = round(math.log10(scale))
    if not math.isclose(10.0**exponent, scale, rel_tol=1e-12):
        exponent = 0
    rest = 1.0 if exponent else scale
    plain = _as_plain(cells, style, exponent)
    if plain is not None:
        return np.where(np.isfinite(plain), plain, math.nan) * rest
    values = np.empty(len(cells))
    for i, cell in enumerate(cells):
        try:
            values[i] = _scaled(cell, style, exponent) * rest
        except ValueError:
            return None
    values[~np.isfinite(values)] = math.nan
    return values


def _as_plain(cells: list[str], style: NumberStyle, exponent: int) -> np.ndarray | None:
    """Return the values of a column of plain numbers without thousands separators; None for any other column."""
    together = " ".join(cells)
    if style.decimal != "." or any(sign in together for sign in ",_()eE") or not together.isascii():
        return None
    try:
        return np.array([float(f"{cell}e{exponent}") for cell in cells])
    except ValueError:
        return None


def _scaled(cell: str, style: NumberStyle, exponent: int) -> float:
    """Return a cell times ten to the power of `exponent`, rounded once; NaN for instances without a value, `(0; 3)`."""
    if cell.startswith("(") and cell.endswith(")"):
        return math.nan
    if (style.group and style.group in cell) or not cell.isascii() or cell.endswith(")") or "_" in cell:
        value = parse_number(cell, style)  # checks the groups
        if not exponent or math.isnan(value):
            return value
        cell = "".join(sign for sign in cell.split(" (")[0] if sign in "0123456789+-eE" or sign == style.decimal)
    text, _, power = cell.replace(style.decimal, ".").lower().partition("e")
    try:
        return float(f"{text}e{int(power or 0) + exponent}")
    except ValueError:
        return parse_number(cell, style)


def locale_of(cells: Iterable[tuple[str, str, str]], where: str, given: NumberStyle | None) -> NumberStyle:
    """Return the number style of (metric, unit, cell)s of a page.

    A comma in a count separates thousands, which proves the style. A point proves nothing: it may end an average.

    Raises:
        InputError: as `decide_locale`.
    """
    counts: set[str] = set()
    others: set[str] = set()
    for name, unit, cell in cells:
        is_count = name.endswith(".sum") and unit.strip() in _UNSCALED and "," in cell and "." not in cell
        (counts if is_count else others).add(cell)
    return decide_locale(others, where, whole=counts, given=given)


def _without_instances(cell: str) -> str:
    return cell[: cell.find("(")].strip() if cell.endswith(")") and "(" in cell else cell


def instances_of(cell: str, style: NumberStyle) -> Iterator[tuple[str, float]]:
    """Yield (label, value) of the instances behind a value: `7 (IMAD: 4; DFMA: 3)`.

    Labels are '0', '1', … without names.

    Instances without numbers (device names) are left out.

    Raises:
        ValueError: two instances are not separated, or only some are numbers.
    """
    begin = 0 if cell.startswith("(") else cell.find(" (") + 1
    if not cell.endswith(")") or (begin == 0 and not cell.startswith("(")):
        return
    inside = cell[begin + 1 : -1]
    if re.fullmatch(r"[\d.,]+[^\w.,; \xa0\u202f]\s+[\d.,]+", inside):
        raise ValueError(f"{inside!r} is two instances without a `;` between")
    texts, found = [], False
    for at, part in enumerate(inside.split("; ")):
        match = _INSTANCE.fullmatch(part.strip(";"))
        if match and _GLUED.search(match["label"] or ""):
            raise ValueError(f"{part!r} is two instances without a `;` between")
        try:
            if match and not is_missing(match["value"]):
                yield (match["label"] or str(at)).strip(), parse_number(match["value"], style)
                found = True
        except ValueError:
            texts.append(part)
            found = found or re.fullmatch("[0-9][0-9., ]*", part) is not None
    if texts and found:
        raise ValueError(f"{texts[0]!r} is not a number, unlike the other instances")


def _instances(cell: str, style: NumberStyle, where: str) -> list[tuple[str, float]]:
    try:
        return list(instances_of(cell, style))
    except ValueError as error:
        raise ncu_csv.damaged(where, str(error), "raw") from None


def read_section(section: ncu_csv.Section, found: list[tuple[str, str]], style: NumberStyle | None = None) -> RawPage:
    """Return kernels and metrics of one raw page. `found`: ncu's messages in the file; `style`: the number style."""
    page = ncu_csv.read_page(section)
    where = page.name
    page, unit_row = _take_units(page)
    missing = [ncu_csv.cut_off(page, "raw")] if page.cut else []
    metric_names = [
        name for name in page.columns if name and name not in ncu_csv.IDENTITY and not ncu_csv.is_nvtx_column(name)
    ]
    cells_of = {name: page.column(name) for name in metric_names}
    with_instances = {name for name, cells in cells_of.items() if any(cell.endswith(")") for cell in cells)}
    printed = cells_of | {name: [_without_instances(cell) for cell in cells_of[name]] for name in with_instances}
    scales = {name: base_unit(unit_row[page.columns[name]], f"{where}, column {name}") for name in metric_names}
    style = locale_of(
        ((name, unit_row[page.columns[name]], cell) for name in metric_names for cell in printed[name]), where, style
    )
    ids = ncu_csv.launch_ids(page)
    missing += ncu_csv.lost_launches(page, ids)
    metrics: dict[str, np.ndarray] = {}
    units: dict[str, str] = {}
    device = page.column("Device")
    instances: list[tuple[object, ...]] = []
    for name in metric_names:
        cells = cells_of[name]
        scale, unit = scales[name]
        values = column_values(cells, style, scale)
        if values is None:
            if name == "device__attribute_display_name":
                device = [shown.strip() or cell for shown, cell in zip(cells, device, strict=True)]
            if _NUMERIC_NAME.fullmatch(name):
                _refuse_text(page, name, style)
            continue
        if not np.isnan(values).all():
            check_metric(name, unit, where)
        bare = [
            cell for cell in printed[name] if style.decimal == "," and scale >= 1e3 and cell.isdecimal() and int(cell)
        ]
        if bare:
            said = f"column {name} has {bare[0][:40]} without decimals, which ncu prints in scaled units"
            raise ncu_csv.damaged(where, said, "raw")
        metrics[name] = values
        units[name] = unit
        for ncu_id, cell in zip(ids, cells, strict=True) if name in with_instances else ():
            found_here = _instances(cell, style, f"{where}, column {name}")
            instances += [(where, ncu_id, name, label, value * scale) for label, value in found_here]
    counters = pd.concat(
        [ncu_csv.identity(page, ids, device), pd.DataFrame(metrics, index=range(len(page.rows)))], axis=1
    )
    gone = crashed(metrics, len(counters))
    if gone.any():
        missing.append(uncounted(counters, gone, where, found))
        counters = counters[~gone].reset_index(drop=True)
    columns = zip(*instances, strict=True) if instances else [()] * len(METRIC_INSTANCES_COLUMNS)
    table = as_table(dict(zip(METRIC_INSTANCES_COLUMNS, columns, strict=True)), METRIC_INSTANCES_COLUMNS)
    return RawPage(counters, units, missing, style, table)


def _take_units(page: ncu_csv.Page) -> tuple[ncu_csv.Page, list[str]]:
    """Return the page without its row of units, and that row."""
    if not page.rows:
        return page, [""] * len(page.header)
    first = page.rows[0]
    if first[page.columns["ID"]].strip() or first[page.columns["Kernel Name"]].strip():
        raise InputError(
            f"{page.name}: the row of units under the header is missing; export the file again with {_EXPORT}."
        )
    return replace(page, rows=page.rows[1:], numbers=page.numbers[1:]), first


def _refuse_text(page: ncu_csv.Page, name: str, style: NumberStyle) -> None:
    """Refuse a text in a counter's column that is not a number: it is damage."""
    for number, cell in zip(page.numbers, page.column(name), strict=True):
        try:
            parse_number(cell, style)
        except ValueError:
            shown = cell if len(cell) <= 40 else cell[:37] + "..."
            said = f"line {number}, column {name}: {shown!r} is not a number"
            raise ncu_csv.damaged(page.name, said, "raw") from None
