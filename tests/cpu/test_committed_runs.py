"""A committed run keeps captures, manifest and report.json: its report is built again from them, number by number."""

import json
from pathlib import Path

import pytest

from analysis import report

ROOT = Path(__file__).resolve().parents[2]
BUILT = [path.parent for path in sorted((ROOT / "reports").glob("*/report.json"))]

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("folder", BUILT, ids=lambda folder: folder.name)
def test_a_committed_report_is_built_again(folder: Path, tmp_path: Path, undrawn: None) -> None:
    assert report.main([str(folder / "captures"), "--out", str(tmp_path / "out"), "--quiet"]) == 0
    built, kept = (json.loads((one / "report.json").read_text("utf-8")) for one in (tmp_path / "out", folder))
    assert built.keys() == kept.keys()
    for name in built:
        assert built[name] == kept[name], f"{folder.name}/report.json, {name}: run `make readme`"
    tables = tmp_path / "out" / "tables"
    for table in sorted((folder / "tables").glob("*.csv")):
        if (tables / table.name).is_file():  # else one of an earlier build, which git ignores
            assert (tables / table.name).read_bytes() == table.read_bytes(), table.name
