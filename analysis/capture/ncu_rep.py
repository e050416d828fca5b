"""Read `.ncu-rep` reports with NVIDIA's own package `ncu-report` (optional: extra `ncu-rep`).

The package needs neither ncu nor a GPU. It gives every value in full precision, the rules, and samples by source line.
"""

import importlib.util
import math
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.capture.model import (
    COUNTERS_COLUMNS,
    METRIC_INSTANCES_COLUMNS,
    RULES_COLUMNS,
    SOURCE_LINES_COLUMNS,
    as_table,
)
from analysis.capture.ncu_details import TITLES
from analysis.capture.ncu_raw import crashed, uncounted
from analysis.capture.ncu_source import base_name, hottest_stall
from analysis.capture.units import base_unit
from analysis.formats.errors import InputError
from analysis.formats.paths import without_paths
from analysis.formats.ranges import never_closes, without_domain
from analysis.formats.report import Missing
from analysis.formats.symbols import match_key

INSTALL = "install NVIDIA's reader with `pip install ncu-report`, or export it with"
EXPORT = "`ncu --import <report>.ncu-rep --csv --page raw > ncu_raw.csv`"
_SAMPLES = "smsp__pcsamp_sample_count"
_STALL = re.compile(r"smsp__pcsamp_warps_issue_stalled_(?P<reason>[a-z_]+?)(?P<idle>_not_issued)?")
_BY_ADDRESS = {
    "inst_executed": "inst_executed",
    "thread_inst_executed": "thread_inst_executed",
    "sectors_global": "memory_l2_theoretical_sectors_global",
    "sectors_global_ideal": "memory_l2_theoretical_sectors_global_ideal",
}
# Links in rules: @url:text:address@, @section:identifier:text@, @sass:address:text@, @source:file:line:text@
_URL = re.compile(r"@url:(?P<text>[^@]*?):(?P<address>https?://[^@]*)@")
_LINK = re.compile(r"@(?:section:[^:@]*|sass:[^:@]*|source:[^@]*?:[0-9]+):(?P<text>[^@]*)@")
_INSTRUCTION_BYTES = 16  # from 7.0 on; a kernel begins with an instruction that it executes
_TYPES = {1: "INF", 2: "OPT", 3: "WRN", 4: "ERR"}
_SPEEDUPS = {1: "local", 2: "global"}


@dataclass(frozen=True)
class Report:
    """A report: the tables of Capture that it fills, its base units, and its missing."""

    counters: pd.DataFrame
    units: dict[str, str]
    rules: pd.DataFrame
    source_lines: pd.DataFrame
    metric_instances: pd.DataFrame
    missing: list[Missing]


def installed() -> bool:
    """Return whether NVIDIA's module is installed. This does not load it."""
    return importlib.util.find_spec("ncu_report") is not None


