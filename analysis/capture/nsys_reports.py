"""Define the reports of `nsys stats` as data: their columns from 2020 to 2026, and how to recognise a header line.

The columns of its header identify a report; its title and the name of its file do not. Names change between years
(`Average`, `Avg`) and columns come and go (`Med`, `GreenCtx`), but their order never changed. So a header in another
order was edited, and its rows may not match it.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

STATISTICS = "Avg Med Min Max StdDev"
# The content of a column. Text may hold anything; words hold neither commas nor quotes. All others are numbers:
# `time` whole ns (or decimals of another unit), `mean` a time with decimals, `size` MB with three decimals or whole
# bytes, `rate` and `percent` decimals, `whole` counts, ids and dimensions.
KINDS: dict[str, str] = {
    **dict.fromkeys(("Name", "Range", "NVTX Range", "Kernel Name", "Operation", "NameTree"), "text"),
    **dict.fromkeys(("Device", "Thread Name", "API Name"), "text"),
    **dict.fromkeys(("Style", "RangeStack", "GridXYZ", "BlockXYZ", "API Function", "SrcMemKd", "DstMemKd"), "word"),
    **dict.fromkeys(("Result", "GreenCtx", "DevId", "Category"), "word"),
    **dict.fromkeys(("Start", "End", "Duration", "DurChild", "DurNonChild", "API Start", "API Dur"), "time"),
    **dict.fromkeys(("Queue Start", "Queue Dur", "Kernel Start", "Kernel Dur", "Total Dur", "Total Time"), "time"),
    **dict.fromkeys(("Projected Start", "Projected Duration", "Orig Start", "Orig Duration"), "time"),
    **dict.fromkeys(("Total Proj Time", "Total Range Time", "Min", "Max", "Proj Min", "Proj Max"), "time"),
    **dict.fromkeys(("Avg", "Med", "StdDev", "Proj Avg", "Proj Med", "Proj StdDev"), "mean"),
    **{
        f"{phase}{statistic}": "time" if statistic in ("Min", "Max") else "mean"
        for phase in "TAQK"
        for statistic in STATISTICS.split()
    },
    **dict.fromkeys(("Avg GPU Ops", "Avg Range Lvl", "Avg Num Child"), "mean"),
    **dict.fromkeys(("StcSMem", "DymSMem", "Bytes", "Total"), "size"),
    "Throughput": "rate",
    "Time": "percent",
}
_ALIASES = {
    "Calls": "Num Calls",
    "Average": "Avg",
    "Minimum": "Min",
    "Maximum": "Max",
    "Operations": "Count",
    "CorrID": "CorrId",
    "Pid": "PID",
    "Tid": "TID",
}


@dataclass(frozen=True)
class Report:
    """One report: its name of 2023 and later, all columns of any year in their order, and the columns of every year."""

    name: str
    columns: tuple[str, ...]
    required: frozenset[str]


def _report(name: str, columns: str, optional: str = "") -> Report:
    split = [column.strip().replace("_", " ") for column in columns.split()]
    return Report(name, tuple(split), frozenset(split) - {column.replace("_", " ") for column in optional.split()})


def _sum(name: str, count: str, last: str) -> Report:
    return _report(name, f"Time Total_Time {count} {STATISTICS} {last}", "Time Med StdDev")


def _phases() -> str:
    return " ".join(f"{phase}{statistic}" for phase in "TAQK" for statistic in STATISTICS.split())


REPORTS: tuple[Report, ...] = (
    _report(
        "cuda_gpu_trace",
        "Start Duration CorrId GrdX GrdY GrdZ BlkX BlkY BlkZ Reg/Trd StcSMem DymSMem Bytes Throughput SrcMemKd "
        "DstMemKd Device Ctx GreenCtx Strm Name",
        "Reg/Trd StcSMem DymSMem Bytes Throughput SrcMemKd DstMemKd Device Ctx GreenCtx Strm",
    ),
    _report(
        "cuda_kern_exec_trace",
        "API_Start API_Dur Queue_Start Queue_Dur Kernel_Start Kernel_Dur Total_Dur PID TID DevId API_Function GridXYZ "
        "BlockXYZ Kernel_Name",
        "Queue_Start Queue_Dur Total_Dur DevId API_Function GridXYZ BlockXYZ",
    ),
    _report(
        "cuda_api_trace", "Start Duration Name Result CorrId PID TID T-Pri Thread_Name", "Result T-Pri Thread_Name"
    ),
    _report(
        "nvtx_pushpop_trace",
        "Start End Duration DurChild DurNonChild Name PID TID Lvl NumChild RangeId ParentId RangeStack NameTree",
        "NumChild RangeId ParentId RangeStack NameTree",
    ),
    _report(
        "nvtx_gpu_proj_trace",
        "Name Projected_Start Projected_Duration Orig_Start Orig_Duration Style PID TID NumGPUOps Lvl NumChild RangeId "
        "ParentId RangeStack",
        "NumChild RangeId ParentId RangeStack",
    ),
    _report(
        "nvtx_gpu_proj_sum",
        "Range Style Total_Proj_Time Total_Range_Time Range_Instances Proj_Avg Proj_Med Proj_Min Proj_Max Proj_StdDev "
        "Total_GPU_Ops Avg_GPU_Ops Avg_Range_Lvl Avg_Num_Child",
        "Proj_Med Proj_StdDev Total_GPU_Ops Avg_GPU_Ops Avg_Range_Lvl Avg_Num_Child",
    ),
    _report(
        "nvtx_kern_sum",
        f"NVTX_Range Style PID TID NVTX_Inst Kern_Inst Total_Time {STATISTICS} Kernel_Name",
        "Style Med StdDev",
    ),
    _report("cuda_kern_exec_sum", f"PID TID DevId Count QCount {_phases()} API_Name Kernel_Name", _phases()),
    _sum("cuda_gpu_kern_gb_sum", "Instances", "GridXYZ BlockXYZ Name"),
    _sum("cuda_gpu_kern_sum", "Instances", "Name"),
    _sum("nvtx_sum", "Instances", "Style Range"),
    _sum("nvtx_range_sum", "Instances", "Range"),
    _sum("cuda_api_sum", "Num_Calls", "Name"),
    _sum("cuda_gpu_sum", "Instances", "Category Operation"),
    _sum("cuda_gpu_mem_time_sum", "Count", "Operation"),
    _report("cuda_gpu_mem_size_sum", f"Total Count {STATISTICS} Operation", "Med StdDev"),
)
# Every other known column is a number. An unknown column may hold any word.
KINDS |= {name: "whole" for report in REPORTS for name in report.columns if name not in KINDS}
BY_NAME = {report.name: report for report in REPORTS}
# Every header contains one of these, and few other lines do.
ANCHORS = (b"(%)", b"Operation", b"Duration", b"API Dur", b"Kern Inst", b"Proj", b"QCount")
_LONGEST_HEADER = 2000
# nsys 2020 prints sizes without a unit; 2021 names it in the title.
UNKNOWN_SIZE = "?"
_SIZED = frozenset({"Total", *STATISTICS.split()})


@dataclass(frozen=True)
class Header:
    """A header line: its report, its separator, and name and unit of each column in the file's order."""

    report: Report
    delimiter: str
    names: tuple[str, ...]
    units: tuple[str, ...]

    @property
    def unknown(self) -> tuple[str, ...]:
        """Return columns that no known version of nsys prints in this report."""
        return tuple(name for name in self.names if name not in self.report.columns)

    @property
    def in_order(self) -> bool:
        """Return whether each known column stands once, and in nsys' order."""
        places = [self.report.columns.index(name) for name in self.names if name in self.report.columns]
        return places == sorted(set(places)) and len(set(self.names)) == len(self.names)


