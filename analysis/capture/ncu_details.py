"""Read the details page of ncu (`--page details`, the default of live `--csv`): one row a metric or a rule.

The page has from 12 columns (2020) to 21 (`--print-details all`), and a metric's row may be shorter than the header.
Metrics have raw names (`--metrics`, `--print-metric-name name`), both names (`label-name`) or only a label. LABELS maps
the labels whose raw name is known. Values have two decimals, so a raw page is better if there is one.
"""

import math
import re
from collections import defaultdict
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from analysis.capture import ncu_csv
from analysis.capture.model import COUNTERS_COLUMNS, DETAILS_COLUMNS, RULES_COLUMNS, as_table
from analysis.capture.ncu_raw import column_values, crashed, locale_of, uncounted
from analysis.capture.text import C_LOCALE, NumberStyle, is_missing, parse_number
from analysis.capture.units import base_unit, check_metric, is_unit
from analysis.formats.errors import InputError
from analysis.formats.paths import without_paths
from analysis.formats.report import Missing

_EXPORT = ncu_csv.EXPORT.format(page="details")
# `dram__bytes_read.sum`, `launch__grid_size`, and the few names without `__` or a suffix. No label looks like these.
_RAW_NAME = re.compile(
    r"(?:[A-Za-z_]+:|[A-Z_a-z]+\.Triage[A-Za-z]+\.)?[a-z0-9]+__[a-z0-9_]+(?:\.[a-z0-9_]+)*"
    r"|(?:thread_)?inst_executed[a-z_]*|memory_[a-z0-9_]+|flop_count_[a-z_]+(?:\.[a-z_]+)*|derived_[A-Za-z0-9_.]+"
)
_BOTH_NAMES = re.compile(r"(?P<label>.+) \((?P<name>[^()]+)\)")
_OF_RULES = ("Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup")
_RULE_TYPE = re.compile("[A-Z]{2,8}|")  # 2022.3 leaves it blank for some messages

# Display name of each section (in rows of metrics) and its identifier (in rules), from `ncu --list-sections`, 2024.1.1.
SECTIONS = {
    "GPU Speed Of Light": "SpeedOfLight",  # until 2021
    "GPU Speed Of Light Throughput": "SpeedOfLight",
    "GPU Speed Of Light Roofline Chart": "SpeedOfLight_RooflineChart",
    "GPU Speed Of Light Hierarchical Roofline Chart (Double Precision)": "SpeedOfLight_HierarchicalDoubleRooflineChart",
    "GPU Speed Of Light Hierarchical Roofline Chart (Half Precision)": "SpeedOfLight_HierarchicalHalfRooflineChart",
    "GPU Speed Of Light Hierarchical Roofline Chart (Single Precision)": "SpeedOfLight_HierarchicalSingleRooflineChart",
    "GPU Speed Of Light Hierarchical Roofline Chart (Tensor Core)": "SpeedOfLight_HierarchicalTensorRooflineChart",
    "PM Sampling": "PmSampling",
    "PM Sampling: Warp States": "PmSampling_WarpStates",
    "Compute Workload Analysis": "ComputeWorkloadAnalysis",
    "Memory Workload Analysis": "MemoryWorkloadAnalysis",
    "Memory Workload Analysis Chart": "MemoryWorkloadAnalysis_Chart",
    "Memory Workload Analysis Tables": "MemoryWorkloadAnalysis_Tables",
    "Scheduler Statistics": "SchedulerStats",
    "Warp State Statistics": "WarpStateStats",
    "Instruction Statistics": "InstructionStats",
    "NUMA Affinity": "NumaAffinity",
    "NVLink": "Nvlink",
    "NVLink Tables": "Nvlink_Tables",
    "NVLink Topology": "Nvlink_Topology",
    "C2CLink": "C2CLink",
    "Launch Statistics": "LaunchStats",
    "Occupancy": "Occupancy",
    "GPU and Memory Workload Distribution": "WorkloadDistribution",
    "Source Counters": "SourceCounters",
}
TITLES = {identifier: title for title, identifier in SECTIONS.items()}

