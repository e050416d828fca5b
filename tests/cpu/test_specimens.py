"""The answer key: every defect has a pair in both halves, and the machine code shows it where that can be told."""

import csv
import json
import lzma
import re
import subprocess
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from analysis.capture import ncu_csv, ncu_source
from kernels import objects
from kernels.specimens import build
from kernels.specimens.registry import CLEANS, HALVES, HOLDOUT, PAIRS, SETS, Pair, specimens, vocabulary
from studies.specimens import merge, source_page

ROOT = build.FOLDER.parent.parent
REGISTERED = re.compile(r"^(PAIR|CLEAN)\((\w+), (\w+)\)", re.MULTILINE)
KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\s*\(")


@pytest.fixture(scope="module")
def rows() -> dict[str, build.Row]:
    return {row["specimen"]: row for row in build.read_table()}


def test_every_defect_has_one_pair_in_each_set() -> None:
    defects = vocabulary()["kernel"]
    assert len(defects) >= 32
    for half in SETS:
        assert Counter(pair.defect for pair in PAIRS if pair.half == half) == dict.fromkeys(defects, 1)


def test_sets_differ_in_algorithm_and_kernel() -> None:
    for defect in vocabulary()["kernel"]:
        found = [pair for pair in PAIRS if pair.defect == defect]
        assert len({pair.kernel for pair in found}) == len(SETS)
        assert len({(pair.computes, pair.dtype) for pair in found}) == len(SETS)
    assert len({one.kernel for one in specimens() if one.kernel}) == sum(1 for one in specimens() if one.kernel)


@pytest.mark.parametrize("half", SETS)
def test_there_are_clean_ones_in_each_set(half: str) -> None:
    found = [clean for clean in CLEANS if clean.half == half]
    assert len(found) >= 5
    assert {clean.answer for clean in found} == set(vocabulary()["clean"])


@pytest.mark.parametrize("defect", sorted(vocabulary()["kernel"]))
def test_a_pair_of_the_holdout_has_launches_of_its_own(defect: str) -> None:
    found = {pair.half: launches(pair) for pair in PAIRS if pair.defect == defect}
    assert found[HOLDOUT] not in (found[HALVES[0]], found[HALVES[1]])
    assert len(found[HOLDOUT]) == 2


def launches(pair: Pair) -> tuple[str, ...]:
    """The launches of a pair as its source writes them: `rows / 128, 128`, slow and fixed."""
    text = pair.specimens()[0].source.read_text("utf-8")
    return tuple(re.findall(rf"{pair.kernel}_(?:slow|fixed)<<<(.+?)>>>", text))


def test_the_vocabulary_says_what_and_how_to_cure() -> None:
    words = vocabulary()
    names = [name for part in words.values() for name in part]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"[a-z][a-z0-9_]+", name) for name in names)
    for part in words.values():
        for entry in part.values():
            assert all(entry[text].endswith(".") for text in ("what", "cure"))
            assert re.fullmatch("#[0-9a-fA-F]{6}", entry["colour"])


def test_every_version_says_what_it_does() -> None:
    for pair in PAIRS:
        assert pair.computes
        assert pair.slow
        assert pair.fixed
        assert pair.slow != pair.fixed


def test_the_driver_has_every_declared_specimen_and_no_other() -> None:
    found = {
        f"{half}/{'clean/' if kind == 'CLEAN' else ''}{name}"
        for source in build.sources()[1:]
        for kind, half, name in REGISTERED.findall(source.read_text("utf-8"))
    }
    assert found == {one.name.removesuffix(f"/{one.version}") for one in specimens()}
    for source in build.sources()[1:]:
        halves = {half for _, half, _ in REGISTERED.findall(source.read_text("utf-8"))}
        assert halves == {source.parent.name}


def test_every_kernel_of_the_sources_is_declared() -> None:
    defined = {name for source in build.sources()[1:] for name in KERNEL.findall(source.read_text("utf-8"))}
    assert defined == {one.kernel for one in specimens() if one.kernel}


def test_every_specimen_states_a_reference() -> None:
    for source in build.sources()[1:]:
        for body in re.split(r"^(?:PAIR|CLEAN)\(", source.read_text("utf-8"), flags=re.MULTILINE)[1:]:
            assert "pair.expect(" in body or "bf16_products(" in body, f"{source.name}: {body[:60]}"


def test_the_table_is_of_these_sources(rows: dict[str, build.Row]) -> None:
    assert rows.keys() == {one.name for one in specimens() if one.kernel}
    codes = {str(source.relative_to(build.FOLDER)): objects.fingerprint(source) for source in build.sources()[1:]}
    stale = {row["source"] for row in rows.values() if row["code"] != codes[row["source"]]}
    assert stale == set(), "python -m kernels.specimens.build --update"


