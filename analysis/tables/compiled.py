"""Find the modules that each kernel of torch.compile fuses, from inductor.csv.

Inductor compiles the program graph by graph; inductor.csv lists the kernel calls of each graph in order. The timeline
shows the fused kernels under the same names. So if a stretch of launches has exactly the names of a graph, it is one
run of the graph, and every launch in it is known. The kernel of a library, such as a matrix product, has another name
than its call. It is known if as many launches lie between two fused kernels as the graph has calls there. A launch
that stays uncertain gets no module.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.capture.model import Capture
from analysis.formats.inductor import INDUCTOR
from analysis.formats.place import profile
from analysis.formats.report import Missing, Reason
from analysis.formats.words import count_of
from analysis.tables.attribution import fold_paths, or_outside
from analysis.tables.declare import Column, Facts, part, table

COMPILED_MARK = "[compiled] "
NO_MODULE = "no module"  # stands for operations outside all modules, such as those of a plain function
# Names of the kernels that Inductor generates: triton_poi_fused_add_0 is pointwise; red and per are reductions.
_FUSED = re.compile(r"(triton_[a-z]{3}|cpp)_fused_")


@dataclass(frozen=True)
class _Graph:
    """The calls of a compiled graph: the kernel and the modules of each. `fused` lists the places of fused kernels."""

    kernels: tuple[str, ...]
    modules: tuple[str, ...]
    fused: tuple[int, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the fused kernels, in launch order, as the timeline shows them."""
        return tuple(self.kernels[place] for place in self.fused)


def is_fused(kernel: str) -> bool:
    """Return whether Inductor generated the kernel of this name."""
    return bool(_FUSED.match(kernel))


def _is_fused(kernels: pd.Series) -> pd.Series:
    return kernels.isin([name for name in kernels.unique() if is_fused(str(name))])


def _graphs(calls: pd.DataFrame, launched: set[str]) -> list[_Graph]:
    found = []
    for _, rows in calls.sort_values("call", kind="stable").groupby("graph", sort=True):
        kernels = tuple(rows["kernel"].astype(str))
        modules = tuple(_joined(str(said)) for said in rows["modules"].fillna(""))
        fused = tuple(at for at, name in enumerate(kernels) if is_fused(name) or name in launched)
        found.append(_Graph(kernels, modules, fused))
    return [one for one in found if one.fused]


def _joined(modules: str) -> str:
    return " + ".join(one or NO_MODULE for one in modules.split(";"))


def modules_of_launches(launches: pd.DataFrame, calls: pd.DataFrame) -> np.ndarray:
    """Return the modules of each launch, joined with ` + `; "" where they are uncertain.

    Shape: `launches` with kernel, pid, owner, start_ns and api_start_ns; `calls` inductor.csv; result (launches,).
    """
    graphs = _graphs(calls, set(launches["kernel"]))
    found = np.full(len(launches), "", dtype=object)
    names = launches["kernel"].to_numpy(object)
    of_name: dict[str, set[str]] = defaultdict(set)
    for graph in graphs:
        for place in graph.fused:
            of_name[graph.kernels[place]].add(graph.modules[place])
    order = launches.assign(place=np.arange(len(launches)), call=launches["api_start_ns"].fillna(launches["start_ns"]))
    order = order.sort_values(["call", "start_ns"], kind="stable")
    for _, rows in order.groupby(["pid", "owner"], sort=False, dropna=False):
        for place, modules in _of_group(rows["place"].to_numpy(np.int64), names, graphs, of_name):
            found[place] = modules
    return found


@dataclass(frozen=True)
class _Anchor:
    """A fused launch of a range: its place there, its modules, and those of the library calls before it (`before`).

    `before` is None if the run of the graph is unknown for this launch or for the fused launch before it.
    """

    place: int
    modules: str
    before: tuple[str, ...] | None


def _of_group(
    places: np.ndarray, names: np.ndarray, graphs: Sequence[_Graph], of_name: dict[str, set[str]]
) -> Iterator[tuple[int, str]]:
    """Yield (launch, its modules) for each launch of one range whose modules are certain."""
    last = -1
    for anchor in _anchors(places, names, graphs, of_name):
        between = range(last + 1, anchor.place)
        if anchor.before is not None and len(anchor.before) == len(between):
            yield from ((int(places[at]), modules) for at, modules in zip(between, anchor.before, strict=True))
        if anchor.modules:
            yield int(places[anchor.place]), anchor.modules
        last = anchor.place


def _anchors(
    places: np.ndarray, names: np.ndarray, graphs: Sequence[_Graph], of_name: dict[str, set[str]]
) -> Iterator[_Anchor]:
    """Yield the fused launches of a range, one run of a graph after another. The last anchor is the range's end."""
    fused = [at for at, place in enumerate(places) if names[place] in of_name]
    shown = tuple(names[places[at]] for at in fused)
    pending: tuple[str, ...] | None = ()
    at = 0
    while at < len(fused):
        graph = _of_run(shown[at:], graphs)
        if graph is None:
            only = of_name[shown[at]]
            yield _Anchor(fused[at], next(iter(only)) if len(only) == 1 else "", None)
            at, pending = at + 1, None
            continue
        written = -1
        for launch, call in zip(fused[at:], graph.fused, strict=False):
            before: tuple[str, ...] | None = graph.modules[written + 1 : call]
            if written < 0:
                before = None if pending is None else pending + graph.modules[:call]
            yield _Anchor(launch, graph.modules[call], before)
            written = call
        at, pending = at + len(graph.fused), graph.modules[written + 1 :]
    yield _Anchor(len(places), "", pending)


