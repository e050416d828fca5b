"""Check that reports make sense: tests check their fixtures, the program checks a folder of anybody's files.

    python -m tests.sense FOLDER_OR_INDEX [--csv FILE]   # a table of outcomes; an index.csv names kind and file

`problems` returns a sentence for each contradiction or useless statement of a report.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis import pipeline, report
from analysis.capture.load import load
from analysis.diagnosis.host import NOT_RECORDED
from analysis.diagnosis.hot import NO_CAUSE
from analysis.formats.errors import LedgerError
from analysis.page.markdown import render_markdown
from analysis.pipeline import Report

PLAIN = {"share_frac", "launches", "calls"}  # a share, a time and a count say where, not why
_NUMBER = re.compile(r"(?<![\w.,#*/:<>_-])\d+(?:,\d{3})*(?:\.\d+)?(?![\d.]*\d)")
_UNIT = re.compile(r"\s*(%|°|x\b|[µA-Za-z])|\s?(and|to) \d|[;)]|\.\s|\.$")
_SHARE_ONLY = re.compile(r"takes? (less than |more than )?[\d.]+ ?% of [^:;]*$")


def problems(made: Report, markdown: str) -> list[str]:
    """Return a sentence for each thing in a report that makes no sense; [] for a good report."""
    return problems_of(made.content, made.tables, markdown, str(made.world["capture"].clock))


def problems_of(content: dict[str, Any], tables: dict[str, pd.DataFrame], markdown: str, clock: str) -> list[str]:
    """Return the same from report.json's content, the tables by name and report.md; `clock` as in Capture."""
    found = [
        *_findings(content["findings"], tables),
        *(said for finding in content["findings"] for said in _evidence(finding, tables)),
        *_sections(content, tables, markdown),
        *_gaps(content["gaps"]),
        *_words(content, tables, clock),
    ]
    return list(dict.fromkeys(found))


def _findings(findings: list[dict[str, Any]], tables: dict[str, pd.DataFrame]) -> Iterator[str]:
    timed = any(len(tables.get(name, ())) for name in ("kernels", "layers", "host", "layer_profile", "baseline"))
    if timed and not findings:
        yield "there are times and no finding"
    titles = Counter(finding["title"] for finding in findings)
    yield from (f"two findings have the title {title!r}" for title, count in titles.items() if count > 1)
    for finding in findings:
        title, said = finding["title"], finding["sentence"]
        columns = {str(item["column"]).split(" ")[0] for item in finding["evidence"]}
        other = {name for name in columns if name not in PLAIN and not name.endswith("time_ns")}
        sentences = re.split(r"\. (?=[A-Z`0-9])", said)
        explains = other or finding["time_to_win_ns"] is not None or len(sentences) > 1
        if _SHARE_ONLY.search(title) or not explains:
            yield f"finding {title!r} only restates a share"
        if re.search(r"(?<![\d.])0(\.0+)?% of", title):
            yield f"finding {title!r} is of nothing"
        told = _own_words(f"{title.partition(': ')[2]}. {said}", _names(tables))
        for number in _without_unit(told):
            yield f"finding {title!r}: the number {number} has no unit"
        if not finding["evidence"]:
            yield f"finding {title!r} cites no cell"


def _names(tables: dict[str, pd.DataFrame]) -> list[str]:
    """Return the names of ranges and kernels, which may hold numbers, longest first."""
    found = {str(name) for table in tables.values() for key in ("kernel", "range", "step") if key in table
             for name in table[key].dropna().unique()}  # fmt: skip
    return sorted((name for name in found if re.search(r"\d", name)), key=len, reverse=True)


def _own_words(text: str, names: list[str]) -> str:
    """Return a sentence without names, commands, quotes of ncu, and parentheses that explain a number."""
    for name in names:
        text = text.replace(name, "NAME")
    plain = re.sub(r"`[^`]*`", "", text)
    plain = re.sub(r"(ncu's rule \w+ (says|estimates)[^:]*:).*?(?=\. [A-Z]|$)", r"\1", plain)
    plain = re.sub(r"\([^()]*\)", "", plain)
    return re.sub(r"\S*[/:<>_=#…×]\S*", "NAME", plain)


def _without_unit(text: str) -> Iterator[str]:
    for match in _NUMBER.finditer(text):
        if not _UNIT.match(text, match.end()):
            yield match[0]


def _rows_of(table: pd.DataFrame, row: str) -> pd.DataFrame:
    """Return the rows that a piece of evidence cites: by their first columns, or by kernel, range or step."""
    leads = list(table.columns[:4])
    read = table[[name for name in table if name in (*leads, "kernel", "range", "step")]]
    texts = read.astype(object).where(read.notna(), "").astype(str)
    lead = pd.Series("", index=table.index)
    for at, name in enumerate(leads):
        lead = texts[name] if at == 0 else lead + " " + texts[name]
        if (lead == row).any():
            return table[lead == row]
    for one, other in (("kernel", "range"), ("step", "range")):
        if one in texts and other in texts:
            hit = (texts[one] + " in " + texts[other]) == row
            if hit.any():
                return table[hit]
    return table[texts[[name for name in ("kernel", "range", "step") if name in texts]].eq(row).any(axis=1)]


def _evidence(finding: dict[str, Any], tables: dict[str, pd.DataFrame]) -> Iterator[str]:
    """Yield the cited values that the table lacks: a value must be a cell, or the sum of the cited rows."""
    for item in finding["evidence"]:
        name, column = str(item["table"]).removesuffix(".csv"), str(item["column"]).split(" ")[0]
        table = tables.get(name)
        if table is None or column not in table:
            yield f"finding {finding['title']!r} cites {name}.{column}, which is not there"
            continue
        cells = _rows_of(table, str(item["row"]))[column].dropna()
        if not any(_equal(cell, item["value"]) for cell in cells) and not _equal(_sum(cells), item["value"]):
            yield f"finding {finding['title']!r} cites {item['value']} of {name}.{column}, where {list(cells[:3])} stands"


