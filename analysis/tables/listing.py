"""List the source of each sampled kernel in full: its lines, and the instructions that the compiler made of them."""

from pathlib import PurePath

import pandas as pd

from analysis.tables.declare import Column, Facts, table
from analysis.tables.source import instructions, text_of_lines

MOST_KERNELS = 40  # those with most samples
SECTOR_BYTES = 32
LANGUAGES = {".py": "Python", ".ptx": "PTX"}  # by the suffix of the source file; every other is CUDA
_SUMS = ["samples", "inst_executed", "sectors_global", "sectors_global_ideal"]


def language_of(file: str) -> str:
    """Return the language of a source file by its suffix."""
    return LANGUAGES.get(PurePath(file).suffix, "CUDA")


@table(
    "listing",
    question="Where does each kernel spend its time, line by line and instruction by instruction?",
    columns=(
        Column("kernel", "kernel name", "key"),
        Column("language", "CUDA, Python (Triton and Inductor), PTX or SASS", "key"),
        Column("file", "source file; of an instruction, that of its line", "key"),
        Column("line", "line of the file; blank if the compiler did not keep line numbers", "key", "1"),
        Column(
            "instruction",
            "place of the instruction in the kernel, from 0; PTX counts by the first SASS instruction that it became; "
            "blank for a line of source",
            "key",
            "1",
        ),
        Column("text", "the line or the instruction; blank if the source was not imported", "row"),
        Column("samples", "samples of the program counter, all launches", "counters", "1"),
        Column("share_frac", "samples over all samples of the kernel", "counters", style="bar"),
        Column("stall", "stall reason (sampled family) with most samples", "row"),
        Column("inst_executed", "warp instructions executed", "counters", "1"),
        Column("l2_bytes", "bytes of the L2 sectors that its global accesses touch", "counters"),
        Column("sectors_over_ideal", "those sectors over those of coalesced accesses; 1 is best", "counters", "1"),
    ),
)
def build_listing(facts: Facts) -> pd.DataFrame | None:
    """Return listing.csv: the kernels with most samples first, of each the lines in order, then PTX, then SASS.

    Numbers are sums over launches. A line and a PTX instruction have the sums of their SASS instructions; an inlined
    instruction counts in the first of its lines.
    """
    sass = instructions(facts)
    if sass is None:
        return None
    whole = sass.groupby("kernel")["samples"].sum().sort_values(ascending=False, kind="stable")
    order = {kernel: at for at, kernel in enumerate(whole.index[:MOST_KERNELS])}
    sass = sass[sass["kernel"].isin(list(order))].drop(columns="file").rename(columns={"source_file": "file"})
    single = _summed(sass, ["kernel", "instruction"]).assign(language="SASS").sort_values("instruction")
    lines = _summed(sass[sass["line"].notna() & (sass["file"] != "")], ["kernel", "file", "line"])
    lines = lines.drop(columns="text").sort_values(["file", "line"])
    told = text_of_lines(facts.capture.source_lines).set_index("place")["text"]
    lines["text"] = (lines["file"] + ":" + lines["line"].astype(str)).map(told).astype(object).fillna("")
    lines = lines.assign(language=lines["file"].map(language_of), instruction=pd.NA)
    rows = pd.concat([one for one in (lines, _ptx(sass), single) if len(one)], ignore_index=True)
    ideal = rows["sectors_global_ideal"].where(rows["sectors_global_ideal"] > 0)
    rows = rows.assign(
        share_frac=rows["samples"] / rows["kernel"].map(whole.where(whole > 0)),
        l2_bytes=rows["sectors_global"] * SECTOR_BYTES,
        sectors_over_ideal=rows["sectors_global"] / ideal,
        place=rows["kernel"].map(order),
        level=rows["language"].map({"PTX": 1, "SASS": 2}).where(rows["instruction"].notna(), 0),
        tier="counters",
    ).sort_values(["place", "level"], kind="stable")
    whole_numbers = ("line", "instruction", "samples", "inst_executed", "l2_bytes")
    return rows[build_listing.column_names].astype(dict.fromkeys(whole_numbers, "Int64"))


def _ptx(sass: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the PTX instructions that are known, with the line of the SASS instructions they became."""
    known = sass[sass["ptx"].str.contains(";", regex=False)].sort_values("instruction")
    known = known.drop(columns=["text", "instruction"])
    rows = _summed(known.rename(columns={"ptx": "text"}), ["kernel", "file", "line", "text"])
    return rows.assign(language="PTX", instruction=rows.groupby("kernel").cumcount())


def _summed(sass: pd.DataFrame, key: list[str]) -> pd.DataFrame:
    """Return the sums of each group of instructions, its first text, file and line, and its stall with most samples."""
    groups = sass.groupby(key, sort=False, dropna=False)
    sums = groups[_SUMS].sum(min_count=1)
    rest = [name for name in ("text", "file", "line") if name not in key]
    stalls = sass[sass["stall"] != ""].groupby([*key, "stall"], sort=True)["stall_samples"].sum().reset_index()
    stalls = stalls.sort_values("stall_samples", ascending=False, kind="stable").drop_duplicates(key)
    return sums.join(groups[rest].first()).reset_index().merge(stalls[[*key, "stall"]], on=key, how="left")
