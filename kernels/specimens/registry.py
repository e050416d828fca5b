"""The specimens whose captures are committed, with what is to be said of each.

Commit b1898af7 has the sources of the holdout and the program that runs them, 795c8cc0 those of the other two sets.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from analysis.formats.report import kind_of, kinds

FOLDER = Path(__file__).resolve().parent
# The causes of lost time outside kernels that have a pair of programs, by the names that their captures have.
TIMELINE = (
    "launch_bound", "item_in_loop", "synchronise_each_op", "pageable_copies", "small_copies", "copies_not_overlapped",
    "allocation_in_loop", "default_stream", "data_loader", "repeated_casts", "graph_each_step", "compile_in_window",
    "rank_waits",
)  # fmt: skip
HALVES = ("development", "validation")
DEVELOPMENT, VALIDATION = HALVES
HOLDOUT = "holdout"  # written and captured on 2026-11-23 without a look at the rules
SETS = (*HALVES, HOLDOUT)


@dataclass(frozen=True)
class Specimen:
    """One captured kernel; `name` is its NVTX range behind `specimens/`."""

    name: str
    half: str  # one of SETS
    defect: str  # what is to be diagnosed of it; of a fixed twin what has been cured
    version: str  # slow, fixed or clean


@cache
def vocabulary() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    """Return the causes that have specimens: `kernel`, `timeline`, `clean`, each with its `what` and `cure`."""
    said = kinds()
    parts = {part: [name for name in said if said[name]["part"] == part] for part in ("kernel", "clean")}
    parts["clean"].remove("nothing")  # a verdict on steps, not on kernels
    parts["timeline"] = list(TIMELINE)
    return {part: {name: said[kind_of(name)] for name in names} for part, names in parts.items()}


@cache
def specimens() -> tuple[Specimen, ...]:
    """Return every specimen that was captured, sorted by name."""
    with (FOLDER / "captures" / "times.csv").open(newline="", encoding="utf-8") as stream:
        return tuple(_specimen(name) for name in sorted(row["specimen"] for row in csv.DictReader(stream)))


def _specimen(name: str) -> Specimen:
    half, defect, version = name.split("/")
    if defect != "clean":
        return Specimen(name, half, defect, version)
    answer = "launch_latency" if version.startswith("tiny_") else "none_at_roof"
    return Specimen(name, half, answer, "clean")
