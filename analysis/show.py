"""Print a report or the page of one kernel: a screen on a terminal, text for pipes, JSON for programs."""

from __future__ import annotations

import json
import math
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pandas as pd

from analysis.formats import symbols
from analysis.formats.console import tolerant
from analysis.formats.errors import UsageError
from analysis.formats.place import program
from analysis.formats.report import KERNEL_REPORT, REPORT, Finding, Report
from analysis.page import agent, editor, ledger, markdown
from analysis.tables import picks
from analysis.tables.declare import Table

if TYPE_CHECKING:
    from analysis.page import terminal_kernel  # rich takes 50 ms, and only a screen needs it

_PLAIN_RANGE = re.compile(r"[\w./*@-]{1,500}")  # a range name without special characters of ncu's filters
Tables = Mapping[str, pd.DataFrame]


def show_report(
    report: Report, tables: Tables, form: str, paths: Sequence[str], run: str, verbose: bool = False
) -> None:
    """Print a report in one of FORMS; `paths` are its files, `run` its folder in commands.

    `verbose`: with how to get what is missing.
    """
    if form in _FOR_PROGRAMS:
        print(_FOR_PROGRAMS[form](report, tables))
        if form == "editor" and not any(one.source for one in report.findings):
            print("no finding of this report has a source line; --format sarif lists them all", file=sys.stderr)
    elif form == "text":
        print(markdown.render_terminal(report, run=run, verbose=verbose))
        print(f"\nreport: {'  '.join(paths)}")
    else:
        from analysis.page import terminal

        to = terminal.console(tolerant(sys.stdout), plain=False)
        to.print(terminal.screen(to, report, tables, paths, run, verbose), crop=False)


def show_kernel(
    wanted: str,
    report: Report,
    tables: Tables,
    declared: Sequence[Table],
    form: str,
    sources: Sequence[Path],
) -> None:
    """Print the page of a kernel as screen, text or json.

    Raises: UsageError if `wanted` is no kernel of the report, or several.
    """
    kernel = of_kernel(wanted, report, tables, declared, sources)
    if form == "json":
        print(dumped(as_document(kernel)))
        return
    from analysis.page import terminal, terminal_kernel

    to = terminal.console(tolerant(sys.stdout), plain=form == "text")
    to.print(terminal_kernel.page(kernel, report, tables, to.width), crop=False)


def show_issue(wanted: str, report: Report) -> None:
    """Print a finding as the body of an issue.

    Raises: UsageError if `wanted` is no finding of the report.
    """
    print(markdown.render_issue(report, find_finding(report, wanted)), end="")


def find_finding(report: Report, wanted: str) -> Finding:
    """Return the finding with this id, or this rank.

    Raises: UsageError if there is none; it names those that there are.
    """
    for one in report.findings:
        if wanted in (one.id, str(one.rank)):
            return one
    known = "; ".join(f"{one.rank}: {one.id[:80]}" for one in report.findings[:6]) or "it has none"
    raise UsageError(f"{wanted[:80]!r} is no finding of this report, by rank and id: {known}")


def of_kernel(
    wanted: str, report: Report, tables: Tables, declared: Sequence[Table], sources: Sequence[Path]
) -> terminal_kernel.Kernel:
    """Return the page of a kernel. `sources` are the files or folders of the report's exports."""
    from analysis.page import terminal_kernel

    name = picks.find_kernel(tables, wanted)
    top = picks.top_kernels(tables)
    place = int(top.index[top["kernel"] == name][0])
    rows = picks.of_kernel(tables, name)
    ranges = [str(one) for one in rows["kernels"]["range"].dropna().unique()]
    why = {
        one.name: picks.why_unknown(one, picks.rows_of(rows, one.name), tables, report.missing, ranges)
        for one in declared
        if one.name in {part.table for part in terminal_kernel.PARTS}
    }
    why |= {"timing": picks.why_untimed(report.missing), "key": picks.why_without_range(report.missing)}
    row = top.loc[place]
    return terminal_kernel.Kernel(
        name, place + 1, len(top), row["launches"], row["time_ns"], row["share_frac"], rows, why,
        tuple(commands(name, place + 1, ranges, sources, _recaptures(rows))),
    )  # fmt: skip


LONGEST_COMMAND = 4000  # characters: a terminal takes no longer line