@lru_cache(maxsize=4096)
def normalise(cell: str) -> tuple[str, str]:
    """Return the name and unit of one header cell, the same for every year: `Average (ns)` gives ('Avg', 'ns')."""
    match = re.fullmatch(r"(.*?)\s*\(([^()]*)\)", cell)
    name, unit = (match[1], match[2].strip()) if match else (cell, "")
    return _ALIASES.get(name, name), unit


def match_columns(cells: list[str], delimiter: str) -> Header | None:
    """Return the header with these cells, or None. A wrong order still gives a header (see `Header.in_order`)."""
    names, units = zip(*(normalise(cell) for cell in cells), strict=True)
    if "Operations" in cells:  # nsys 2020 calls the operation its name
        names = tuple("Operation" if name == "Name" else name for name in names)
    have = set(names)
    fitting = [report for report in REPORTS if report.required <= have]
    if not fitting:
        return None
    # Take the report that explains most columns, since a sum with a grid also matches the plain sum.
    best = max(fitting, key=lambda report: (len(have & set(report.columns)), -len(report.columns)))
    if len(have & set(best.columns)) < len(best.required) or len(have - set(best.columns)) > 3:
        return None
    if best.name == "cuda_gpu_mem_size_sum":
        units = tuple(unit or UNKNOWN_SIZE if name in _SIZED else unit for name, unit in zip(names, units, strict=True))
    return Header(best, delimiter, names, units)


@lru_cache(maxsize=256)
def parse_header(line: str) -> Header | None:
    """Return the header in a CSV line (with commas, semicolons or tabs), or None."""
    if len(line) > _LONGEST_HEADER:
        return None
    line = line.removeprefix("\ufeff").strip("\r\n ")
    for delimiter in ",;\t":
        if line.count(delimiter) > 3:
            cells = [cell.strip().strip('"').strip() for cell in line.split(delimiter)]
            header = match_columns(cells, delimiter)
            if header:
                return header
    return None
