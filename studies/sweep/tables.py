"""Build the sweep's tables: every combination with its counters, the fastest of each kernel, and the reason for it."""

import math
import re
from typing import Any

import pandas as pd

from analysis.facts import Facts
from analysis.formats.report import Missing, Reason
from analysis.formats.words import count_of
from analysis.tables.declare import Column, part, table
from studies.sweep import calls as sweep_calls
from studies.sweep import counters as sweep_counters
from studies.sweep import rows as rules

CELL = ["op", "variant", "dtype", "shape"]
_TIE = 1.01
_STATIC = (
    ("occupancy_theoretical_frac", 1, "theoretical occupancy {:.0%} vs {:.0%}"),
    ("registers", 1, "{:.0f} registers a thread vs {:.0f}"),
    ("shared_bytes", 1024, "{:.3g} KiB of shared memory a block vs {:.3g}"),
    ("spill_bytes", 1, "{:.0f} bytes of spills vs {:.0f}"),
    ("waves", 1, "{:.3g} waves vs {:.3g}"),
)
_JOINED_PLACES = ", "


_COLUMNS = (
    Column("op", "operation", "key"),
    Column("variant", "rung", "key"),
    Column("dtype", "data type; blank where nothing was timed", "key"),
    Column("shape", "name of the shape; blank where nothing was timed", "key"),
    Column("combination", "the macros of its source, without the common start of their names", "key"),
    Column(
        "mark", "default, fastest (of the dtype and shape), recommended (for the source, by all that was timed)", "row"
    ),
    Column(
        "not_measured", "ops, dtypes and shapes that use the recommended combination and were not timed with it", "row"
    ),
    Column("keeps_default", "why the source still uses its defaults", "row"),
    Column(
        "slower_at",
        "if it is clearly faster than the default here: cells where it is clearly slower, worst first; clearly means "
        "by 1 % in the median, and at all in 95 % of the rounds",
        "row",
    ),
    Column("verdict", "timed, or what prevented it; built: compiled without a GPU to time it", "row"),
    Column("reason", "why it was not timed", "row", style="prose"),
    Column(
        "bench_time_p50_ns",
        "a launch with its data in DRAM, by CUDA events, isolated or chained as its call says, median",
        "timing",
    ),
    Column("bench_time_p5_ns", "the same, p5", "timing"),
    Column("bench_time_p95_ns", "the same, p95", "timing"),
    Column("versus_default", "the default's time over this one's, paired by round, median", "timing", "1"),
    Column("versus_default_p5", "the same, p5", "timing", "1"),
    Column("versus_default_p95", "the same, p95", "timing", "1"),
    Column("samples", "rounds that the times and ratios rest on", "timing", "1"),
    Column("call", "of `make sweep` that measured it: its number in the conditions, or not recorded", "key"),
    Column("kernel", "its longest kernel; the columns up to `tail_frac` describe it", "key"),
    Column("registers", "registers a thread", "static", "1/thread"),
    Column("spill_bytes", "registers spilled to local memory, stores and loads, the source's worst kernel", "static"),
    Column("shared_bytes", "shared memory a block, static and dynamic", "static"),
    Column("block_threads", "threads a block", "static", "1"),
    Column("grid_blocks", "blocks", "static", "1"),
    Column(
        "occupancy_theoretical_frac",
        "warps that its resources allow on an SM over the maximum; from ncu if it counted",
        "static",
    ),
    Column("limiter", "what limits them: warps (full), blocks, registers or shared memory", "row"),
    Column("waves", "blocks over what all multiprocessors hold at once", "static", "1"),
    Column("tail_frac", "share of the last wave that stays empty", "static"),
    Column("multiprocessors", "of the GPU", "static", "1"),
    Column(
        "instructions",
        "warp instructions issued, by ncu; this and the columns below cover all its kernels",
        "counters",
        "inst",
    ),
    Column("warp_cycles", "warp cycles per issued instruction: from one to the next", "counters", "cycle"),
    Column("occupancy_achieved_frac", "warps resident on an active multiprocessor", "counters"),
    Column(
        "sm_active_frac", "share of the cycles in which an SM is active, calculated from the other factors", "counters"
    ),
    Column("sm_clock_hz", "clock while counting", "counters"),
    Column("dram_bytes", "DRAM bytes read and written", "counters"),
    Column("dram_byte_per_s", "the same over the time", "counters"),
    Column("l1_hit_frac", "sectors found in L1, by ncu", "counters"),
    Column("l2_hit_frac", "sectors found in L2, by ncu", "counters"),
    Column("sectors_per_request_load", "sectors of 32 bytes a warp and global load, by ncu", "counters", "1"),
    Column("stall", "the largest stall reason", "row"),
    Column("stall_frac", "its share of all stalls", "counters"),
    Column("stalls", "the part of `warp_cycles` in each stall reason, largest first, from half a per cent on", "row"),
    Column("ncu_time_ns", "time of its kernels alone, by ncu", "counters"),
    Column("gpu", "the GPU", "key"),
)
_AT_OTHER_SHAPES = {  # launches and counters exist only for cells of the first stage
    "op", "variant", "dtype", "shape", "combination", "mark", "verdict", "reason", "bench_time_p50_ns",
    "versus_default", "versus_default_p5", "versus_default_p95", "samples", "call", "gpu",
}  # fmt: skip
Swept = tuple[pd.DataFrame, pd.DataFrame] | None


