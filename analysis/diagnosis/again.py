"""The command that captures one launch of a program again, with all of ncu's sections.

ncu 2025.3 numbers the launches of a kernel from 1 by its function name, without namespaces and template arguments, and
counts those alone that pass the NVTX filter and lie in the profiler's window. So the command repeats the window of the
capture that the numbers come from, and its filters where the range has none of its own.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from analysis.capture.model import Capture
from analysis.formats import symbols
from analysis.tables.declare import fact

PROGRAM = "PROGRAM"  # where nobody recorded which it was
LONGEST = 200  # characters of a name


@dataclass(frozen=True)
class Program:
    """What was captured and how: `command` as a shell takes it.

    `window`: only launches between cudaProfilerStart and cudaProfilerStop were counted. `include`: ncu's NVTX filters
    of the whole capture, where launches are numbered among those that ncu saw; a timeline numbers all of them.
    """

    command: str = PROGRAM
    window: bool = False
    include: tuple[str, ...] = ()


@fact("captured_program")
def _captured_program(capture: Capture) -> Program:
    """The program under ncu, as its ncu.json has it; a placeholder without one."""
    found = [tool for tool in capture.tools if tool.get("tool") == "ncu"]
    program = captured_program(found[0]) if len(found) == 1 else Program()
    return program if capture.gpu_ops.empty else replace(program, include=())


def captured_program(status: dict[str, Any]) -> Program:
    """The program of a tool's status: what follows `-o STEM` of ncu's command."""
    command = [str(word) for word in status.get("command") or []]
    after = command[command.index("-o") + 2 :] if "-o" in command else []
    profiled = status.get("window") == "profiler" or "--profile-from-start" in command
    include = tuple(str(one) for one in status.get("nvtx_include") or ())
    return Program(shlex.join(after) or PROGRAM, profiled, include)


def recapture(kernel: str, nvtx: Sequence[str], skipped: int, program: Program) -> str:
    """The command that captures one launch: so many of its function come before it under the filters `nvtx`."""
    name = re.escape(symbols.base(kernel)[:LONGEST])
    end = "$" if len(symbols.base(kernel)) <= LONGEST else ""
    options = ["ncu", "--set", "full", "--import-source", "yes", "--clock-control", "none"]
    if program.window:
        options += ["--profile-from-start", "off"]
    if nvtx:
        options += ["--nvtx", *(word for one in nvtx for word in ("--nvtx-include", one))]
    options += ["--kernel-name-base", "function", "--kernel-id", f"::regex:^{name}{end}:{skipped + 1}"]
    return f"{shlex.join([*options, '--launch-count', '1', '-f', '-o', 'kernel'])} {program.command}"
