"""A committed run keeps captures, manifest and report.json: its report is built again from them, number by number."""

import json
from pathlib import Path

import numpy as np
import pytest

from analysis import api, pipeline
from analysis.replay import savings
from analysis.replay.decompose import decompose

ROOT = Path(__file__).resolve().parents[2]
BUILT = [path.parent for path in sorted((ROOT / "reports").glob("*/report.json"))]

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("folder", BUILT, ids=lambda folder: folder.name)
def test_a_committed_report_is_built_again(folder: Path, tmp_path: Path) -> None:
    capture = api.load(folder / "captures")
    built = pipeline.analyse(capture, api.declared(capture))
    report, images = pipeline.draw(built, only=None)
    api.Analysis(report, built.tables, built.declared, lambda: (report, images)).save(tmp_path / "out")
    made, kept = (json.loads((one / "report.json").read_text("utf-8")) for one in (tmp_path / "out", folder))
    assert made.keys() == kept.keys()
    for name in made:
        assert made[name] == kept[name], f"{folder.name}/report.json, {name}: run `make readme`"
    tables = tmp_path / "out" / "tables"
    for table in sorted((folder / "tables").glob("*.csv")):
        if (tables / table.name).is_file():  # else one of an earlier build, which git ignores
            assert (tables / table.name).read_bytes() == table.read_bytes(), table.name
    what_a_finding_cites_stands_in_its_table(built)
    for step in savings.steps(capture):
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
