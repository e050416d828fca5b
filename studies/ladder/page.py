"""Render the ladders in the READMEs: time, traffic, stalls and verdicts of the rungs of each op.

Everything comes from the tables of `build.py` and from the benchmarks beside them, which time all shapes. Cells without
counters stay blank.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from tabulate import tabulate

from analysis.formats.spans import Span
from analysis.page.markdown import escape
from analysis.page.text import MISSING, is_missing, number, percent
from studies.ladder.dates import REFUTED, Dated
from studies.ladder.goals import LIBRARY_KINDS, RUNG, fastest_rungs, precision_of, rival
from studies.ladder.searched import is_search, paired
from studies.ladder.tables import ACROSS_RUNS, BASELINES, WORDS
from studies.publish.results import older_times
from studies.sweep.tables import short_name

STALLS = 3  # stall reasons shown for a rung, the largest ones
MOST_BYTES = 1.1  # measured over predicted bytes: a larger ratio is marked
STALE_MARK = "‡"
ELSEWHERE_MARK = "§"
OLDER = "an older build (source or compile-time choices have changed since)"
STALE = {
    "counters": f"counters are of {OLDER}, and so are the verdicts on them; times are of the present one.",
    "times": f"times are of {OLDER}, and so are the verdicts on them; counters are of the present one.",
    "times counters": f"times and counters are of {OLDER}, and so are the verdicts on them.",
}
OUTCOMES = ("reached", "not refuted", "refuted", "not measured")  # verdicts on a hypothesis
CLAIMED = ("confirmed", "refuted", "not measured")  # verdicts on a published claim
VERDICTS = {"reached": "reached", "not refuted": "not refuted", "refuted": "**refuted**"}


@dataclass(frozen=True)
class Bench:
    """The times of one op (rows of ladder_times.csv), and the conditions and the folder of its benchmark.

    `copy`: byte/s of the usual copy among the GPU's benchmarks, which floors by bytes use.
    """

    rows: pd.DataFrame
    conditions: Mapping[str, Any]
    run: str
    copy: float | None = None


Tables = Mapping[str, pd.DataFrame]
KINDS_OF_TIME = (
    "An isolated time covers one launch: no data is in a cache, and no other launch overlaps it. A chained time covers "
    "one of many launches in a row, so a kernel with programmatic dependent launch overlaps with itself. Roofs, ratios "
    "and verdicts use isolated times."
)
CHAINED_ALONE = (
    "Here they use chained times, because isolated times have not been taken yet. Chained times favour a small kernel "
    "with programmatic dependent launch over a library kernel without it."
)


def folders(tables: Tables) -> list[str]:
    """Return the folders under kernels/ that have a ladder."""
    return list(dict.fromkeys(tables["ladder"]["folder"]))


def render_folder(
    folder: str,
    tables: Tables,
    benches: Mapping[str, Bench],
    *,
    where: str = "",
    suffix: str = "",
    bounds: Sequence[Dated] = (),
) -> str:
    """Return the part `ladder` of kernels/<folder>/README.md, with each op of that folder.

    Shape: `tables` by the names of LADDER_TABLES; `benches` by op; `where` is the path of the ladder's folder in the
    text; `suffix` is the end of the figures' names; `bounds` with their dates.
    """
    ops = ops_of(folder, tables)
    parts = []
    for op in ops:
        heading = [f"### {op}"] if len(ops) > 1 else []
        parts += [*heading, render_op(op, tables, benches.get(op), where, suffix, bounds)]
    return "\n\n".join(parts)


def render_elsewhere(folder: str, tables: Tables, benches: Mapping[str, Bench], where: str) -> list[str]:
    """Return a folded part for each op of a folder: every rung, every shape and the counters, on another GPU.

    `where` is the path of that GPU's ladder in the text.
    """
    parts = []
    for op in ops_of(folder, tables):
        rungs, bench = rungs_of(op, tables), benches.get(op)
        if bench is None:
            continue
        counted = not rungs["launches"].isna().all()
        what = "every rung, every shape, counters" if counted else "every rung, every shape"
        parts += [f"<details>\n<summary>{op} on {bench.conditions['gpu']['name']}: {what}</summary>"]
        for _, rows in rungs.groupby("dtype", sort=False):
            parts += [_heading(rows, bench), _ladder_table(rows)]
        parts += [*_older(rungs), *_elsewhere(rungs), *_other_shapes(op, rungs, bench)]
        parts += [*_folded_counters(rungs, tables), _conditions(tables, rungs, bench, where), "</details>"]
    return parts


def ops_of(folder: str, tables: Tables) -> list[str]:
    """Return the ops of a folder under kernels/."""
    ladder = tables["ladder"]
    return list(dict.fromkeys(ladder.loc[ladder["folder"] == folder, "op"]))


def rungs_of(op: str, tables: Tables) -> pd.DataFrame:
    """Return the rows of an op's ladder at its bench shape, in the order of its declaration.

    `elsewhere` marks rows timed in another run than most, `fastest` our fastest rung of each dtype.
    """
    ladder = tables["ladder"]
    rows = ladder[(ladder["op"] == op) & ladder["at_bench_shape"].astype(bool)]
    rows = rows.sort_values(["dtype", "rung"], ascending=[False, True], kind="stable").reset_index(drop=True)
    rows = paired(rows, tables.get("searched"))
    runs = rows["bench_run"]
    fastest = fastest_rungs(rows.loc[rows["bench_time_p50_ns"].notna(), list(RUNG)]).index
    return rows.assign(elsewhere=runs.notna() & (runs != next(iter(runs.mode()), "")), fastest=rows.index.isin(fastest))


def render_op(
    op: str, tables: Tables, bench: Bench | None, where: str, suffix: str, bounds: Sequence[Dated] = ()
) -> str:
    """Return the ladder of one op: rungs by dtype, other shapes, what was refused, hypotheses, counters, conditions."""
    rungs = rungs_of(op, tables)
    parts: list[str] = []
    for place, (_, rows) in enumerate(rungs.groupby("dtype", sort=False)):
        parts += [_heading(rows, bench), _ladder_table(rows), *_default(rows)]
        parts += _built_with(rungs) if place == 0 else []
    parts += [*_older(rungs), *_elsewhere(rungs)]
    parts.append(f"![{op}: share of the measured roof by rung, with what it waits for]({op}{suffix}.svg)")
    if has_curves(rungs, bench):
        parts.append(f"![{op}: TFLOP/s over the shapes, beside the library]({op}_shapes{suffix}.svg)")
    if bench is not None:
        parts += _other_shapes(op, rungs, bench)
    parts += _searches(op, tables)
    parts += _not_timed(op, tables)
    parts += _refusals(rungs)
    parts += ["Hypotheses", _hypothesis_table(rungs), *_dates(op, bounds)]
    parts += _folded_counters(rungs, tables)
    parts.append(_conditions(tables, rungs, bench, where))
    return "\n\n".join(parts)


def sizes_of(row: pd.Series) -> str:
    """Return the sizes of a row, such as `B 8, nh 12, Tq 1024, Tk 1024`."""
    return ", ".join(
        f"{axis} {size}" for axis, size in zip(row["axes"].split(","), row["shape"].split("x"), strict=True)
    )


def name_of(row: pd.Series) -> str:
    """Return the rung's name: bold if it is our fastest, marked if its numbers are of an older build or another run."""
    name = f"**`{row['variant']}`**" if row["fastest"] else f"`{row['variant']}`"
    marks = [STALE_MARK] * (not is_missing(row["stale"])) + [ELSEWHERE_MARK] * bool(row["elsewhere"])
    return " ".join([name, *marks])


