"""Show, for each example program, the first findings of the report and the list of an expert.

    python -m studies.publish.examples [NAME …]

The command prints name, build, options and command of each, with tabs, for examples/capture.sh.

The header of each program in examples/ holds the expert's list. A captured example has its report.json,
packed, in examples/<gpu>/<name>/.
"""

import json
import re
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from analysis.formats import packed
from analysis.formats.console import documented, guarded, run_program
from analysis.formats.errors import InputError

FOLDER = Path(__file__).resolve().parents[2] / "examples"
FILE = "examples.toml"
GPUS = ("h200", "h100")  # folders of captures; an example has one capture
FIRST = 3  # findings that are shown
_ENTRY = re.compile(r"^(?://|#)? ?([1-9])\. (.+)$", re.MULTILINE)


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One table of examples.toml, whose first lines say what each field is."""

    source: str
    command: str
    build: str = ""
    options: str = ""


@dataclass(frozen=True)
class Example:
    """A program, or a second way to run it. `expert` is empty for a second way, which has the same list.

    `gpu`: the folder of its capture; "" without one.
    """

    name: str
    entry: _Entry
    expert: tuple[str, ...]
    report: dict[str, Any] | None
    gpu: str


def read(folder: Path) -> list[Example]:
    """Return the examples of a folder, in the order of examples.toml; [] without that file.

    Raises: InputError if examples.toml is malformed or a program is missing.
    """
    file = folder / FILE
    if not file.is_file():
        return []
    try:
        entries = msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), dict[str, _Entry])
    except (ValueError, msgspec.ValidationError) as error:
        raise InputError(f"examples/{FILE}: {error}; its first lines say what it holds.") from None
    first = {entry.source: name for name, entry in reversed(entries.items())}
    return [_example(folder, name, entry, is_first=first[entry.source] == name) for name, entry in entries.items()]


def _example(folder: Path, name: str, entry: _Entry, *, is_first: bool) -> Example:
    source = folder / entry.source
    if not source.is_file():
        raise InputError(f"examples/{FILE}: {name} names {entry.source}, which does not exist; correct `source`.")
    listed = tuple(text for _, text in _ENTRY.findall(source.read_text(encoding="utf-8")))
    found = {gpu: packed.find(folder / gpu / name / "report.json") for gpu in GPUS}
    gpu = next((gpu for gpu, file in found.items() if file.is_file()), "")
    content = json.loads(packed.read_bytes(found[gpu])) if gpu else None
    return Example(name, entry, listed if is_first else (), content, gpu)


def render(examples: list[Example]) -> str:
    """Return the generated part of examples/README.md."""
    blocks = []
    for one in examples:
        blocks.append(f"## {one.name}\n\n`{one.entry.command.replace('{program}', f'examples/{one.entry.source}')}`")
        if one.expert:
            listed = "\n".join(f"{at}. {said}" for at, said in enumerate(one.expert, start=1))
            blocks.append(f"The expert's list:\n\n{listed}")
        blocks.append("Not captured yet." if one.report is None else _findings_of(one))
    return "\n\n".join(blocks)


def _findings_of(one: Example) -> str:
    """List the titles of the first findings, with a link to the whole screen."""
    assert one.report is not None
    told = [f"{at}. {found['title']}" for at, found in enumerate(one.report["findings"][:FIRST], start=1)]
    file = f"{one.gpu}/{one.name}/report.txt"
    more = f"The report: [{file}]({file})."
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
    parser = documented("python -m studies.publish.examples", __doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of examples.toml (default: all)")
    options = parser.parse_args(arguments)
    return guarded(lambda: print("\n".join(commands(options.names))) or 0)


if __name__ == "__main__":
    sys.exit(run_program(main))