@table(
    "sweep",
    question="Which compile-time choices of each kernel are the fastest, and what explains the differences?",
    title="Every combination",
    columns=_COLUMNS,
)
def build_sweep(facts: Facts) -> pd.DataFrame | None:
    swept = facts.once(swept_rows)
    return swept[0][build_sweep.column_names] if swept else None


@table(
    "sweep_shapes",
    question="What do the fastest combinations do at the other shapes that their source is compiled for?",
    title="Configurations at the other shapes",
    columns=(column for column in _COLUMNS if column.name in _AT_OTHER_SHAPES),
)
def build_shapes(facts: Facts) -> pd.DataFrame | None:
    swept = facts.once(swept_rows)
    return swept[1][build_shapes.column_names] if swept else None


def swept_rows(facts: Facts) -> Swept:
    """Return sweep.csv (first stage) and sweep_shapes.csv (second stage): one row a combination, dtype and shape.

    Rows are sorted by time within each dtype and shape. `all_measured` joins by its path.
    """
    capture = facts.capture
    if capture.sweep_rows is None or capture.sweep_rows.empty:
        return None
    rows = capture.sweep_rows.assign(call=sweep_calls.number_rows(capture))
    rows = rows.assign(whole=_where_all_were_tried(rows)).dropna(subset="whole").reset_index(drop=True)
    rows = rows.assign(shape=rows["shape_name"], versus_default=rows["versus_default_p50"])
    rows["whole"] = rows["whole"].astype(bool)
    rows["combination"] = rows["macros"].map(short_name)
    rows = sweep_counters.join(rows, facts.all_measured, capture.tools)
    # sort by the ratio to the default in the same rounds; without a default, by time
    rows["cost"] = (1 / rows["versus_default"]).fillna(rows["bench_time_p50_ns"].astype("float64"))
    order = sorted({*rows[CELL].itertuples(index=False, name=None)}, key=_place)
    place = {cell: at for at, cell in enumerate(order)}
    rows["place"] = [place[cell] for cell in rows[CELL].itertuples(index=False, name=None)]
    rows["other"] = 1 - rows["default"]  # among equals, the default comes first
    rows = rows.sort_values(["place", "cost", "other"], kind="stable", na_position="last", ignore_index=True)
    fastest = rows["cost"].notna() & ~rows["place"].duplicated()
    recommended = {
        (choice["gpu"], choice["source"], choice["macros"]): choice
        for choice in (capture.sweep or {}).get("choices") or []
    }
    found = pd.Series(list(zip(rows["gpu"], rows["source"], rows["macros"], strict=True)), index=rows.index)
    marks = {
        "default": rows["default"].eq(1),
        "fastest": fastest,
        "recommended": found.isin(set(recommended)) & rows["verdict"].eq("timed"),
    }
    rows["mark"] = [
        ", ".join(name for name, is_so in zip(marks, flags, strict=True) if is_so)
        for flags in zip(*marks.values(), strict=True)
    ]
    is_other = marks["recommended"] & ~marks["default"]
    of_row = [recommended.get(key, {}) if other else {} for key, other in zip(found, is_other, strict=True)]
    rows["not_measured"] = ["; ".join(choice.get("not_measured") or []) for choice in of_row]
    rows["keeps_default"] = [choice.get("keeps_default") or "" for choice in of_row]
    rows["slower_at"] = _slower_elsewhere(rows)
    timed, counted = rows["bench_time_p50_ns"].notna(), rows["ncu_time_ns"].notna()
    rows["tier"] = counted.map({True: "counters", False: "timing"}).where(timed, "static")
    few = ~rows["whole"] & rows["default"].ne(1)
    return rows[rows["whole"]], rows[few]


