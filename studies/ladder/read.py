"""Read a folder of the kernel ladder: the declared points (ladder.json), and each run that measured some of them.

`studies/ladder/measure.py` and `studies/ladder/ladder.sh` write the folder:

    DIR/ladder.json                   points, their hypotheses, goals, registered shapes
    DIR/RUN/captures/points.csv       points that were checked, with the fingerprint of their source
    DIR/RUN/captures/bench.csv        times, if the run measured any, in the form of the benchmarks beside DIR
    DIR/RUN/captures/ncu_raw.csv …    counters; ncu_lines.csv: the hottest lines of each launch
    DIR/RUN/captures/manifest.json    conditions
    DIR/runs.tar.xz                   the folders of earlier runs, packed (`tar cJf runs.tar.xz RUN …` in DIR)
"""

import io
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from analysis.capture.load import load
from analysis.capture.model import Capture
from analysis.formats import packed, symbols
from analysis.formats.errors import InputError
from analysis.formats.files import CsvFile, JsonFile
from analysis.formats.hot_lines import HOT_LINES
from analysis.formats.run import MANIFEST
from analysis.formats.spans import QUANTILES
from analysis.formats.tools import TOOL_STATUS
from kernels.registry import ops
from studies.bench.files import BENCH, BENCH_ROWS, KINDS
from studies.ladder.files import LADDER, POINTS
from studies.runs import benches, unpack

KEY = ["op", "variant", "dtype", "shape_name"]
# Columns that a bench.csv must have; it may lack the others.
TIMES = [*KEY, "shape", "convention", *(f"chained_time_{at}_ns" for at in QUANTILES), "floor_time_ns", "floor_frac",
         "achieved_byte_per_s"]  # fmt: skip
ARCHIVE = "runs.tar.xz"
SEARCHES = "-tuned-bench"  # the end of the folder of an op's run of searches
LATER = [column.name for column in BENCH_ROWS.columns if column.later]


@dataclass(frozen=True)
class LadderRun:
    """One run. `capture` holds its counters, or None without files of ncu; `lines` the hottest lines (HOT_LINES)."""

    name: str
    points: pd.DataFrame
    bench: pd.DataFrame
    capture: Capture | None
    lines: pd.DataFrame
    manifest: dict[str, Any]
    tool: dict[str, Any]


@dataclass(frozen=True)
class Ladder:
    """A folder of the ladder.

    `points` and `hypotheses` have one row for each, with KEY. `bench` holds the cold rows of the benchmarks beside it,
    `shapes` the registered shapes by op and dtype.
    """

    points: pd.DataFrame
    hypotheses: pd.DataFrame
    goals: list[dict[str, Any]]
    shapes: dict[str, dict[str, list[str]]]
    bench: pd.DataFrame
    runs: list[LadderRun] = field(default_factory=list)


def read_ladder(folder: Path) -> Ladder:
    """Read everything in a folder of the ladder, runs sorted by name, the newest last.

    Raises:
        InputError: no ladder.json, or a damaged file.
    """
    return _measured(_declared(folder), folder)


def _measured(declared: Ladder, folder: Path) -> Ladder:
    """Return what is declared with what was measured in `folder` and beside it."""
    with run_folders(folder) as found:
        runs = [_run(one) for one in found]
    return replace(declared, bench=_beside(folder), runs=runs)


@contextmanager
def run_folders(folder: Path) -> Iterator[list[Path]]:
    """Yield the folders of a ladder's runs, by name. Those packed in ARCHIVE are there while the context lasts."""
    with tempfile.TemporaryDirectory() as scratch:
        if (archive := folder / ARCHIVE).is_file():
            unpack(archive, scratch)
        found = [file for place in (folder, Path(scratch)) for file in place.glob(f"*/captures/{POINTS.name}")]
        yield sorted((file.parents[1] for file in found), key=lambda run: run.name)


def _declared(folder: Path) -> Ladder:
    """Return what ladder.json declares."""
    document = _json(folder / LADDER.name, LADDER)
    if document is None:
        raise InputError(
            f"{folder}: has no ladder.json; write it with `python -m studies.ladder.measure --mode declare`."
        )
    points: list[dict[str, Any]] = []
    hypotheses: list[dict[str, Any]] = []
    for point in document["points"]:
        said = point.pop("hypotheses")
        points.append(point)
        hypotheses += [{name: point[name] for name in KEY} | {"stated": True} | row for row in said]
    return Ladder(
        pd.DataFrame(points),
        pd.DataFrame(
            hypotheses,
            columns=[*KEY, "metric", "versus", "low", "high", "equals", "stated", "at", "refuted_low", "refuted_high"],
        ),
        document["goals"],
        document.get("shapes", {}),  # older files have none
        bench=pd.DataFrame(),
    )


