"""Tabulate the hottest source lines of each launch, from a source page of ncu.

The whole page is too large to keep, so `export_csv.sh` keeps only this part, as ncu_lines.csv.
"""

from __future__ import annotations

from typing import TextIO

import pandas as pd

from analysis.capture import ncu_csv, ncu_source
from analysis.formats import symbols
from analysis.formats.hot_lines import HOT_LINES

KEPT_LINES = 5  # of each launch
OURS = (".cu", ".cuh", ".py")  # suffixes of files with kernels; CUDA's headers have others


def hottest_lines(page: TextIO) -> str:
    """Return the text of ncu_lines.csv: the hottest lines of each launch in a source page (`--print-source cuda,sass`).

    `ordinal` counts the launches of one kernel in the order of the page. The page lists an instruction of an inlined
    function under several lines. Such an instruction counts for its line in the file in which the kernel begins, else
    for a line in another file of OURS. An instruction with lines in CUDA's headers only counts for the launch.
    """
    sections = [one for one in ncu_csv.sections(page.read(), "source page") if one.page == "source"]
    lines = lines_of_launches(ncu_source.read_source(sections[0])[0]).to_dict("records") if sections else []
    return HOT_LINES.text(lines)


def lines_of_launches(lines: pd.DataFrame) -> pd.DataFrame:
    """Return HOT_LINES from SOURCE_LINES rows: for each launch, the lines with most samples, sorted by samples.

    Kernels are compared by match_key, because two pages of one report can print template arguments differently
    (`<float, 4>`, `<float, (int)4>`).
    """
    lines = lines.assign(kernel=[symbols.match_key(name) for name in lines["kernel"]])
    sass = lines[lines["instruction"].notna() & lines["samples"].notna()]
    first = sass[sass["instruction"] == 0].drop_duplicates("block").set_index("block")["source_file"]
    begins = sass["source_file"] == sass["block"].map(first)
    ours = sass["source_file"].str.endswith(OURS)
    sass = pd.concat([sass[begins], sass[~begins & ours], sass[~begins & ~ours]])
    sass = sass.drop_duplicates(["block", "instruction"])
    blocks = lines[["block", "kernel"]].drop_duplicates("block")
    ordinal = blocks.groupby("kernel").cumcount().set_axis(blocks["block"])
    placed = sass[sass["line"].notna() & sass["source_file"].str.endswith(OURS)]
    key = ["block", "kernel", "source_file", "line"]
    table = placed.groupby(key, sort=False)["samples"].sum().reset_index()
    stalls = placed[placed["stall"] != ""].groupby([*key, "stall"], sort=True)["stall_samples"].sum().reset_index()
    stalls = stalls.sort_values("stall_samples", ascending=False, kind="stable").drop_duplicates(key)
    texts = lines[lines["instruction"].isna() & lines["line"].notna()].drop_duplicates(key)[[*key, "text"]]
    table = table.merge(stalls, on=key, how="left").merge(texts, on=key, how="left")
    table["launch_samples"] = table["block"].map(sass.groupby("block")["samples"].sum())
    table["ordinal"] = table["block"].map(ordinal)
    table = table[table["samples"] > 0].sort_values(["block", "samples"], ascending=[True, False], kind="stable")
    table = table.groupby("block", sort=False).head(KEPT_LINES)
    table = table.assign(**{name: table[name].fillna("") for name in ("stall", "text")})
    return table[list(HOT_LINES.names)].astype({"samples": int, "launch_samples": int})