def best_library(rows: pd.DataFrame, row: pd.Series) -> tuple[str, Span, bool]:
    """Return the fastest library variant of equal precision, `row`'s speed-up over it, whether another run timed it.

    Shape: `rows` of one op, dtype and shape. The variant is "" if there is none.
    """
    precisions = precision_of(rows)
    libraries = rows["kind"].isin(LIBRARY_KINDS) & (precisions == precisions[row.name])
    known = rows[libraries & rows["bench_time_p50_ns"].notna()]
    if known.empty or is_missing(row["bench_time_p50_ns"]):
        return "", Span(math.nan, math.nan, math.nan), False
    fastest, span, apart = rival(row, known)
    return str(fastest["variant"]), span, apart


def _heading(rows: pd.DataFrame, bench: Bench | None) -> str:
    """Return the line above the table of one dtype: sizes, floor, clocks."""
    row = rows.iloc[0]
    return "; ".join([f"{sizes_of(row)}, {row['dtype']}", *_floor(rows), *_clocks(rows, bench)])


def _ladder_table(rows: pd.DataFrame) -> str:
    """Return the table of one dtype: time, share of the roof, traffic, stall reason and verdict of each rung."""
    compute = bool(rows["compute_bound"].iloc[0])
    library = rows["library"].iloc[0]  # PyTorch's fastest without its compiler
    beside = not is_missing(library) and best_library(rows, rows.iloc[0])[0] != library
    table = []
    for _, row in rows.iterrows():
        fastest, faster, _ = best_library(rows, row)
        rate = row["achieved_flop_per_s"] if compute else row["achieved_byte_per_s"]
        table.append(
            [
                name_of(row),
                _span(row, "isolated"),
                _span(row, "chained"),
                _scaled(rate, 1e12 if compute else 1e9, 1 if compute else 0),
                _share(row["floor_frac"]),
                _moved(row),
                _stall(row["top_stall"], row["top_stall_frac"]),
                _line(row),
                _times(row["versus_below"]),
                *([_times(row["versus_library_p50"])] if beside else []),
                MISSING if not fastest else f"{_times(faster.p50)} `{fastest}`",
                _verdict(row),
            ]
        )
    headers = ["rung", "isolated µs, p50 (p5 – p95)", "chained µs", "TFLOP/s" if compute else "GB/s", "of the roof"]
    headers += [
        "bytes predicted → moved",
        "waits for",
        "hottest line",
        "vs rung below",
        *([f"vs `{library}`"] if beside else []),
        "vs best library",
    ]
    return _markdown(table, [*headers, "verdict"])