def _where_all_were_tried(rows: pd.DataFrame) -> list[bool | None]:
    """For each row, whether all combinations of its source were tried at its dtype and shape.

    None for a row that was measured again later, or that belongs to an older source.
    """
    records = rows.assign(at=range(len(rows))).to_dict("records")
    found: list[bool | None] = [None] * len(rows)
    for members in rules.by_source(rules.latest(records)).values():
        whole = rules.where_all_were_tried(sorted(members, key=lambda row: int(row["at"])))
        for row in members:
            found[row["at"]] = rules.cell_of(row) in whole
    return found


def _slower_elsewhere(rows: pd.DataFrame) -> list[str]:
    """For each row that is clearly faster than the default, the cells in which the same build is slower; else ""."""
    rows = rows.astype(
        dict.fromkeys(("samples", "versus_default", "versus_default_p5", "versus_default_p95"), "float64")
    )
    found: dict[Any, list[Any]] = {}
    for row in rows.itertuples(index=False):
        if is_slower(row):
            found.setdefault((row.gpu, row.source, row.macros), []).append(row)

    def said(row: Any) -> str:
        worst_first = sorted(found.get((row.gpu, row.source, row.macros), ()), key=lambda other: other.versus_default)
        return _JOINED_PLACES.join(
            f"{'' if one.op == row.op else f'{one.op} '}{one.dtype} {one.shape} ({one.versus_default:.3f} ×)"
            for one in worst_first
        )

    return [said(row) if is_clear(row) else "" for row in rows.itertuples(index=False)]


def _place(cell: tuple[str, ...]) -> tuple[Any, ...]:
    """Sort key: op, rung, then fp32 before narrower types."""
    op, variant, dtype, shape = cell
    return op, variant, dtype != "fp32", dtype, shape


def short_name(macros: str) -> str:
    """Return `THREADS=256 AHEAD_MB=3` of `GELU_V02_THREADS=256 GELU_V02_AHEAD_MB=3`."""
    return " ".join(re.sub(r"^[A-Z0-9_]*?V\d+_(?=[A-Z])", "", part) for part in macros.split())