# (section identifier, label) -> (metric, its base unit), as ncu 2024.1.1 prints both with `--print-metric-name
# label-name` on the six reports that it ships; 2022.3 has the same labels. "Memory Throughput" is in two sections. 2025
# added the labels of spills.
LABELS: dict[tuple[str, str], tuple[str, str]] = {
    ("SpeedOfLight", "DRAM Frequency"): ("dram__cycles_elapsed.avg.per_second", "hz"),
    ("SpeedOfLight", "SM Frequency"): ("gpc__cycles_elapsed.avg.per_second", "hz"),
    ("SpeedOfLight", "Elapsed Cycles"): ("gpc__cycles_elapsed.max", "cycle"),
    **{("SpeedOfLight", label): ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", "%")
       for label in ("Memory Throughput", "Memory [%]")},
    # Until 2020 and until 2021, by the values that public outputs of then print: no ncu of that time was run.
    **{("SpeedOfLight", label): ("dram__throughput.avg.pct_of_peak_sustained_elapsed", "%")
       for label in ("SOL FB", "SOL DRAM")},
    **{("SpeedOfLight", label): ("lts__throughput.avg.pct_of_peak_sustained_elapsed", "%")
       for label in ("SOL L2", "SOL L2 Cache")},
    **{("SpeedOfLight", label): ("l1tex__throughput.avg.pct_of_peak_sustained_active", "%")
       for label in ("SOL TEX", "SOL L1/TEX Cache")},
    ("SpeedOfLight", "SM [%]"): ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "%"),
    ("SpeedOfLight", "Memory Frequency"): ("dram__cycles_elapsed.avg.per_second", "hz"),
    ("SpeedOfLight", "DRAM Throughput"): ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "%"),
    ("SpeedOfLight", "Duration"): ("gpu__time_duration.sum", "ns"),
    ("SpeedOfLight", "L1/TEX Cache Throughput"): ("l1tex__throughput.avg.pct_of_peak_sustained_active", "%"),
    ("SpeedOfLight", "L2 Cache Throughput"): ("lts__throughput.avg.pct_of_peak_sustained_elapsed", "%"),
    ("SpeedOfLight", "SM Active Cycles"): ("sm__cycles_active.avg", "cycle"),
    ("SpeedOfLight", "Compute (SM) Throughput"): ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "%"),
    ("ComputeWorkloadAnalysis", "Executed Ipc Active"): ("sm__inst_executed.avg.per_cycle_active", "inst/cycle"),
    ("ComputeWorkloadAnalysis", "Executed Ipc Elapsed"): ("sm__inst_executed.avg.per_cycle_elapsed", "inst/cycle"),
    ("ComputeWorkloadAnalysis", "Issue Slots Busy"): ("sm__inst_issued.avg.pct_of_peak_sustained_active", "%"),
    ("ComputeWorkloadAnalysis", "Issued Ipc Active"): ("sm__inst_issued.avg.per_cycle_active", "inst/cycle"),
    ("ComputeWorkloadAnalysis", "SM Busy"): ("sm__instruction_throughput.avg.pct_of_peak_sustained_active", "%"),
    ("MemoryWorkloadAnalysis", "Memory Throughput"): ("dram__bytes.sum.per_second", "byte/s"),
    ("MemoryWorkloadAnalysis", "Mem Busy"): (
        "gpu__compute_memory_access_throughput.avg.pct_of_peak_sustained_elapsed", "%"),
    ("MemoryWorkloadAnalysis", "Max Bandwidth"): (
        "gpu__compute_memory_request_throughput.avg.pct_of_peak_sustained_elapsed", "%"),
    ("MemoryWorkloadAnalysis", "L1/TEX Hit Rate"): ("l1tex__t_sector_hit_rate.pct", "%"),
    ("MemoryWorkloadAnalysis", "L2 Hit Rate"): ("lts__t_sector_hit_rate.pct", "%"),
    ("MemoryWorkloadAnalysis", "Local Memory Spilling Requests"): ("derived__local_spilling_requests", ""),
    ("MemoryWorkloadAnalysis", "Local Memory Spilling Request Overhead"): (
        "derived__local_spilling_requests_pct", "%"),
    ("MemoryWorkloadAnalysis", "Shared Memory Spilling Requests"): ("derived__shared_spilling_requests", ""),
    ("MemoryWorkloadAnalysis", "Shared Memory Spilling Request Overhead"): (
        "derived__shared_spilling_requests_pct", "%"),
    ("MemoryWorkloadAnalysis", "Mem Pipes Busy"): ("sm__memory_throughput.avg.pct_of_peak_sustained_elapsed", "%"),
    ("SchedulerStats", "One or More Eligible"): ("smsp__issue_active.avg.pct_of_peak_sustained_active", "%"),
    ("SchedulerStats", "Issued Warp Per Scheduler"): ("smsp__issue_active.avg.per_cycle_active", ""),
    ("SchedulerStats", "No Eligible"): ("smsp__issue_inst0.avg.pct_of_peak_sustained_active", "%"),
    ("SchedulerStats", "Active Warps Per Scheduler"): ("smsp__warps_active.avg.per_cycle_active", "warp"),
    ("SchedulerStats", "Eligible Warps Per Scheduler"): ("smsp__warps_eligible.avg.per_cycle_active", "warp"),
    ("WarpStateStats", "Warp Cycles Per Issued Instruction"): (
        "smsp__average_warp_latency_per_inst_issued.ratio", "cycle"),
    ("WarpStateStats", "Warp Cycles Per Executed Instruction"): (
        "smsp__average_warps_active_per_inst_executed.ratio", "cycle"),
    ("WarpStateStats", "Avg. Active Threads Per Warp"): ("smsp__thread_inst_executed_per_inst_executed.ratio", ""),
    ("WarpStateStats", "Avg. Not Predicated Off Threads Per Warp"): (
        "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio", ""),
    ("InstructionStats", "Avg. Executed Instructions Per Scheduler"): ("smsp__inst_executed.avg", "inst"),
    ("InstructionStats", "Executed Instructions"): ("smsp__inst_executed.sum", "inst"),
    ("InstructionStats", "Avg. Issued Instructions Per Scheduler"): ("smsp__inst_issued.avg", "inst"),
    ("InstructionStats", "Issued Instructions"): ("smsp__inst_issued.sum", "inst"),
    ("SpeedOfLight_RooflineChart", "Predicated-On FADD Thread Instructions Executed Per Cycle"): (
        "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum.per_cycle_elapsed", "inst/cycle"),
    ("SpeedOfLight_RooflineChart", "Predicated-On FMUL Thread Instructions Executed Per Cycle"): (
        "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum.per_cycle_elapsed", "inst/cycle"),
    ("SpeedOfLight_RooflineChart", "Predicated-On FFMA Thread Instructions Executed Per Cycle"): (
        "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed", "inst/cycle"),
    ("SpeedOfLight_RooflineChart", "Predicated-On DADD Thread Instructions Executed Per Cycle"): (
        "smsp__sass_thread_inst_executed_op_dadd_pred_on.sum.per_cycle_elapsed", "inst/cycle"),
    ("SpeedOfLight_RooflineChart", "Predicated-On DMUL Thread Instructions Executed Per Cycle"): (
        "smsp__sass_thread_inst_executed_op_dmul_pred_on.sum.per_cycle_elapsed", "inst/cycle"),
    ("SpeedOfLight_RooflineChart", "Predicated-On DFMA Thread Instructions Executed Per Cycle"): (
        "smsp__sass_thread_inst_executed_op_dfma_pred_on.sum.per_cycle_elapsed", "inst/cycle"),
    ("SpeedOfLight_RooflineChart", "SM Frequency"): ("smsp__cycles_elapsed.avg.per_second", "hz"),
    ("SpeedOfLight_RooflineChart", "DRAM Bandwidth"): ("dram__bytes.sum.per_second", "byte/s"),
    ("LaunchStats", "Block Size"): ("launch__block_size", ""),
    ("LaunchStats", "Function Cache Configuration"): ("launch__func_cache_config", ""),
    ("LaunchStats", "Grid Size"): ("launch__grid_size", ""),
    ("LaunchStats", "Registers Per Thread"): ("launch__registers_per_thread", "register/thread"),
    ("LaunchStats", "Shared Memory Configuration Size"): ("launch__shared_mem_config_size", "byte"),
    ("LaunchStats", "Driver Shared Memory Per Block"): ("launch__shared_mem_per_block_driver", "byte/block"),
    ("LaunchStats", "Dynamic Shared Memory Per Block"): ("launch__shared_mem_per_block_dynamic", "byte/block"),
    ("LaunchStats", "Static Shared Memory Per Block"): ("launch__shared_mem_per_block_static", "byte/block"),
    ("LaunchStats", "Threads"): ("launch__thread_count", "thread"),
    ("LaunchStats", "Waves Per SM"): ("launch__waves_per_multiprocessor", ""),
    ("Occupancy", "Block Limit SM"): ("launch__occupancy_limit_blocks", "block"),
    ("Occupancy", "Block Limit Registers"): ("launch__occupancy_limit_registers", "block"),
    ("Occupancy", "Block Limit Shared Mem"): ("launch__occupancy_limit_shared_mem", "block"),
    ("Occupancy", "Block Limit Warps"): ("launch__occupancy_limit_warps", "block"),
    ("Occupancy", "Theoretical Active Warps per SM"): ("sm__maximum_warps_avg_per_active_cycle", "warp"),
    ("Occupancy", "Theoretical Occupancy"): ("sm__maximum_warps_per_active_cycle_pct", "%"),
    ("Occupancy", "Achieved Occupancy"): ("sm__warps_active.avg.pct_of_peak_sustained_active", "%"),
    ("Occupancy", "Achieved Active Warps Per SM"): ("sm__warps_active.avg.per_cycle_active", "warp"),
    ("SourceCounters", "Branch Instructions Ratio"): ("derived__smsp__inst_executed_op_branch_pct", "%"),
    ("SourceCounters", "Branch Instructions"): ("smsp__inst_executed_op_branch.sum", "inst"),
    ("SourceCounters", "Branch Efficiency"): ("smsp__sass_average_branch_targets_threads_uniform.pct", "%"),
    ("SourceCounters", "Avg. Divergent Branches"): ("smsp__sass_branch_targets_threads_divergent.avg", ""),
}  # fmt: skip