def _default(rows: pd.DataFrame) -> list[str]:
    """Return a sentence that names the default rung of one dtype, if another one is the fastest at this shape."""
    default, fastest = rows.loc[rows["best"].astype(bool), "variant"], rows.loc[rows["fastest"], "variant"]
    if default.empty or fastest.empty or default.iloc[0] == fastest.iloc[0]:
        return []
    return [f"The fastest here is `{fastest.iloc[0]}`; where no rung is named, `{default.iloc[0]}` runs."]


def _built_with(rungs: pd.DataFrame) -> list[str]:
    """Return a sentence that names the rungs of an op that are not built with the defaults of their sources."""
    tuned = rungs[~rungs["macros"].map(is_missing)].drop_duplicates("variant")
    if tuned.empty:
        return []
    named = ", ".join(f"`{row['variant']}` {short_name(row['macros'])}" for _, row in tuned.iterrows())
    judged = "Every rung" if rungs["stale"].map(is_missing).all() else f"Every rung without {STALE_MARK}"
    return [
        f"Built with: {named} ([a sweep found it faster over its dtypes and shapes together](../tuned.toml)); every "
        f"other rung with the defaults of its source. {judged} is judged as it is built."
    ]


def _floor(rows: pd.DataFrame) -> list[str]:
    """Return the floor of one dtype in the run that timed most of it; for an op bound by arithmetic, also the roof."""
    known = rows[~rows["elsewhere"].astype(bool) & (precision_of(rows) == "") & rows["floor_time_ns"].notna()]
    if known.empty:
        return []
    row = known.iloc[0]
    return [f"floor {number(row['floor_time_ns'], 'ns')}{' at ' + _roof(row) if row['compute_bound'] else ''}"]


def _roof(row: pd.Series) -> str:
    """Return the roof of an op bound by arithmetic, such as `724 TFLOP/s`."""
    return number(float(row["flops"]) / float(row["floor_time_ns"]) * 1e9, "flop/s")


def _clocks(rows: pd.DataFrame, bench: Bench | None) -> list[str]:
    """Return the SM clock for the heading of an op bound by arithmetic, whose times and roof depend on it."""
    clock = clock_of(bench.conditions) if bench is not None and rows["compute_bound"].iloc[0] else ""
    return [clock] if clock else []


def is_held_back(conditions: Mapping[str, Any]) -> bool:
    """Return whether a throttle reason held the clocks back."""
    return bool((conditions.get("clocks") or {}).get("throttle_reasons"))


def _mhz(clocks: Mapping[str, Any], which: str) -> str:
    return f"{clocks['sm_mhz'][which]:.0f}" if clocks.get("sm_mhz") else MISSING


def clock_of(conditions: Mapping[str, Any]) -> str:
    """Return the clock, such as `SM clock 1350 MHz at least, 1980 median, held back by sw_power_cap`.

    Without a clock: "SM clock not recorded" if the run gives a reason, else "".
    """
    clocks = conditions.get("clocks") or {}
    if not clocks.get("sm_mhz"):
        return "SM clock not recorded" if conditions.get("clocks_reason") else ""
    least, median = (_mhz(clocks, name) for name in ("min", "median"))
    held = f", held back by {', '.join(clocks['throttle_reasons'])}" if is_held_back(conditions) else ""
    return f"SM clock {least} MHz at least, {median} median{held}"


def _older(rungs: pd.DataFrame) -> list[str]:
    """Return the notes on numbers of an older build, with their rungs."""
    marked = rungs[~rungs["stale"].map(is_missing)]
    return [f"{STALE_MARK} {_variants(rows)}: {STALE[what]}" for what, rows in marked.groupby("stale", sort=True)]


def _elsewhere(rungs: pd.DataFrame) -> list[str]:
    """Return the notes on rungs timed in another run than most, with the floors of that run."""
    notes = []
    for run, rows in rungs[rungs["elsewhere"]].groupby("bench_run", sort=True):
        floors = rows.drop_duplicates(["dtype", "floor_time_ns"])
        held = ", ".join(f"{number(row['floor_time_ns'], 'ns')} in {row['dtype']}" for _, row in floors.iterrows())
        notes.append(
            f"{ELSEWHERE_MARK} {_variants(rows)}: timed in another run than most (`{run}`) and held against the roof "
            f"of that run: floor {held}. {_SEARCHED if is_search(str(run)) else _ACROSS}"
        )
    return notes


