"""A committed run keeps captures, manifest and report.json: its report is built again from them, number by number."""

import json
from pathlib import Path

import numpy as np
import pytest

from analysis import api, pipeline
from analysis.diagnosis.step_tables import answer_steps
from analysis.formats import csv_text, packed
from analysis.replay.decompose import decompose
from analysis.show import document, dumped
from analysis.tables.declare import Table

ROOT = Path(__file__).resolve().parents[2]
OF_STUDIES = {
    "h100-decode", "h100-studies", "h200-accounting", "h200-decode", "h200-gpt2-layers", "h200-lectures",
    "h200-multi-gpu", "h200-studies",
}  # fmt: skip
BUILT = [path.parent for path in sorted((ROOT / "reports").glob("*/report.json*"))]

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", sorted({folder.name for folder in BUILT} - OF_STUDIES))
def test_a_committed_report_is_built_again(name: str) -> None:
    build_again(ROOT / "reports" / name)


def build_again(folder: Path) -> None:
    capture = api.load(folder / "captures")
    built = pipeline.analyse(capture, api.declared(capture))
    report, _ = pipeline.draw(built, only=None)
    made = json.loads(dumped(document(report)))
    kept = json.loads(packed.read_bytes(packed.find(folder / "report.json")))
    assert made.keys() == kept.keys()
    for name in made:
        assert made[name] == kept[name], f"{folder.name}/report.json, {name}: run `make readme`"
    declared = {one.name: one for one in built.declared if isinstance(one, Table)}
    for table in sorted((folder / "tables").glob("*.csv")):
        if (rows := built.tables.get(table.stem)) is not None:  # else one of an earlier build, which git ignores
            assert csv_text.written(declared[table.stem].filed(rows)).encode() == table.read_bytes(), table.name
    what_a_finding_cites_stands_in_its_table(built)
    for step in (one.view.step for one in built.facts.once(answer_steps)):
        assert step.reason or abs(step.off) < 0.05
        parts = decompose(step.run)
        assert sum(ns for _, ns in parts.parts) == parts.wall_ns


def what_a_finding_cites_stands_in_its_table(built: pipeline.Built) -> None:
    """By the columns that name the row; a cited value may join several rows: `range + range`."""
    assert [one.cells for one in built.report.findings].count([]) == 0
    for item in (item for one in built.report.findings for item in one.cells):
        table = built.tables[item.table].astype(str)
        fits = [table[name].isin([str(value), *str(value).split(" + ")]) for name, value in item.row.items()]
        assert np.logical_and.reduce(fits).any(), item