@dataclass(frozen=True)
class DetailsPage:
    """One details page.

    counters   COUNTERS_COLUMNS of its launches, then the metrics whose raw name is known, in base units
    units      their base units
    details    every metric row (DETAILS_COLUMNS)
    rules      every rule row (RULES_COLUMNS)
    missing       what is missing from the page
    style      how its numbers are written
    """

    counters: pd.DataFrame
    units: dict[str, str]
    details: pd.DataFrame
    rules: pd.DataFrame
    missing: list[Missing]
    style: NumberStyle


def is_metric_name(text: str) -> bool:
    """Return whether a text is the name of a metric rather than a label."""
    return _RAW_NAME.fullmatch(text) is not None


def is_label(section: str, text: str) -> bool:
    """Return whether a text is a known label in the section with this display name, or the name of a metric."""
    return is_metric_name(text) or _labelled(section, text)[0] != ""


def metric_of(section: str, item: str, label: str, unit: str) -> tuple[str, str]:
    """Return (raw name or '', label) of a metric row.

    `unit` is its base unit and must equal the known unit of the label.

    `section` is the display name. A row of a body item (`--print-details all`) has a raw name only if it prints one or
    is the achieved value of a chart, because its label may mean another metric elsewhere.
    """
    both = _BOTH_NAMES.fullmatch(label)
    if both and _RAW_NAME.fullmatch(both["name"]):
        return both["name"], both["label"]
    if _RAW_NAME.fullmatch(label):
        return label, label
    if item and not item.endswith("Achieved Value"):
        return "", label
    name, expected = _labelled(section, label)
    return (name, label) if unit == expected else ("", label)


