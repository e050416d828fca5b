"""Rewrite the generated parts of this repository's Markdown files from the committed runs.

    python -m studies.publish

A generated part lies between `<!-- begin: NAME -->` and `<!-- end: NAME -->`. parts.toml says which tables of a run a
part shows, and reports/published.toml names the runs. `make readme` builds those tables first.
"""

import io
import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
from rich.console import Console, RenderableType

from analysis import pipeline
from analysis.api import declared
from analysis.capture.load import load
from analysis.comparison.compare import compare
from analysis.formats import packed, schema
from analysis.formats.console import documented, guarded
from analysis.formats.errors import InputError
from analysis.page import comparison, markdown, terminal
from analysis.page.text import MISSING
from studies import runs as published
from studies.accounting import formulas
from studies.dropin import page as models
from studies.publish import examples, results, wrong
from studies.publish.columns import document_columns, document_json, document_rules
from studies.publish.committed import FIELD, filled, plain, read_table
from studies.softmax import turing
from studies.training import page as training

ROOT = Path(__file__).resolve().parents[2]
PARTS = Path(__file__).with_name("parts.toml")
BEFORE, AFTER = (f"examples/h200/{name}/captures" for name in ("qwen_like", "qwen_like_compiled"))  # like a user's own
SCREEN_LINES, SHOWN_LINES, COMPARED_LINES = 45, 16, 9
Texts = dict[tuple[str, str], dict[str, str]]  # (file, part) -> GPU -> text