@pytest.mark.parametrize(
    "pair", [pair for pair in PAIRS if pair.evidence], ids=lambda pair: f"{pair.half}-{pair.defect}"
)
def test_the_code_shows_the_defect(pair: Pair, rows: dict[str, build.Row]) -> None:
    assert build.refuted(pair, rows) == []


def test_only_the_slow_of_spills_spill(rows: dict[str, build.Row]) -> None:
    spilling = {name for name, row in rows.items() if row["spill_bytes"] != "0"}
    assert spilling == {f"{half}/register_spills/slow" for half in SETS}


def test_evidence_that_the_code_does_not_show_is_named(rows: dict[str, build.Row]) -> None:
    pair = Pair(
        "register_spills", HALVES[0], "k", "s", "float32", "c", "a", "b", ("fixed spill_bytes >= 1", "slow HMMA <= 0")
    )
    assert build.refuted(pair, rows) == ["development/register_spills: fixed spill_bytes >= 1, but it is 0"]
    with pytest.raises(ValueError, match="is not like"):
        build.refuted(Pair("x", HALVES[0], "k", "s", "float32", "c", "a", "b", ("slow LDL > 1",)), rows)


def test_every_timeline_defect_has_one_pair_in_each_half() -> None:
    from studies.specimens.measure import TIMELINES

    defects = vocabulary()["timeline"]
    assert len(defects) >= 12
    for half in HALVES:
        assert Counter(pair.defect for pair in TIMELINES if pair.half == half) == dict.fromkeys(defects, 1)
    blind = Counter(pair.defect for pair in TIMELINES if pair.half == HOLDOUT)
    assert len(blind) >= 5
    assert set(blind.values()) == {1}
    assert blind.keys() <= defects.keys()
    assert len({pair.computes for pair in TIMELINES}) == len(TIMELINES)
    assert all(pair.slow and pair.fixed and pair.slow != pair.fixed for pair in TIMELINES)


CAPTURE = ROOT / "studies/specimens/capture.sh"