def _labelled(section: str, label: str) -> tuple[str, str]:
    """Return the metric of a label and its base unit, or '' if they are unknown."""
    return LABELS.get((SECTIONS.get(section, section), label), ("", ""))


@dataclass
class _Metrics:
    """The metric rows of a page, by metric and launch.

    launches  ID -> its first row;  values, texts  metric -> ID -> number, or cell where it is none
    units     base unit of each metric;  rows  DETAILS_COLUMNS
    """

    launches: dict[int, int] = field(default_factory=dict)
    values: dict[str, dict[int, float]] = field(default_factory=dict)
    texts: dict[str, dict[int, str]] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    rows: dict[str, list[object]] = field(default_factory=lambda: {name: [] for name in DETAILS_COLUMNS})

    def list_row(self, *cells: object) -> None:
        """Add a row with its cells in the order of DETAILS_COLUMNS."""
        for column, cell in zip(self.rows.values(), cells, strict=True):
            column.append(cell)

    def keep(self, name: str, ncu_id: int, value: float, unit: str, where: str) -> None:
        """Keep the value of a metric with a raw name.

        Raises:
            InputError: a launch has several values of one metric that disagree.
        """
        column = self.values.setdefault(name, {})
        before = column.get(ncu_id, math.nan)
        if not math.isnan(before) and not math.isnan(value) and not _agree(before, value):
            raise InputError(
                f"{where}: {name} of launch {ncu_id} is {value:g} where an earlier line has {before:g}; two captures "
                "were put into one file, keep one file each."
            )
        if math.isnan(before):
            column[ncu_id] = value
        # Rows without a value often have no unit either.
        if unit or name not in self.units:
            if self.units.get(name, unit) not in ("", unit):
                said = f"{name} is in {unit} where an earlier line has {self.units[name]}"
                raise ncu_csv.damaged(where, said, "details")
            self.units[name] = unit