def _of_run(shown: tuple[str, ...], graphs: Sequence[_Graph]) -> _Graph | None:
    """Return the longest graph whose fused kernels begin `shown`; None if there is none or two differ in modules."""
    fits = [one for one in graphs if shown[: len(one.fused)] == one.names]
    longest = max((len(one.fused) for one in fits), default=0)
    same = [one for one in fits if len(one.fused) == longest]
    return same[0] if len({one.modules for one in same}) == 1 else None


def fused_modules(launches: pd.DataFrame, capture: Capture) -> np.ndarray | None:
    """Return the modules of each launch; None if the capture has no launches or no inductor.csv."""
    calls = capture.of(INDUCTOR.kind)
    if calls is None or calls.empty or launches.empty:
        return None
    return modules_of_launches(launches, calls)


def place_compiled(
    ranges: pd.DataFrame, kernels: pd.DataFrame, modules: np.ndarray | None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Put each kernel of torch.compile into a new range, below the range that launched it, named after its modules.

    Shape: `kernels` with `owner` (row of `ranges`, -1 for none); `modules` (kernels,), "" where unknown. Return
    `ranges` with the new rows, and `kernels` with new owners. The new ranges have no CPU time of their own.
    """
    owner = kernels["owner"].to_numpy(np.int64)
    if modules is None or not (known := (modules != "") & (owner >= 0)).any():
        return ranges, kernels
    pairs = pd.DataFrame({"owner": owner[known], "modules": modules[known]})
    added = pairs.drop_duplicates(ignore_index=True)
    above = ranges.iloc[added["owner"].to_numpy(np.int64)]
    name = (COMPILED_MARK + added["modules"]).to_numpy(object)
    extra = pd.DataFrame(
        {
            "range_id": int(ranges["range_id"].max()) + 1 + np.arange(len(added)),
            "parent_id": pd.array(above["range_id"].to_numpy(np.int64), dtype="Int64"),
            "start_ns": above["start_ns"].to_numpy(np.int64),
            "end_ns": above["start_ns"].to_numpy(np.int64),
            "pid": above["pid"].to_numpy(np.int64),
            "tid": above["tid"].to_numpy(np.int64),
            "name": name,
            "level": above["level"].to_numpy(np.int64) + 1,
            "path": above["path"].to_numpy(object) + "/" + name,
        }
    )
    place = pd.MultiIndex.from_frame(added).get_indexer(pd.MultiIndex.from_frame(pairs))
    owner = owner.copy()
    owner[known] = len(ranges) + place
    return pd.concat([ranges, extra], ignore_index=True), kernels.assign(owner=owner)


@table(
    "compiled",
    question="Which modules does each kernel of torch.compile fuse?",
    title="Kernels of torch.compile",
    columns=(
        Column("modules", "modules whose operations the kernel computes, folded; blank if uncertain", "key"),
        Column("kernel", "kernel that Inductor generated, or a library's kernel that it calls", "key"),
        Column("range", "folded range that launched it", "key"),
        Column("launches", "launches", "timing", "1"),
        Column("time_ns", "sum of their durations", "timing"),
        Column("share_frac", "time_ns over all kernel time of the capture", "timing", style="bar"),
    ),
)
def build_compiled(facts: Facts) -> pd.DataFrame | None:
    """Return compiled.csv, most time first; None if no launch is a kernel of Inductor or has known modules.

    Shape: `fused_modules` (launches,), None without inductor.csv.
    """
    launches, fused_modules = facts.launches, facts.fused_modules
    if fused_modules is None:
        return None
    rows = launches.assign(modules=fused_modules)
    rows = rows[(rows["modules"] != "") | _is_fused(rows["kernel"])]
    if rows.empty:
        return None
    rows = rows.assign(
        range=or_outside(fold_paths(rows["path"])).to_numpy(object),
        modules=fold_paths(rows["modules"].astype(object)).to_numpy(object),
    )
    found = rows.groupby(["modules", "kernel", "range"], sort=False)["duration_ns"].agg(["size", "sum"]).reset_index()
    found = found.rename(columns={"size": "launches", "sum": "time_ns"})
    found["share_frac"] = found["time_ns"] / max(int(launches["duration_ns"].sum()), 1)
    found["modules"] = found["modules"].replace("", pd.NA)
    order = ["time_ns", "kernel", "range"]
    return found.sort_values(order, ascending=[False, True, True], kind="stable").assign(tier="timing")


@part("note")
def _said(facts: Facts) -> str | None:
    compiled = facts.compiled
    if compiled.empty:
        return None
    known, total = int(compiled.loc[compiled["modules"].notna(), "launches"].sum()), int(compiled["launches"].sum())
    return (
        f"For {known:,} of {count_of(total, 'launch')} of torch.compile, the modules that they fuse are known "
        f"(compiled.csv). Ranges marked {COMPILED_MARK}stand for them."
    )


@part("missing")
def _unknown(facts: Facts) -> Missing | None:
    # A run of the harness has ops.csv and ranges of its own. It does not record Inductor, so there is no gap.
    launches, capture = facts.launches, facts.capture
    if capture.of(INDUCTOR.kind) is not None or launches.empty or capture.ops is not None:
        return None
    count = int(_is_fused(launches["kernel"]).sum())
    if not count:
        return None
    fix = f"profile the program with `{profile()}`, without --no-auto-ranges: it records that file"
    if any(tool.get("auto_ranges") == "own" for tool in capture.tools):
        fix = f"profile the program without its own ranges: `{profile()}` then adds ranges and records that file"
    return Missing(
        Reason.NO_DATAFLOW,
        f"the modules that {count_of(count, 'launch')} of torch.compile fuse",
        "there is no inductor.csv, which lists the modules behind each kernel of Inductor",
        fix,
    )
