"""A committed run keeps captures, manifest and report.json: its report is built again from them, number by number."""

import json
from pathlib import Path

import pytest

from analysis import report
from studies import runs

ROOT = Path(__file__).resolve().parents[2]
OVERVIEW = runs.folders("overview")[:1]  # test_report.py compares all of it
BUILT = [path.parent for path in sorted((ROOT / "reports").glob("*/report.json")) if path.parent not in OVERVIEW]

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("folder", BUILT, ids=lambda folder: folder.name)
def test_a_committed_report_is_built_again(folder: Path, tmp_path: Path, undrawn: None) -> None:
    assert report.main([str(folder / "captures"), "--out", str(tmp_path / "out"), "--quiet"]) == 0
    built, kept = (json.loads((one / "report.json").read_text("utf-8")) for one in (tmp_path / "out", folder))
    assert built.keys() == kept.keys()
    for name in built:
        assert built[name] == kept[name], f"{folder.name}/report.json, {name}: run `make readme`"
    for table in sorted((folder / "tables").glob("*.csv")):
        assert (tmp_path / "out" / "tables" / table.name).read_bytes() == table.read_bytes(), table.name
