"""Every committed capture replays unchanged as its timeline is, or says why not; unchanged.csv holds what was found."""

import csv
from typing import Any

import numpy as np
import pytest

from tests.checkout import loaded

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def unchanged() -> Any:
    return loaded("tests/answer_key/unchanged.py")


def test_some_captures_replay_as_their_timelines_are(unchanged: Any) -> None:
    """`python tests/answer_key/unchanged.py` replays all, and writes the table again."""
    with unchanged.FILE.open(encoding="utf-8", newline="") as file:
        kept = list(csv.DictReader(file))
    found = list(unchanged.every(stride=12))
    sampled = {row["capture"] for row in found}
    assert found == [row for row in kept if row["capture"] in sampled], "python tests/answer_key/unchanged.py"
    named = {row["capture"] for row in kept}
    assert {str(folder.relative_to(unchanged.ROOT)) for folder in unchanged.committed()} <= named
    assert {"/".join(one) for one in unchanged.programs()} <= {name.rpartition("/")[0] for name in named}


def test_nearly_every_step_replays_as_it_ran(unchanged: Any) -> None:
    with unchanged.FILE.open(encoding="utf-8", newline="") as file:
        kept = list(csv.DictReader(file))
    off = np.abs([float(row["off"]) for row in kept if not row["refused"]])
    assert len(off) >= 240
    assert (off <= 0.02).mean() >= 0.9
    assert off.max() <= 0.05
    refused = [row for row in kept if row["refused"]]
    assert len(refused) <= 0.1 * len(kept)
    assert all("the steps depend on" in row["refused"] or "repeats" in row["refused"] for row in refused)
