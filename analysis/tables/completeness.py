"""List what a report cannot answer: each gap by name, with its reason and the remedy.

A table without rows has its own gap beside its declaration.
"""

from collections.abc import Iterator

import pandas as pd

from analysis.capture.model import Capture
from analysis.formats.bare import BARE_RANGES
from analysis.formats.inductor import INDUCTOR
from analysis.formats.place import EXPORT, here, profile, program
from analysis.formats.report import Missing, Reason
from analysis.formats.run import OPS
from analysis.hardware.devices import find_device
from analysis.tables.conditions import CPU, compute_capability, other_gpu, where_it_ran
from analysis.tables.declare import Facts, part
from analysis.tables.remedies import BARE_TIMES, METRICS, ROOFS


@part("missing")
def _of_the_readers(facts: Facts) -> list[Missing]:
    return list(facts.capture.missing)


@part("missing")
def _impossible_roofs(facts: Facts) -> list[Missing]:
    return facts.allowed_ceilings[1]


@part("missing")
def _of_another_gpu(facts: Facts) -> Missing | None:
    if not (said := other_gpu(facts.capture)):
        return None
    return Missing(
        Reason.CONTRADICTION,
        "which GPU the counters are of",
        f"ncu's export contradicts the manifest ({said}), and limits and roofs are those of the manifest's GPU",
        "give captures of one GPU, with their own manifest",
    )


def _said(capture: Capture, tool: str) -> bool:
    """Return whether a status file already reports the failure of this tool."""
    return any(status.get("tool") == tool and status.get("status") != "ok" for status in capture.tools)


def has_own_times(capture: Capture) -> bool:
    """Return whether one of our studies timed the program itself, and has its own tables."""
    return any((capture.layer_profile, capture.kernels_of_layers, capture.baseline))


@part("missing")
def name_missing_captures(facts: Facts) -> Iterator[Missing]:
    """Return the missing of a run without any timeline, or without any counters."""
    capture = facts.capture
    has_timeline, on_cpu = len(capture.gpu_ops) > 0, where_it_ran(capture) == CPU
    if not facts.is_program:
        return
    if on_cpu and has_own_times(capture):
        yield Missing(
            Reason.NO_GPU,
            "times and counters of a GPU",
            "this run was on a CPU",
            "run it again on a machine with a GPU",
        )
        return
    if not has_timeline and not on_cpu and capture.ranges.empty and not _said(capture, "nsys"):
        yield Missing(
            Reason.NO_TIMELINE,
            "time per layer and step",
            "there is no nsys timeline",
            f"export it with {EXPORT}, or with `nsys stats --format csv --report "
            "cuda_gpu_trace,nvtx_pushpop_trace,cuda_api_trace`",
        )
    if not has_timeline and not on_cpu and len(capture.ranges) > 0:
        yield Missing(
            Reason.NO_GPU_TIME,
            "time on the GPU",
            "the timeline holds ranges and no GPU operation",
            "capture with `-t cuda,nvtx` a program that uses an NVIDIA GPU",
        )
    if capture.counters.empty and not _said(capture, "ncu"):
        yield Missing(
            Reason.NO_COUNTERS,
            "roofline, stalls and measured bytes",
            "the run was on a CPU" if on_cpu else "there is no ncu export",
            f"capture with {program('nsys_scripts/ncu_capture.sh', 'profile')} on a machine with an NVIDIA GPU",
        )


def _no_datasheet(capture: Capture, gpu: str) -> Missing:
    named, cc = find_device(gpu), compute_capability(capture)
    if named:
        why = f"{gpu} has compute capability {named.cc}, and these counters are of a GPU with {cc}"
        return Missing(Reason.UNKNOWN_GPU, "datasheet roofs", why, "give the exports of one GPU")
    return Missing(
        Reason.UNKNOWN_GPU,
        "datasheet roofs",
        f"the GPU {gpu} is not in the device table",
        "add it with its source to "
        + here("analysis/hardware/devices.toml", "devices.toml in a clone of the repository"),
    )


