"""List the messages of ncu's own rules about each kernel. They are evidence, apart from this report's findings."""

import pandas as pd

from analysis.formats import symbols
from analysis.formats.report import Missing, Reason
from analysis.tables.attribution import fold_paths, or_outside
from analysis.tables.declare import Column, Facts, table

KEY = ["kernel", "range", "section", "rule", "type", "speedup_type", "shape"]
_TYPES = ["OPT", "WRN", "INF", "ERR"]


def with_launch(evidence: pd.DataFrame, counters: pd.DataFrame) -> pd.DataFrame:
    """Add `kernel`, as in the other tables, and `range`, the folded NVTX path, to `evidence` (rules or source lines).

    Old details pages and source pages have no path. They get the path of the launch with this ID and name among the
    counters, if all launches with that ID agree.
    """
    paths = counters[counters["path"] != ""][["ncu_id", "name", "path"]].drop_duplicates()
    paths = paths.drop_duplicates(["ncu_id", "name"], keep=False).astype({"ncu_id": "Int64"})
    known = evidence[["ncu_id", "kernel"]].merge(
        paths, left_on=["ncu_id", "kernel"], right_on=["ncu_id", "name"], how="left"
    )["path"]
    path = known.fillna("").set_axis(evidence.index)
    if "path" in evidence:
        path = evidence["path"].where(evidence["path"] != "", path)
    names = {name: symbols.key(name) for name in evidence["kernel"].unique()}
    return evidence.assign(kernel=evidence["kernel"].map(names), range=or_outside(fold_paths(path)))


@table(
    "rules",
    always=True,
    question="What do ncu's own rules say about each kernel?",
    title="What ncu says (its own rules)",
    columns=(
        Column("kernel", "kernel name", "key"),
        Column("range", "folded range", "key"),
        Column("section", "section of ncu that the rule belongs to", "key", shown=False),
        Column("rule", "name of the rule", "key"),
        Column("type", "OPT: to improve, WRN: warning, INF: information, ERR: the rule failed", "key", shown=False),
        Column("speedup_frac", "speed-up that ncu estimates, largest of all launches", "counters"),
        Column("speedup_type", "global: of the whole kernel; local: of the part that the rule examines", "key"),
        Column("launches", "launches with a result of this rule", "counters", "1"),
        Column("text", "ncu's text, with the numbers of the launch with the largest estimate", "row"),
    ),
    missing=Missing(
        Reason.NO_RULES,
        "what ncu's own rules say",
        "the files include no details page of ncu with rules",
        "export it with `ncu --import X.ncu-rep --csv --page details` and add the file",
    ),
)
def build_rules(facts: Facts) -> pd.DataFrame | None:
    """Return rules.csv: one row per message of a kernel, most promising first.

    Launches of one kernel in one folded range share a row if only the numbers of the text differ. The text is that of
    the launch with the largest estimate.
    """
    capture = facts.capture
    if capture.rules.empty:
        return None
    rows = with_launch(capture.rules, capture.counters)
    # A report and its details page hold the same messages; the page has four digits of the estimate.
    same = ["ncu_id", "kernel", "range", "section", "rule", "type", "speedup_type", "text"]
    rows = rows.sort_values("file", kind="stable").drop_duplicates(same)
    rows = rows.assign(
        shape=rows["text"].str.replace(r"[0-9][0-9.,]*", "#", regex=True), speedup_frac=rows["speedup_pct"] / 100
    ).sort_values("speedup_frac", ascending=False, kind="stable", na_position="last")
    groups = rows.groupby(KEY, sort=False)
    table = groups.agg(launches=("text", "size"), speedup_frac=("speedup_frac", "max"), text=("text", "first"))
    table = table.reset_index().drop(columns="shape").assign(tier="counters")
    order = table.assign(
        place=table["type"].map({name: at for at, name in enumerate(_TYPES)}).fillna(len(_TYPES)),
        part=table["speedup_type"] != "global",
        less=-table["speedup_frac"].astype("Float64").fillna(-1),
    )
    order = order.sort_values(["place", "part", "less", "kernel", "range", "rule"], kind="stable")
    return table.loc[order.index]
