"""What the fuzzer found once stays fixed, and a few hundred fresh inputs hold its promises (tests/fuzz/oracle.py)."""

import json
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.capture.load import load
from analysis.capture.model import Capture
from analysis.capture.sniff import sniff
from analysis.formats.errors import InputError, LedgerError
from analysis.formats.files import captured
from tests.cpu import test_capture_nsys_table as nsys
from tests.fuzz.fuzz_readers import NAME, Target, attempt, limited, pick
from tests.fuzz.oracle import Damaged, Truth, damage, truth_of, wrong
from tests.fuzz.seeds import Seed, seeds
from tests.nsys_export import Export

CORPUS = sorted((Path(__file__).parents[1] / "fuzz" / "corpus").glob("*.json"))
WITH_TRUTH = [seed for seed in seeds() if seed.truth]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("fuzz"))
        yield Target(Path.cwd())


@pytest.mark.slow
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_what_was_found_stays_fixed(path: Path, target: Target) -> None:
    entry = json.loads(path.read_text())
    data = entry["text"].encode() if "text" in entry else bytes.fromhex(entry["hex"])
    one = next(seed for seed in seeds() if seed.name == entry["of"])
    made = Damaged(data, entry["done"], entry["ratio"], entry["clean"]) if "done" in entry else data
    assert attempt(target, one, made) in ("capture", "error")


def test_every_kind_of_file_of_a_capture_has_a_seed(tmp_path: Path) -> None:
    found = set()
    for at, seed in enumerate(seeds()):
        (tmp_path / str(at)).write_bytes(seed.data)
        found.add(sniff(tmp_path / str(at)).kind)
    assert captured().keys() - found == set()


def test_the_last_run_damaged_every_kind_of_file() -> None:
    last = json.loads((CORPUS[0].parents[1] / "RESULTS.json").read_text())[-1]
    missing = {seed.name for seed in seeds()} - set(last["files"])
    assert not missing, "run `make fuzz` again with --results tests/fuzz/RESULTS.json (CONTRIBUTING.md)"
    assert not last["findings"], "fix what it found, put it into tests/fuzz/corpus and run it again"


@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True)
@given(number=st.integers(0, 1 << 30))
def test_any_bytes_are_a_capture_or_a_sentence(number: int, target: Target) -> None:
    """Byte-level and structural damage of every seed, as the fuzzer makes it."""
    assert attempt(target, *pick(number, seed=5)) in ("capture", "error")


@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=st.sampled_from(WITH_TRUTH), number=st.integers(0, 1 << 30))
def test_structural_damage_never_gives_a_wrong_number(seed: Seed, number: int, target: Target) -> None:
    assert attempt(target, seed, damage(seed, random.Random(number))) in ("capture", "error")


@pytest.mark.parametrize(
    "text",
    ["[" * 60_000, '{"a":' * 60_000, '{"kind": "timing", "x": ' + "[" * 60_000, nsys.PER_RANGE + '":a' + '","b' * 9000],
    ids=["list", "object", "ours", "quotes"],
)
@pytest.mark.slow
def test_what_nests_deeply_ends_in_time(text: str, target: Target) -> None:
    with limited():
        assert target.read(text.encode()) in ("capture", "error")


def test_the_oracle_sees_what_is_wrong(tmp_path: Path) -> None:
    """A number in another column, one that is new, a row too many, a row less without a gap."""
    text = next(seed for seed in seeds() if seed.name == "nsys trace").data.decode()

    def read(changed: str) -> object:
        (tmp_path / NAME).write_text(changed)
        return load([tmp_path / NAME])

    truth = truth_of(read(text))
    assert isinstance(truth, Truth)
    done = Damaged(b"", "x")
    lines = text.splitlines(keepends=True)
    assert wrong(read(text), truth, done) == ""
    assert "has the row" in wrong(read(text.replace("3000,503", "3000,504")), truth, done)
    assert "6 rows where there are 5" in wrong(read(text + lines[1].replace("1000,", "9000,", 1)), truth, done)
    fewer = "".join(lines[:-1])
    assert "nothing says so" in wrong(read(fewer), truth, done)
    assert wrong(read(fewer), truth, Damaged(b"", "cut", clean=True)) == ""
    ratio = Damaged(b"", "unit", ratio=1000.0)
    assert wrong(read(text.replace("(ns)", "(us)")), truth, ratio) == ""
    assert wrong(read(text.replace("(ns)", "(us)")), truth, done) != ""


def test_what_sqlite_repeats_of_a_file_is_not_told(tmp_path: Path) -> None:
    """A page of the environment in place of the schema: SQLite quotes it in its message, the reader must not."""
    for change, value in (("name = ?, sql = 'nonsense'", "SECRET_TOKEN=hunter2"), ("name = ?", b"\xff\x00")):
        export = Export()
        export.launch("k", (0, 1), (2, 3))
        path = export.save(tmp_path / NAME)
        database = sqlite3.connect(path)
        database.execute("PRAGMA writable_schema=ON")
        database.execute(f"UPDATE sqlite_master SET {change} WHERE name = 'StringIds'", (value,))
        database.commit()
        database.close()
        with pytest.raises(InputError, match=r"f\.dat: is damaged") as error:
            load([path])
        assert "hunter2" not in str(error.value)


def test_messages_stay_on_one_line_and_short() -> None:
    assert str(LedgerError("a\nb\x1b[2J")) == "a\\nb\\x1b[2J"
    long = str(LedgerError("f.dat: " + "x" * 5000 + "; export it again."))
    assert len(long) < 700
    assert long.startswith("f.dat: ")
    assert long.endswith("again.")


def test_the_oracle_knows_that_sums_of_a_cut_trace_are_less(tmp_path: Path) -> None:
    head = "Start (ns),Duration (ns),Name,Result,CorrID,Pid,Tid,T-Pri,Thread Name\n"
    rows = [f"{1000 * i},{100 * i},cudaMalloc,0,{i},11,22,20,a\n" for i in (1, 2, 3)]

    def read(lines: list[str]) -> Capture:
        (tmp_path / "x.csv").write_text(head + "".join(lines), encoding="utf-8")
        return load([tmp_path / "x.csv"])

    truth = truth_of(read(rows))
    assert truth.summed
    assert "nothing says so" in wrong(read(rows[:2]), truth, Damaged(b"", "cut"))
    assert wrong(read(rows[:2]), truth, Damaged(b"", "cut", clean=True)) == ""
    assert "601 total_ns" in wrong(read([*rows[:2], rows[2].replace(",300,", ",301,")]), truth, Damaged(b"", "cut"))