_ACROSS = (
    "Ratios to rungs without the mark are across runs, and hypotheses on them are not judged within "
    f"{100 * ACROSS_RUNS:g} % of their bounds."
)
_SEARCHED = "Ratios of our rungs to them are of that run, which timed both."


def _variants(rows: pd.DataFrame) -> str:
    return ", ".join(f"`{name}`" for name in dict.fromkeys(rows["variant"]))


def _folded_counters(rungs: pd.DataFrame, tables: Tables) -> list[str]:
    """Return the counters of each dtype, folded, because the tables are wide and only some readers need them."""
    parts = []
    for dtype, rows in rungs[rungs["launches"].notna()].groupby("dtype", sort=False):
        title = f"Counters, {dtype}: each rung once, alone, from cold caches"
        parts += [f"<details>\n<summary>{title}</summary>", *_counter_tables(rows, tables), "</details>"]
    return parts


def _counter_tables(rows: pd.DataFrame, tables: Tables) -> list[str]:
    """Return the two counter tables of one dtype: of each rung's launch configuration, and of its execution."""
    stalls = tables["ladder_stalls"]
    launch, run = [], []
    for _, row in rows.iterrows():
        of_row = _rows_like(row, ["op", "variant", "dtype", "shape_name"], stalls).head(STALLS)
        waits = ", ".join(
            _stall(reason, share) for reason, share in zip(of_row["reason"], of_row["share_frac"], strict=True)
        )
        launch.append(
            {
                "rung": name_of(row),
                "launches": number(row["launches"]),
                "grid × block": f"{row['grid']} × {row['block']}",
                "waves": number(row["waves"]),
                "registers": number(row["registers"]),
                "shared a block": number(row["shared_bytes_per_block"], "byte"),
                "occupancy theoretical / achieved": _two(
                    row["occupancy_theoretical_frac"], row["occupancy_achieved_frac"]
                )
                + ("" if is_missing(row["occupancy_limiter"]) else f" ({row['occupancy_limiter']})"),
                "local memory": number(row["local_bytes"], "byte"),
            }
        )
        run.append(
            {
                "rung": name_of(row),
                "compute / memory of peak": _two(row["compute_throughput_frac"], row["memory_throughput_frac"]),
                "L1 / L2 hit": _two(row["l1_hit_frac"], row["l2_hit_frac"]),
                "warp instructions": number(row["inst_executed"]),
                "sectors per request, load / store": f"{number(row['sectors_per_request_load'])} / "
                f"{number(row['sectors_per_request_store'])}",
                "uncoalesced": _share_somewhere(row, "uncoalesced_frac", tables["ladder"]),
                "branch efficiency": _share_somewhere(row, "branch_efficiency_frac", tables["ladder"]),
                "warp cycles per issue": number(row["warp_cycles_per_issue"]),
                "largest stalls": waits or MISSING,
            }
        )
    return [_markdown([list(row.values()) for row in part], list(part[0])) for part in (launch, run)]


def _share_somewhere(row: pd.Series, column: str, ladder: pd.DataFrame) -> str:
    """Return a share that instrumented code counts.

    If the kernel is too slow for that here, its share at another shape.
    """
    if is_missing(row[column]):
        others = _rows_like(row, ["op", "variant", "dtype"], ladder)
        older = others["stale"].map(lambda stale: "counters" in str(stale).split())
        known = others[others[column].notna() & ~older]
        if len(known):
            return f"{_share(known[column].iloc[0])} at {known['shape_name'].iloc[0]}"
    return _share(row[column])


