"""What became of a capture: nsys.json and ncu.json, which nsys_scripts/status.py writes, and bare.json of bare.sh."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from analysis.formats.files import JsonFile, Whole


class ToolStatus(Struct):
    """`status` is ok, missing, denied or failed; `counted` is of a sweep: the fingerprint of a launch by NVTX path.

    `exit_code` and `ranges` are of a bare run: how the program ended, and how many ranges were recorded.
    `auto_ranges` of a bare run: on if its ranges are automatic; own if the program opens ranges itself, and those alone
    count. `range_cost_ns`: what an automatic range costs, taken off the times.
    `planned`: ncu replayed what count_plan.csv chose.
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


TOOL_STATUS = JsonFile("tool-status", "ncu.json", ToolStatus, again="capture again with the scripts of nsys_scripts/")