def package() -> Any:
    """Return NVIDIA's module, or None if it is not installed or does not load."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of SWIG, on Python 3.12 and later
            import ncu_report  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except (ImportError, OSError):
        return None
    return ncu_report


def _text(value: Any) -> str:
    """Return a text of the package, which turns bytes outside UTF-8 into lone surrogates."""
    return str(value or "").encode("utf-8", errors="replace").decode()


def read_report(path: Path, where: str) -> Report:
    """Return launches, rules, source lines and instances of a report. Values are in base units, whatever `unit()` says.

    Raises:
        InputError: the package is missing or cannot read the file.
    """
    ncu_report = package()
    if ncu_report is None:
        raise InputError(f"{where}: is a binary ncu report; {INSTALL} {EXPORT}.")
    try:
        context = ncu_report.load_report(str(path))
        actions = [
            one.action_by_idx(at)
            for one in (context.range_by_idx(index) for index in range(context.num_ranges()))
            for at in range(one.num_actions())
        ]
    except (RuntimeError, ValueError, OSError, TypeError) as error:
        reason = next(iter(without_paths(_text(error)).splitlines()), type(error).__name__).rstrip(".")
        raise InputError(
            f"{where}: the package ncu-report cannot read this ncu report ({reason}); export it with the ncu that "
            f"wrote it: {EXPORT}."
        ) from None
    identities: dict[str, list[object]] = {name: [] for name in COUNTERS_COLUMNS}
    values: list[dict[str, float]] = []
    units: dict[str, str] = {}
    rules: dict[str, list[object]] = {name: [] for name in RULES_COLUMNS}
    lines: dict[str, list[object]] = {name: [] for name in SOURCE_LINES_COLUMNS}
    instances: dict[str, list[object]] = {name: [] for name in METRIC_INSTANCES_COLUMNS}
    for ncu_id, action in enumerate(actions):
        metrics = {name: action.metric_by_name(name) for name in action.metric_names()}
        kernel = _text(action.name(action.NameBase_DEMANGLED))
        path_of = _nvtx_path(action)
        numbers = {name: _number(metric) for name, metric in metrics.items()}
        values.append({name: value for name, value in numbers.items() if value is not None})
        for name in values[-1]:
            units.setdefault(name, _unit(metrics[name]))
        _append(identities, _identity(ncu_id, where, kernel, path_of, metrics, numbers))
        for rule in _rules(action):
            _append(rules, (where, ncu_id, kernel, path_of, *rule))
        for name, metric in metrics.items():
            for label, value in _named_instances(metric):
                _append(instances, (where, ncu_id, name, label, value))
        for line in _source_lines(action, metrics):
            _append(lines, (where, ncu_id, ncu_id, kernel, *line))
    identity = as_table(identities, COUNTERS_COLUMNS)
    numbers_table = pd.DataFrame(values, index=identity.index, dtype="float64")
    counters = pd.concat([identity, numbers_table.reindex(columns=sorted(numbers_table.columns))], axis=1)
    missing: list[Missing] = []
    gone = crashed({name: counters[name].to_numpy(float) for name in numbers_table}, len(counters))
    if gone.any():
        missing.append(uncounted(counters, gone, where, []))
        counters = counters[~gone].reset_index(drop=True)
    return Report(
        counters,
        units,
        as_table(rules, RULES_COLUMNS),
        as_table(lines, SOURCE_LINES_COLUMNS),
        as_table(instances, METRIC_INSTANCES_COLUMNS),
        missing,
    )


def _append(table: dict[str, list[object]], row: tuple[object, ...]) -> None:
    for column, cell in zip(table.values(), row, strict=True):
        column.append(cell)


def _number(metric: Any) -> float | None:
    """Return the value of a metric: NaN if it has none, None if it is a text."""
    if hasattr(metric, "has_value") and not metric.has_value():
        return math.nan  # instances alone, such as samples over time
    value = metric.value()
    if value is None:
        return math.nan
    if isinstance(value, str):
        return None
    return float(value) if math.isfinite(value) else math.nan


def _unit(metric: Any) -> str:
    """Return the base unit of a metric. Values are already in it, so no scale in the unit's name (`second`) applies."""
    unit = str(metric.unit() if hasattr(metric, "unit") else "").replace("_per_", "/")
    try:
        return base_unit(unit, "")[1]
    except InputError:
        return unit


def _identity(
    ncu_id: int, where: str, kernel: str, path: str, metrics: dict[str, Any], numbers: dict[str, float | None]
) -> tuple[object, ...]:
    """Return COUNTERS_COLUMNS of one launch."""

    def whole(name: str) -> str:
        value = numbers.get(name)
        return "" if value is None or math.isnan(value) else str(int(value))

    def size(what: str) -> str:
        sides = [whole(f"launch__{what}_dim_{axis}") for axis in "xyz"]
        return "x".join(sides) if all(sides) else ""

    shown = metrics.get("device__attribute_display_name")
    cc = [whole(f"device__attribute_compute_capability_{part}") for part in ("major", "minor")]
    device = (_text(shown.value()) if shown is not None else "") or whole("launch__device_id")
    return (
        ncu_id, where, None, kernel, size("grid"), size("block"), device, ".".join(cc) if all(cc) else "", path,
    )  # fmt: skip


def _nvtx_path(action: Any) -> str:
    """Return the push/pop stack around a launch, as the CSV reader builds it from its cell."""
    state = action.nvtx_state()
    if state is None:
        return ""
    names = []
    for index in state.domains():
        domain = state.domain_by_id(index)
        prefix = "" if domain.name() in ("", "<default domain>") else f"{domain.name()}:"
        names += [without_domain(_text(prefix + name)) for name in domain.push_pop_ranges()]
    return "/".join(name for name in names if not never_closes(name))


def plain_text(text: str) -> str:
    """Return the text of a rule as on the details page: links as text, without paths."""
    text = _URL.sub(lambda match: f"{match['text']} ({match['address']})", text)
    return without_paths(_LINK.sub(lambda match: match["text"], text)).strip()


