"""From a capture to the content of a report: tables, then figures. Pure, so that tests can run it without a disk."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from analysis.capture.model import Capture, Gap
from analysis.diagnosis import findings
from analysis.fusion import plan as fusion
from analysis.hardware import metrics
from analysis.hardware.devices import find_device
from analysis.page import figures
from analysis.page.canvas import compact, to_bytes, to_svg
from analysis.tables import (
    attribution,
    completeness,
    conditions,
    gaps,
    join,
    kernels,
    layers,
    nsys_sums,
    profiles,
    roofline,
    rules,
    selftest,
    source,
    stalls,
    traffic,
)
from analysis.tables.schema import PROFILE_TABLES, TABLES
from studies.baseline import tables as baseline
from studies.layers import tables as layer_profile
from studies.sweep import calls as sweep_calls
from studies.sweep import figures as heatmap
from studies.sweep import tables as sweep

FIGURES = {
    "roofline": "roofline",
    "stalls": "stalls",
    "traffic_op": "traffic",
    "traffic": "traffic",
    "layers": "layers_folded",
    "levels": "layer_profile",
    "fusion": "fusion",
}  # of which table
CAPTION = ("GPU", "workload", "SM clock", "ncu cache control")


def analyse(
    capture: Capture, *, extrapolate: bool = False
) -> tuple[dict[str, Any], dict[str, pd.DataFrame], pd.DataFrame]:
    """Return (report.json's content, the tables by name, the roofs) of a capture. Pure: touches no file."""
    named_gaps = list(capture.gaps)
    held, capture = layer_profile.is_held(capture), layer_profile.without_holds(capture)
    gpu_ops = capture.gpu_ops.reset_index(drop=True)
    ranges = capture.ranges.reset_index(drop=True)
    has_timeline = len(gpu_ops) > 0
    owner = attribution.attribute(gpu_ops, ranges)
    recorded = attribution.attribute_recorded(gpu_ops, ranges, capture.graph_nodes)
    gpu_ops = gpu_ops.assign(owner=owner, recorded=recorded, path=attribution.paths_of(owner, ranges))
    launches = join.prepare_launches(gpu_ops)
    counters = join.prepare_counters(capture.counters)
    ncu = conditions.ncu_status(capture.tools)
    include = ncu.get("nvtx_include") if ncu and ncu.get("status") == "ok" else None
    joined = join.join(launches, counters, include, extrapolate=extrapolate)
    derived = metrics.derive(counters, capture.counter_units)
    measured = kernels.measured_launches(joined.launches, counters, derived)

    gpu_name = conditions.gpu_name(capture)
    device = find_device(gpu_name, conditions.compute_capability(capture)) if gpu_name else None
    ceilings, impossible = roofline.refuse_impossible(capture.ceilings, device, capture.manifest)
    named_gaps += impossible
    roofs = roofline.build_roofs(ceilings, device)

    tables: dict[str, pd.DataFrame] = {}
    placed_ranges, placed = layers.place_recorded(ranges, launches)
    tables["layers"] = layers.build_layers(placed_ranges, placed, has_timeline=has_timeline)
    tables["layers_folded"] = layers.fold_layers(tables["layers"])
    tables["kernels"] = (
        kernels.build_kernels(measured) if len(measured) else kernels.from_nsys_sums(capture.nsys_kernel_sums)
    )
    tables["roofline"] = roofline.build_roofline(measured, roofs)
    tables["stalls"] = stalls.build_stalls(measured)
    tables["rules"] = rules.build_rules(capture)
    tables["source"] = source.build_source(capture)
    seen_paths = set(launches["path"].unique()) | set(ranges["path"].unique()) if len(ranges) else set()
    tables["traffic"] = traffic.build_traffic(measured, capture.ops, seen_paths, traffic.copied_bytes(gpu_ops))
    tables["coverage"] = (
        join.build_coverage(joined, has_counters=len(counters) > 0) if has_timeline else TABLES["coverage"].empty()
    )

    steps = gaps.find_steps(ranges)
    step_of_row = gaps.step_of_rows(ranges, steps, attribution.parent_rows(ranges)) if len(ranges) else np.array([])
    rows = owner.to_numpy(np.int64)
    step_of_op = np.where(rows >= 0, step_of_row[np.maximum(rows, 0)], -1) if len(ranges) else rows
    step_of_op = gaps.add_other_threads(gpu_ops, steps, step_of_op)
    timed = (capture.timing or {}).get("steps", [])
    bare = {step["range"]: float(step["wall_ns"]["p50"]) for step in timed}
    queued = {step["range"]: float(step["gpu_ns"]["p50"]) for step in timed if step.get("gpu_ns")}
    limits = gaps.step_limits(
        measured, tables["roofline"], capture.ops, roofs, list(steps["path"]) if len(steps) else []
    )
    tables["gaps"] = gaps.build_gaps(gpu_ops, steps, step_of_op, bare, limits, capture.overhead, bare_gpu_ns=queued)

    l2_bytes = ((capture.manifest or {}).get("gpu") or {}).get("l2_bytes") or (device.l2_bytes if device else None)
    tables["fusion"], tables["fusion_check"] = fusion.plan(
        gpu_ops, ranges, measured, tables["roofline"], roofs, tables["gaps"], capture.dataflow, capture.ops, l2_bytes,
        queued,
    )  # fmt: skip

    if held:  # the GPU was held back and marked on purpose: what lies between kernels says nothing of the program
        tables |= {name: TABLES[name].empty() for name in ("gaps", "fusion", "fusion_check")}
    tables |= profiles.build(capture, measured)
    only_swept = capture.sweep_rows is not None and not has_timeline and ranges.empty
    if only_swept:  # a launch is of one combination, and its counters stand in the sweep's own tables
        tables |= {name: table.empty() for name, table in TABLES.items()}

    trust = selftest.check_counters(measured, capture.ops)
    seen = int(joined.launches["requested"].sum()) if len(joined.launches) else 0
    coverage = {
        "sentence": conditions.coverage_sentence(
            joined.matched,
            seen,
            len(launches),
            joined.how,
            has_counters=bool(len(counters)),
            has_times=not only_swept or bool(tables["sweep"]["verdict"].eq("timed").any()),
        ),
        "matched": joined.matched,
        "seen": seen,
        "frac": joined.matched / seen if seen and len(counters) else None,
        "refused": int((joined.launches["refused"] != "").sum()) if len(counters) and len(joined.launches) else 0,
    }
    equal, compared = 0, 0
    if len(capture.nsys_range_sums) and len(ranges):
        sums = nsys_sums.range_sums(gpu_ops, ranges, capture.start_end_ranges)
        equal, compared = layers.check_against_nsys(sums, capture.nsys_range_sums)

    notes = []
    if equal < compared:
        named_gaps.append(
            Gap(
                f"kernel time of {compared - equal} of {compared} ranges",
                "it differs from nsys' own sums (nvtx_kern_sum), so the exports are not of one whole capture",
                "export all reports again from the same .nsys-rep",
            )
        )
    if compared:
        notes.append(
            f"Kernel time per range equals nsys' own nvtx_kern_sum to the nanosecond in {equal} of {compared} ranges."
        )
    if capture.clock == "torch":
        notes.append("The timeline is a trace of torch.profiler: its times stand where columns are named after nsys.")
    notes += filter(None, [attribution.explain_unattributed(launches, ranges)])
    if len(placed_ranges) > len(ranges):
        notes.append(
            f"Rows of layers.csv marked {layers.GRAPH_MARK.strip()} are kernels of CUDA graphs, shown in the ranges in "
            "which the graph was recorded, below the range that launched it."
        )
    if len(gpu_ops) > fusion.MOST_LAUNCHES:
        notes.append(f"The fusion plan is of the first {fusion.MOST_LAUNCHES:,} of {len(gpu_ops):,} GPU operations.")
    siblings = int((joined.launches["counters_from"] == "sibling").sum()) if len(joined.launches) else 0
    if siblings:
        notes.append(
            f"{siblings} kernels carry the counters of a sibling layer (--extrapolate-siblings), not their own."
        )
    if rungs := (capture.sweep or {}).get("without_choices"):
        notes.append(f"Rungs without compile-time choices: {'; '.join(rungs)}.")
    notes += conditions.timing_notes(capture.timing)
    notes += conditions.api_notes(capture.summaries)
    notes += conditions.counter_notes(tables, ncu)
    named_gaps += completeness.name_gaps(capture, roofs, gpu_name, device_known=device is not None, tables=tables)
    named_gaps += completeness.name_partial_counters(joined.launches, measured)
    if capture.clock == "cpu":
        ranked = findings.largest_ranges(tables["layers_folded"])
    else:
        ranked = findings.find(tables["gaps"], measured, tables["roofline"], tables["stalls"], tables["fusion"])
    if "layer_agreement" in tables:
        notes.append(layer_profile.agreement_sentence(tables["layer_agreement"]))
    if "sweep_best" in tables:
        ranked = sweep.find(tables["sweep_best"])
    if "bottlenecks" in tables:
        ranked = baseline.find(tables["baseline"], tables["bottlenecks"])
    report = {
        "kind": "report",
        "schema_version": 1,
        "title": conditions.title(capture, gpu_name),
        "conditions": conditions.list_conditions(capture, gpu_name, ncu),
        "trust": trust,
        "coverage": coverage,
        "nsys_equality": {"equal": equal, "compared": compared},
        "findings": ranked,
        "tables": [
            {
                "name": name,
                "file": f"tables/{name}.csv",
                "question": schema.question,
                "rows": len(tables[name]),
                "columns": [
                    {"name": column.name, "unit": column.unit, "description": column.description}
                    for column in schema.columns
                ],
            }
            for name, schema in (PROFILE_TABLES | TABLES).items()
            if name in tables and not (only_swept and name in TABLES)
        ],
        "figures": [],
        "gaps": [{"what": gap.what, "why": gap.why, "fix": gap.fix} for gap in dict.fromkeys(named_gaps)],
        "files": [{"name": file.name, "kind": file.kind, "rows": file.rows} for file in capture.files],
        "notes": notes,
    }
    if capture.sweep_rows is not None:
        report["calls"] = sweep_calls.list_clocks(capture)
    return report, tables, roofs


def draw(
    report: dict[str, Any], tables: dict[str, pd.DataFrame], roofs: pd.DataFrame, *, only: str | None
) -> dict[str, dict[str, bytes]]:
    """Draw the tables that have rows and list the figures in report["figures"]; return their bytes by suffix."""
    caption = "  ·  ".join(f"{c['name']}: {c['value']}" for c in report["conditions"] if c["name"] in CAPTION)
    if report["trust"]["status"] == "untrusted":
        caption += "  ·  COUNTERS UNTRUSTED: the self-test failed"
    profiled = dict.fromkeys(label.partition(", ")[0] for label in tables.get("layer_profile", {}).get("profile", ()))

    def plot_one_op(op: str, rows: pd.DataFrame) -> Any:
        return figures.plot_traffic(rows, caption, op)

    plots: dict[str, Callable[[pd.DataFrame], Any]] = {
        "roofline": lambda table: figures.plot_roofline(table, roofs, caption),
        "stalls": lambda table: figures.plot_stalls(table, caption),
        "traffic_op": lambda table: plot_one_op(*traffic.of_one_op(table)),
        "traffic": lambda table: figures.plot_traffic(traffic.for_figure(table), caption),
        "layers": lambda table: figures.plot_layers(layers.for_figure(table, profiled), caption, len(table)),
        "levels": lambda table: figures.plot_levels(table, caption),
        "fusion": lambda table: figures.plot_fusion(table, caption),
    }
    images = {}
    for name, table in FIGURES.items():
        if only not in (None, name) or table not in tables or tables[table].empty:
            continue
        figure = plots[name](tables[table])
        if figure is None:
            continue
        images[name] = to_bytes(figure)
        _list_figure(report, name, images[name], table, caption)
    for name, table, panels, plot in _heat_maps(tables) if only is None else ():
        numbers = [number for panel in panels for number in panel["call"].split(", ")]
        timed_in = "  ·  ".join(filter(None, [caption, sweep_calls.caption(report["calls"], numbers)]))
        if (figure := plot(panels, timed_in)) is not None:
            images[name] = {"svg": compact(to_svg(figure))}  # as pixels, so many cells would weigh three times as much
            _list_figure(report, name, images[name], table, timed_in)
    return images


def _heat_maps(
    tables: Mapping[str, pd.DataFrame],
) -> Iterator[tuple[str, str, list[dict[str, Any]], Callable[..., Any]]]:
    """Of a sweep's heat maps: name, table, panels, and what draws them."""
    if "sweep" not in tables:
        return
    for op, panels in sweep.heat_maps(tables["sweep"]).items():
        yield f"sweep_{op}", "sweep", panels, functools.partial(heatmap.plot_sweep, op)
    if (shapes := tables.get("sweep_shapes")) is not None:
        yield "sweep_shapes", "sweep_shapes", sweep.shape_maps(tables["sweep"], shapes), heatmap.plot_shapes


def _list_figure(report: dict[str, Any], name: str, image: dict[str, bytes], table: str, caption: str) -> None:
    files = [f"figures/{name}.{suffix}" for suffix in sorted(image, reverse=True)]
    report["figures"].append({"name": name, "files": files, "table": table, "caption": caption})