def _contradicts(facts: Facts) -> bool:
    """Return whether the file states another compute capability than the GPU of its name has."""
    return facts.device is not None and bool(facts.device.derived) and find_device(facts.gpu or "") is not None


@part("missing")
def name_missing_files(facts: Facts) -> Iterator[Missing]:
    """Return the missing of a run that lacks the files with the values to compare its numbers with."""
    capture, gpu = facts.capture, facts.gpu
    has_timeline = len(capture.gpu_ops) > 0
    if not facts.is_program:
        return
    if capture.ops is None and not (has_own_times(capture) and not has_timeline):
        yield Missing(
            Reason.NO_PREDICTIONS,
            "predicted bytes",
            "there is no ops.csv, which says what each range must move",
            "list the ranges with their bytes in ops.csv, with the columns "
            + here("that analysis/README.md gives", ", ".join(OPS.names)),
        )
    if (has_timeline or len(capture.counters)) and bool(facts.roofs["measured"].isna().all()):
        yield Missing(Reason.NO_ROOFS, "measured roofs", "there is no ceilings.json", ROOFS)
    if gpu and (facts.device is None or _contradicts(facts)) and capture.clock != "cpu":
        yield _no_datasheet(capture, gpu)
    if has_timeline and capture.timing is None and capture.of(BARE_RANGES.kind) is None:
        yield Missing(Reason.NO_BARE_TIMES, "verdicts on steps", "there is no bare time (bare_ranges.csv)", BARE_TIMES)
    if has_timeline and capture.dataflow is None:
        is_compiled = capture.of(INDUCTOR.kind) is not None
        yield Missing(
            Reason.NO_DATAFLOW, "what to fuse, beyond known patterns", *(COMPILED if is_compiled else NO_DATAFLOW)
        )


NO_DATAFLOW = (
    "there is no dataflow.csv, which says which tensors each operation reads and writes",
    here(
        "capture with harness.run, or record it with harness/dataflow.py",
        f"capture a torch program with `{profile()}`",
    ),
)
COMPILED = (
    "torch.compile compiled the program, so no run of single operations shows which tensors they share",
    "see in compiled.csv which modules each kernel fuses already, or profile the program without torch.compile",
)


@part("missing")
def _partial_counters(facts: Facts) -> Iterator[Missing]:
    return name_partial_counters(facts.joined.launches, facts.measured, is_planned=facts.planned_rows is not None)


def name_partial_counters(
    launches: pd.DataFrame, measured: pd.DataFrame, *, is_planned: bool = False
) -> Iterator[Missing]:
    """Return a gap for kernels that ncu was not asked to count, and one for matched kernels without counter values."""
    if launches.empty or not (launches["counters_from"] != "").any():
        return
    outside = int((~launches["requested"] & (launches["counters_from"] == "")).sum())
    if outside:
        yield Missing(
            Reason.UNCOUNTED,
            f"the counters of {outside} of {len(launches)} launches",
            "the time of the plan was spent on others"
            if is_planned
            else "they ran outside the ranges that ncu had to count",
            f"give more time with `{profile('--budget 120')}`, or capture all with `{profile('--deep')}`"
            if is_planned
            else f"capture them with `{profile('--deep')}`, or report with --extrapolate-siblings",
        )
    matched = measured[measured["counters_from"] != ""]
    for column, what in (("duration_ns", "duration"), ("dram_read_bytes", "DRAM bytes"), ("flops", "FLOPs")):
        lost = int(matched[column].isna().sum()) if column in matched else 0
        if lost:
            yield Missing(
                Reason.NO_METRICS,
                f"{what} of {lost} of {len(matched)} measured launches",
                "ncu gave no value (nan or n/a) or its metrics were not captured",
                METRICS,
            )