def read_details(
    section: ncu_csv.Section, found: list[tuple[str, str]], style: NumberStyle | None = None
) -> DetailsPage:
    """Return metrics and rules of one details page. `found`: ncu's messages in the file; `style`: the number style.

    Raises:
        InputError: damage inside, an unknown unit, an ambiguous locale, or two values of one metric for one launch.
    """
    header = ncu_csv.header_of(section)
    missing = [name for name in ("Metric Name", "Metric Unit", "Metric Value") if name not in header]
    if missing:
        raise InputError(f"{section.name}: has no column {missing[0]!r}; export it again with {_EXPORT}.")
    page = ncu_csv.read_page(section, lengths=(header.index("Metric Value") + 1,))
    return read_rows(page, found, style, [ncu_csv.cut_off(page, "details")] if page.cut else [])


def read_rows(
    page: ncu_csv.Page, found: list[tuple[str, str]], style: NumberStyle | None, missing: list[Missing]
) -> DetailsPage:
    """Return metrics and rules of the rows of a page (see read_details).

    `missing` come from splitting the page into rows.
    """
    is_metric = np.array([bool(name.strip()) for name in page.column("Metric Name")], dtype=bool)
    labels, units, cells = (page.column(f"Metric {part}") for part in ("Name", "Unit", "Value"))
    style = locale_of(
        ((labels[row].strip(), units[row], cells[row]) for row in np.flatnonzero(is_metric)), page.name, style
    )
    rules = _rules(page, ~is_metric, style)
    read = _read_metrics(page, is_metric, style)
    missing = missing + ncu_csv.lost_launches(page, read.launches)
    counters = _counters(page, read.launches, read.values, read.texts)
    details = as_table(read.rows, DETAILS_COLUMNS)
    gone = crashed(
        {name: counters[name].to_numpy(float) for name in read.values if counters[name].dtype == float}, len(counters)
    ) | _without_values(details, counters)
    if gone.any():
        missing.append(uncounted(counters, gone, page.name, found))
        failed = set(counters["ncu_id"][gone])
        counters = counters[~gone].reset_index(drop=True)
        rules = rules[~rules["ncu_id"].isin(failed)].reset_index(drop=True)
        details = details[~details["ncu_id"].isin(failed)].reset_index(drop=True)
    known = {name: unit for name, unit in read.units.items() if name in read.values}
    return DetailsPage(counters, known, details, rules, missing, style)


