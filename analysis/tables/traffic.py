"""Build the byte ledger: the minimum, predicted and measured bytes of each innermost range."""

import pandas as pd

from analysis.tables.attribution import fold_paths
from analysis.tables.copies import WITHIN, direction_of
from analysis.tables.declare import Column, Facts, table

PREDICTED = ["minimum_bytes", "predicted_unfused_bytes", "predicted_fused_bytes"]
VISIBLE_FRAC = 0.01
MEASURED = ["dram_read_bytes", "dram_write_bytes", "l2_bytes"]


def copied_bytes(gpu_ops: pd.DataFrame) -> pd.DataFrame:
    """Return dram_read_bytes and dram_write_bytes of the copies and sets of each path (the index).

    Shape: `gpu_ops` as in `Capture`, with `path`.

    ncu counts only kernels, but `masked_fill` clones its input with a device-to-device copy. nsys has the bytes of
    copies.
    """
    copies = gpu_ops[gpu_ops["kind"].isin(["memcpy", "memset"])]
    if copies.empty:
        none = pd.Index([], name="path")
        return pd.DataFrame(index=none, columns=["dram_read_bytes", "dram_write_bytes"], dtype="Float64")
    names = copies["name"].astype("str")
    direction = names.map({name: direction_of(name) for name in names.unique()})
    within = (copies["kind"] == "memcpy") & (direction == WITHIN)
    written = within | (copies["kind"] == "memset") | direction.isin(("Host-to-Device", "Host-to-Array"))
    moved = pd.DataFrame(
        {
            "path": copies["path"].astype(object),  # pandas cannot look up many categories in an empty index of them
            "dram_read_bytes": copies["bytes"].where(within, 0),
            "dram_write_bytes": copies["bytes"],
        }
    )[written]
    return moved[moved["path"] != ""].groupby("path").sum(min_count=1).astype("Float64")


def one_per_op(traffic: pd.DataFrame) -> pd.DataFrame:
    """Return one row per (op, variant, size), so that twelve equal layers show once.

    Without declared ops, it returns all rows, most bytes read first.
    """
    declared = traffic[traffic["op"].notna() & (traffic["op"] != "")]
    if declared.empty:
        return traffic.sort_values("dram_read_bytes", ascending=False, kind="stable", na_position="last")
    return declared.drop_duplicates(["op", "variant", "minimum_bytes"])


@table(
    "traffic",
    always=True,
    question="How many bytes must each layer move, was it predicted to move, and did it move?",
    title="Byte ledger",
    columns=(
        Column("range", "innermost range, not folded", "key"),
        Column("op", "operation that the harness declares for this range", "key"),
        Column("variant", "implementation of the operation", "key"),
        Column("minimum_bytes", "bytes if each needed input is read once and each output written once", "static"),
        Column("predicted_unfused_bytes", "predicted bytes with one kernel for each elementary step", "static"),
        Column(
            "predicted_fused_bytes",
            "predicted bytes with one fused kernel; 0 if a neighbour absorbs this range",
            "static",
        ),
        Column(
            "dram_read_bytes",
            "bytes read from DRAM: kernels by ncu, copies by nsys. Blank unless ncu has every kernel of the range",
            "counters",
        ),
        Column(
            "dram_write_bytes",
            "bytes written to DRAM. Bytes that are still in L2 when a kernel ends do not count",
            "counters",
        ),
        Column("l2_bytes", "bytes between L2 and the SMs, kernels only", "counters", shown=False),
        Column(
            "measured_over_minimum",
            "(dram_read_bytes + dram_write_bytes) / minimum_bytes. Below 1, some results were still in L2 when the "
            "kernel ended, or some inputs came from there",
            "counters",
        ),
    ),
    glance=one_per_op,
)
def build_traffic(facts: Facts) -> pd.DataFrame | None:
    """Return traffic.csv: totals per innermost range, in the harness' order (else by bytes moved).

    Shape: `measured` from kernels.measured_launches; `ops` as ops.csv, None for a capture of another program;
    `seen_paths` the ranges of this capture, so that a declared operation that did not run has no row; `copied` from
    copied_bytes.
    """
    measured, ops, seen_paths, copied = facts.measured, facts.capture.ops, facts.seen_paths, facts.copied
    if ops is None and not measured[[name for name in MEASURED if name in measured]].notna().any(axis=None):
        return None
    moved = _measured_by_path(measured)
    for name in copied.columns if len(moved) else ():
        moved[name] += copied[name].reindex(moved.index).fillna(0)
    if ops is None:
        table = moved[moved[MEASURED].notna().any(axis=1)].reset_index()
        table[["op", "variant", *PREDICTED]] = pd.NA
        table = table.sort_values(["dram_read_bytes", "range"], ascending=[False, True])
    else:
        rows = ops[ops["range"].isin(seen_paths)] if seen_paths else ops
        grouped = rows.groupby(["range", "op", "variant"], sort=False, dropna=False)
        table = grouped[PREDICTED].sum(min_count=1).reset_index().merge(moved, on="range", how="left")
    if table.empty:
        return None
    total = table["dram_read_bytes"] + table["dram_write_bytes"]
    minimum = table["minimum_bytes"].astype("Float64")
    table["measured_over_minimum"] = (total / minimum).where(minimum > 0)
    table["tier"] = table["dram_read_bytes"].notna().map({True: "counters", False: "static"})
    for name in (*PREDICTED, *MEASURED):
        table[name] = table[name].astype("Float64").round().astype("Int64")
    return table