def test_the_capture_names_every_step(tmp_path: Path) -> None:
    steps = "check,times,counters,full,walls,timelines"
    command = [CAPTURE, "-n", "--steps", steps, "--seconds", "90", "--out", tmp_path / "run", "validation/"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for part in (
        "--check validation/",
        "--time validation/",
        "ncu --nvtx --profile-from-start off",  # of the scripts that it calls, the commands themselves
        "nsys profile -t cuda,nvtx",
        "--import-source yes",
    ):
        assert part in done.stdout
    assert "--run validation/ --seconds 90" in done.stdout
    assert not (tmp_path / "run").exists()


def test_the_capture_takes_steps_by_name(tmp_path: Path) -> None:
    command = [CAPTURE, "-n", "--out", tmp_path / "run"]
    done = subprocess.run([*command, "--steps", "times"], capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in done.stdout.splitlines() if "specimens.build" not in line] == ["to"]
    for wrong, reason in ((["--steps", "all"], "Unknown step 'all'"), (["--seconds", "x"], "whole number")):
        failed = subprocess.run([*command, *wrong], capture_output=True, text=True, check=False)
        assert failed.returncode == 2
        assert reason in failed.stderr


# --- captures ---

KERNELS, TIMELINES = build.FOLDER / "captures", ROOT / "studies/specimens/captures"
WORTH = 1.1  # times as fast as the slow version, or the pair shows nothing


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


def test_every_timeline_was_captured_in_its_range() -> None:
    from studies.specimens.measure import TIMELINES as DECLARED

    text = lzma.decompress((TIMELINES / "nvtx_pushpop_trace.csv.xz").read_bytes()).decode()
    names = Counter(re.findall(r"specimens/(\w+/\w+/\w+)", text))
    captured_sets = {name.partition("/")[0] for name in names}
    assert captured_sets >= set(HALVES)
    assert names.keys() == {name for pair in DECLARED if pair.half in captured_sets for name in pair.names()}


@pytest.mark.parametrize("folder", [KERNELS, TIMELINES], ids=["kernels", "timelines"])
def test_pairs_that_win_nothing_are_named_with_the_reason(folder: Path) -> None:
    with (folder / "times.csv").open(newline="") as stream:
        times = {row["specimen"]: float(row["time_ns"]) for row in csv.DictReader(stream)}
    pairs = {name.removesuffix("/slow") for name in times if name.endswith("/slow")}
    weak = {name for name in pairs if times[f"{name}/slow"] < WORTH * times[f"{name}/fixed"]}
    assert len(pairs) >= 24
    named = json.loads((folder / "manifest.json").read_text())["weak"]
    assert named.keys() >= weak
    assert all(named.values())


def test_no_pair_of_kernels_wins_nothing() -> None:
    assert json.loads((KERNELS / "manifest.json").read_text())["weak"] == {}


def test_timelines_that_wait_for_their_capture_were_timed_after_their_repair() -> None:
    manifest = json.loads((TIMELINES / "manifest.json").read_text())
    times = manifest["repaired"]["times_ns"]
    assert {name.rpartition("/")[0] for name in times} == set(manifest["weak"])
    for pair in manifest["weak"]:
        assert times[f"{pair}/slow"] > 1.3 * times[f"{pair}/fixed"]


def test_full_sections_are_of_the_slow_and_the_clean_ones() -> None:
    full = json.loads((KERNELS / "manifest.json").read_text())["full_sections"]
    pages = sorted(KERNELS.glob("*/full_raw.csv.xz"))
    assert [name for page in pages for name in sorted(set(captured(page)))] == full
    slow = {one.name for one in specimens() if one.half == HALVES[1] and one.version != "fixed"}
    assert set(full) >= slow


@pytest.mark.parametrize("half", HALVES)
def test_the_page_of_sources_has_the_hottest_instructions(half: str) -> None:
    pages = source_page.known(KERNELS / half / "full_source.csv.xz")
    full = set(captured(KERNELS / half / "full_raw.csv.xz"))
    kernels = {one.kernel for one in specimens() if one.name in full and one.kernel}
    assert len(pages) >= 10
    assert {name.partition("(")[0] for name in pages if not name.startswith("nvjet")} <= kernels
    section = ncu_csv.sections("".join(list(pages.values())[:8]), "page")[0]
    lines = ncu_source.read_source(section)[0]
    hot = lines[lines["instruction"].notna()].groupby("kernel")["samples"].agg(["sum", "max", "size"])
    assert (hot["max"] > 0).all()
    assert hot["size"].max() <= source_page.MOST
    assert lines.loc[lines["line"].notna() & lines["instruction"].isna(), "text"].str.len().gt(0).mean() > 0.9


def test_a_kernel_with_many_instructions_is_cut_to_the_hottest() -> None:
    many = source_page.MOST + 50
    rows = pd.DataFrame({"ncu_id": 0, "kernel": "k(int)", "source_file": "k.cu", "line": 2, "instruction": range(many)})
    rows = rows.assign(text="FADD R1, R2, R3", stall="wait", stall_samples=1.0, samples=range(many))
    rows = rows.assign(**dict.fromkeys(["samples_not_issued", "inst_executed", "thread_inst_executed"], 1.0))
    rows = rows.assign(sectors_global=1.0, sectors_global_ideal=1.0)
    rows.loc[7, "sectors_global"] = 4.0
    kept = source_page.hottest(rows)
    assert kept["instruction"].tolist() == [0, 7, *range(52, many)]
    text = source_page.block(kept.assign(text="@!P0 BRA 0x7f27c6c60100"), ["", "a line"])
    assert text.splitlines()[3].startswith('"2","a line","-","-"')
    assert '"","","0x70","@!P0 BRA","7","1","1","1","4","1","1"' in text


def row(number: int, name: str, value: str) -> list[str]:
    return [str(number), "1", "driver", "host", f"1 <default domain>:specimens/{name}:none", "", value]


def test_new_rows_replace_those_of_their_specimen() -> None:
    head, slow, fixed = ["ID", "PID", "P", "H", "thread", "R"], "validation/a/slow", "validation/a/fixed"
    old = ([*head, "x"], [["", "", "", "", "", "", "ns"], row(0, slow, "1"), row(1, fixed, "2"), row(1, fixed, "3")])
    new = ([*head, "y"], [["", "", "", "", "", "", "byte"], row(0, "development/b/slow", "9"), row(1, slow, "4")])
    columns, rows = merge.merged(old, new, "validation")
    assert columns == [*head, "x", "y"]
    assert rows[0][-2:] == ["ns", "byte"]
    assert [(one[0], merge.specimen(one), *one[-2:]) for one in rows[1:]] == [
        ("0", fixed, "2", ""), ("0", fixed, "3", ""), ("1", slow, "", "4")
    ]  # fmt: skip
    assert merge.merged((columns, rows), ([], []), "validation") == (columns, rows)


def test_new_lines_replace_those_of_their_specimen() -> None:
    old = ["specimen,time_ns", "validation/a/slow,9", "validation/a/fixed,2"]
    new = ["specimen,time_ns", "validation/a/slow,3"]
    assert merge.merge_lines(old, new) == ["specimen,time_ns", "validation/a/fixed,2", "validation/a/slow,3"]