def _without_values(details: pd.DataFrame, counters: pd.DataFrame) -> np.ndarray:
    """Return the launches whose metric rows hold neither a value nor a text."""
    has = (details["value"].notna() | (details["text"] != "")).groupby(details["ncu_id"]).any()
    return counters["ncu_id"].isin(has.index[~has]).to_numpy(bool)


def _read_metrics(page: ncu_csv.Page, is_metric: np.ndarray, style: NumberStyle) -> _Metrics:
    """Return the metric rows of a page.

    Raises:
        InputError: a row has no ID, a row is neither a metric nor a rule, two kernels share an ID, a unit is unknown,
            or one launch has two values of one metric.
    """
    read = _Metrics()
    labels, units, cells = (page.column(f"Metric {part}") for part in ("Name", "Unit", "Value"))
    sections_of, items, kernels = (page.column(name) for name in ("Section Name", "Body Item Label", "Kernel Name"))
    values = _columns(cells, labels, units, np.flatnonzero(is_metric).tolist(), style)
    scales: dict[str, tuple[float, str]] = {}  # of the units so far
    for row, ncu_id in enumerate(ncu_csv.integers(page, "ID")):
        if ncu_id is None:
            raise InputError(f"{page.name}: line {page.numbers[row]} has no ID; export it again with {_EXPORT}.")
        first = read.launches.setdefault(ncu_id, row)
        if kernels[first] != kernels[row]:
            raise InputError(
                f"{page.name}: ID {ncu_id} is {kernels[first]} in line {page.numbers[first]} and {kernels[row]} in "
                f"line {page.numbers[row]}; two captures were put into one file, keep one file each."
            )
        _check_row(page, row, is_metric=bool(is_metric[row]))
        if not is_metric[row]:
            continue
        where = f"{page.name}, line {page.numbers[row]}"
        if units[row] not in scales:
            scales[units[row]] = base_unit(units[row], where)
        scale, unit = scales[units[row]]
        name, label = metric_of(sections_of[row], items[row], labels[row].strip(), unit)
        value = values[row] if row in values else _value(cells[row], style, scale)
        is_text = value is None
        value = math.nan if value is None else value
        if not math.isnan(value):
            check_metric(name or _labelled(sections_of[row], label)[0], unit, where)
        text = cells[row].strip() if is_text else ""
        shown = None if math.isnan(value) else value
        read.list_row(page.name, ncu_id, kernels[row], sections_of[row], items[row], label, name, shown, unit, text)
        if name and is_text:
            read.texts.setdefault(name, {})[ncu_id] = text
        elif name:
            read.keep(name, ncu_id, value, unit, where)
    return read


def _columns(
    cells: list[str], labels: list[str], units: list[str], rows: list[int], style: NumberStyle
) -> dict[int, float]:
    """Return the numbers of rows whose label and unit have numbers alone, all at once."""
    alike: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for row in rows:
        alike[labels[row], units[row]].append(row)
    found: dict[int, float] = {}
    for (_, unit), same in alike.items():
        if is_unit(unit):
            numbers = column_values([cells[row] for row in same], style, base_unit(unit, "")[0])
            found |= zip(same, numbers.tolist(), strict=True) if numbers is not None else ()
    return found


def _value(cell: str, style: NumberStyle, scale: float) -> float | None:
    """Return the number of a cell, None for a text."""
    numbers = column_values([cell], style, scale)
    return None if numbers is None else float(numbers[0])


