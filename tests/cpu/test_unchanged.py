"""Every committed capture replays unchanged as its timeline is, or says why not; unchanged.csv holds what was found."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkout import loaded

KEY = Path(__file__).resolve().parents[1] / "answer_key"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def unchanged() -> Any:
    return loaded("tests/answer_key/unchanged.py")


def test_every_committed_capture_replays_as_its_timeline_is(unchanged: Any) -> None:
    found = list(unchanged.every())
    with unchanged.FILE.open(encoding="utf-8", newline="") as kept:
        assert found == list(csv.DictReader(kept)), "python tests/answer_key/unchanged.py"
    off = np.abs([float(row["off"]) for row in found if not row["refused"]])
    assert len(off) >= 240
    assert (off <= 0.02).mean() >= 0.9
    assert off.max() <= 0.05
    refused = [row for row in found if row["refused"]]
    assert len(refused) <= 0.1 * len(found)
    assert all("the steps depend on" in row["refused"] or "repeats" in row["refused"] for row in refused)
    assert {row["capture"].partition("/")[0] for row in found} >= {"reports", "examples", "tests", "studies", "tuned"}