def _json(path: Path, file: JsonFile) -> dict[str, Any] | None:
    """Return the object of one of our JSON files, or None if there is no file.

    Raises:
        InputError: it is a file of another kind, or one of its fields is wrong.
    """
    found = packed.find(path)
    if not found.is_file():
        return None
    try:
        content = json.loads(packed.read_bytes(found))
    except ValueError as error:
        raise InputError(f"{path.name}: is not JSON ({error}); make it again.") from None
    if not isinstance(content, dict) or content.get("kind") != file.kind:
        raise InputError(f"{path.name}: is not a {file.kind} file of this project; make it again.")
    return file.check(content, path.name)


def _table(path: Path, file: CsvFile, needed: Sequence[str] = ()) -> pd.DataFrame:
    """Return one of our CSV files, with text columns as text, or an empty table if there is no file.

    Without `needed`, every column but the later ones is needed.

    Raises:
        InputError: a needed column is missing.
    """
    found = packed.find(path)
    if not found.is_file():
        return pd.DataFrame(columns=list(file.names))
    texts = {column.name: "str" for column in file.columns if column.type is str}
    blank = {column.name: [""] for column in file.columns if column.type is not str}
    table = pd.read_csv(io.BytesIO(packed.read_bytes(found)), dtype=texts, keep_default_na=False, na_values=blank)
    table = table.rename(columns=dict(file.renamed))
    lacking = [name for name in needed or file.names if name not in table]
    if lacking:
        raise InputError(f"{path.parent.name}/{path.name}: has no column {lacking[0]}; make it again.")
    return table.assign(**{name: np.nan for name in LATER if name in file.names and name not in table})


def held_against_roofs(table: pd.DataFrame, folder: Path, beside: Sequence[Path]) -> pd.DataFrame:
    """Return the rows of a benchmark with floors of the usual roofs among those beside it (`usual_roofs`).

    One run may measure its copy 10 % slower than the others, as softmax's does on two GPUs. A run that measured no
    reads has floors of the copy alone, too easy for an op that reads more than it writes (`Op.memory_ns`). Floors of
    ops that are bound by arithmetic, or that only read, stay.
    """
    copy, read = usual_roofs(folder, beside)
    if copy is None:
        return table
    by_copy = table["achieved_flop_per_s"].isna() if "achieved_flop_per_s" in table else pd.Series(True, table.index)
    known = ops()
    for at, row in table[by_copy].iterrows():
        shape = tuple(map(int, row["shape"].split("x")))
        floor_ns = known[row["op"]].memory_ns(shape, row["dtype"], copy, read)
        table.loc[at, "floor_frac"] = round(row["floor_frac"] * floor_ns / row["floor_time_ns"], 4)
        table.loc[at, "floor_time_ns"] = round(floor_ns)
    return table


def usual_roofs(folder: Path, beside: Sequence[Path]) -> tuple[float | None, float | None]:
    """Return the median copy and read roof of the benchmarks beside one that name a GPU of the same model.

    None for both if its floors do not rest on a copy, or it names no GPU.
    """
    conditions = _conditions(folder)
    gpu = _name(conditions)
    if not gpu or "dram_read" in (conditions.get("roofs") or {}):
        return None, None
    same = [one for one in map(_conditions, beside) if _name(one) == gpu]
    copies = [copy for one in same if (copy := _copy(one))]
    reads = [(one.get("roofs") or {})["dram_read"] for one in same if "dram_read" in (one.get("roofs") or {})]
    return (median(copies) if copies else None), (median(reads) if reads else None)


def _conditions(folder: Path) -> dict[str, Any]:
    return dict((_json(folder / BENCH.name, BENCH) or {}).get("conditions", {}))


def _copy(conditions: dict[str, Any]) -> float | None:
    """Return the bytes per second of the faster copy of a benchmark; None without a copy."""
    return max(conditions.get("copy_byte_per_s", {}).values(), default=None)


def sm_clock_mhz(conditions: dict[str, Any]) -> float:
    """Return the median clock of the SMs while a benchmark ran, NaN if it is unknown."""
    return float(((conditions.get("clocks") or {}).get("sm_mhz") or {}).get("median") or np.nan)


