"""Shorten a source page of ncu, which is too large to keep whole, to the two files that `export_csv.sh` keeps.

ncu_lines.csv     the hottest source lines of each launch
ncu_source.csv    the page of one launch of each kernel, which the report reads as it reads ncu's own page
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

import pandas as pd

from analysis.capture import ncu_csv, ncu_rep, ncu_source
from analysis.formats import symbols, writing
from analysis.formats.hot_lines import HOT_LINES

KEPT_LINES = 5  # of each launch
KEPT_KERNELS = 40  # those with most samples


def keep(page: Path, report: Path, folder: Path) -> None:
    """Write both files into a folder. The PTX comes from the report, if NVIDIA's reader is installed.

    Raises: InputError for a page that cannot be read.
    """
    with page.open(encoding="utf-8", errors="replace", newline="") as stream:
        lines = hottest_lines(stream)
        stream.seek(0)
        text = kept_page(stream, ncu_rep.ptx_of(report))
    writing.write(folder / HOT_LINES.name, lines)
    if text:
        writing.write(folder / "ncu_source.csv", text)


def hottest_lines(page: TextIO) -> str:
    """Return the text of ncu_lines.csv: the hottest lines of each launch in a source page (`--print-source cuda,sass`).

    `ordinal` counts the launches of one kernel in the order of the page. An instruction with lines in CUDA's headers
    only counts for the launch.
    """
    section = _section(page)
    lines = lines_of_launches(ncu_source.read_source(section)[0]).to_dict("records") if section else []
    return HOT_LINES.text(lines)


def kept_page(page: TextIO, ptx: Mapping[tuple[str, int], str]) -> str:
    """Return the text of ncu_source.csv: of each kernel, the launch with most samples. "" without samples.

    `ptx`: the PTX instruction behind each address of each kernel (`ncu_rep.ptx_of`).
    """
    section = _section(page)
    if section is None:
        return ""
    lines = ncu_source.read_source(section)[0]
    sass = lines[lines["instruction"].notna()].drop_duplicates(["block", "instruction"])
    launches = sass.groupby("block").agg(kernel=("kernel", "first"), samples=("samples", "sum"))
    launches = launches.assign(kernel=[symbols.match_key(name) for name in launches["kernel"]])
    launches = launches[launches["samples"] > 0].sort_values("samples", ascending=False, kind="stable")
    chosen = launches.drop_duplicates("kernel").head(KEPT_KERNELS)
    return ncu_source.shortened(section, list(map(int, chosen.index)), ptx)


def _section(page: TextIO) -> ncu_csv.Section | None:
    """Return the source page in a file, or None."""
    return next((one for one in ncu_csv.sections(page.read(), "source page") if one.page == "source"), None)


def lines_of_launches(lines: pd.DataFrame) -> pd.DataFrame:
    """Return HOT_LINES from SOURCE_LINES rows: for each launch, the lines with most samples, sorted by samples.

    Kernels are compared by match_key, because two pages of one report can print template arguments differently
    (`<float, 4>`, `<float, (int)4>`).
    """
    lines = lines.assign(kernel=[symbols.match_key(name) for name in lines["kernel"]])
    sass = lines[lines["instruction"].notna() & lines["samples"].notna()]
    sass = ncu_source.preferred(sass)
    blocks = lines[["block", "kernel"]].drop_duplicates("block")
    ordinal = blocks.groupby("kernel").cumcount().set_axis(blocks["block"])
    placed = sass[sass["line"].notna() & sass["source_file"].str.endswith(ncu_source.OURS)]
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
