"""Compare the report's first findings on each example program with what an expert names there.

    python -m studies.publish.examples [NAME …]

The command prints name, build, options and command of each, with tabs, for examples/capture.sh.

The header of each program in examples/ holds the expert's list. examples.toml holds the words that a finding must use
to agree with an entry. A captured example has its report.json in examples/h200/<name>/.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from analysis.formats.console import guarded
from analysis.formats.errors import InputError

FOLDER = Path(__file__).resolve().parents[2] / "examples"
FILE = "examples.toml"
GPU = "h200"
FIRST = 3  # findings that are compared
_ENTRY = re.compile(r"^(?://|#)? ?([1-9])\. (.+)$", re.MULTILINE)


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One table of examples.toml, whose first lines say what each field is."""

    source: str
    command: str
    build: str = ""
    options: str = ""
    agrees: list[str] = []
    misses: dict[str, str] = {}


@dataclass(frozen=True)
class Example:
    """A program, or a second way to run it. `expert` is empty for a second way, which is shown but not compared."""

    name: str
    entry: _Entry
    expert: tuple[str, ...]
    report: dict[str, Any] | None


@dataclass(frozen=True)
class Compared:
    """An entry of the expert's list, the finding that agrees with it ('' for none) and the reason of a miss."""

    said: str
    found: str
    reason: str


def read(folder: Path) -> list[Example]:
    """Return the examples of a folder, in the order of examples.toml; [] without that file.

    Raises: InputError if examples.toml is malformed, a program is missing, or its list has another length.
    """
    file = folder / FILE
    if not file.is_file():
        return []
    try:
        entries = msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), dict[str, _Entry])
    except (ValueError, msgspec.ValidationError) as error:
        raise InputError(f"examples/{FILE}: {error}; its first lines say what it holds.") from None
    return [_example(folder, name, entry) for name, entry in entries.items()]


def _example(folder: Path, name: str, entry: _Entry) -> Example:
    source = folder / entry.source
    if not source.is_file():
        raise InputError(f"examples/{FILE}: {name} names {entry.source}, which does not exist; correct `source`.")
    listed = tuple(text for _, text in _ENTRY.findall(source.read_text(encoding="utf-8")))
    if entry.agrees and len(entry.agrees) != len(listed):
        raise InputError(
            f"examples/{FILE}: {name} has {len(entry.agrees)} texts in `agrees`, and {entry.source} lists "
            f"{len(listed)} entries; write one text for each."
        )
    report = folder / GPU / name / "report.json"
    content = json.loads(report.read_text(encoding="utf-8")) if report.is_file() else None
    return Example(name, entry, listed if entry.agrees else (), content)


def compare(example: Example) -> list[Compared]:
    """Compare each entry of the expert's list with the first findings of the report; [] without a report.

    An entry with a reason in `misses` is a miss, even if words of another finding match it by chance.
    """
    if example.report is None:
        return []
    findings = example.report["findings"][:FIRST]
    rows = []
    for number, (said, words) in enumerate(zip(example.expert, example.entry.agrees, strict=True), start=1):
        agreed = (one["title"] for one in findings if re.search(words, f"{one['title']}. {one['sentence']}"))
        reason = example.entry.misses.get(str(number), "")
        rows.append(Compared(said, "" if reason else next(agreed, ""), reason))
    return rows


def render(examples: list[Example]) -> str:
    """Return the generated part of examples/README.md."""
    compared = {one.name: compare(one) for one in examples}
    rows = [row for own in compared.values() for row in own]
    agree = sum(bool(row.found) for row in rows)
    told = f"**{agree} of {len(rows)}** entries of the experts' lists are among the report's first {FIRST} findings."
    blocks = [told if rows else "No example is captured yet."]
    for one in examples:
        blocks.append(f"## {one.name}\n\n`{one.entry.command.replace('{program}', f'examples/{one.entry.source}')}`")
        if one.report is None:
            blocks.append("Not captured yet.")
            continue
        blocks.append(_table_of(compared[one.name]) if one.expert else "It has no list of its own.")
        blocks.append(_findings_of(one))
    return "\n\n".join(blocks)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _table_of(rows: list[Compared]) -> str:
    lines = ["| the expert | the report's finding |", "|---|---|"]
    lines += [f"| {_cell(row.said)} | {_cell(row.found) or f'**missed**: {_cell(row.reason)}'} |" for row in rows]
    return "\n".join(lines)


def _findings_of(one: Example) -> str:
    """List the titles of the first findings, with a link to the whole screen."""
    assert one.report is not None
    told = [f"{at}. {found['title']}" for at, found in enumerate(one.report["findings"][:FIRST], start=1)]
    more = f"The report: [{GPU}/{one.name}/report.txt]({GPU}/{one.name}/report.txt)."
    return "\n".join(["Its first findings:", "", *told, "", more])


def commands(names: Sequence[str], folder: Path = FOLDER) -> list[str]:
    """Return a line for each named example, or for all if `names` is empty: name, build, options and command.

    Raises: InputError for an unknown name.
    """
    found = {one.name: one.entry for one in read(folder)}
    if unknown := [name for name in names if name not in found]:
        raise InputError(f"There is no example {unknown[0]}: use {', '.join(found)}.")
    lines = []
    for name in names or found:
        source = f"examples/{found[name].source}"
        program = f"build/{name}" if found[name].build else source
        build = found[name].build.format(source=source, program=program) or ":"
        command = found[name].command.format(program=f"./{program}" if build != ":" else program)
        lines.append(f"{name}\t{build}\t{found[name].options or '--'}\t{command}")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Exit code 0: printed. 2: wrong usage. 3: an example is unknown or unusable."""
    parser = argparse.ArgumentParser(
        prog="python -m studies.publish.examples",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="of examples.toml (default: all)")
    options = parser.parse_args(arguments)
    return guarded(lambda: print("\n".join(commands(options.names))) or 0)


if __name__ == "__main__":
    sys.exit(main())
