"""Write a paragraph for each study, and the number of its predictions that hold."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.diagnosis.claims import Claim, cell
from analysis.formats.report import Cell
from analysis.formats.words import count_of
from analysis.page import cells, markdown, text
from analysis.tables.declare import part, section
from studies.lectures.tables import HOLDS, MISSES, UNKNOWN, Points

WORDS = tomllib.loads(Path(__file__).with_name("paragraphs.toml").read_text(encoding="utf-8"))
MOST = 40  # most rows of a study on the Markdown page; the table has all


def amount(value: Any, unit: str) -> str:
    """Return a number with its unit, formatted for reading."""
    if text.is_missing(value):
        return text.MISSING
    names = {"cycle": "cycles", "1/s": ""}
    if unit == "1/s":
        return f"{float(value) / 1e12:,.1f} T/s"
    if unit in ("ns", "byte"):
        return text.number(float(value), unit)
    return f"{float(value):,.6g} {names.get(unit, '' if unit == '1' else unit)}".strip()


def shown(study: str, rows: pd.DataFrame) -> list[str]:
    """Return the paragraph and the table of one study in Markdown. The table always has all misses."""
    judged = rows[rows["verdict"] != UNKNOWN]
    kept = rows
    if len(rows) > MOST:
        steps = rows["case"].str.contains("→") | ~rows["case"].str.fullmatch(r"\d+")
        kept = pd.concat([rows[steps], rows[~steps & (rows["verdict"] == MISSES)].head(MOST)])
    body = [
        [
            markdown.escape(row.case),
            markdown.escape(row.quantity),
            amount(row.predicted, row.unit),
            amount(row.measured, row.unit),
            text.MISSING if text.is_missing(row.error_frac) else f"{float(row.error_frac):+.1%}",
            row.verdict,
            *(
                text.MISSING if text.is_missing(words) or not words else markdown.escape(words)
                for words in (row.lecture, row.because, row.reason)
            ),
        ]
        for row in kept.itertuples(index=False)
    ]
    headers = [
        "case",
        "quantity",
        "predicted",
        "measured",
        "error",
        "verdict",
        "lecture",
        "predicted from",
        "reason of a miss",
    ]
    held = int((judged["verdict"] == HOLDS).sum())
    verdict = f"**{held} of {count_of(len(judged), 'prediction')} hold.**"
    if len(kept) < len(rows):
        verdict += f" The table shows {len(kept)} of {len(rows)}: steps, and what missed first."
    return [
        WORDS[study]["paragraph"],
        verdict,
        markdown.table_of(headers, body, ["left"] * 2 + ["right"] * 3 + ["left"] * 4),
    ]


@section("lecture_profiles")
def show_profiles(lecture_profiles: pd.DataFrame) -> list[str]:
    return shown("profiles", lecture_profiles)


@section("lecture_matmul")
def show_matmul(lecture_matmul: pd.DataFrame) -> list[str]:
    return shown("matmul", lecture_matmul)


@section("lecture_mlp")
def show_mlp(lecture_mlp: pd.DataFrame) -> list[str]:
    return shown("mlp", lecture_mlp)


@section("lecture_tricks")
def show_tricks(lecture_tricks: pd.DataFrame) -> list[str]:
    return shown("tricks", lecture_tricks)


@section("lecture_waves")
def show_waves(lecture_waves: pd.DataFrame) -> list[str]:
    return shown("waves", lecture_waves)


@section("lecture_latencies")
def show_latencies(lecture_latencies: pd.DataFrame) -> list[str]:
    return shown("latencies", lecture_latencies)


@section("lecture_units")
def show_units(lecture_units: pd.DataFrame) -> list[str]:
    return shown("units", lecture_units)


@part("findings", 1)
def _findings(
    lecture_profiles: pd.DataFrame, lecture_matmul: pd.DataFrame, lecture_mlp: pd.DataFrame,
    lecture_tricks: pd.DataFrame, lecture_waves: pd.DataFrame, lecture_latencies: pd.DataFrame,
    lecture_units: pd.DataFrame,
) -> list[Claim] | None:  # fmt: skip
    studies = {
        "profiles": lecture_profiles, "matmul": lecture_matmul, "mlp": lecture_mlp, "tricks": lecture_tricks,
        "waves": lecture_waves, "latencies": lecture_latencies, "units": lecture_units,
    }  # fmt: skip
    return find(studies) or None


def find(studies: Mapping[str, pd.DataFrame]) -> list[Claim]:
    """Return one finding a study: how many predictions hold, its paragraph, and its largest error as evidence."""
    found: list[Claim] = []
    for name, rows in studies.items():
        judged = rows[rows["verdict"].isin([HOLDS, MISSES])] if len(rows) else rows
        if judged.empty:
            continue
        held = int((judged["verdict"] == HOLDS).sum())
        errors = judged["error_frac"].astype(float).abs()
        worst = judged.loc[errors.idxmax()] if errors.notna().any() else None
        evidence: tuple[Cell, ...] = ()
        if worst is not None:
            evidence = (cell(f"lecture_{name}", cells.keys(rows, worst), "error_frac", float(worst["error_frac"])),)
        found.append(
            Claim(
                kind="result",
                title=f"{WORDS[name]['title']}: {held} of {count_of(len(judged), 'prediction')} hold",
                sentence=WORDS[name]["paragraph"].replace("`", ""),
                cells=evidence,
            )
        )
    return found


@part("title", 1)
def _title(lecture_points: Points, gpu: str | None) -> str | None:
    """Return the report's title for a run with studies."""
    return f"The lecture's studies on {gpu or 'a CPU'}" if lecture_points else None


