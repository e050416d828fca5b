"""Describe what the code declares: columns of all tables, fields of report.json, rules for kernels."""

import importlib
import pkgutil

import studies
from analysis import pipeline
from analysis.diagnosis.judge import all_rules
from analysis.formats.files import document_fields
from analysis.formats.report import KERNEL_REPORT, REPORT
from analysis.page import markdown
from analysis.tables.declare import Declaration, Table, arrange, beside, find
from studies.ladder.build import declared_tables
from studies.publish.committed import plain


def every() -> list[Declaration]:
    """Return what the reports on all captures have: what every report shares, and what each study adds to its own."""
    names = [found.name for found in pkgutil.iter_modules(studies.__path__) if found.ispkg and found.name != "ladder"]
    found = find(*(importlib.import_module(f"studies.{name}") for name in names))
    return beside(pipeline.declarations(), arrange(found, studies.TABLES))


def document_columns() -> str:
    """Return the generated text of analysis/COLUMNS.md: a list of all tables, studies included, then their columns."""
    tables = [one for one in every() if isinstance(one, Table)]
    tables = [
        *(one for one in tables if one.always),
        *declared_tables(),
        *(one for one in tables if not one.always),
    ]
    listed = [f"| [`{one.name}.csv`](#{one.name}csv) | {one.question} |" for one in tables]
    return "\n\n".join(["\n".join(["| table | question |", "|---|---|", *listed]), *(one.document() for one in tables)])


def document_json() -> str:
    """Return the generated text of analysis/JSON.md: the fields that `report.py --json` prints."""
    texts = []
    for file, said in ((REPORT, "`--json`, and `report.json`"), (KERNEL_REPORT, "`--json --kernel NAME`")):
        lines = [
            f"{said}: `kind` is `{file.kind}`, `schema_version` is {file.version}.",
            "",
            "| field | type | meaning |",
        ]
        lines += [
            "|---|---|---|",
            *(f"| `{one}` | {kind} | {meaning} |" for one, kind, meaning in document_fields(file.content)),
        ]
        texts.append("\n".join(lines))
    return "\n\n".join(texts)


def document_rules() -> str:
    """Return the generated text of kernels/specimens/README.md: what each rule for kernels rests on."""
    body = [
        [f"`{one.defect}`", one.tier, f"{one.sure:.0%}", one.model,
         markdown.escape_prose(one.because), markdown.escape_prose(one.wrong_if)]
        for one in all_rules()
    ]  # fmt: skip
    return plain(["defect", "tier", "sure", "bound by", "fires because", "wrong if"], body)
