"""The answer key: every defect has a pair in both halves, and the machine code shows it where that can be told."""

import json
import lzma
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from kernels import objects
from kernels.specimens import build
from kernels.specimens.registry import BUILT, HALVES, HOLDOUT, PAIRS, SETS, Pair, specimens, vocabulary

ROOT = build.FOLDER.parent.parent
REGISTERED = re.compile(r"^(PAIR|CLEAN)\((\w+), (\w+)\)", re.MULTILINE)
KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\s*\(")


@pytest.fixture(scope="module")
def rows() -> dict[str, build.Row]:
    return {row["specimen"]: row for row in build.read_table()}


def test_every_defect_has_one_pair_in_each_set() -> None:
    defects = vocabulary()["kernel"]
    assert len(defects) >= 32
    slow = [one for one in specimens() if one.version == "slow"]
    for half in SETS:
        assert Counter(one.defect for one in slow if one.half == half) == dict.fromkeys(defects, 1)
    named = [one.kernel for one in specimens() if one.kernel]
    assert len(named) == len(set(named))
    assert {pair.defect for pair in PAIRS} == set(defects)


def test_the_driver_has_every_declared_specimen_and_no_other() -> None:
    found = {
        f"{half}/{'clean/' if kind == 'CLEAN' else ''}{name}"
        for source in build.sources()[1:]
        for kind, half, name in REGISTERED.findall(source.read_text("utf-8"))
    }
    assert found == {one.name.removesuffix(f"/{one.version}") for one in specimens() if one.half in BUILT}
    for source in build.sources()[1:]:
        halves = {half for _, half, _ in REGISTERED.findall(source.read_text("utf-8"))}
        assert halves == {source.parent.name}


def test_every_kernel_of_the_sources_is_declared() -> None:
    defined = {name for source in build.sources()[1:] for name in KERNEL.findall(source.read_text("utf-8"))}
    assert defined == {one.kernel for one in specimens() if one.kernel and one.half in BUILT}


def test_every_specimen_states_a_reference() -> None:
    for source in build.sources()[1:]:
        for body in re.split(r"^(?:PAIR|CLEAN)\(", source.read_text("utf-8"), flags=re.MULTILINE)[1:]:
            assert "pair.expect(" in body, f"{source.name}: {body[:60]}"


def test_the_table_is_of_these_sources(rows: dict[str, build.Row]) -> None:
    assert rows.keys() == {one.name for one in specimens() if one.kernel}
    codes = {str(source.relative_to(build.FOLDER)): objects.fingerprint(source) for source in build.sources()[1:]}
    stale = {row["source"] for row in rows.values() if row["code"] != codes.get(row["source"], row["code"])}
    assert stale == set(), "python -m kernels.specimens.build --update"


@pytest.mark.parametrize(
    "pair", [pair for pair in PAIRS if pair.evidence], ids=lambda pair: f"{pair.half}-{pair.defect}"
)
def test_the_code_shows_the_defect(pair: Pair, rows: dict[str, build.Row]) -> None:
    assert build.refuted(pair, rows) == []


CAPTURE = ROOT / "studies/specimens/capture.sh"


def test_the_capture_names_every_step(tmp_path: Path) -> None:
    steps = "check,times,counters,full,walls,timelines"
    command = [CAPTURE, "-n", "--steps", steps, "--seconds", "90", "--out", tmp_path / "run", "holdout/"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for part in (
        "--check holdout/",
        "--time holdout/",
        "ncu --nvtx --profile-from-start off",  # of the scripts that it calls, the commands themselves
        "nsys profile -t cuda,nvtx",
        "--import-source yes",
    ):
        assert part in done.stdout
    assert "--run holdout/ --seconds 90" in done.stdout
    assert not (tmp_path / "run").exists()


# --- captures ---

KERNELS, TIMELINES = build.FOLDER / "captures", ROOT / "studies/specimens/captures"


def captured(path: Path) -> list[str]:
    """The names of the specimens in a packed export of ncu, in its order."""
    return re.findall(r"specimens/(\w+/\w+/\w+):", lzma.decompress(path.read_bytes()).decode())


@pytest.mark.parametrize("half", HALVES)
def test_every_kernel_of_a_half_was_counted_once(half: str) -> None:
    names = [one.name for one in specimens() if one.half == half]
    for page in ("ncu_raw", "ncu_ratios"):
        assert sorted(captured(KERNELS / half / f"{page}.csv.xz")) == names
    assert json.loads((KERNELS / half / "ncu.json").read_text())["status"] == "ok"


def test_every_kernel_was_right_when_it_was_captured() -> None:
    checked = (KERNELS / "check.txt").read_text().splitlines()
    captured_sets = (*HALVES, HOLDOUT) if (KERNELS / HOLDOUT).exists() else HALVES
    assert [line.partition(":")[0] for line in checked] == [
        f"ok {one.name}" for one in specimens() if one.half in captured_sets
    ]


def test_no_pair_of_kernels_wins_nothing() -> None:
    assert json.loads((KERNELS / "manifest.json").read_text())["weak"] == {}
