"""List the hottest source lines of each kernel, by samples of the program counter."""

import pandas as pd

from analysis.capture.ncu_source import preferred
from analysis.formats.place import profile
from analysis.formats.report import Missing, Reason
from analysis.tables.declare import Column, Facts, table
from analysis.tables.rules import with_launch

MOST = 10  # lines of a kernel


@table(
    "source",
    always=True,
    question="Which source lines are the hottest?",
    title="Hottest source lines",
    columns=(
        Column("kernel", "kernel name", "key"),
        Column("range", "folded range; blank if the capture does not tell the launch of a line", "key", shown=False),
        Column("place", "file:line, or the address of an instruction if no line is known", "row"),
        Column("text", "text of the line, or its hottest instruction if the source was not imported", "row"),
        Column("samples", "samples of the program counter, all launches", "counters", "1", shown=False),
        Column("share_frac", "samples over all samples of the kernel", "counters", style="bar"),
        Column("stall", "stall reason (sampled family) with most samples among its instructions", "row"),
        Column("stall_frac", "samples with that stall reason, over samples", "counters"),
        Column("inst_executed", "warp instructions executed", "counters", "1", shown=False),
        Column(
            "sectors_over_ideal",
            "theoretical L2 sectors of its global accesses over those of coalesced accesses; 1 is best",
            "counters",
            "1",
            shown=False,
        ),
    ),
    missing=Missing(
        Reason.NO_SOURCE,
        "the hottest source lines",
        "the files include no source page of ncu with samples",
        f"compile CUDA with -lineinfo and run `{profile('--source')}`; or capture with `ncu --section SourceCounters "
        "--import-source yes`, export with `ncu --import X.ncu-rep --csv --page source --print-source cuda,sass` and "
        "add the file",
    ),
)
def build_source(facts: Facts) -> pd.DataFrame | None:
    """Return source.csv: the lines of each kernel with most samples, kernels with most samples first.

    Numbers are sums over instructions and launches. Without line numbers in a capture (no -lineinfo, or only the SASS
    view), a row is an instruction.
    """
    sass = instructions(facts)
    if sass is None:
        return None
    sass = sass[sass["samples"].notna()].reset_index(drop=True)
    has_line = sass["line"].notna() & (sass["source_file"] != "")
    sass["place"] = ("SASS " + sass["instruction"].astype(str)).mask(
        has_line, sass["source_file"] + ":" + sass["line"].astype(str)
    )
    key = ["kernel", "range", "place"]
    sums = sass.groupby(key, sort=False)[
        ["samples", "samples_not_issued", "inst_executed", "sectors_global", "sectors_global_ideal"]
    ].sum(min_count=1)
    stalls = sass[sass["stall"] != ""].groupby([*key, "stall"], sort=True)["stall_samples"].sum().reset_index()
    stalls = stalls.sort_values("stall_samples", ascending=False, kind="stable").drop_duplicates(key)
    table = sums.reset_index().merge(stalls, on=key, how="left")
    table["stall"] = table["stall"].fillna("")
    hottest = sass.sort_values("samples", ascending=False, kind="stable").drop_duplicates(key)[[*key, "text"]]
    table = table.merge(hottest, on=key).merge(
        text_of_lines(facts.capture.source_lines), on="place", how="left", suffixes=("", "_of_line")
    )
    table["text"] = table["text_of_line"].fillna(table["text"])
    whole = table.groupby(["kernel", "range"])["samples"].transform("sum")
    ideal = table["sectors_global_ideal"].where(table["sectors_global_ideal"] > 0)
    table = table.assign(
        share_frac=table["samples"] / whole.where(whole > 0),
        stall_frac=table["stall_samples"] / table["samples"].where(table["samples"] > 0),
        sectors_over_ideal=table["sectors_global"] / ideal,
        whole=whole,
        tier="counters",
    )  # fmt: skip
    table = table[table["samples"] > 0].sort_values(
        ["whole", "kernel", "range", "samples", "place"], ascending=[False, True, True, False, True]
    )
    table = table.groupby(["kernel", "range"], sort=False).head(MOST)
    whole_numbers = dict.fromkeys(["samples", "inst_executed"], "Int64")
    return table[build_source.column_names].astype(whole_numbers)


def instructions(facts: Facts) -> pd.DataFrame | None:
    """Return each instruction of each launch once, with the kernel's name and its range; None without samples."""
    lines = facts.capture.source_lines
    sass = lines[lines["instruction"].notna() & lines["samples"].notna()]
    if sass.empty or not (sass["samples"] > 0).any():
        return None
    sass = preferred(lines[lines["instruction"].notna()])
    found = with_launch(sass, facts.capture.counters)
    kernels = facts.kernels[["kernel", "range"]].drop_duplicates().drop_duplicates("kernel", keep=False)
    only = dict(zip(kernels["kernel"], kernels["range"], strict=True))
    # a page names kernels, not launches
    ranges = [
        only.get(name, "") if pd.isna(ncu_id) else one
        for name, ncu_id, one in zip(found["kernel"], found["ncu_id"], found["range"], strict=True)
    ]
    return _one_file(found.assign(range=pd.Series(ranges, found.index, dtype=str)).reset_index(drop=True))


def _one_file(sass: pd.DataFrame) -> pd.DataFrame:
    """Return each kernel's instructions from the file with most lines: a folder may hold a report and its pages."""
    lines = sass.groupby(["kernel", "file"])["line"].count().reset_index()
    best = lines.sort_values(["line", "file"], ascending=[False, True]).drop_duplicates("kernel")
    return sass.merge(best[["kernel", "file"]], on=["kernel", "file"])


def text_of_lines(lines: pd.DataFrame) -> pd.DataFrame:
    """Return (place, text) of the source lines with a known text."""
    known = lines[lines["instruction"].isna() & lines["line"].notna() & (lines["text"] != "")]
    place = known["source_file"] + ":" + known["line"].astype(str)
    return pd.DataFrame({"place": place, "text": known["text"]}).drop_duplicates("place")
