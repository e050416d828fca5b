"""Analyse captures for the tests, with the parts of all studies, and list a report's tables by name."""

import hashlib
import pickle
from collections.abc import Mapping
from typing import Any

import pandas as pd

from analysis import pipeline
from analysis.capture.model import Capture
from analysis.facts import Facts
from analysis.formats.report import Missing
from analysis.show import document
from analysis.tables.declare import Table
from analysis.tables.declare import every as every_part
from studies.ladder.build import declared_tables
from studies.publish.columns import every

DECLARED = every()
LADDER_TABLES = {table.name: table for table in declared_tables()}
_ALL = {one.name: one for one in DECLARED if isinstance(one, Table)}
TABLES = {name: table for name, table in _ALL.items() if table.always}
STUDY_TABLES = {name: table for name, table in _ALL.items() if not table.always}


def analyse(capture: Capture, *, extrapolate: bool = False) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
    """Return the content of report.json and the tables of a capture."""
    made = pipeline.analyse(capture, DECLARED, extrapolate=extrapolate)
    return document(made.report), made.tables


def content_of(capture: Capture) -> str:
    """Return a digest of a capture. Equal digests mean equal captures, of which an analysis says the same."""
    return hashlib.sha256(pickle.dumps(capture)).hexdigest()


def page(capture: Capture) -> str:
    """Return report.md of a capture."""
    from analysis.page.markdown import render_markdown

    made = pipeline.analyse(capture, DECLARED)
    return render_markdown(made.report, made.tables)


def facts_of(raw: Capture | None = None, built: Mapping[Any, Any] | None = None, **values: Any) -> Facts:
    """Return the facts of a capture, with these values in place of those that would be computed.

    `built` gives what functions of facts, and tables, would build.
    """
    facts = Facts(raw or Capture())
    facts._built.update(built or {})
    vars(facts).update(values)
    return facts


def notes_of(facts: Facts) -> list[str]:
    return every_part(DECLARED, "note", facts)


def missing_of(facts: Facts) -> list[Missing]:
    return every_part(DECLARED, "missing", facts)