class Shown(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table of a part; the first lines of parts.toml say what each field is."""

    name: str
    columns: dict[str, str]
    title: str = ""
    where: dict[str, Any] = {}
    count: str = ""
    sort: list[str] = []
    rows: int = 0
    measured: str = ""
    optional: bool = False


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A generated part of a file; the first lines of parts.toml say what each field is."""

    file: str
    part: str
    run: str
    tables: list[Shown]
    each: str = ""
    figure: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Exit code 0: written. 2: wrong usage. 3: a run or README is unusable; nothing written."""
    parser = documented("python -m studies.publish", __doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout (default: this one)")
    options = parser.parse_args(arguments)
    return guarded(lambda: write(options.root))


def write(root: Path) -> int:
    """Write all files that `render` returns, after all of them are rendered. Return 0."""
    for name, text in render(root).items():
        (root / name).write_text(text, encoding="utf-8", newline="\n")
    return 0


def render(root: Path = ROOT) -> dict[str, str]:
    """Return {path under `root`: new text} of every Markdown file with generated parts, and of the schema of a report.

    Raises: InputError if a committed run, a Markdown file or its markers are missing.
    """
    gpus = published.read(root / "reports")
    texts: Texts = {
        ("README.md", "transcript"): {"": transcript()},
        ("README.md", "before-after"): {"": before_after()},
        ("kernels/specimens/README.md", "rules"): {"": document_rules()},
        ("docs/commands.md", "targets"): {"": _targets(root)},
        ("reports/README.md", "runs"): {"": _index(root / "reports")},
        ("analysis/COLUMNS.md", "columns"): {"": document_columns()},
        ("analysis/JSON.md", "json"): {"": document_json()},
        ("studies/softmax/README.md", "turing"): {"": turing.text()},
        ("studies/accounting/README.md", "formulas"): {"": formulas.text()},
    }
    if programs := examples.read(root / "examples"):
        texts["examples/README.md", "examples"] = {"": examples.render(programs)}
    for runs in gpus:
        if (folder := runs.folder("ladder")) is not None:
            goals = f"{goals_table(read_table(folder, 'goals'))}\n\n{absent()}"
            texts.setdefault(("kernels/README.md", "ladder"), {})[runs.gpu] = goals
        if (folder := runs.folder("decode")) is not None:
            texts.setdefault(("kernels/decode/README.md", "floors"), {})[runs.gpu] = results.decode_floors(runs, folder)
        if (folder := runs.folder("training")) is not None:
            texts.setdefault(("studies/training/README.md", "training"), {})[runs.gpu] = training.text(folder, runs.gpu)
        if (folder := runs.folder("models")) is not None:
            texts.setdefault(("studies/dropin/README.md", "models"), {})[runs.gpu] = models.text(folder)
    for part in parts():
        for runs in gpus:
            if (folder := runs.folder(part.run)) is not None:
                for file, text in _of_run(part, folder):
                    texts.setdefault((file, part.part), {})[runs.gpu] = text
    texts["README.md", "results"] = {"": results.render(root, gpus)}
    texts |= {("docs/wrong.md", name): {"": text} for name, text in wrong.render(root, gpus).items()}
    files: dict[str, str] = {f"analysis/{name}.schema.json": schema.render(name) + "\n" for name in schema.FORMS}
    for (file, name), by_gpu in texts.items():
        files[file] = _with_part(root, file, name, join_gpus(by_gpu), files.get(file))
    return files


def parts() -> list[Part]:
    """Return what parts.toml says. Raises: InputError if it is malformed."""
    try:
        return msgspec.convert(tomllib.loads(PARTS.read_text(encoding="utf-8"))["part"], list[Part])
    except (ValueError, KeyError) as error:
        raise InputError(f"{PARTS.name}: {error}; its first lines say what it holds.") from None


def _of_run(part: Part, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield (file, text) of a part from one run: one file, or one for each value of `each` in the first table."""
    listed = [
        one for one in part.tables if not one.optional or packed.find(folder / "tables" / f"{one.name}.csv").exists()
    ]
    part = msgspec.structs.replace(part, tables=listed)
    tables = {one.name: read_table(folder, one.name) for one in part.tables}
    if not part.each:
        yield part.file, _text(part, part.file, folder, tables)
        return
    first = tables[part.tables[0].name]
    for value, of in first.groupby(part.each, sort=False):
        file = part.file.replace(f"{{{part.each}}}", str(value))
        own = {name: rows[rows["op"].isin(of["op"].unique())] for name, rows in tables.items()}
        text = _text(part, file, folder, own)
        yield file, "\n\n".join(filter(None, [text, absent(str(value)) if part.each == "folder" else ""]))


def absent(folder: str = "") -> str:
    """Return a sentence with the libraries that kernels/baselines.toml says were not run: for a folder, or all."""
    declared = tomllib.loads((ROOT / "kernels" / "baselines.toml").read_text(encoding="utf-8"))["absent"]
    names = [
        f"`{one['library']}`{f' {version}' if (version := one['version']) else ''}"
        for one in declared
        if not folder or folder in one["folders"].split()
    ]
    return (
        f"Not run, so no ratio above covers them: {', '.join(names)} (kernels/baselines.toml says why)."
        if names
        else ""
    )


def _text(part: Part, file: str, folder: Path, tables: Mapping[str, pd.DataFrame]) -> str:
    up = "../" * file.count("/")
    blocks = [block for one in part.tables for block in _blocks(one, tables[one.name])] or ["Nothing of it was timed."]
    if part.figure:
        blocks.append(f"![{part.figure}]({up}reports/{folder.name}/figures/{part.figure}.svg)")
    files = dict.fromkeys(packed.find(folder / "tables" / f"{one.name}.csv").name for one in part.tables)
    names = ", ".join(f"[{name}]({up}reports/{folder.name}/tables/{name})" for name in files)
    return "\n\n".join([*blocks, f"From {names} of `reports/{folder.name}`, which `make readme` builds."])


def _blocks(shown: Shown, rows: pd.DataFrame) -> Iterator[str]:
    for column, wanted in shown.where.items():
        rows = rows[rows[column].isin(wanted if isinstance(wanted, list) else [wanted])]
    rows = rows.sort_values(shown.sort, kind="stable") if shown.sort else rows
    rows = rows.head(shown.rows) if shown.rows else rows
    if rows.empty or (shown.measured and rows[shown.measured].isna().all()):
        return
    if shown.count:
        counted = rows[shown.count].fillna("not measured").value_counts()
        yield f"**{len(rows)} rows:** {', '.join(f'{count} {value}' for value, count in counted.items())}."
    if shown.title:
        yield shown.title
    cells = {name: [filled(form, row) for row in rows.to_dict("records")] for name, form in shown.columns.items()}
    unknown = [name for name, column in cells.items() if set(column) == {MISSING}]
    cells = {name: column for name, column in cells.items() if name not in unknown}
    sides = ["right" if _is_numeric(shown.columns[name], rows) else "left" for name in cells]
    yield markdown.table_of(list(cells), list(map(list, zip(*cells.values(), strict=True))), sides)
    if unknown:
        yield f"Blank in every row: {'; '.join(unknown)}."


def _is_numeric(form: str, rows: pd.DataFrame) -> bool:
    return all(pd.api.types.is_numeric_dtype(rows[name]) for name in FIELD.findall(form))


def join_gpus(texts: Mapping[str, str]) -> str:
    """Return a part of a README: the text of a single GPU unchanged, or each GPU's text under its name."""
    if len(texts) == 1:
        return next(iter(texts.values()))
    return "\n\n".join(f"### {gpu}\n\n{text.strip()}" for gpu, text in texts.items())


def _with_part(root: Path, file: str, part: str, text: str, so_far: str | None) -> str:
    """Return the text of a Markdown file with one part replaced; `so_far` is its text after earlier replacements."""
    markers = f"`<!-- begin: {part} -->` and `<!-- end: {part} -->`"
    if so_far is None and not (root / file).is_file():
        raise InputError(f"{file} is missing; write it, with {markers} where its tables go")
    try:
        return replace_part(so_far or (root / file).read_text(encoding="utf-8"), part, text)
    except ValueError as error:
        raise InputError(f"{file}: {error}; write {markers}") from None


def replace_part(text: str, name: str, content: str) -> str:
    """Return `text` with the part `name` replaced by `content`.

    Raises: ValueError if the markers are not there exactly once.
    """
    pattern = re.compile(rf"(<!-- begin: {re.escape(name)} -->\n).*?(<!-- end: {re.escape(name)} -->)", re.DOTALL)
    new, count = pattern.subn(lambda match: f"{match[1]}\n{content.strip()}\n\n{match[2]}", text)
    if count != 1:
        raise ValueError(f"the markers of the part `{name}` occur {count} times, expected once")
    return new


def transcript() -> str:
    """Return what the report on BEFORE prints on a terminal."""
    capture = load([ROOT / BEFORE])
    built = pipeline.analyse(capture, declared(capture))
    to = terminal.console(io.StringIO(), plain=True)
    to.height = SCREEN_LINES
    shown = terminal.screen(to, built.report, built.tables, [], BEFORE)
    return _console(f"make report RUN={BEFORE}", to, shown, SHOWN_LINES)


def before_after() -> str:
    """Return the first lines of what a comparison of BEFORE with AFTER prints."""
    to = terminal.console(io.StringIO(), plain=True)
    compared = compare([ROOT / BEFORE], [ROOT / AFTER])
    return _console(f"make compare A={BEFORE} B={AFTER}", to, comparison.screen(compared, to.width), COMPARED_LINES)


def _console(command: str, to: Console, shown: RenderableType, most: int) -> str:
    with to.capture() as printed:
        to.print(shown, crop=False)
    lines = [line.rstrip() for line in printed.get().splitlines()]
    lines = [*lines[:most], "…"] if len(lines) > most else lines
    return "\n".join(["```console", f"$ {command}", *lines, "```"])


def _targets(root: Path) -> str:
    """Return the targets of the Makefiles with their descriptions."""
    makefiles = "".join((root / name).read_text(encoding="utf-8") for name in ("Makefile", "studies/Makefile"))
    found = re.findall(r"^([a-z-]+):.*?  ## (.+)$", makefiles, re.MULTILINE)
    return plain(["target", "what it does"], [[f"`make {name}`", markdown.escape_prose(said)] for name, said in found])


def _index(reports: Path) -> str:
    """Return the list of the committed runs that have a report."""
    lines = ["| run | what | conditions |", "|---|---|---|"]
    for file in sorted(reports.glob("*/report.json*")):
        content = json.loads(packed.read_bytes(file))
        named = {row["name"]: row["value"] for row in content["conditions"]}
        told = "; ".join(f"{one} {named[one]}" for one in ("driver", "torch", "nsys", "ncu", "weights") if one in named)
        lines.append(f"| [{file.parent.name}]({file.parent.name}) | {content['title']} | {told or 'not recorded'} |")
    return "\n".join(lines)


def goals_table(goals: pd.DataFrame) -> str:
    """Return the table of the goals for kernels: the shapes that reach each, the least speed-up, and the verdict."""
    headers = ["goal", "times as fast", "shapes that reach it", "with their whole interval", "least (p5 – p95)", "met"]
    body = [[*said, "yes" if met else "**no**"] for *said, met in wrong.judged(goals)]
    return markdown.table_of(headers, body, ["left", "left", "right", "right", "left", "left"])


if __name__ == "__main__":
    sys.exit(main())
