"""Build the complete argument lists of nsys and ncu. The driver calls these functions; the scripts run this module:

    usage: python -m harness.profile.argv nsys|ncu [-n] OPTIONS…    print the list, one argument a line

The headers of nsys_capture.sh and ncu_capture.sh describe OPTIONS.
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from harness.profile.machine import capability

SAMPLE_HZ = 10_000  # nothing is lost at 20 kHz either; at 50 kHz, a seventh of the time on an H100
LEAST_HZ, MOST_HZ = 10, 200_000  # what nsys accepts
DRY_CC = "9.0"  # whose metrics -n prints without a GPU
SOURCE = {
    "": ([], ""),
    "source": (["--import-source", "yes", "--section", "SourceCounters"], ""),
    "samples": (["--import-source", "yes"], ",group:smsp__pcsamp_warp_stall_reasons"),
}
PLANNED = ["--kernel-name-base", "mangled"]  # every planned capture has these words, and no other


class ArgumentError(Exception):
    """One sentence about a wrong option, and the exit code."""

    def __init__(self, sentence: str, code: int = 2) -> None:
        super().__init__(sentence)
        self.code = code


def nsys(window: str = "profiler", graphs: str = "node", sample_hz: int = 0) -> list[str]:
    """Return the options of `nsys profile` for a window (profiler or all) and for CUDA graphs (node or graph).

    sample_hz  how often to sample the counters of all GPUs that the program sees; 0: never
    """
    options = ["-t", "cuda,nvtx", "-s", "none", "--cpuctxsw=none", f"--cuda-graph-trace={graphs}"]
    if sample_hz:
        seen = os.environ.get("CUDA_VISIBLE_DEVICES", "")  # of others' GPUs, we neither need nor take the counters
        devices = seen if re.fullmatch(r"\d+(,\d+)*", seen) else "all"
        options += [f"--gpu-metrics-devices={devices}", f"--gpu-metrics-frequency={sample_hz}"]
    return options + (["-c", "cudaProfilerApi", "--capture-range-end=stop"] if window == "profiler" else [])


def ncu(
    metrics: str, *, window: str = "profiler", include: Sequence[str] = (), domain: str = "",
    numbers: Sequence[str] = (), launches: int = 0, source: str = "", cache: str = "all", replay: str = "kernel",
) -> list[str]:  # fmt: skip
    """Return the options of ncu.

    include    NVTX filters; with `domain`, ranges of this domain count, too
    numbers    options that select launches by name and number
    launches   the most launches to count; 0: all
    source     source or samples, as in SOURCE
    """
    options = ["--nvtx"]
    for each in include:
        options += [word for form in _forms(each, domain) for word in ("--nvtx-include", form)]
    options += numbers
    options += ["--profile-from-start", "off"] if window == "profiler" else []
    options += ["--launch-count", str(launches)] if launches else []
    sampled, group = SOURCE[source]
    options += [*sampled, "--target-processes", "all", "--clock-control", "none"]
    return [*options, "--cache-control", cache, "--replay-mode", replay, "--metrics", metrics + group]


def _forms(include: str, domain: str) -> list[str]:
    """Return an NVTX filter as it is; with a domain, also in the two forms that accept ranges of the domain."""
    if not domain:
        return [include]
    named = include.removeprefix("[")  # torch's own NVTX has no domains: there the domain is part of the names
    inside = re.sub(r"/([^/])", rf"/{domain}:\1", named)
    return [include, f"{domain}@{include}", f"{include[: len(include) - len(named)]}{domain}:{inside}"]


def of_plan(plan: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `ncu` for the launches of a plan (count_plan.json); `columns` is for `metrics_for`.

    Raises: ArgumentError if the plan chooses no launch.
    """
    if plan.get("kind") != "count-selection" or not plan["replayed"]:
        raise ArgumentError("The plan chooses no launch: plan again with a larger --budget.")
    kernels = f"regex:{plan['kernels']}" if plan.get("kernels") else ""
    numbers = list(PLANNED)
    if plan["invocations"]:
        numbers += ["--kernel-id", f":{f':{kernels}' if kernels else ':'}:{plan['invocations']}"]
        numbers += ["--launch-count", str(plan["replayed"])]  # the launches after the last one cost nothing
    elif kernels:
        numbers += ["--kernel-name", kernels]
    if "replay" not in plan:
        return {"include": plan["include"], "numbers": numbers}
    # a program with collectives: one GPU, no memory restored
    numbers += ["--devices", str(plan["device"]), "--app-replay-mode", "relaxed"]
    return {"include": plan["include"], "numbers": numbers, "replay": plan["replay"], "columns": plan["columns"]}