@table(
    "sweep_best",
    question="What did the sweep of each kernel find, and why?",
    title="Configuration sweep",
    columns=(
        Column("op", "operation", "key"),
        Column("variant", "rung", "key"),
        Column("dtype", "data type", "key"),
        Column("shape", "name of the shape", "key"),
        Column("combinations", "combinations that were tried", "static", "1"),
        Column("timed", "combinations that passed their check and were timed", "timing", "1"),
        Column("samples", "rounds behind each time; the fewest if they differ", "timing", "1"),
        Column("calls", "of `make sweep` that measured them: numbers in the conditions, or not recorded", "key"),
        Column("default", "the source as it stands", "row"),
        Column("fastest", "least median time; clear only if faster than the default in 95 % of the rounds", "row"),
        Column("versus_default", "the default's time over the fastest one's, paired by round, median", "timing", "1"),
        Column("clear", "yes, no, or blank where the default is the fastest", "row"),
        Column(
            "slowest",
            "longest median time; within 1 % of it we prefer one with counters, or the most like the default",
            "row",
        ),
        Column("slowest_versus_default", "the default's time over the slowest one's, median", "timing", "1"),
        Column("recommended", "for the source: chosen over all its timed dtypes, shapes and ops", "row"),
        Column(
            "evidence",
            "why the fastest beats the slowest, and why another is recommended; cycles are "
            "instructions times warp cycles per issued instruction, over occupancy and share of active cycles",
            "row",
            style="prose",
        ),
    ),
)
def build_best(facts: Facts) -> pd.DataFrame | None:
    """Return sweep_best.csv: one row a kernel, dtype and shape that was timed; `sweep` from swept_rows."""
    sweep = facts.once(build_sweep)
    if sweep.empty:
        return None
    found = []
    for cell, rows in sweep.groupby(CELL, sort=False):
        timed = rows[rows["bench_time_p50_ns"].notna()]
        if timed.empty:
            continue
        fastest = timed.iloc[0]
        default, chosen = (_marked(timed, mark) for mark in ("default", "recommended"))
        slowest = _slowest(timed, default)
        is_default = default is not None and fastest["combination"] == default["combination"]
        found.append(
            {
                **dict(zip(CELL, cell, strict=True)),
                "combinations": len(rows),
                "timed": len(timed),
                "samples": timed["samples"].min(),
                "calls": ", ".join(sorted(set(rows["call"]))),
                "default": "" if default is None else default["combination"],
                "fastest": fastest["combination"],
                "versus_default": fastest["versus_default"],
                "clear": "" if is_default else "yes" if is_clear(fastest) else "no",
                "slowest": slowest["combination"],
                "slowest_versus_default": slowest["versus_default"],
                "recommended": "" if chosen is None else _recommended(chosen),
                "evidence": " ".join(_sentences(rows, fastest, slowest, default, chosen)),
                "tier": "counters" if (timed["tier"] == "counters").any() else "timing",
            }
        )
    return pd.DataFrame(found) if found else None


def is_clear(row: Any) -> bool:
    """Return whether the combination of a row is clearly faster than the default."""
    return bool(rules.is_clear(row.versus_default_p5, row.versus_default))


def is_slower(row: Any) -> bool:
    """Return whether the combination of a row is clearly slower than the default."""
    return bool(rules.is_slower(row.versus_default, row.versus_default_p95, row.samples))


def _marked(timed: pd.DataFrame, mark: str) -> pd.Series | None:
    place = next((place for place, marks in enumerate(timed["mark"]) if mark in marks), None)
    return None if place is None else timed.iloc[place]


def _slowest(timed: pd.DataFrame, default: pd.Series | None) -> pd.Series:
    """Return a row that ties with the slowest: preferably one with counters, then the one closest to the default."""
    column, way = ("versus_default", -1) if pd.notna(timed["versus_default"].iloc[-1]) else ("bench_time_p50_ns", 1)
    cost = timed[column].astype("float64") ** way
    ties = timed[cost * _TIE >= cost.iloc[-1]]
    counted = ties[ties["tier"] == "counters"]
    ties = ties if counted.empty else counted
    if default is None:
        return ties.iloc[-1]
    usual = set(default["combination"].split())
    changed = ties["combination"].map(lambda combination: len(set(combination.split()) - usual))
    return ties[changed == changed.min()].iloc[-1]


def _sentences(
    rows: pd.DataFrame, fastest: pd.Series, slowest: pd.Series, default: pd.Series | None, chosen: pd.Series | None
) -> list[str]:  # fmt: skip
    """Return what the fastest and the slowest combination gain over the default, and what tells each apart."""
    said = []
    if default is None:
        said.append(f"Fastest is {fastest['combination']}; the default was not timed.")
    elif fastest["combination"] == default["combination"]:
        said.append(f"The default, {default['combination']}, is the fastest of {len(rows)}.")
    elif is_clear(fastest):
        said.append(f"Fastest is {fastest['combination']}, {_gain(fastest)}{_why(fastest, default)}.")
    else:
        said.append(f"No clear difference: {fastest['combination']} comes out at {_gain(fastest)}.")
    other = default if default is not None else fastest
    if slowest["combination"] not in (other["combination"], fastest["combination"]):
        ratio = float(slowest["bench_time_p50_ns"]) / float(other["bench_time_p50_ns"])
        name = other["combination"]
        said.append(f"Slowest is {slowest['combination']}, {ratio:.3g} times {name}'s time{_why(slowest, other)}.")
    left_out = rows[rows["bench_time_p50_ns"].isna()]["verdict"].value_counts()
    if len(left_out):
        said.append(f"Left out: {', '.join(f'{count} {verdict}' for verdict, count in left_out.items())}.")
    if chosen is not None and chosen["combination"] != fastest["combination"] and is_clear(fastest):
        lost = f"; {fastest['combination']} loses at {fastest['slower_at']}" if fastest["slower_at"] else ""
        said.append(f"Recommended is {chosen['combination']}, over all that was timed of its source{lost}.")
    return said


