"""The answer key of kernels: every defect was captured once in each set, and checked when it was."""

import json
import lzma
import re
from collections import Counter

import pytest

from kernels.specimens.registry import FOLDER, HALVES, SETS, specimens, vocabulary

pytestmark = pytest.mark.studies

KERNELS = FOLDER / "captures"


def test_every_defect_has_one_pair_in_each_set() -> None:
    defects = vocabulary()["kernel"]
    assert len(defects) >= 32
    slow = [one for one in specimens() if one.version == "slow"]
    for half in SETS:
        assert Counter(one.defect for one in slow if one.half == half) == dict.fromkeys(defects, 1)


@pytest.mark.parametrize("half", HALVES)
def test_every_kernel_of_a_half_was_counted_once(half: str) -> None:
    names = [one.name for one in specimens() if one.half == half]
    for page in ("ncu_raw", "ncu_ratios"):
        exported = lzma.decompress((KERNELS / half / f"{page}.csv.xz").read_bytes()).decode()
        assert sorted(re.findall(r"specimens/(\w+/\w+/\w+):", exported)) == names
    assert json.loads((KERNELS / half / "ncu.json").read_text())["status"] == "ok"


def test_every_kernel_was_right_when_it_was_captured_and_no_pair_wins_nothing() -> None:
    checked = (KERNELS / "check.txt").read_text().splitlines()
    assert [line.partition(":")[0] for line in checked] == [f"ok {one.name}" for one in specimens()]
    assert json.loads((KERNELS / "manifest.json").read_text())["weak"] == {}
