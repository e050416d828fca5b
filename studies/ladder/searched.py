"""Hold our rungs against the baselines that search at every shape, each in the run that timed both.

A search takes minutes, so it has a run of its own beside the op's benchmark: `<gpu>-<op>-tuned-bench`. That run times
our fastest rungs again. A ratio of a rung to a baseline of such a run comes from it, and from no other run.
"""

import pandas as pd

from analysis.formats.spans import QUANTILES
from analysis.tables.declare import Column, table
from studies.ladder.read import KEY, SEARCHES, Ladder

_PLACE = ["op", "dtype", "shape_name", "bench_run"]


def is_search(run: str) -> bool:
    """Return whether a folder of a benchmark, such as `x-attention-tuned-bench`, is a run of searches."""
    return run.endswith(SEARCHES)


def search_rows(ladder_read: Ladder) -> pd.DataFrame:
    """Return the rows of the runs of searches whose sources are today's."""
    rows = ladder_read.bench
    now = ladder_read.points.drop_duplicates(["op", "variant"])[["op", "variant", "kind", "fingerprint"]]
    found = rows[rows["bench_run"].map(is_search).astype(bool)].merge(now, on=["op", "variant"], suffixes=("", "_now"))
    return found[found["fingerprint"].fillna("").isin([""]) | (found["fingerprint"] == found["fingerprint_now"])]


@table(
    "searched",
    question="How fast are our rungs beside the baselines that search at every shape?",
    columns=(
        Column("op", "operation, as kernels.registry names it", "key"),
        Column("variant", "our rung", "key"),
        Column("dtype", "fp32 or bf16", "key"),
        Column("shape_name", "registered name of the shape", "key"),
        Column("search", "a baseline that the op's own benchmark has not timed there", "key"),
        Column("bench_run", "folder of the run that timed both", "key"),
        Column("isolated_time_p50_ns", "median time of the rung in that run, each launch alone", "timing"),
        Column("search_time_p50_ns", "median time of the baseline in that run, each launch alone", "timing"),
        Column("versus_search_p5", "times faster than the baseline: its p5 over the rung's p95", "timing", "1"),
        Column("versus_search_p50", "times faster than the baseline, of medians", "timing", "1"),
        Column("versus_search_p95", "times faster than the baseline: its p95 over the rung's p5", "timing", "1"),
    ),
)
def build_searched(search_rows: pd.DataFrame, every_time: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each of our rungs and each baseline of the same run of searches, dtype and shape.

    A baseline counts if its row in `every_time` comes from that run, too: the op's own benchmark lacks it.
    """
    taken = every_time[[*KEY, "bench_run"]].merge(search_rows, on=[*KEY, "bench_run"])
    rivals, own = taken[taken["kind"] != "cuda"], search_rows[search_rows["kind"] == "cuda"]
    names = {f"isolated_time_{at}_ns": f"search_time_{at}_ns" for at in QUANTILES}
    pairs = own.merge(
        rivals.rename(columns={"variant": "search"} | names)[["search", *_PLACE, *names.values()]], on=_PLACE
    )
    for at, other in zip(QUANTILES, reversed(QUANTILES), strict=True):
        times = pairs[f"search_time_{at}_ns"].astype(float), pairs[f"isolated_time_{other}_ns"].astype(float)
        pairs[f"versus_search_{at}"] = (times[0] / times[1]).round(4)
    whole = {name: pairs[name].astype("Int64") for name in ("isolated_time_p50_ns", "search_time_p50_ns")}
    return pairs.assign(tier="timing", **whole)[build_searched.column_names]


def paired(rows: pd.DataFrame, searched: pd.DataFrame | None) -> pd.DataFrame:
    """Return rows of times with `versus_<search>_…` where `searched` has it: studies.ladder.goals.versus prefers it."""
    if searched is None or searched.empty:
        return rows
    for search, found in searched.groupby("search"):
        names = {f"versus_search_{at}": f"versus_{search}_{at}" for at in QUANTILES}
        found = found.rename(columns=names)[[*KEY, *names.values()]]
        rows = rows.drop(columns=[name for name in names.values() if name in rows])
        rows = rows.merge(found, on=KEY, how="left").set_axis(rows.index)
    return rows
