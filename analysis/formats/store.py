"""Declare the store of a fleet: one Parquet table for captures, steps, kernels, findings and what is missing.

A row of any table names its capture by the digest of its content, with versions, GPU and host group, so that questions
need no join. Nothing else leaves a capture. `NAME` marks names of kernels and ranges, and `TEXT` sentences that may
quote them: `--anonymise` hashes the former and blanks the latter.
"""

import types
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct, defstruct

from analysis.formats.report import PartKind

VERSION = 2
NAME = {"private": "name"}
TEXT = {"private": "text"}
Name = Annotated[str, Meta(extra=NAME)]
Text = Annotated[str, Meta(extra=TEXT)]


class Common(Struct, frozen=True, kw_only=True):
    """What every row says of its capture."""

    capture: Annotated[str, Meta(title="digest of the files' content")]
    gpu: Annotated[str | None, Meta(title="name of the GPU")] = None
    gpus: Annotated[int | None, Meta(title="how many GPUs ran")] = None
    driver: Annotated[str | None, Meta(title="version of the driver")] = None
    cuda: Annotated[str | None, Meta(title="version of CUDA")] = None
    torch: Annotated[str | None, Meta(title="version of PyTorch")] = None
    tool: Annotated[str | None, Meta(title="what captured it, with its version")] = None
    host_group: Annotated[str, Meta(title="the folder below the address that was given", extra=NAME)] = ""
    ledger: Annotated[str, Meta(title="version of kernel-ledger that read it")] = ""
    date: Annotated[str, Meta(title="when it ran, UTC; without a date in it, when its newest file was written")] = ""


class CaptureRow(Common, frozen=True, kw_only=True):
    """A capture: read, or not and why."""

    address: Annotated[str, Meta(title="where it lay", extra=NAME)] = ""
    state: Annotated[str, Meta(title="digest of the names, sizes and times of its files")] = ""
    status: Annotated[str, Meta(title="read, unreadable, hung, killed or too large")] = "read"
    sentence: Annotated[str, Meta(title="why it could not be read", extra=TEXT)] = ""
    command: Annotated[str | None, Meta(title="the command line", extra=NAME)] = None
    size_bytes: Annotated[int, Meta(title="size of its files")] = 0
    launches: Annotated[int | None, Meta(title="operations of the GPU")] = None
    wall_ns: Annotated[float | None, Meta(title="length of the capture")] = None
    gpu_ns: Annotated[float | None, Meta(title="sum of the GPU operations")] = None
    start_up_ns: Annotated[float | None, Meta(title="what happens once, before the steps")] = None
    read_s: Annotated[float | None, Meta(title="how long reading took")] = None


class _Step(Common, frozen=True, kw_only=True):
    step: Annotated[str, Meta(title="the step", extra=NAME)]
    rank: Annotated[int | None, Meta(title="rank of its process; null: the one with most GPU time")] = None
    count: Annotated[int, Meta(title="steady steps")] = 0
    wall_ns: Annotated[float | None, Meta(title="length of a step: the median")] = None
    p5_ns: Annotated[float | None, Meta(title="5 % are shorter")] = None
    p95_ns: Annotated[float | None, Meta(title="5 % are longer")] = None
    kind: Annotated[str | None, Meta(title="the cause, of kinds.toml")] = None
    bin_ns: Annotated[list[int], Meta(title="lower edges of the bins of its histogram, four to an octave")] = []
    bin_count: Annotated[list[int], Meta(title="steps in each bin")] = []


_PARTS = [
    (f"{part}_ns", Annotated[float | None, Meta(title=f"part of the step: {part.value.replace('_', ' ')}")], None)
    for part in PartKind
]
StepRow: Any = defstruct("StepRow", _PARTS, bases=(_Step,), frozen=True, kw_only=True)


class KernelRow(Common, frozen=True, kw_only=True):
    """A kernel that takes at least LEAST_SHARE of the kernels' time."""

    kernel: Name
    launches: Annotated[int, Meta(title="how often it ran")] = 0
    time_ns: Annotated[float | None, Meta(title="their time")] = None
    mean_ns: Annotated[float | None, Meta(title="time of one launch")] = None
    share_frac: Annotated[float | None, Meta(title="their time over that of all kernels")] = None
    registers: Annotated[int | None, Meta(title="registers per thread, the most of its launches")] = None


class FindingRow(Common, frozen=True, kw_only=True):
    """One thing worth doing."""

    finding: Annotated[str, Meta(title="its id", extra=NAME)]
    kind: Annotated[str, Meta(title="the cause, of kinds.toml")]
    rank: Annotated[int, Meta(title="its place in the report, from 1")] = 0
    scope: Annotated[str, Meta(title="step, program or start-up")] = "program"
    title: Text = ""
    low_ns: Annotated[float | None, Meta(title="the least that it saves of its scope")] = None
    high_ns: Annotated[float | None, Meta(title="the most")] = None
    times: Annotated[int, Meta(title="how often its scope ran")] = 1


class MissingRow(Common, frozen=True, kw_only=True):
    """One thing that the capture does not tell."""

    reason: Annotated[str, Meta(title="why, as in report.json")]
    what: Text = ""


ROWS: dict[str, Any] = {
    "captures": CaptureRow, "steps": StepRow, "kernels": KernelRow, "findings": FindingRow, "missing": MissingRow,
}  # fmt: skip
LEAST_SHARE = 0.001
Rows = dict[str, list[Struct]]


def columns(table: str) -> dict[str, Any]:
    """Return the plain type (str, int, float or list[int]) of each column of a table."""
    return {name: _plain(hint) for name, hint in get_type_hints(ROWS[table]).items()}


def private(table: str) -> dict[str, str]:
    """Return the columns that `--anonymise` changes: `name` is hashed, `text` is blanked."""
    hints = get_type_hints(ROWS[table], include_extras=True)
    extras = {name: one.extra for name, hint in hints.items() for one in get_args(hint)[1:] if isinstance(one, Meta)}
    return {name: str(extra["private"]) for name, extra in extras.items() if extra and "private" in extra}


def _plain(hint: Any) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        return next(one for one in get_args(hint) if one is not type(None))
    return hint