def _measured_by_path(measured: pd.DataFrame) -> pd.DataFrame:
    """Sum the measured bytes per full path; blank unless every launch of the path was measured."""
    columns = [name for name in MEASURED if name in measured]
    if measured.empty or not columns:
        return pd.DataFrame(columns=["range", *MEASURED]).set_index("range").astype("Float64")
    with_path = measured[measured["path"] != ""]
    groups = with_path[columns].groupby(with_path["path"])
    sums = groups.sum().where(groups.count().eq(groups.size(), axis=0))
    return sums.reindex(columns=MEASURED).astype("Float64").rename_axis("range")


def of_one_op(traffic: pd.DataFrame) -> tuple[str, pd.DataFrame]:
    """Return (op, its rows) of the op with most variants measured at one size, ("", no rows) if none has three."""
    measured = traffic[traffic["dram_read_bytes"].notna() & traffic["op"].notna()]
    groups = measured.groupby(["op", "minimum_bytes"], sort=False)["variant"].nunique()
    if groups.empty or groups.max() < 3:
        return "", traffic.head(0)
    op, size = groups.idxmax()
    rows = measured[(measured["op"] == op) & (measured["minimum_bytes"] == size)]
    return str(op), rows.drop_duplicates("variant").reset_index(drop=True)


def for_figure(traffic: pd.DataFrame) -> pd.DataFrame:
    """Return the rows for the figure: ops that fusion changes (else all), with the mean of repeated layers.

    If any of the repeated layers is measured, only measured ones count. The mean keeps one layer comparable with
    twelve. Rows too small to see beside the largest appear only in the table.
    """
    table = traffic.assign(range=fold_paths(traffic["range"]))
    changed = table["predicted_fused_bytes"].notna()
    table = table[changed] if changed.any() else table
    key = ["range", "op", "variant"]
    groups = table.groupby(key, sort=False, dropna=False)
    measured = table["dram_read_bytes"].notna()
    layers = groups["op"].transform("size")
    table = table.assign(layers=layers)[measured | ~groups["dram_read_bytes"].transform("count").gt(0)]
    numbers = [name for name in table if name.endswith("_bytes")]
    groups = table.groupby([*key, "layers", "tier"], sort=False, dropna=False)
    mean = groups[numbers].mean().round().reset_index()
    taken = groups.size().to_numpy()
    layers = [
        "" if all_ == 1 else f", mean of {all_} layers" if n == all_ else f", {n} of {all_} layers"
        for n, all_ in zip(taken, mean["layers"], strict=True)
    ]
    mean["variant"] = mean["variant"].astype("str").where(mean["variant"].notna(), "") + pd.Series(
        layers, index=mean.index, dtype="str"
    )
    total = mean["dram_read_bytes"] + mean["dram_write_bytes"]
    mean["measured_over_minimum"] = total / mean["minimum_bytes"].astype("Float64")
    largest = mean[numbers].astype("Float64").max(axis=1)
    visible = (largest >= VISIBLE_FRAC * largest.max()).fillna(False)
    return mean[visible].drop(columns="layers").head(20).reset_index(drop=True)