def _rows_like(row: pd.Series, names: list[str], table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a table with the values of `row` in the columns `names`."""
    return table[np.logical_and.reduce([(table[name] == row[name]).to_numpy(bool) for name in names])]


def _hypothesis_table(rungs: pd.DataFrame) -> str:
    """Return the table of hypotheses: the hypothesis of each rung once, and the measurements by dtype."""
    table = []
    order = rungs.sort_values(["rung", "dtype"], ascending=[True, False], kind="stable")
    order = order.assign(
        found=[_words(why) for why in order["verdict_why"]],
        judged=[VERDICTS.get(verdict, "not measured") for verdict in order["verdict"]],
    )
    for variant, rows in order.groupby("variant", sort=False):
        older = "" if rows["stale"].map(is_missing).all() else f" {STALE_MARK}"
        says = [f"`{variant}`{older}", escape(rows["hypothesis"].iloc[0])]
        for (found, judged), same in rows.groupby(["found", "judged"], sort=False):
            table.append([*says, ", ".join(same["dtype"]), found, judged])
            says = ["", ""]
    return _markdown(table, ["rung", "says", "dtype", "found", "verdict"])


def _dates(op: str, bounds: Sequence[Dated]) -> list[str]:
    """Return a folded table of when each bound of an op was written, first measured and changed."""
    rows: dict[tuple[str, ...], list[str]] = {}
    own = [one for one in bounds if one.key[0] == op]
    for one in own:
        _, variant, dtype, shape, metric, than = one.key
        low, high, equals, _ = one.values
        ends = " and ".join(f"{sign} {float(end):.4g}" for sign, end in (("≥", low), ("≤", high)) if end)
        words = WORDS.get(metric.removesuffix(REFUTED), metric)
        what = f"{words}{f' over `{than}`' if than else ''} {equals or ends}"
        what += ", beyond which it is refuted" if metric.endswith(REFUTED) else ""
        measured = f"{_day(one.measured)}{', **before it was written**' if one.afterwards else ''}"
        changed = ", ".join(map(_day, one.changed))
        rows.setdefault((f"`{variant}`", what, _day(one.written), measured, changed), []).append(f"{dtype} {shape}")
    if not own:
        return []
    table = [[name, what, ", ".join(places), *dates] for (name, what, *dates), places in rows.items()]
    headers = ["rung", "bound", "at", "written", "first measured", "changed"]
    after = sum(one.afterwards for one in own)
    title = f"When each bound was written and first measured: {after} of {len(own)} after the measurement"
    return [f"<details>\n<summary>{title}</summary>", _markdown(table, headers), "</details>"]


def _day(date: str) -> str:
    return date[:16].replace("T", " ") or MISSING


IN_MODEL = (
    "“In GPT-2” is the time of its kernel in the nsys timeline of a committed run: no events around the launch, and "
    "caches as the operation before leaves them"
)


def _other_shapes(op: str, rungs: pd.DataFrame, bench: Bench) -> list[str]:
    """Return the table of our fastest rung at every timed shape."""
    with_library = timed(op, rungs, bench)
    rows = fastest_rungs(with_library).sort_values("dtype", ascending=False, kind="stable")
    if rows.empty:
        return []
    compute = bool(rungs["compute_bound"].iloc[0])
    baselines = [name for name in BASELINES if rows[f"versus_{name}_p50"].notna().any()]
    in_model = rows["in_model_time_p50_ns"].notna().any()
    table = []
    for index, row in rows.iterrows():
        same = with_library[(with_library["dtype"] == row["dtype"]) & (with_library["shape_name"] == row["shape_name"])]
        library, faster, _ = best_library(same, same.loc[index])
        table.append(
            [
                row["dtype"],
                row["shape_name"],
                row["shape"],
                f"`{row['variant']}`",
                f"{row['floor_time_ns'] / 1e3:.1f}",
                _span(row, "isolated"),
                _span(row, "chained"),
                *([_span(row, "in_model")] if in_model else []),
                *([_scaled(row["achieved_flop_per_s"], 1e12, 1)] if compute else []),
                _share(row["floor_frac"]),
                *(_paired(row, name) for name in baselines),
                MISSING if not library else f"{_times(faster.p50)} `{library}`",
            ]
        )
    headers = ["dtype", "shape", "sizes", "rung", "floor µs", "isolated µs, p50 (p5 – p95)", "chained µs"]
    headers += [
        *(["in GPT-2 µs"] if in_model else []),
        *(["TFLOP/s"] if compute else []),
        "of the roof",
        *(f"vs `{name}` (p5 – p95)" for name in baselines),
        "vs best library",
    ]
    said = ["The fastest rung at every shape", *([IN_MODEL] if in_model else [])]
    if older := older_times(rungs):
        names = ", ".join(f"`{variant}`" for _, variant in older)
        said.append(f"Left out, as their times are of {OLDER}: {names}")
    return [". ".join(said), _markdown(table, headers)]


def _beside_searches(tables: Tables, names: Callable[[pd.DataFrame], pd.Series]) -> pd.DataFrame:
    """Return the rows of searched.csv that `names` takes, of our fastest rung beside each baseline, dtype and shape."""
    found = tables.get("searched", pd.DataFrame())
    if found.empty:
        return found
    found = found[names(found)]
    place = ["op", "search", "dtype", "shape_name"]
    return found.loc[found.groupby(place, sort=False)["isolated_time_p50_ns"].idxmin().sort_values()]


def _searches(op: str, tables: Tables) -> list[str]:
    """Return the table of the baselines that search at every shape, beside our fastest rung of their run."""
    rows = _beside_searches(tables, lambda found: found["op"] == op)
    if rows.empty:
        return []
    table = [
        [
            f"`{row['search']}`",
            row["dtype"],
            row["shape_name"],
            f"{row['search_time_p50_ns'] / 1e3:.1f}",
            f"`{row['variant']}`",
            f"{row['isolated_time_p50_ns'] / 1e3:.1f}",
            _paired(row, "search"),
        ]
        for _, row in rows.sort_values(["search", "dtype"], ascending=[True, False], kind="stable").iterrows()
    ]
    runs = ", ".join(f"`reports/{run}/bench.csv`" for run in dict.fromkeys(rows["bench_run"]))
    headers = ["baseline", "dtype", "shape", "isolated µs", "our fastest rung", "isolated µs", "rung vs baseline"]
    told = f"Baselines that search at every shape, beside our fastest rung in the same run. From {runs}"
    return [told, _markdown(table, headers)]


def render_searches(tables: Tables) -> str:
    """Return a line for each baseline that searches: how many times as fast our fastest rung of its run is."""
    rows = _beside_searches(tables, lambda found: found["search"].str.endswith("_tuned"))
    if rows.empty:
        return ""
    table = []
    for (op, search, dtype), same in rows.groupby(["op", "search", "dtype"]):
        ends = (same.loc[end] for end in (same["versus_search_p50"].idxmin(), same["versus_search_p50"].idxmax()))
        least, most = (f"{_paired(row, 'search')} {row['shape_name']}" for row in ends)
        table.append([op, f"`{search}`", dtype, str(len(same)), least, most])
    headers = ["op", "baseline", "dtype", "shapes", "rung vs baseline, least (p5 – p95)", "most"]
    return _markdown(table, headers)


def _not_timed(op: str, tables: Tables) -> list[str]:
    """Return a sentence with the registered shapes that have no time."""
    rows = tables["not_timed"]
    rows = rows[rows["op"] == op]
    dtypes = rows.groupby("shape_name", sort=False)["dtype"].agg(", ".join)
    places = [
        f"{', '.join(f'`{name}`' for name in same.index)} in {dtype}"
        for dtype, same in dtypes.groupby(dtypes, sort=False)
    ]
    return [f"Registered, and not timed yet: {'; '.join(places)}."] if places else []


def timed(op: str, rungs: pd.DataFrame, bench: Bench) -> pd.DataFrame:
    """Return the rows of an op's benchmark with kind and precision of their variants."""
    known = rungs.drop_duplicates("variant").set_index("variant")
    kinds, precisions = known["kind"], precision_of(known)
    rows = bench.rows
    return rows.assign(kind=rows["variant"].map(kinds), precision=rows["variant"].map(precisions).fillna(""))


def has_curves(rungs: pd.DataFrame, bench: Bench | None) -> bool:
    """Return whether there is a figure over the shapes: the op is compute-bound and timed at three or more shapes."""
    return bench is not None and bool(rungs["compute_bound"].iloc[0]) and bench.rows["shape_name"].nunique() >= 3


def _refusals(rungs: pd.DataFrame) -> list[str]:
    rows = rungs[~rungs["refuses"].map(is_missing)].drop_duplicates(["variant", "refuses"])
    if rows.empty:
        return []
    table = [[f"`{row['variant']}`", _words(row["refuses"])] for _, row in rows.iterrows()]
    return ["What a rung does not take", _markdown(table, ["rung", "shapes, and why"])]


def _times_said(bench: Bench, compute_bound: bool) -> str:
    """Return a sentence with the conditions of an op's times."""
    seen = bench.conditions
    copy = max(seen["copy_byte_per_s"].values())
    copies = f"Copy in the same run: {copy / 1e12:.3f} TB/s"
    if bench.copy and not compute_bound:
        copies += f", floors use {bench.copy / 1e12:.3f}: the median over the benchmarks on this model of GPU"
    roofs = ", ".join(
        f"{name} {value / 1e12:.4g} {'TB/s' if name == 'dram_read' else 'TFLOP/s'}"
        for name, value in (seen.get("roofs") or {}).items()
    )
    clock = clock_of(seen)
    empty = (seen.get("empty_kernel_ns") or {}).get("p50")
    of_empty = (
        f" An empty kernel takes {empty / 1e3:.1f} µs alone, so that short launches look more alike." if empty else ""
    )
    return (
        f"Times: {seen['gpu']['name']}, driver {seen['driver']}, torch {seen['torch']}, triton {seen['triton']}. "
        f"{copies}.{f' Roofs: {roofs}.' if roofs else ''}{of_empty} All rungs "
        f"ran in turn, with cold caches. {f'{clock}. ' if clock else ''}From `reports/{bench.run}/bench.csv`."
    )


def _conditions(tables: Tables, rungs: pd.DataFrame, bench: Bench | None, where: str) -> str:
    """Return a paragraph with the sources of times and counters and their conditions."""
    parts = [KINDS_OF_TIME]
    kinds = set(rungs["time_kind"].dropna())
    if kinds == {"chained"}:
        parts.append(CHAINED_ALONE)
    elif "chained" in kinds:
        parts.append("A dtype and shape at which a rung has no isolated time is judged by chained times.")
    if bench is not None:
        parts.append(_times_said(bench, bool(rungs["compute_bound"].any())))
    runs = tables["ladder_runs"]
    of_rungs = runs[runs["run"].isin(rungs["run"].dropna())]
    for (gpu, driver, ncu), same in of_rungs.groupby(["gpu", "driver", "ncu"], sort=False):
        names = " and ".join(f"`{where}/{name}`" for name in same["run"])
        parts.append(f"Counters: {gpu}, driver {driver}, ncu {ncu}; from {names}.")
    if rungs["launches"].isna().all():
        parts.append("Counters: not captured yet.")
    return " ".join(parts)


OVERVIEW = ("op", "at", "dtype", "fastest rung", "time", "of the measured roof", "vs best library (p5 – p95)")


def render_overview(tables: Tables, benches: Mapping[str, Bench]) -> str:
    """Return the overview in kernels/README.md: a line for each op, the references of the columns, and the claims."""
    ladder, said = tables["ladder"], tables["hypotheses"]
    table = []
    for op in dict.fromkeys(ladder["op"]):
        rungs = rungs_of(op, tables)
        fast = rungs[rungs["fastest"]]
        if fast.empty:
            continue
        cells: dict[str, list[str]] = {name: [] for name in ("rung", "time", "roof", "library")}
        for _, row in fast.iterrows():
            fastest, faster, apart = best_library(rungs[rungs["dtype"] == row["dtype"]], row)
            older = "times" in str(row["stale"]).split()
            cells["rung"].append(f"`{row['variant']}` {STALE_MARK}" if older else f"`{row['variant']}`")
            cells["time"].append(number(row["bench_time_p50_ns"], "ns"))
            against = f" of {_roof(row)}" if row["compute_bound"] and not is_missing(row["floor_frac"]) else ""
            cells["roof"].append(_share(row["floor_frac"]) + against)
            spread = f"{_times(faster.p50)} ({faster.p5:.2f} – {faster.p95:.2f})"
            mark = f" {ELSEWHERE_MARK}" if apart else ""
            cells["library"].append(f"{spread} `{fastest}`{mark}" if fastest else MISSING)
        of_op = said[said["op"] == op]
        counts = of_op.loc[of_op["stated"], "verdict"].value_counts()
        moved = rungs["measured_over_predicted"].dropna()
        table.append(
            [
                f"[{op}]({rungs['folder'].iloc[0]}/README.md)",
                f"{sizes_of(fast.iloc[0])}",
                ", ".join(fast["dtype"]),
                *(", ".join(dict.fromkeys(values) if name == "rung" else values) for name, values in cells.items()),
                " / ".join(str(int(counts.get(name, 0))) for name in OUTCOMES),
                f"{int((moved <= MOST_BYTES).sum())} of {len(moved)}" if len(moved) else MISSING,
            ]
        )
    headers = list(OVERVIEW)
    headers += [f"hypotheses {' / '.join(OUTCOMES)}"]
    headers += [f"rungs that move ≤ {MOST_BYTES} × the predicted bytes"]
    counted = ladder["launches"].notna().any()
    if not counted:  # only timed on this GPU
        table, headers = [row[: len(OVERVIEW)] for row in table], headers[: len(OVERVIEW)]
    rendered = _markdown(table, headers)
    notes = [f"{STALE_MARK} times are of {OLDER}."] if STALE_MARK in rendered else []
    notes += [f"{ELSEWHERE_MARK} the two times are of different runs."] if ELSEWHERE_MARK in rendered else []
    parts = [rendered, *notes, _held_against(tables, benches)]
    if len(tables["claims"]) and counted:
        counts = tables["claims"]["verdict"].value_counts()
        named = ", ".join(f"{counts[name]} {name}" for name in CLAIMED if name in counts)
        parts.append(
            f"**Claims of others**, tested on this GPU: {tables['claims']['claim'].nunique()} claims with "
            f"{len(tables['claims'])} numbers, {named} ([claimed → found, and why](CLAIMS.md))."
        )
    return "\n\n".join(parts)


def _held_against(tables: Tables, benches: Mapping[str, Bench]) -> str:
    """Return a text with the references of the overview's columns, and the clocks."""
    told = [
        "The measured roof is what a copy reached in the median of the GPU's benchmarks. Of some ops it is what a "
        "read, FFMAs or cuBLAS reached in the same run. A kernel can exceed it: its data may stay in L2, or its clock "
        "may be higher than during the roof measurement.",
        "“vs best library” is the speed-up over the fastest library. If both ran in one process, we pair them round by "
        "round; otherwise we divide medians and show the widest interval.",
    ]
    chained = [op for op, bench in benches.items() if "chained" in set(bench.rows["time_kind"])]
    if chained:
        which = "All ops have" if len(chained) == len(benches) else "These ops have"
        listed = "" if len(chained) == len(benches) else f": {', '.join(chained)}"
        told.append(f"{KINDS_OF_TIME} {which} chained times only{listed}.")
    held = {op: bench.conditions["clocks"] for op, bench in benches.items() if is_held_back(bench.conditions)}
    if held:
        reasons = ", ".join(sorted({reason for clocks in held.values() for reason in clocks["throttle_reasons"]}))
        seen = "; ".join(f"{op} {_mhz(clocks, 'min')}, {_mhz(clocks, 'median')}" for op, clocks in held.items())
        told.append(f"The GPU held clocks back at times ({reasons}). Least and median SM clock in MHz: {seen}.")
    if lost := [op for op, bench in benches.items() if bench.conditions.get("clocks_reason")]:
        told.append(f"Not recorded: the clocks of {', '.join(lost)}.")
    benchmarks = [(bench.conditions.get("roofs") or {}).get("bf16") for bench in benches.values()]
    roofs = [roof for roof in (*benchmarks, *tables["ladder_runs"]["bf16_roof_flop_per_s"]) if not is_missing(roof)]
    if len(set(roofs)) > 1:
        low, high = (number(end(roofs), "flop/s") for end in (min, max))
        told.append(f"The bf16 roof is cuBLAS at 8192³: between {low} and {high} over all committed runs.")
    return " ".join(told)


def _span(row: pd.Series, kind: str) -> str:
    """Return a kind of time in µs; with too few samples the median alone."""
    p5, p50, p95 = (row[f"{kind}_time_{name}_ns"] for name in ("p5", "p50", "p95"))
    if is_missing(p50):
        return MISSING
    middle = f"{float(p50) / 1e3:.2f}"
    return middle if is_missing(p5) else f"{middle} ({float(p5) / 1e3:.2f} – {float(p95) / 1e3:.2f})"


def _paired(row: pd.Series, baseline: str) -> str:
    if is_missing(row[f"versus_{baseline}_p50"]):
        return MISSING
    p5, p50, p95 = (float(row[f"versus_{baseline}_{name}"]) for name in ("p5", "p50", "p95"))
    return f"{p50:.3f} ({p5:.3f} – {p95:.3f})"


def _scaled(value: Any, unit: float, digits: int) -> str:
    return MISSING if is_missing(value) else f"{float(value) / unit:.{digits}f}"


def _share(value: Any) -> str:
    return MISSING if is_missing(value) else percent(float(value))


def _two(first: Any, second: Any) -> str:
    """Return two shares, such as `75 / 71 %`. ncu may count a hit rate some thousandths above 1."""
    shown = [MISSING if is_missing(value) else f"{min(100 * float(value), 100):.3g}" for value in (first, second)]
    return f"{shown[0]} / {shown[1]} %"


def _times(value: Any) -> str:
    return MISSING if is_missing(value) else f"{float(value):.2f}×"


def _moved(row: pd.Series) -> str:
    predicted = number(row["predicted_bytes"], "byte")
    if is_missing(row["measured_bytes"]):
        return predicted
    ratio = _times(row["measured_over_predicted"])
    over = float(row["measured_over_predicted"]) > MOST_BYTES
    return f"{predicted} → {number(row['measured_bytes'], 'byte')} ({f'**{ratio}**' if over else ratio})"


def _stall(reason: Any, share: Any) -> str:
    return MISSING if is_missing(reason) else f"{reason} {100 * float(share):.0f} %"


def _words(value: Any) -> str:
    """Return a text of ours, which may hold code spans, as a table cell."""
    return MISSING if is_missing(value) else str(value).replace("|", "\\|")


def _verdict(row: pd.Series) -> str:
    """Return the verdict with its metrics, such as `**refuted**: DRAM bytes over predicted`."""
    if row["state"] == "failed":
        return "failed its check"
    if row["verdict"] not in VERDICTS:
        return "not measured" if is_missing(row["verdict_by"]) else f"not measured: {_words(row['verdict_by'])}"
    return f"{VERDICTS[row['verdict']]}: {_words(row['verdict_by']).replace(', ', '; ')}"


def _line(row: pd.Series) -> str:
    return MISSING if is_missing(row["hot_line"]) else f"`{row['hot_line']}` {100 * float(row['hot_line_frac']):.0f} %"


def _markdown(table: Iterable[Iterable[Any]], headers: list[str]) -> str:
    return tabulate([list(row) for row in table], headers, tablefmt="github", disable_numparse=True)
