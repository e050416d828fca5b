"""The Python interface: read captures, analyse them, and use or save the answer.

import kernel_ledger

capture = kernel_ledger.load("runs/mine/captures")
analysis = kernel_ledger.analyse(capture)
analysis.report.findings[0].title
analysis.tables["kernels"]
analysis.save("runs/mine")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from analysis import pipeline, studies
from analysis.capture.load import load as read
from analysis.capture.model import Capture
from analysis.capture.text import locale_style
from analysis.formats import writing
from analysis.formats.comparison import Comparison
from analysis.formats.errors import UsageError
from analysis.formats.report import Report
from analysis.page import jinja, notebook
from analysis.page.data import Data
from analysis.page.html import TEMPLATE, Block, page_data, render_html
from analysis.page.markdown import render_markdown
from analysis.show import document, dumped
from analysis.tables.declare import Declaration, Table, beside, pictures
from analysis.tables.lanes import Lanes, lanes_of

Images = dict[str, dict[str, bytes]]


def load(*paths: str | Path, locale: str | None = None, progress: bool = False) -> Capture:
    """Read exports of nsys, ncu and torch.profiler: files, or folders of files. The content of a file tells its kind.

    `locale` tells how the exports write numbers where they do not prove it.

    Raises: LedgerError, one sentence, for unusable input.
    """
    style = locale_style(locale) if locale is not None else None
    return read([Path(path) for path in paths], progress=progress, style=style)


def analyse(capture: Capture, *, extrapolate: bool = False, only: str | None = None) -> Analysis:
    """Analyse a capture: build the report with its tables and figures. Write no file.

    `extrapolate`: give kernels without counters those of a sibling. `only`: build just this figure and the tables whose
    names begin with it, without findings.
    """
    built = pipeline.analyse(capture, declared(capture), extrapolate=extrapolate, only=only, files=True)
    lanes = None if only else lanes_of(built.facts)  # before the copy that draws: both take much memory
    write: Callable[[], dict[str, bytes]] = lambda: built.csv | pipeline.write(built, only=only)  # noqa: E731
    built.facts.begin([] if only else [built.figures])
    draw: Callable[[], tuple[Report, Images]] = lambda: pipeline.draw(built, only=only)  # noqa: E731
    return Analysis(built.report, built.tables, built.declared, draw, write, built.begun, only, lanes)


def compare(
    a: str | Path | Sequence[str | Path], b: str | Path | Sequence[str | Path], *, least: float | None = None
) -> Comparison:
    """Compare side A with side B; each is a path, or several paths of runs. Write no file.

    `least`: the smallest change that counts, as a share.

    Raises: LedgerError, one sentence, for unusable input.
    """
    from analysis.comparison.compare import compare as of_paths  # scipy takes half a second

    sides = [[Path(side)] if isinstance(side, str | Path) else [Path(one) for one in side] for side in (a, b)]
    return of_paths(*sides, least=least)


def declared(capture: Capture) -> list[Declaration]:
    """Return what the report on a capture has: what every report shares, and what a study adds to its own files."""
    return beside(pipeline.declarations(), studies.declarations(capture))


@dataclass(frozen=True, repr=False)
class Analysis:
    """The answer: the report, its tables by name, and its figures, which are drawn while tables are written."""

    without_figures: Report
    tables: dict[str, pd.DataFrame]
    declared: list[Declaration]
    drawn: Callable[[], tuple[Report, Images]]
    written: Callable[[], dict[str, bytes]]  # files of tables, by name
    begun: Data | None = None  # of the page
    only: str | None = None
    lanes: Lanes | None = None  # the host's side of the timeline

    @cached_property
    def _drawn(self) -> tuple[Report, Images]:
        return self.drawn()

    @property
    def report(self) -> Report:
        """Return the report with its list of figures."""
        return self._drawn[0]

    @property
    def images(self) -> Images:
        """Return the bytes of each figure: its name -> "svg" or "png" -> bytes."""
        return self._drawn[1]

    def figure(self, name: str) -> notebook.Figure:
        """Return a figure as SVG text, which a notebook shows.

        Raises: UsageError if the report has no such figure.
        """
        found = self.images.get(name, {})
        if "svg" not in found:
            raise UsageError(f"the report has no figure {name}; it has {', '.join(self.images) or 'none'}")
        return notebook.Figure(found["svg"].decode())

    def save(self, folder: str | Path) -> list[str]:
        """Write the report into a folder, and return the names of the files. A failure leaves the folder as it was.

        Raises: UsageError if the folder is a file, or another process writes there; OSError, which names a file.
        """
        out = Path(folder)
        if out.exists() and not out.is_dir():
            raise UsageError(f"{out} is a file; name a folder")
        with writing.exchanged(out) as (put, finish):
            names = []
            for name, data in self._files():
                put(name, data)
                names.append(name)
            finish([] if self.only else self._of_another_report(names, out))
        return names

    def __repr__(self) -> str:
        return notebook.plain(self.report, list(self.tables), list(self.images))

    def _repr_html_(self) -> str:
        return notebook.html(self.report, list(self.tables), list(self.images))

    @cached_property
    def _block(self) -> Block:
        return page_data(self.without_figures, self.tables, self.lanes, self.begun)

    def _texts(self) -> dict[str, str]:
        block = self._block
        svgs = {name: image["svg"].decode() for name, image in self.images.items()}
        return {
            "report.json": dumped(document(self.report)) + "\n",
            "report.md": render_markdown(self.report, self.tables),
            "report.html": render_html(self.report, self.tables, svgs, block),
        }

    def _files(self) -> Iterator[tuple[str, bytes]]:
        """Yield the files of the report, name relative to its folder and content: first what needs no other process."""
        if self.only is None:
            _ = self._block, jinja.template(TEMPLATE)  # made while the figures are drawn
        yield from ((f"tables/{name}.csv", data) for name, data in self.written().items())
        for name, image in self.images.items():
            yield from ((f"figures/{name}.{suffix}", content) for suffix, content in image.items())
        if self.only is None:
            yield from ((name, text.encode()) for name, text in self._texts().items())

    def _of_another_report(self, names: list[str], out: Path) -> list[str]:
        """Return files of an older report that this one lacks, such as a figure whose table is now empty."""
        ours = [f"tables/{one.name}.csv" for one in self.declared if isinstance(one, Table)]
        for picture in pictures(self.declared):
            found = (path for suffix in ("svg", "png") for path in out.glob(f"figures/{picture.name}.{suffix}"))
            ours += [f"figures/{path.name}" for path in found]
        return [name for name in dict.fromkeys(ours) if name not in names]
