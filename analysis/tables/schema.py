"""The output tables as data: one declaration from which writers, report.json and analysis/README.md derive."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

TIERS = ("static", "timing", "counters")


@dataclass(frozen=True)
class Column:
    """A column: its unit is part of its name where it has one; `unit` repeats it for machines."""

    name: str
    unit: str
    description: str


@dataclass(frozen=True)
class Table:
    """A table answers one question. `columns` excludes `tier`, which every table ends with."""

    name: str
    question: str
    columns: tuple[Column, ...]

    @property
    def column_names(self) -> list[str]:
        return [column.name for column in self.columns] + ["tier"]

    def conform(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return `rows` with exactly the declared columns in their declared order.

        Raises: ValueError naming the missing or unknown columns (a defect of the caller, not of the input).
        """
        missing = [name for name in self.column_names if name not in rows]
        unknown = [name for name in rows if name not in self.column_names]
        if missing or unknown:
            raise ValueError(f"table {self.name}: missing {missing}, unknown {unknown}")
        return rows[self.column_names].reset_index(drop=True)

    def empty(self) -> pd.DataFrame:
        return pd.DataFrame(columns=self.column_names)


TIER = Column("tier", "", "evidence: static (compiler), timing (nsys, events), counters (ncu)")

_LAYER_COLUMNS = (
    Column("range", "", "range names from the outermost to the innermost, joined with /"),
    Column("calls", "1", "instances of the range"),
    Column("cpu_time_ns", "ns", "sum of the ranges' own duration on the CPU: it times the launches, not the GPU"),
    Column("gpu_time_ns", "ns", "time of the kernels launched inside, nested ranges included"),
    Column("gpu_self_time_ns", "ns", "time of the kernels whose innermost range this is"),
    Column("launches", "1", "kernels launched inside, nested ranges included"),
    Column(
        "share_frac",
        "0-1",
        "gpu_time_ns over all kernel time of the capture; in a CPU run cpu_time_ns over the outermost ranges'",
    ),
)

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        Table("layers_folded", "Which kind of layer takes the time, repeated layers as one?", _LAYER_COLUMNS),
        Table("layers", "Which range takes the time?", _LAYER_COLUMNS),
        Table(
            "kernels",
            "Which kernels run in which layer, how long, and how full is the GPU?",
            (
                Column("kernel", "", "kernel name as both tools agree on it: no return type, parameters or casts"),
                Column("range", "", "innermost range, repeated layers folded (h.*)"),
                Column("grid", "blocks", "grid dimensions, XxYxZ"),
                Column("block", "threads", "block dimensions, XxYxZ"),
                Column("launches", "1", "launches that nsys saw (ncu, if there is no timeline)"),
                Column(
                    "nsys_time_ns",
                    "ns",
                    "sum over the row's launches, as nsys timed them in the running program",
                ),
                Column(
                    "ncu_time_ns",
                    "ns",
                    "the same sum as ncu timed them, replayed alone; blank unless ncu has them all",
                ),
                Column(
                    "share_frac",
                    "0-1",
                    "nsys_time_ns over all kernel time of the capture (ncu_time_ns if there is no timeline)",
                ),
                Column("registers", "1/thread", "registers per thread"),
                Column(
                    "occupancy_theoretical_frac",
                    "0-1",
                    "resident warps that resources allow, over the maximum",
                ),
                Column(
                    "occupancy_achieved_frac",
                    "0-1",
                    "warps actually resident, mean over the measured launches",
                ),
            ),
        ),
        Table(
            "roofline",
            "How far is each kernel from the roof over it?",
            (
                Column("kernel", "", "kernel name"),
                Column("range", "", "folded range"),
                Column(
                    "level",
                    "",
                    "whose bytes: dram, l2 (between L2 and the SMs) or l1 (global and local accesses)",
                ),
                Column(
                    "flops",
                    "FLOP",
                    "floating-point operations of the measured launches, all pipes but the special functions",
                ),
                Column("bytes", "byte", "bytes moved at this level by the measured launches"),
                Column("intensity_flop_per_byte", "FLOP/byte", "flops over bytes"),
                Column("achieved_flop_per_s", "FLOP/s", "flops over ncu time"),
                Column(
                    "roof_flop_per_s",
                    "FLOP/s",
                    "lower of measured bandwidth (at DRAM for the row's reads and writes) x intensity and "
                    "measured compute peak; blank for kernels without FLOPs",
                ),
                Column(
                    "roof_datasheet_flop_per_s",
                    "FLOP/s",
                    "the same from the datasheet; blank where it gives none",
                ),
                Column(
                    "roof_frac",
                    "0-1",
                    "achieved over measured roof; for kernels without FLOPs bytes/s over bandwidth",
                ),
                Column("bound", "", "memory or compute: which of the two measured roofs is the lower here"),
            ),
        ),
        Table(
            "stalls",
            "What do the warps of each kernel wait for?",
            (
                Column("kernel", "", "kernel name"),
                Column("range", "", "folded range"),
                Column("reason", "", "stall reason of the counter family (warps per issued instruction)"),
                Column(
                    "share_frac",
                    "0-1",
                    "share of all stalls, launches weighted by issued instructions, without `selected`",
                ),
            ),
        ),
        Table(
            "traffic",
            "How many bytes did each layer need, predict and move?",
            (
                Column("range", "", "innermost range, not folded"),
                Column("op", "", "operation that the harness declares for this range"),
                Column("variant", "", "its implementation"),
                Column(
                    "minimum_bytes",
                    "byte",
                    "each input byte that is needed read once, each output byte written once",
                ),
                Column("predicted_unfused_bytes", "byte", "what one kernel per elementary step moves"),
                Column(
                    "predicted_fused_bytes",
                    "byte",
                    "what the fused kernel moves; 0 where a neighbour absorbs this range",
                ),
                Column(
                    "dram_read_bytes",
                    "byte",
                    "measured, and copies with the bytes nsys names; blank unless ncu has every kernel of the range",
                ),
                Column(
                    "dram_write_bytes",
                    "byte",
                    "measured; what still lies in L2 when a kernel ends is not in it",
                ),
                Column("l2_bytes", "byte", "measured between L2 and the SMs, kernels only"),
                Column("measured_over_minimum", "1", "(dram_read_bytes + dram_write_bytes) / minimum_bytes"),
            ),
        ),
        Table(
            "gaps",
            "Is each step limited by launches, by memory or by arithmetic?",
            (
                Column("step", "", "instance of a range named step, decode or prefill; else the whole capture"),
                Column("wall_ns", "ns", "from the start of the step to its last GPU operation, nsys attached"),
                Column("bare_wall_ns", "ns", "the same step with no tool attached and the ranges off, median"),
                Column("busy_ns", "ns", "union of the intervals in which a GPU operation of the step ran"),
                Column("launches", "1", "kernels of the step"),
                Column(
                    "largest_gaps_ns",
                    "ns",
                    "the three longest idle intervals, nsys attached, `;` between them",
                ),
                Column(
                    "verdict",
                    "",
                    "launch-bound, memory-bound or compute-bound; blank where the evidence is missing",
                ),
                Column("evidence", "", "the numbers that the verdict rests on"),
            ),
        ),
        Table(
            "coverage",
            "For which kernels of the timeline are there counters?",
            (
                Column("range", "", "innermost range, folded"),
                Column("seen", "1", "kernels in the timeline"),
                Column("requested", "1", "of these, kernels in the ranges that ncu was asked to capture"),
                Column("matched", "1", "of these, kernels matched to a row of ncu"),
                Column(
                    "extrapolated",
                    "1",
                    "kernels given a sibling layer's counters (only with --extrapolate-siblings)",
                ),
                Column("reason", "", "why kernels that were requested are not matched"),
            ),
        ),
    )
}


def document_columns() -> str:
    """Return the Markdown text that analysis/README.md holds between its markers."""
    parts = []
    for table in TABLES.values():
        lines = [
            f"### `{table.name}.csv`",
            "",
            table.question,
            "",
            "| column | unit | meaning |",
            "|---|---|---|",
        ]
        lines += [f"| `{c.name}` | {c.unit} | {c.description} |" for c in (*table.columns, TIER)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


if __name__ == "__main__":
    print(document_columns())