def _name(conditions: dict[str, Any]) -> str:
    return str((conditions.get("gpu") or {}).get("name", ""))


def judged(times: pd.DataFrame) -> pd.DataFrame:
    """Return `times` with `bench_time_…_ns`, the time that verdicts use, and `time_kind`, its kind.

    The kind is isolated if every row of the op, dtype and shape has an isolated time, else chained. Different kinds are
    thus never compared.
    """
    if times.empty:
        return times.assign(time_kind="", **{f"bench_time_{at}_ns": np.nan for at in QUANTILES})
    known = times["isolated_time_p50_ns"].notna()
    alone = known.groupby([times[name] for name in ("op", "dtype", "shape_name")]).transform("all")
    found = times.assign(time_kind=np.where(alone, KINDS[0], KINDS[1]))
    for at in QUANTILES:
        found[f"bench_time_{at}_ns"] = times[f"isolated_time_{at}_ns"].where(alone, times[f"chained_time_{at}_ns"])
    mixed = known & ~alone  # rows whose rates and ratios come from an isolated time that does not count
    p50 = found["bench_time_p50_ns"].astype(float)
    for rate in ("achieved_byte_per_s", "achieved_flop_per_s", "floor_frac"):
        found[rate] = found[rate].where(~mixed, found[rate] * times["isolated_time_p50_ns"] / p50)
    paired = [name for name in found if str(name).startswith("versus_")]
    found[paired] = found[paired].where(~mixed)
    return found


def _run(folder: Path) -> LadderRun:
    captures = folder / "captures"
    pages = [path for name in ("ncu_raw.csv", "ncu_ratios.csv") if (path := packed.find(captures / name)).is_file()]
    bench = _table(captures / BENCH_ROWS.name, BENCH_ROWS, TIMES)
    points = _table(captures / POINTS.name, POINTS)
    sources = points[["op", "variant", "fingerprint"]].drop_duplicates(["op", "variant"])
    lines = _table(captures / HOT_LINES.name, HOT_LINES)
    lines["kernel"] = [symbols.match_key(name) for name in lines["kernel"]]  # older runs kept whole signatures
    manifest = _json(captures / MANIFEST.name, MANIFEST) or {}
    cold = bench[bench["convention"] == "cold"].assign(sm_clock_mhz=sm_clock_mhz(manifest))
    return LadderRun(
        folder.name,
        points,
        cold.merge(sources, on=["op", "variant"], how="left"),
        load(pages) if pages else None,
        lines,
        manifest,
        _json(captures / TOOL_STATUS.name, TOOL_STATUS) or {},
    )


def _beside(folder: Path) -> pd.DataFrame:
    """Return the cold rows of the benchmarks x-<op>-bench beside a folder `x-ladder`, with `bench_run`.

    Those of the runs of searches (studies/ladder/searched.py) come last.

    `fingerprint` is blank if a benchmark does not name the sources that it timed.
    """
    resolved = folder.resolve()
    prefix = resolved.name.removesuffix("ladder")
    parts = []
    beside = [one for one in benches(resolved.parent).values() if (one / BENCH_ROWS.name).is_file()]
    found = [one for one in beside if prefix and one.name.startswith(prefix)]
    for one in sorted(found, key=lambda one: (one.name.endswith(SEARCHES), one.name)):
        today = dict(BENCH_ROWS.renamed)
        header = (one / BENCH_ROWS.name).read_text(encoding="utf-8").partition("\n")[0].split(",")
        if not set(TIMES) <= {today.get(name, name) for name in header}:
            continue  # a benchmark of something else
        rows = held_against_roofs(_table(one / BENCH_ROWS.name, BENCH_ROWS, TIMES), one, beside)
        bench = _json(one / BENCH.name, BENCH) or {}
        sources = bench.get("sources", {})
        rows = rows[rows["convention"] == "cold"]
        known = [sources.get(variant, "") for variant in rows["variant"]]
        clock = sm_clock_mhz(bench.get("conditions", {}))
        parts.append(rows.assign(fingerprint=known, bench_run=one.name, sm_clock_mhz=clock))
    return (
        pd.concat(parts, ignore_index=True)
        if parts
        else pd.DataFrame(columns=[*BENCH_ROWS.names, "fingerprint", "bench_run", "sm_clock_mhz"])
    )
