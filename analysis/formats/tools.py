"""Declare the status files of a capture: nsys.json and ncu.json (status.py), and bare.json of bare.sh."""

from msgspec import UNSET, Struct, UnsetType

from analysis.formats.files import JsonFile, Whole
from analysis.formats.place import profile


class ToolStatus(Struct):
    """The status of a tool.

    `status` is ok, missing, denied or failed. `counted` belongs to a sweep: the fingerprint of a launch by NVTX path.
    `exit_code` and `ranges` belong to a bare run: the program's exit code, and the number of recorded ranges.
    `auto_ranges` of a bare run: "on" if its ranges are automatic; "own" if the program opens ranges itself, and only
    those count. `range_cost_ns`: the cost of an automatic range, subtracted from the times. `planned`: ncu replayed the
    launches of count_plan.csv. `unsampled`: why nsys did not sample counters. `date`: its day, UTC.
    """

    tool: str
    status: str
    reason: str = ""
    fix: str = ""
    version: str | None = None
    command: list[str] = []
    seconds: Whole | UnsetType | None = UNSET
    window: str | UnsetType = UNSET
    clock_control: str | UnsetType = UNSET
    planned: bool | UnsetType = UNSET
    nvtx_include: list[str] | UnsetType = UNSET
    cache_control: str | UnsetType = UNSET
    replay_mode: str | UnsetType = UNSET
    metrics: list[str] | UnsetType = UNSET
    counted: dict[str, str] | UnsetType = UNSET
    exit_code: int | UnsetType = UNSET
    ranges: Whole | UnsetType = UNSET
    auto_ranges: str | UnsetType = UNSET
    range_cost_ns: float | UnsetType | None = UNSET
    unsampled: str | UnsetType = UNSET
    date: str | UnsetType = UNSET


TOOL_STATUS = JsonFile("tool-status", "ncu.json", ToolStatus, again=f"capture again with `{profile()}`")
