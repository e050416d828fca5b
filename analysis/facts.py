"""The facts of a capture: what the parts of a report share, each built once, when it is first needed.

A table that other parts need is an attribute, too; `Facts.once` builds any other one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd

from analysis.formats import system
from analysis.formats.accounting import ACCOUNTING
from analysis.formats.lectures import LECTURES
from analysis.formats.multi_gpu import MULTI_GPU
from analysis.fusion.plan import build_fusion
from analysis.hardware import metrics
from analysis.hardware.devices import Device, derive_device, find_by_capability, find_device
from analysis.tables import (
    attribution,
    bare,
    collectives,
    compiled,
    conditions,
    counting,
    devices,
    gaps,
    holds,
    join,
    kernels,
    layers,
    notes,
    periods,
    rank_places,
    ranks,
    roofline,
    sampled,
    selftest,
    set_up,
    traffic,
)  # fmt: skip
from analysis.tables.collective_calls import build_collective_calls
from analysis.tables.collectives import Matched, build_collectives
from analysis.tables.compiled import build_compiled
from analysis.tables.copies import build_copies
from analysis.tables.counters import build_counters
from analysis.tables.counting import build_counting
from analysis.tables.cpu_times import build_cpu_times
from analysis.tables.devices import Activity, build_devices
from analysis.tables.graphs import build_graphs
from analysis.tables.host import build_host
from analysis.tables.kernels import build_kernels
from analysis.tables.layers import build_layers, fold_layers
from analysis.tables.links import build_links
from analysis.tables.ranks import build_overlap, build_rank_waits, build_ranks, build_stragglers
from analysis.tables.roofline import Ceilings, build_roofline
from analysis.tables.rules import build_rules
from analysis.tables.source import build_source
from analysis.tables.stalls import build_stalls
from analysis.tables.traffic import build_traffic
from analysis.tables.units import build_units

if TYPE_CHECKING:
    from analysis.capture.model import Capture, IntArray
    from analysis.formats import intervals

Built = TypeVar("Built")
Builds = Sequence[Callable[["Facts"], Any]]


class Facts:
    """The facts of the capture `raw`, as the readers return it.

    `extrapolate`: give kernels without counters those of a sibling.
    """

    def __init__(self, raw: Capture, *, extrapolate: bool = False) -> None:
        self.raw = raw
        self.extrapolate = extrapolate
        self._built: dict[Callable[[Facts], Any], Any] = {}
        self._begun: dict[Callable[[Facts], Any], Callable[[], None]] = {}  # what waits for the answer, by build

    def once(self, build: Callable[[Facts], Built]) -> Built:
        """Return what `build` makes of these facts, such as the rows of a table or a fact of a study; built once."""
        if build in self._begun:
            self._begun[build]()
        if build not in self._built:
            self._built[build] = build(self)
        return self._built[build]

    def built(self, build: Callable[[Facts], Built]) -> Built | None:
        """Return what `build` has made of these facts; None if it was neither begun nor needed."""
        return self.once(build) if build in self._begun else self._built.get(build)

    def begin(self, builds: Builds = (), *later: Builds) -> None:
        """Build these on another core, until the first of them is needed, then those of `later`.

        If no other core is there, build each when needed.
        """
        if not builds or builds[0] in self._begun:
            return
        work = lambda: [self.once(build) for build in builds]  # noqa: E731
        if (answers := system.aside(work)) is work:
            return

        def wait() -> None:
            for build in builds:
                del self._begun[build]
            self._built.update(zip(builds, answers(), strict=True))
            self.begin(*later)

        self._begun |= dict.fromkeys(builds, wait)

    # Tables that other parts need: each attribute is the rows of the table

    devices = build_devices
    ranks = build_ranks
    collectives = build_collectives
    collective_calls = build_collective_calls
    overlap = build_overlap
    stragglers = build_stragglers
    rank_waits = build_rank_waits
    layers = build_layers
    layers_folded = fold_layers
    cpu_times = build_cpu_times
    compiled = build_compiled
    graphs = build_graphs
    kernels = build_kernels
    copies = build_copies
    traffic = build_traffic
    counters = build_counters
    units = build_units
    counting = build_counting
    links = build_links
    roofline = build_roofline
    stalls = build_stalls
    rules = build_rules
    source = build_source
    fusion = build_fusion
    host = build_host

    # The capture

    @cached_property
    def held_back(self) -> bool:
        """Whether the capture made the GPU wait on purpose."""
        return holds.is_held(self.raw)

    @cached_property
    def capture(self) -> Capture:
        return holds.without_holds(self.raw)

    @cached_property
    def has_timeline(self) -> bool:
        return len(self.capture.gpu_ops) > 0

    @cached_property
    def is_program(self) -> bool:
        """Whether this is the capture of a program. One of a sweep or of studies holds launches that they chose."""
        studies = (LECTURES, ACCOUNTING, MULTI_GPU)
        chosen = self.capture.sweep_rows is not None or any(self.capture.of(file.kind) for file in studies)
        return not chosen or self.has_timeline or len(self.capture.ranges) > 0

    @cached_property
    def ncu(self) -> conditions.Ncu:
        return conditions.ncu_status(self.capture)

    @cached_property
    def nsys_equality(self) -> tuple[int, int]:
        """The number of ranges with the same kernel time as in nsys' own report, and the number of ranges."""
        return notes.nsys_equality(self.capture, self.gpu_ops, self.ranges)

    @cached_property
    def coverage_said(self) -> dict[str, Any]:
        """`coverage` of report.json."""
        return conditions.coverage(
            self.capture, self.joined, self.launches, self.has_counters, self.has_ncu, self.is_program,
            evidence="times and samples" if self.sampled else "times",
        )  # fmt: skip

    # The GPU

    @cached_property
    def gpu(self) -> str | None:
        return conditions.gpu_name(self.capture)

    @cached_property
    def device(self) -> Device | None:
        """The GPU's entry in the device table, else what the files state of it.

        It is found by name, or as what all GPUs of its capability and size share.
        """
        known = conditions.attributes(self.capture)
        listed = find_device(self.gpu, known.cc) if self.gpu else None
        if not self.gpu and known.cc and known.sm_count:
            listed = find_by_capability(known.cc, known.sm_count)
        return listed or derive_device(self.gpu or "", known)

    @cached_property
    def sm_count(self) -> int | None:
        """The number of SMs of the GPU, None if unknown."""
        gpu = (self.capture.manifest or {}).get("gpu") or {}
        return gpu.get("sm_count") or (self.device.sm_count if self.device else None)

    @cached_property
    def allowed_ceilings(self) -> Ceilings:
        return roofline.refuse_impossible(self.capture.ceilings, self.device, self.capture.manifest)

    @cached_property
    def roofs(self) -> pd.DataFrame:
        pipes = set(self.measured["flops_pipe"].unique()) if "flops_pipe" in self.measured else ()
        return roofline.build_roofs(self.allowed_ceilings[0], self.device, pipes)

    @cached_property
    def l2_bytes(self) -> float | None:
        measured = ((self.capture.manifest or {}).get("gpu") or {}).get("l2_bytes")
        return measured or (self.device.l2_bytes if self.device else None)

    # Ranges and launches

    @cached_property
    def ranges(self) -> pd.DataFrame:
        return self.capture.ranges.reset_index(drop=True)

    @cached_property
    def owner(self) -> pd.Series:
        """The row of the range that launched each GPU operation."""
        return attribution.attribute(self.capture.gpu_ops.reset_index(drop=True), self.ranges)

    @cached_property
    def gpu_ops(self) -> pd.DataFrame:
        """GPU operations with row and path of the range that launched them, and the row of the recording range."""
        ops = self.capture.gpu_ops.reset_index(drop=True)
        recorded = attribution.attribute_recorded(ops, self.ranges, self.capture.graph_nodes)
        path = attribution.paths_of(self.owner, self.ranges)
        return ops.assign(owner=self.owner, recorded=recorded, path=path)

    @cached_property
    def launches(self) -> pd.DataFrame:
        return join.prepare_launches(self.gpu_ops)

    @cached_property
    def seen_paths(self) -> set[str]:
        if self.ranges.empty:
            return set()
        return set(self.launches["path"].unique()) | set(self.ranges["path"].tolist())

    @cached_property
    def folded(self) -> dict[str, str]:
        """Each path of timeline and bare run -> the path with repeated layers and steps folded into one."""
        return bare.folded(self.capture, self.ranges)

    @cached_property
    def fused_modules(self) -> np.ndarray | None:
        """The modules of each launch; None if the capture has no launches or no inductor.csv."""
        return compiled.fused_modules(self.launches, self.capture)

    @cached_property
    def placed(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Ranges and launches, with new ranges for kernels of CUDA graphs and of torch.compile."""
        return layers.place(self.ranges, self.launches, self.fused_modules)

    @cached_property
    def copied(self) -> pd.DataFrame:
        return traffic.copied_bytes(self.gpu_ops)

    # Counters

    @cached_property
    def ncu_launches(self) -> pd.DataFrame:
        return join.prepare_counters(self.capture.counters, first_run=self.has_timeline)

    @cached_property
    def has_counters(self) -> bool:
        return len(self.ncu_launches) > 0

    @cached_property
    def has_ncu(self) -> bool:
        """Whether any file comes from ncu: counters, rules, source lines or labelled metrics."""
        read = self.capture
        return any(map(len, (read.counters, read.rules, read.source_lines, read.details)))

    @cached_property
    def counter_values(self) -> pd.DataFrame:
        """The values of the catalogue's columns for each row of counters."""
        return metrics.derive(self.ncu_launches, self.capture.counter_units)

    @cached_property
    def count_plan(self) -> pd.DataFrame | None:
        return self.capture.of("count-plan")

    @cached_property
    def planned_rows(self) -> join.Rows | None:
        """The rows of the launches that ncu had to count by a plan of this timeline; None without such a plan."""
        own, status = self.count_plan, self.ncu or {}
        if own is None or not status.get("planned") or not counting.is_of(own, self.launches):
            return None
        return counting.replayed(own)

    @cached_property
    def joined(self) -> join.Joined:
        include = self.ncu.get("nvtx_include") if self.ncu and self.ncu.get("status") == "ok" else None
        return join.join(
            self.launches, self.ncu_launches, include, planned=self.planned_rows, values=self.counter_values,
            extrapolate=self.extrapolate or self.planned_rows is not None,
        )  # fmt: skip

    @cached_property
    def all_measured(self) -> pd.DataFrame:
        """One row for each launch with its counters."""
        return kernels.measured_launches(self.joined.launches, self.ncu_launches, self.counter_values)

    @cached_property
    def measured(self) -> pd.DataFrame:
        """The launches of a program. A capture of a sweep alone has none: its combinations have their own tables."""
        return self.all_measured if self.is_program else self.all_measured.head(0)

    @cached_property
    def trust(self) -> dict[str, object]:
        """`trust` of report.json."""
        kept = selftest.kept_selftest_of(self.capture, self.gpu, self.ncu)
        return selftest.check_counters(
            self.all_measured, self.capture.ops, has_ncu=self.has_ncu, kept_selftest=kept, used=sampled.say_use(self)
        )

    # Samples

    @cached_property
    def sampled(self) -> list[sampled.OfGpu]:
        """The counters that nsys sampled while the program ran, attributed to its launches, for each GPU."""
        return sampled.attribute_samples(self)

    # Steps

    @cached_property
    def iterations(self) -> pd.DataFrame:
        """The iterations of a program without ranges of its own."""
        return periods.find_iterations(self.capture)

    @cached_property
    def step_ranges(self) -> pd.DataFrame:
        """The ranges that are steps. If none is named as one and bare times exist: the repeated outermost ranges.

        For a program without its own ranges: its iterations, which are not rows of `ranges`.
        """
        steps = gaps.find_steps(self.ranges)
        if len(steps):
            return steps
        if len(self.iterations):
            return self.iterations
        if self.bare.empty:
            return steps
        paths, counts = attribution.paths_of(self.owner, self.ranges), self.bare["range"].value_counts().to_dict()
        return bare.find_repeated(self.ranges, paths, self.folded, counts)

    @cached_property
    def step_of_op(self) -> IntArray:
        """The row of each GPU operation's step, -1 for none."""
        rows = self.owner.to_numpy(np.int64)
        inside = rows
        if self.step_ranges is self.iterations:
            inside = np.full(len(rows), -1, dtype=np.int64)
        elif len(self.ranges):
            step_of_row = gaps.step_of_rows(self.ranges, self.step_ranges, attribution.parent_rows(self.ranges))
            inside = np.where(rows >= 0, step_of_row[np.maximum(rows, 0)], -1)
        return gaps.add_other_threads(self.gpu_ops, self.step_ranges, inside)

    @cached_property
    def set_up(self) -> dict[int, str]:
        """What set up memory, modules or graphs in a step, by its row."""
        return set_up.set_up(self.capture, self.gpu_ops, self.step_ranges, self.step_of_op, self.folded)

    @cached_property
    def gaps(self) -> pd.DataFrame:
        """The measured columns of gaps.csv."""
        return self.once(gaps.measure_steps)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """The measured columns of steps.csv."""
        return bare.measure_kinds(self)

    @cached_property
    def bare(self) -> pd.DataFrame:
        return bare.bare_ranges(self.capture, self.folded)

    @cached_property
    def gpu_until_ns(self) -> IntArray:
        return bare.gpu_until(self.gpu_ops, self.step_ranges, self.step_of_op)

    @cached_property
    def waiting_calls(self) -> pd.DataFrame | None:
        return bare.waiting_calls(self.capture, self.gpu_ops)

    @cached_property
    def blocked_ns(self) -> np.ndarray | None:
        """The time that the thread of each step waits for the GPU; None if no file lists the calls."""
        return bare.blocked(self.step_ranges, self.gpu_until_ns, self.waiting_calls)

    @cached_property
    def bare_steps(self) -> pd.DataFrame:
        """The time of each kind of step without a profiler."""
        ends_in_wait = bare.ends_in_wait(self.step_ranges, self.gpu_until_ns, self.waiting_calls)
        return bare.bare_steps(self.capture, self.bare, self.step_ranges, ends_in_wait, self.folded)

    @cached_property
    def bare_wall_ns(self) -> dict[str, float]:
        """The median bare time of each step by its path in the timeline."""
        return bare.bare_wall_ns(self.bare_steps, self.step_ranges, self.folded)

    @cached_property
    def bare_gpu_ns(self) -> dict[str, float]:
        return bare.bare_gpu_ns(self.capture)

    @cached_property
    def filled(self) -> dict[str, float]:
        """The share of the bare time in which the GPU works for a step and those around it, by the path of the step."""
        return bare.filled(
            self.bare, self.bare_steps, self.gpu_ops, self.step_ranges, self.step_of_op, self.folded
        )  # fmt: skip

    # GPUs and ranks

    @cached_property
    def gpu_places(self) -> pd.DataFrame:
        return devices.gpu_places(self.gpu_ops)

    @cached_property
    def activities(self) -> list[Activity]:
        return devices.activities(self.gpu_ops, self.gpu_places, self.place_of_op)

    @cached_property
    def place_of_op(self) -> IntArray:
        return rank_places.place_of_op(self.gpu_places)

    @cached_property
    def rank_places(self) -> pd.DataFrame:
        read = self.capture
        return rank_places.rank_places(
            self.gpu_ops, self.place_of_op, self.gpu_places, read.process_ranks, read.ranks_from
        )

    @cached_property
    def communication(self) -> pd.DataFrame:
        read = self.capture
        return rank_places.communication(self.gpu_ops, self.place_of_op, read.nccl_calls, read.graph_nodes)

    @cached_property
    def matched(self) -> Matched:
        return collectives.matched(self.communication, self.rank_places, self.gpu_ops, self.ranges)

    @cached_property
    def computing(self) -> list[intervals.Union]:
        """When the kernels of each place run, without those that communicate."""
        if self.communication.empty:
            every = {(one.device, one.process): one.kernels for one in self.activities}
            return [every[str(one.device), int(one.process)] for one in self.rank_places.itertuples()]
        return ranks.computing(self.gpu_ops, self.place_of_op, self.communication)

    @cached_property
    def exposed(self) -> pd.DataFrame:
        return ranks.exposed(self.matched, self.computing)