def _agree(one: float, other: float) -> bool:
    """Return whether two numbers, rounded to two decimals of their units, can be the same value."""
    return abs(one - other) <= max(0.01, 0.01 * max(abs(one), abs(other)))


def _counters(
    page: ncu_csv.Page, launches: dict[int, int], metrics: dict[str, dict[int, float]], texts: dict[str, dict[int, str]]
) -> pd.DataFrame:
    """Return one row a launch: its identity, and the metrics with a raw name."""
    rows = list(launches.values())
    picked = replace(page, rows=[page.rows[row] for row in rows], numbers=[page.numbers[row] for row in rows])
    shown = texts.get("device__attribute_display_name", {})
    device = [shown.get(ncu_id, cell) or cell for ncu_id, cell in zip(launches, picked.column("Device"), strict=True)]
    identity = ncu_csv.identity(picked, list(launches), device)
    if identity.empty:
        return as_table({name: [] for name in COUNTERS_COLUMNS}, COUNTERS_COLUMNS)
    values = pd.DataFrame(
        {name: [by_id.get(ncu_id, math.nan) for ncu_id in launches] for name, by_id in metrics.items()},
        index=identity.index, dtype="float64",
    )  # fmt: skip
    return pd.concat([identity, values], axis=1)


def _check_row(page: ncu_csv.Page, row: int, *, is_metric: bool) -> None:
    """Refuse a row that is both a metric and a rule, and a rule without a name, a text and one of ncu's types."""
    told = page.rows[row]
    if is_metric and not any(told[page.columns[name]] for name in _OF_RULES if name in page.columns):
        return
    rule = {name: told[page.columns[name]].strip() for name in _OF_RULES if name in page.columns}
    value = any(told[page.columns[name]].strip() for name in ("Metric Unit", "Metric Value"))
    named = rule.get("Rule Name", "") != "" and rule.get("Rule Description", "") != ""
    said = named and _RULE_TYPE.fullmatch(rule.get("Rule Type", "")) is not None
    if any(rule.values()) if is_metric else value or (any(rule.values()) and not said):
        raise ncu_csv.damaged(page.name, f"line {page.numbers[row]} is neither a metric nor a rule", "details")


def _speedup(cell: str, style: NumberStyle, where: str) -> float | None:
    """Return an estimated speed-up in percent. Rules print a point (`3.779`) whatever the locale of the metrics."""
    if is_missing(cell):
        return None
    try:
        return parse_number(cell, C_LOCALE if "," not in cell else style)
    except ValueError:
        raise InputError(f"{where}: the speed-up {cell!r} is not a number; export it again with {_EXPORT}.") from None


def _rules(page: ncu_csv.Page, is_rule: np.ndarray, style: NumberStyle) -> pd.DataFrame:
    """Return the rule rows of a page."""
    rows = np.flatnonzero(is_rule & np.array([bool(name.strip()) for name in page.column("Rule Name")], dtype=bool))
    ids = ncu_csv.integers(page, "ID")

    def cells(name: str) -> list[str]:
        column = page.column(name)
        return [column[row].strip() for row in rows]

    speedups = cells("Estimated Speedup")
    paths = ncu_csv.range_paths(page)
    sections_of = cells("Section Name")
    return as_table(
        {
            "file": [page.name] * len(rows),
            "ncu_id": pd.array([ids[row] for row in rows], dtype="Int64"),
            "kernel": cells("Kernel Name"),
            "path": [paths[row] for row in rows],
            "section": [SECTIONS.get(name, name) for name in sections_of],
            "section_title": [TITLES.get(SECTIONS.get(name, name), "") for name in sections_of],
            "rule": cells("Rule Name"),
            "type": cells("Rule Type"),
            "text": [without_paths(text) for text in cells("Rule Description")],
            "speedup_type": cells("Estimated Speedup Type"),
            "speedup_pct": pd.array(
                [
                    _speedup(cell, style, f"{page.name}, line {page.numbers[row]}")
                    for cell, row in zip(speedups, rows, strict=True)
                ],
                dtype="Float64",
            ),
        },
        RULES_COLUMNS,
    )
