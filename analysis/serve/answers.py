"""Answer one question about captures as JSON of at most MOST_CHARACTERS characters, without writing a file."""

import json
import math
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import msgspec
import pandas as pd

from analysis import pipeline
from analysis.api import compare as compare_paths
from analysis.api import declared
from analysis.capture.load import load
from analysis.formats.agent import MOST_CHARACTERS
from analysis.formats.errors import InputError
from analysis.formats.place import ROOT
from analysis.page.markdown import render_issue, saves
from analysis.serve.shelf import Shelf, State
from analysis.show import find_finding

MOST_ROWS = 1_000
SECONDS = 120  # for a replay: a pattern may take forever
LENGTHS = (2_000, 300, 60)  # of a text, in an answer that is too long
Kind = Literal["drop", "scale", "merge", "graph", "host", "bucket", "stream"]


@dataclass(frozen=True)
class Change:
    """A change of the steady step, as of `kernel-ledger what-if`."""

    kind: Kind
    pattern: str
    value: str = ""


class Answers:
    """The questions, each a method."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def list_captures(self, limit: int = 200, offset: int = 0) -> str:
        """List the names of the captures below the folders given at the start."""
        return _page(list(self._shelf.captures()), "captures", limit, offset, {})

    def summary(self, capture: str) -> str:
        """Say what ran, what each steady step consists of, what is missing, and which tables there are."""
        report = self._built(capture).report
        content = {
            "title": report.title, "program": report.program, "steps": report.steps,
            "counters": report.trust.sentence or report.coverage.sentence, "findings": len(report.findings),
            "kernels": len(report.kernels), "missing": report.missing,
            "tables": [{"name": one.name, "rows": one.rows, "question": one.question} for one in report.tables],
        }  # fmt: skip
        return _fitted(_plain(content), "tables", 0)

    def findings(self, capture: str, kind: str = "", limit: int = 20, offset: int = 0) -> str:
        """List the findings by what they could save, the largest first; `kind` keeps those of one cause."""
        report = self._built(capture).report
        listed = [
            {"id": one.id, "rank": one.rank, "kind": one.kind, "title": one.title, "scope": one.scope,
             "saves": saves(one, report), "confidence": one.confidence, "do": one.do}
            for one in report.findings
            if kind in ("", one.kind)
        ]  # fmt: skip
        return _page(listed, "findings", limit, offset, {})

    def finding(self, capture: str, id: str) -> str:  # noqa: A002 - the name of the field
        """Give one finding by its id or rank: its evidence, what would refute it, how to check it, and as an issue."""
        report = self._built(capture).report
        found = find_finding(report, id)
        return _fitted({"finding": _plain(found), "issue": render_issue(report, found)}, None, 0)

    def kernels(self, capture: str, step: str = "", disposition: str = "", limit: int = 50, offset: int = 0) -> str:
        """List the kernels of at least 0.5 % of a step with what to do: faster, fuse, remove, overlap or leave."""
        rows = [
            one for one in self._built(capture).report.kernels
            if step in ("", one.step) and disposition in ("", str(one.disposition))
        ]  # fmt: skip
        return _page(rows, "kernels", limit, offset, {})

    def table(
        self, capture: str, name: str, where: dict[str, str | float] | None = None,
        contains: dict[str, str] | None = None, columns: list[str] | None = None, limit: int = 50,
        offset: int = 0,
    ) -> str:  # fmt: skip
        """Give rows of a table: those whose columns equal `where`, and whose texts hold those of `contains`."""
        rows = self._built(capture).tables.get(name)
        if rows is None:
            known = ", ".join(sorted(self._built(capture).tables))
            raise InputError(f"{name[:80]}: is no table of this report; it has {known}")
        unknown = [one for one in (*(where or {}), *(contains or {}), *(columns or [])) if one not in rows]
        if unknown:
            raise InputError(f"{unknown[0][:80]}: is no column of {name}; it has {', '.join(map(str, rows))}")
        for column, value in (where or {}).items():
            if pd.api.types.is_numeric_dtype(rows[column]) == isinstance(value, str):
                held = "text" if isinstance(value, int | float) else "numbers"
                raise InputError(f"{column}: holds {held}, so no row can equal {str(value)[:80]!r}")
            rows = rows[rows[column].eq(value).fillna(False).astype(bool)]
        for column, text in (contains or {}).items():
            rows = rows[rows[column].astype(str).str.contains(text, case=False, regex=False)]
        shown = rows[list(columns)] if columns else rows
        return _page(shown.to_dict("records"), "rows", limit, offset, {"table": name})

    def what_if(self, capture: str, changes: list[Change], phase: str = "") -> str:
        """Replay the steady step with changes, all at once, and say what they save of it.

        drop, scale (value: a factor), merge and bucket (how many) take a regular expression for operations, graph and
        host (a factor) one for ranges; stream (a name) moves operations.
        """
        source, _ = self._shelf.place(capture)
        asked = [f"--{one.kind}={one.pattern}{f'={one.value}' if one.value else ''}" for one in changes]
        asked += [f"--phase={phase}"] if phase else []
        command = [sys.executable, str(ROOT / "analysis" / "what_if.py"), "--json", *asked, "--", str(source)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            raise InputError(f"the replay took more than {SECONDS} s; use a simpler pattern") from None
        except ValueError:
            raise InputError("a pattern holds a NUL character") from None
        if done.returncode:
            raise InputError((done.stderr.strip().splitlines() or ["the replay failed"])[-1])
        return _fitted(json.loads(done.stdout), None, 0)

    def compare(self, a: str, b: str, limit: int = 20) -> str:
        """Compare capture A with capture B: the verdict on the step, and the kernels and layers that changed most."""
        (before, _), (after, _) = self._shelf.place(a), self._shelf.place(b)
        found = compare_paths(before, after)
        steps = [
            {"name": one.name, "a_ns": one.a_ns, "b_ns": one.b_ns, "judged": _plain(one.judged), "said": one.said,
             "waterfall": [_plain(bar) for bar in one.waterfall[:max(limit, 0)]]}
            for one in found.steps
        ]  # fmt: skip
        head = {
            "judged": found.judged, "times": [found.a.times, found.b.times], "differences": found.differences,
            "notes": found.notes,
        }  # fmt: skip
        return _fitted(_plain(head) | {"steps": steps}, "steps", 0)

    def _built(self, capture: str) -> pipeline.Built:
        source, state = self._shelf.place(capture)
        return _built(source, state)


@lru_cache(maxsize=4)
def _built(source: Path, state: State) -> pipeline.Built:
    """Analyse a capture; `state` makes a changed one a new question."""
    capture = load([source])
    return pipeline.analyse(capture, declared(capture))


def _page(rows: Sequence[Any], key: str, limit: int, offset: int, head: dict[str, Any]) -> str:
    """Return at most `limit` of the rows, from `offset` on, and how many there are."""
    first, most = max(offset, 0), min(max(limit, 0), MOST_ROWS)
    return _fitted(head | {"of": len(rows), key: [_plain(one) for one in rows[first : first + most]]}, key, first)


def _fitted(content: dict[str, Any], key: str | None, offset: int) -> str:
    """Return content as JSON. One that is too long loses the end of its list `key`, then the middle of its texts."""
    text = _dumped(content)
    if len(text) <= MOST_CHARACTERS:
        return text
    if key is not None and isinstance(content[key], list) and content[key]:
        items = content[key]

        def cut(most: int) -> str:
            said = f"The answer was too long: it has {most} of {len(items)} {key}. Ask for fewer columns, or with "
            said += f"offset={offset + most}."
            return _dumped(content | {key: items[:most], "cut": said})

        if most := _most(len(items), lambda number: len(cut(number)) <= MOST_CHARACTERS):
            return cut(most)
    for longest in LENGTHS:
        said = f"The answer was too long: texts are cut after {longest} characters."
        clipped = _clipped(content, longest) | {"cut": said}
        if len(text := _dumped(clipped)) <= MOST_CHARACTERS:
            return text
    raise InputError("the answer is too long, even with its texts cut; ask for fewer rows or columns")


def _most(count: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to `count` that fits; 0 if 1 does not."""
    low, high = 0, count
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _clipped(value: Any, longest: int) -> Any:
    if isinstance(value, dict):
        return {str(name)[:longest]: _clipped(one, longest) for name, one in value.items()}
    if isinstance(value, list):
        return [_clipped(one, longest) for one in value]
    return f"{value[: longest - 1]}…" if isinstance(value, str) and len(value) > longest else value


def _dumped(content: Any) -> str:
    return json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    """Return Structs, numbers of tables and unknown values for JSON."""
    if isinstance(value, msgspec.Struct):
        return _plain(msgspec.to_builtins(value, enc_hook=_plain))
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if hasattr(value, "item"):
        value = value.item()
    if value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value if isinstance(value, str | int | float) else str(value)