def _recaptures(rows: Mapping[str, pd.DataFrame]) -> list[str]:
    """Return what diagnosis.csv says captures the longest launch of a kernel again, of the first range first."""
    table = rows.get("diagnosis", pd.DataFrame())
    found = [str(one) for one in table["recapture"].dropna()] if "recapture" in table else []
    return [one for one in found if len(one) <= LONGEST_COMMAND]


def commands(
    name: str, place: int, ranges: Sequence[str], sources: Sequence[Path], recaptures: Sequence[str] = ()
) -> Iterator[tuple[str, str]]:
    """Yield (purpose, shell command) for the next steps with a kernel; `recaptures` as of `_recaptures`."""
    raw = [file for source in sources for file in _raw(source)]
    for suffix, tool, said in ((".ncu-rep", "ncu-ui", "counters"), (".nsys-rep", "nsys-ui", "timeline")):
        for file in (one for one in raw if one.suffix == suffix):
            yield f"reopen the {said} in NVIDIA's tool", f"{tool} {shlex.quote(str(file))}"
    base = f"-k {shlex.quote('regex:' + symbols.pattern(name, 200))}"
    within = next((one for one in ranges if _PLAIN_RANGE.fullmatch(one)), "")
    inside = f" --nvtx --nvtx-include {shlex.quote(within.replace('*', '0') + '/')}" if within else ""
    first_three = f"ncu --set full --import-source yes --clock-control none {base}{inside} -c 3 -o kernel PROGRAM"
    yield "measure it again with all sections of ncu", next(iter(recaptures), first_three)
    yield "export that for a report", "ncu --import kernel.ncu-rep --csv --page raw > ncu_raw.csv"
    given = " ".join(shlex.quote(str(one)) for one in sources)
    yield "print this page again", f"{program('python analysis/report.py', 'report')} {given} --kernel {place}"


def _raw(source: Path) -> list[Path]:
    """Return the reports of NVIDIA's tools for a source: in the run's folder raw/, or beside the exports."""
    folder = source if source.is_dir() else source.parent
    found = [*folder.glob("*.n*-rep"), *(folder / "raw").glob("*.n*-rep")]
    return sorted([*found, *(folder.parent / "raw").glob("*.n*-rep")] if folder.name == "captures" else found)[:4]


def as_document(kernel: terminal_kernel.Kernel) -> dict[str, Any]:
    """Return the document of `--json --kernel`: analysis.formats.report.KernelReport."""
    numbers = {name: _plain(getattr(kernel, name)) for name in ("launches", "time_ns", "share_frac")}
    tables = {
        name: [{str(key): _plain(value) for key, value in row.items()} for row in rows.to_dict("records")]
        for name, rows in kernel.tables.items()
    }
    listed = [{"what": what, "command": command} for what, command in kernel.commands]
    return KERNEL_REPORT.document(
        {"kernel": kernel.name, "place": kernel.place, "of": kernel.of, **numbers, "tables": tables,
         "why": dict(kernel.why), "commands": listed}
    )  # fmt: skip


def document(report: Report) -> dict[str, Any]:
    """Return the content of report.json."""
    return REPORT.document(msgspec.to_builtins(report, enc_hook=_plain))


def dumped(content: Mapping[str, Any]) -> str:
    """Return a document as the JSON text of report.json.

    Unpaired surrogates are escaped, since no file can hold them, and so are control characters, which a terminal obeys.
    """
    written = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False, default=_plain)
    return re.sub(r"[\x7f-\x9f\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", written)


_FOR_PROGRAMS: Mapping[str, Callable[[Report, Tables], str]] = {
    "json": lambda report, _: dumped(document(report)),
    "agent": agent.render_agent,
    "ledger": ledger.render_ledger,
    "ledger-2": lambda report, tables: ledger.render_ledger(report, tables, 2),
    "editor": lambda report, _: editor.render_editor(report),
    "sarif": lambda report, _: editor.render_sarif(report),
}
FORMS = ("screen", "text", *_FOR_PROGRAMS)


def _plain(value: Any) -> Any:
    """Return a table's value for JSON; None for an unknown one."""
    if value is None or value is pd.NA or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if hasattr(value, "item"):
        return _plain(value.item())
    if isinstance(value, str | int | float | list):
        return value
    raise TypeError(f"{type(value).__name__} has no place in JSON")