def _sum(cells: pd.Series) -> Any:
    numbers = pd.to_numeric(cells, errors="coerce")
    return float(numbers.sum()) if len(numbers) and numbers.notna().all() else None


def _equal(cell: Any, value: Any) -> bool:
    if isinstance(value, str) or cell is None:
        return str(cell) == str(value)
    try:
        return bool(np.isclose(float(cell), float(value), rtol=1e-3, atol=1e-9))
    except (TypeError, ValueError):
        return False


def _sections(content: dict[str, Any], tables: dict[str, pd.DataFrame], markdown: str) -> Iterator[str]:
    for entry in content["tables"]:
        table = tables[entry["name"]]
        if table.empty and not content["gaps"]:
            yield f"table {entry['name']} is empty and nothing says why"
        keys = {column["name"] for column in entry["columns"] if column["evidence"] in ("key", "row")}
        values = [name for name in table if name not in keys]
        if len(table) and values and table[values].isna().all(axis=None):
            yield f"table {entry['name']} holds rows without a value"
    blocks = [block for block in markdown.split("\n\n") if block.strip()]
    for block, after in zip(blocks, [*blocks[1:], "## end"], strict=True):
        if block.startswith("## ") and after.startswith("## "):
            yield f"section {block[3:]!r} is empty"
        lines = Counter(line for line in block.splitlines()[2:] if line.startswith("|"))
        for line, count in lines.items():
            if count > 1:
                yield f"{count} rows print the same: {line[:100]}"


def _gaps(gaps: list[dict[str, str]]) -> Iterator[str]:
    for gap in gaps:
        if not all(str(gap.get(name) or "").strip() for name in ("what", "why", "fix")):
            yield f"gap {gap} lacks what, why or fix"
    counts = Counter((gap["what"], gap["why"]) for gap in gaps)
    yield from (f"the gap {what!r} stands there {count} times" for (what, _), count in counts.items() if count > 1)


def _words(content: dict[str, Any], tables: dict[str, pd.DataFrame], clock: str) -> Iterator[str]:
    """Yield the sentences that contradict a table."""
    said = " ".join(f"{finding['title']} {finding['sentence']}" for finding in content["findings"])
    if clock == "torch" and "by nsys" in said:
        yield "a trace of torch is said to be by nsys"
    has_kernels = len(tables.get("kernels", ())) > 0
    if "on the CPU" in content["title"] and has_kernels:
        yield "the title says CPU, and there are kernels"
    counted = any("tier" in table and table["tier"].eq("counters").any() for table in tables.values() if len(table))
    if counted and "holds no hardware counters" in str(content["trust"].get("sentence")):
        yield "the report says that it holds no hardware counters, and a table has some"
    alone = "No nsys timeline: counters stand alone" in str(content["coverage"].get("sentence"))
    if alone and not has_kernels and not counted:
        yield "counters are said to stand alone where there are none"


# As a program ----------------------------------------------------------------------------------------------------


def outcome(paths: list[Path], declared: list[Any]) -> tuple[str, str]:
    """Return (class, detail) of a file; a class is reasons, cause unknown, no finding, senseless, refused or crash."""
    try:
        made = pipeline.analyse(load(paths), declared)
        found = problems(made, render_markdown(made.content, made.tables, made.sections()))
    except LedgerError as error:
        return "refused", str(error)
    except Exception as error:  # a crash is an outcome too
        return "crash", f"{type(error).__name__}: {error}"
    titles = [finding["title"] for finding in made.content["findings"]]
    if found:
        return "senseless", "; ".join(found)
    if not titles:
        return "no finding", ""
    unknown = all(NO_CAUSE in title or NOT_RECORDED in title for title in titles)
    return ("cause unknown" if unknown else "reasons"), " || ".join(titles)


def _files(given: Path) -> list[dict[str, str]]:
    if given.suffix == ".csv" and given.is_file():
        with given.open(newline="", encoding="utf-8") as stream:
            return list(csv.DictReader(stream))
    return [
        {"kind": path.parent.name, "file": str(path), "repository": "", "path": path.name, "commit": ""}
        for path in sorted(given.rglob("*"))
        if path.is_file()
    ]


def main() -> int:
    """Print a table of kinds and outcomes, then each problem. Return 1 if a report makes no sense."""
    parser = argparse.ArgumentParser(prog="tests.sense", description="Whether the reports of these files make sense.")
    parser.add_argument("given", type=Path, help="a folder of files, or an index.csv with the columns kind and file")
    parser.add_argument("--csv", type=Path, help="write repository, path, commit, kind and outcome of each file here")
    options = parser.parse_args()
    declared, rows = report.declared(), _files(options.given)
    for row in rows:
        begun = time.monotonic()
        row["outcome"], row["detail"] = outcome([Path(row["file"])], declared)
        row["seconds"] = f"{time.monotonic() - begun:.1f}"
        print(f"{row['outcome']:14} {row['seconds']:>5} s  {row['file']}  {row['detail'][:300]}", flush=True)
    counts = pd.crosstab([row["kind"] for row in rows], [row["outcome"] for row in rows])
    print(f"\n{counts.to_string()}")
    if options.csv:
        names = ["repository", "path", "commit", "kind", "outcome"]
        with options.csv.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, names, extrasaction="ignore", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    return int(any(row["outcome"] in ("senseless", "crash") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