def _gain(row: pd.Series) -> str:
    middle, low, high = (row[name] for name in ("versus_default", "versus_default_p5", "versus_default_p95"))
    return f"{middle:.3f} ({low:.3f} – {high:.3f}) times the default's speed"


def _why(row: pd.Series, other: pd.Series) -> str:
    """Return the factors of the time that ncu counted of both, else the static figures that differ; "" for none."""
    counted = row["tier"] == other["tier"] == "counters"
    found = list(sweep_counters.factors(row, other).values()) if counted else []
    if not found and str(row["kernel"]).split("<")[0] == str(other["kernel"]).split("<")[0]:
        found = [
            form.format(row[name] / unit, other[name] / unit)
            for name, unit, form in _STATIC
            if pd.notna(row[name]) and pd.notna(other[name]) and row[name] != other[name]
        ]
    return f": {', '.join(found)}" if found else ""


def _recommended(row: pd.Series) -> str:
    said = [f"not compiled in: {row['keeps_default']}"] if row["keeps_default"] else []
    said += [f"not measured: {row['not_measured']}"] if row["not_measured"] else []
    return row["combination"] + (f" ({'; '.join(said)})" if said else "")


@part("note")
def _without_choices(facts: Facts) -> str | None:
    rungs = (facts.capture.sweep or {}).get("without_choices")
    return f"Rungs without compile-time choices: {'; '.join(rungs)}." if rungs else None


@part("missing")
def name_missing(facts: Facts) -> list[Missing]:
    """Return missing: rungs and combinations that were not tried, and kernels without counters."""
    capture, sweep = facts.capture, facts.once(build_sweep)
    if capture.sweep_rows is None:
        return []
    timed = sweep[sweep["verdict"] == "timed"]
    counted = timed["tier"].eq("counters").groupby([timed[name] for name in CELL]).any()
    without = int((~counted).sum())
    missing = []
    if rungs := (capture.sweep or {}).get("not_swept"):
        wanted = dict.fromkeys(rung.split()[0] for rung in rungs)
        fix = f"`make sweep RUN=… OP='{' '.join(wanted)}'` with this run"
        what = f"{count_of(len(rungs), 'rung')} with compile-time choices"
        missing.append(Missing(Reason.UNMEASURED, what, f"not swept: {', '.join(rungs)}", fix))
    if count := _without_row(sweep):
        why = "sweep.csv holds no row of them: the sweep was interrupted, or they came to it later"
        missing.append(
            Missing(
                Reason.UNMEASURED, count_of(count, "combination"), why, "`make sweep RUN=… OP=…` with this run goes on"
            )
        )
    if timed.empty:
        fix = "sweep on a machine with an NVIDIA GPU: `make sweep OP=…`"
        return [Missing(Reason.UNMEASURED, "times of the combinations", "nothing was timed", fix), *missing]
    failed = any(tool.get("tool") == "ncu" and tool.get("status") != "ok" for tool in capture.tools)
    if not without or (failed and not counted.any()):  # its status file already names this gap
        return missing
    why = "no combination of them was launched under ncu: achieved occupancy, stalls, cache hits and bytes are unknown"
    bare = dict.fromkeys(cell[0] for cell in counted.index[~counted])
    fix = f"`make sweep RUN=… ARGS=--counters OP='{' '.join(bare)}'` with this run; what is timed or counted stays"
    return [
        Missing(Reason.UNCOUNTED, f"the counters of {without} of {len(counted)} kernels, dtypes and shapes", why, fix),
        *missing,
    ]


def _without_row(sweep: pd.DataFrame) -> int:
    """For each kernel, the number of combinations of its tried values without a row."""
    missing = 0
    for _, rows in sweep.groupby([*CELL, "gpu"], sort=False):
        values = rows["combination"].str.split(expand=True)
        missing += math.prod(values.nunique()) - len(rows)
    return missing