def _rules(action: Any) -> Iterator[tuple[object, ...]]:
    """Yield (section, its title, rule, type, text, speed-up type, speed-up) of a launch's rules with a text."""
    if not hasattr(action, "rule_results"):
        return
    for result in action.rule_results():
        if not result.has_rule_message():
            continue
        message = result.rule_message()
        section = _text(result.section_identifier())
        guess = result.speedup_estimation() if result.has_speedup_estimation() else {}
        yield (
            section, TITLES.get(section, ""), _text(result.rule_identifier()), _TYPES.get(int(message["type"]), ""),
            plain_text(_text(message["message"])), _SPEEDUPS.get(int(guess["type"]), "") if guess else "",
            guess.get("speedup"),
        )  # fmt: skip


def _named_instances(metric: Any) -> Iterator[tuple[str, float]]:
    """Yield (name, value) of instances with names, such as opcodes.

    Instances by address become source lines instead.
    """
    if not metric.num_instances() or not metric.has_correlation_ids():
        return
    ids = metric.correlation_ids()
    if not isinstance(ids.value(0), str):
        return
    for at in range(metric.num_instances()):
        value = metric.value(at)
        if isinstance(value, int | float):
            yield _text(ids.value(at)), float(value)


def _by_address(metric: Any) -> dict[int, float]:
    """Return program counter -> value; empty if the metric has no such values."""
    if metric is None or not metric.num_instances() or not metric.has_correlation_ids():
        return {}
    ids = metric.correlation_ids()
    return {int(ids.value(at)): float(metric.value(at)) for at in range(metric.num_instances())}


def _source_lines(action: Any, metrics: dict[str, Any]) -> Iterator[tuple[object, ...]]:
    """Yield one row an instruction, with the columns of SOURCE_LINES from source_file on."""
    samples = _by_address(metrics.get(_SAMPLES))
    counts = {column: _by_address(metrics.get(name)) for column, name in _BY_ADDRESS.items()}
    stalls: dict[str, dict[int, float]] = {}
    idle: dict[int, float] = {}
    for name, metric in metrics.items():
        match = _STALL.fullmatch(name)
        if match and match["idle"]:
            for address, value in _by_address(metric).items():
                idle[address] = idle.get(address, 0.0) + value
        elif match:
            stalls[match["reason"]] = _by_address(metric)
    addresses = sorted({*samples, *counts["inst_executed"]})
    places: dict[tuple[str, int], None] = {}
    for address in addresses:
        info = action.source_info(address)
        if info and samples.get(address):
            places[(info.file_name(), info.line())] = None
        stall, stall_samples = hottest_stall({reason: at.get(address, math.nan) for reason, at in stalls.items()})
        yield (
            base_name(_text(info.file_name())) if info else "",
            info.line() if info else None,
            (address - addresses[0]) // _INSTRUCTION_BYTES,
            without_paths(_text(action.sass_by_pc(address)).strip()),
            samples.get(address),
            idle.get(address),
            *(counts[column].get(address) for column in _BY_ADDRESS),
            stall,
            None if math.isnan(stall_samples) else stall_samples,
            _ptx(action, address),
        )
    yield from _source_text(action, list(places))


def _ptx(action: Any, address: int) -> str:
    """Return the PTX instruction behind an address; "" if the report has none."""
    found = _text(action.ptx_by_pc(address)) if hasattr(action, "ptx_by_pc") else ""
    return " ".join(found.split())


def ptx_of(path: Path) -> dict[tuple[str, int], str]:
    """Return the PTX instruction behind each counted address of each kernel of a report.

    It is empty without NVIDIA's module, or if that cannot read the report.
    """
    ncu_report = package()
    try:
        context = ncu_report.load_report(str(path)) if ncu_report else []
        actions = [action for one in context for action in one]
    except (RuntimeError, ValueError, OSError, TypeError):
        return {}
    found: dict[tuple[str, int], str] = {}
    for action in actions:
        kernel = match_key(_text(action.name(action.NameBase_DEMANGLED)))
        for address in {*_by_address(_metric(action, "inst_executed")), *_by_address(_metric(action, _SAMPLES))}:
            found[kernel, address] = _ptx(action, address)
    return found


def _metric(action: Any, name: str) -> Any:
    return action.metric_by_name(name) if name in action.metric_names() else None


def _source_text(action: Any, places: list[tuple[str, int]]) -> Iterator[tuple[object, ...]]:
    """Yield one row for each source line whose text the report holds."""
    files = dict(action.source_files()) if hasattr(action, "source_files") else {}
    texts = {name: content.splitlines() for name, content in files.items() if content}
    for name, line in places:
        lines = texts.get(name, [])
        if 0 < line <= len(lines):
            text = without_paths(_text(lines[line - 1]).strip())
            yield base_name(_text(name)), line, None, text, *[None] * 6, "", None, ""
