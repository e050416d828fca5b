"""Write the command that captures one launch of a program again, with all of ncu's sections.

ncu 2025.3 numbers launches from 1 for each function name, without namespaces and template arguments. It counts only
launches that pass the NVTX filter and lie in the profiler's window. So the command repeats the window of the capture
that the numbers come from. If the range has no NVTX filter, it repeats the filters of that capture too.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from analysis.formats import symbols
from analysis.tables.conditions import command_of
from analysis.tables.declare import Facts

PROGRAM = "PROGRAM"  # stands for a program that no file names
LONGEST = 200  # characters of a name


@dataclass(frozen=True)
class Program:
    """The captured program: `command` is its command line for a shell.

    `window`: the capture counted only launches between cudaProfilerStart and cudaProfilerStop. `include`: the NVTX
    filters of the whole capture, if its launches were numbered among those that ncu saw. With a timeline it is empty,
    because a timeline numbers all launches.
    """

    command: str = PROGRAM
    window: bool = False
    include: tuple[str, ...] = ()


def program_of(facts: Facts) -> Program:
    """Return the program that ncu.json names, or a placeholder if there is none or several."""
    capture = facts.capture
    found = [tool for tool in capture.tools if tool.get("tool") == "ncu"]
    program = captured_program(found[0]) if len(found) == 1 else Program()
    return program if capture.gpu_ops.empty else replace(program, include=())


def captured_program(status: dict[str, Any]) -> Program:
    """Return the program in the content of ncu.json or nsys.json."""
    profiled = status.get("window") == "profiler" or "--profile-from-start" in (status.get("command") or ())
    include = tuple(str(one) for one in status.get("nvtx_include") or ())
    return Program(shlex.join(command_of(status)) or PROGRAM, profiled, include)


def recapture(kernel: str, nvtx: Sequence[str], skipped: int, program: Program) -> str:
    """Return the command that captures one launch of `kernel`.

    `skipped`: how many launches of the same function come before it under the NVTX filters `nvtx`.
    """
    options = ["ncu", "--set", "full", "--import-source", "yes", "--clock-control", "none"]
    if program.window:
        options += ["--profile-from-start", "off"]
    if nvtx:
        options += ["--nvtx", *(word for one in nvtx for word in ("--nvtx-include", one))]
    options += [
        "--kernel-name-base",
        "function",
        "--kernel-id",
        f"::regex:{symbols.pattern(kernel, LONGEST)}:{skipped + 1}",
    ]
    return f"{shlex.join([*options, '--launch-count', '1', '-f', '-o', 'kernel'])} {program.command}"