@section("lecture_tiles")
def show_tiles(lecture_tiles: pd.DataFrame) -> str:
    """Return the tile of each size with 16-byte aligned rows, and the time predicted from its waves."""
    body = [
        [
            str(row.n),
            row.tile,
            cells.count(row.tiles),
            cells.count(row.waves),
            f"{float(row.fill_frac):.0%}",
            text.number(float(row.model_ns), "ns"),
            text.number(float(row.measured_ns), "ns"),
            f"{float(row.error_frac):+.1%}",
        ]
        for row in lecture_tiles.dropna(subset=["model_ns"]).itertuples(index=False)
    ]
    headers = ["n", "tile", "tiles", "waves", "places filled", "with this tile", "measured", "error"]
    return markdown.table_of(headers, body, ["right"] * len(headers))


def render_pages(tables: Mapping[str, pd.DataFrame], folder: str) -> dict[str, str]:
    """Return study -> its page: paragraph, verdict, table and figure. `folder` is the run's path from the page."""
    pages = {}
    for name in WORDS:
        rows = tables.get(f"lecture_{name}", pd.DataFrame())
        if rows.empty:
            continue
        parts = shown(name, rows)
        parts.append(f"![{WORDS[name]['title']}: predicted and measured]({folder}/figures/lecture_{name}.png)")
        if name == "waves" and len(tiles := tables.get("lecture_tiles", pd.DataFrame())):
            parts.append("The same formula with the tile in each kernel's name, which is known only afterwards:")
            parts.append(show_tiles(tiles))
        parts.append(f"All rows: [{folder.rpartition('/')[2]}]({folder}/report.md).")
        pages[name] = "\n\n".join(parts)
    return pages


def render_summary(tables: Mapping[str, pd.DataFrame], folder: str) -> str:
    """Return one line a study: the number of predictions that hold, and the largest error.

    `folder` is the run's path.
    """
    body = []
    for name in WORDS:
        rows = tables.get(f"lecture_{name}", pd.DataFrame())
        judged = rows[rows["verdict"] != UNKNOWN] if len(rows) else rows
        if judged.empty:
            continue
        errors = pd.to_numeric(judged["error_frac"], errors="coerce")
        said = text.MISSING
        if errors.notna().any():
            worst = judged.loc[errors.abs().idxmax()]
            said = markdown.escape(f"{float(worst['error_frac']):+.0%}: {worst['case']}, {worst['quantity']}")
        held = f"{int((judged['verdict'] == HOLDS).sum())} of {len(judged)}"
        body.append([f"[{WORDS[name]['title']}](pages/{name}.md)", held, f"{errors.abs().median():.1%}", said])
    table = cells.table(["study", "predictions that hold", "median error", "largest error"], body, left=1)
    return f"{table}\n\nAll rows: [{folder.rpartition('/')[2]}]({folder}/report.md)."