def metrics_for(cc: str, *, deep: bool = False, columns: str = "", dry: bool = False) -> str:
    """Return the catalogue's metrics for a compute capability, by default that of this machine's GPU.

    Raises: ArgumentError if there is no GPU, or no list for it.
    """
    from analysis.formats.errors import LedgerError
    from analysis.hardware.metrics import capture_metrics, check_names, column_metrics, verified

    if not cc:
        cc, why = capability()
        if not cc and not dry:
            fix = "name its compute capability with --cc 9.0, or the metrics with --metrics."
            raise ArgumentError(f"No GPU to choose metrics for ({why}): {fix}", 127)
        if not cc:
            cc = DRY_CC
            print(f"No GPU to choose metrics for ({why}): using those of compute capability {cc}.", file=sys.stderr)
    try:
        names = [name for name in columns.split(",") if name]
        check_names([], names)
        found = column_metrics(cc, names) if names else capture_metrics(cc, deep=deep)
    except LedgerError as error:
        raise ArgumentError(f"{error}") from None
    if cc not in verified()["chips"]:
        print(f"metric names for {cc} are not verified with any ncu", file=sys.stderr)
    return ",".join(found)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ArgumentError(f"{message[:1].upper()}{message[1:]}. See {self.prog} --help.")


def sample_rate(text: str) -> int:
    """Return a rate that nsys accepts, or 0 for no samples. Raises: ValueError for another one."""
    value = int(text)
    if value and not LEAST_HZ <= value <= MOST_HZ:
        raise ValueError
    return value


def whole(text: str) -> int:
    """Return a whole number from 1 on. Raises: ValueError for another one."""
    value = int(text)
    if value < 1:
        raise ValueError
    return value


sample_rate.__name__ = f"rate from {LEAST_HZ} to {MOST_HZ} Hz, or 0"
whole.__name__ = "whole number from 1 on"


def _parser(tool: str) -> _Parser:
    parser = _Parser(prog=f"{tool}_capture.sh", add_help=False, allow_abbrev=False)
    parser.add_argument("-n", dest="dry", action="store_true")
    parser.add_argument("--window", choices=("profiler", "all"), default="profiler")
    if tool == "nsys":
        parser.add_argument("--graphs", choices=("node", "graph"), default="node")
        parser.add_argument("--sample-hz", type=sample_rate, default=0)
        return parser
    parser.add_argument("--include", action="append", default=[])
    for name in ("--domain", "--columns", "--metrics", "--cc"):
        parser.add_argument(name, default="")
    parser.add_argument("--plan", type=Path)
    parser.add_argument("--deep", action="store_true")
    parser.add_argument("--launches", type=whole, default=0)
    for name in ("source", "samples"):
        parser.add_argument(f"--{name}", dest="source", action="store_const", const=name, default="")
    parser.add_argument("--cache-control", choices=("all", "none"), default="all")
    parser.add_argument("--replay", choices=("kernel", "application"), default="kernel")
    return parser


def _chosen(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `ncu` for the file of --plan. Raises: ArgumentError if it is absent."""
    if options.deep or options.include:
        raise ArgumentError("--plan selects the launches: leave --include and --deep out.")
    if options.plan.is_file():
        return of_plan(json.loads(options.plan.read_text(encoding="utf-8")))
    if not options.dry:
        raise ArgumentError(f"{options.plan} was not found: write it with `python -m analysis.counting`.")
    return {"numbers": [*PLANNED, "--kernel-id", f"(the launches that {options.plan} will choose)"]}


def options_of(tool: str, arguments: Sequence[str]) -> list[str]:
    """Return the options of a tool for the options of its script. Raises: ArgumentError."""
    options, others = _parser(tool).parse_known_args(arguments)
    if others:
        raise ArgumentError(f"Unknown argument {others[0]}: the command to capture follows after --.")
    if tool == "nsys":
        return nsys(options.window, options.graphs, options.sample_hz)
    chosen: dict[str, Any] = {"include": [] if options.deep else options.include, "replay": options.replay}
    chosen |= _chosen(options) if options.plan else {}
    columns = options.columns or chosen.pop("columns", "")
    chosen.pop("columns", None)
    metrics = options.metrics or metrics_for(options.cc, deep=options.deep, columns=columns, dry=options.dry)
    chosen |= {"window": options.window, "domain": options.domain, "launches": options.launches}
    return ncu(metrics, source=options.source, cache=options.cache_control, **chosen)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Exit code 2: wrong usage; 127: no GPU to choose metrics for."""
    tool, *rest = (sys.argv[1:] if arguments is None else arguments) or [""]
    if tool not in ("nsys", "ncu"):
        print(__doc__)
        return 0 if tool in ("-h", "--help") else 2
    try:
        print("\n".join(options_of(tool, rest)))
    except ArgumentError as error:
        print(f"{tool}_capture.sh: {error}", file=sys.stderr)
        return error.code
    return 0


if __name__ == "__main__":
    from analysis.formats.console import run_program

    sys.exit(run_program(main))
