"""A capture that was kept comes back as it was, and never instead of files that have changed."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis.capture import cache
from analysis.capture import load as load_module
from analysis.capture.load import load
from analysis.capture.model import Capture, SourceFile
from analysis.formats.report import Missing, Reason
from tests import committed
from tests.bench.make_captures import make_program, write_sqlite

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the entries, in use for captures of any size."""
    folder = tmp_path / "kept"
    monkeypatch.setenv(cache.ENVIRONMENT, str(folder))
    monkeypatch.setattr(cache, "WORTH_BYTES", 0)
    monkeypatch.setattr(cache, "_sources", list)  # the sources may change while somebody tests them
    return folder


@pytest.fixture
def export(tmp_path: Path) -> Path:
    path = tmp_path / "capture.sqlite"
    write_sqlite(make_program(3000), path)
    return path


@pytest.fixture
def read_count(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How often the files were really read."""
    times = []
    reader = load_module._load

    def counted(*arguments: object) -> Capture:
        times.append(1)
        return reader(*arguments)

    monkeypatch.setattr(load_module, "_load", counted)
    return lambda: len(times)


def entries(place: Path) -> list[Path]:
    return sorted(place.glob("*.capture"))


def assert_same(one: Capture, other: Capture) -> None:
    for field in dataclasses.fields(Capture):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if isinstance(a, pd.DataFrame):
            pd.testing.assert_frame_equal(a, b)
        elif isinstance(a, dict) and any(isinstance(value, pd.DataFrame) for value in a.values()):
            assert a.keys() == b.keys()
            for key in a:
                pd.testing.assert_frame_equal(a[key], b[key])
        else:
            assert a == b


def test_an_unchanged_capture_is_read_once(place: Path, export: Path, read_count: Callable[[], int]) -> None:
    first = load([export])
    second = load([export])
    assert read_count() == 1
    assert len(first.gpu_ops) == 3000
    assert_same(first, second)
    assert isinstance(second.files[0], SourceFile)


def test_the_capture_survives_the_process(place: Path, export: Path, read_count: Callable[[], int]) -> None:
    code = (
        "import sys; from pathlib import Path; from analysis.capture import cache; cache.WORTH_BYTES = 0; cache._sources = list;"
        "from analysis.capture.load import load; load([Path(sys.argv[1])])"
    )
    subprocess.run([sys.executable, "-c", code, str(export)], check=True, cwd=ROOT)
    assert len(load([export]).gpu_ops) == 3000
    assert read_count() == 0


@pytest.fixture
def fresh(rebuilt: Callable[[Path], Any]) -> Path:
    """The report of the committed run; made before anything is kept, so before `place`."""
    folder: Path = rebuilt(committed.folder("overview")).folder
    return folder


def test_a_report_is_the_same_from_the_cache(
    fresh: Path, place: Path, tmp_path: Path, read_count: Callable[[], int], undrawn: None
) -> None:
    from analysis import report

    captures = committed.folder("overview") / "captures"
    load([captures])
    assert report.main([str(captures), "--out", str(tmp_path / "again")]) == 0
    assert len(entries(place)) == 1
    assert read_count() == 1
    tables = sorted(path.relative_to(fresh) for path in fresh.rglob("*.csv"))
    assert len(tables) > 5
    for path in [*tables, Path("report.json"), Path("report.md")]:
        assert (fresh / path).read_bytes() == (tmp_path / "again" / path).read_bytes()


def test_tables_from_the_cache_can_be_worked_on(place: Path, export: Path) -> None:
    load([export])
    ops = load([export]).gpu_ops
    ops["duration_ns"] += 1
    ops.loc[0, "stream"] = 99
    ops.loc[1, "registers"] = pd.NA
    assert ops.loc[0, "stream"] == 99
    assert load([export]).gpu_ops.loc[0, "stream"] != 99


# ------------------------------------------------------------------------------------------------- what changes the key


def test_a_changed_file_is_read_again(place: Path, export: Path, read_count: Callable[[], int]) -> None:
    load([export])
    db = sqlite3.connect(export)
    db.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid <= 1000")
    db.commit()
    db.close()
    assert len(load([export]).gpu_ops) == 2000
    assert read_count() == 2


@pytest.mark.parametrize("filler", [0, 4 << 20])
def test_the_same_size_and_time_do_not_hide_another_content(place: Path, tmp_path: Path, filler: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a" * (5000 + filler))
    before = path.stat()
    key = cache.key_of([(path, "file")])
    assert key == cache.key_of([(path, "file")])
    for at in (0, 4090, 4999 + filler):
        with path.open("r+b") as stream:
            stream.seek(at)
            stream.write(b"b")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert path.stat().st_mtime_ns == before.st_mtime_ns
        assert cache.key_of([(path, "file")]) != key
        with path.open("r+b") as stream:
            stream.seek(at)
            stream.write(b"a")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert cache.key_of([(path, "file")]) == key


def test_time_name_options_and_format_are_part_of_the_key(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a" * 100)
    keys = {cache.key_of([(path, "file")]), cache.key_of([(path, "other")]), cache.key_of([(path, "file")], ["de"])}
    os.utime(path, ns=(1, 1))
    keys.add(cache.key_of([(path, "file")]))
    monkeypatch.setattr(cache, "FORMAT", cache.FORMAT + 1)
    keys.add(cache.key_of([(path, "file")]))
    monkeypatch.setattr(cache, "_sources", lambda: [["changed.py", 1, 1]])
    keys.add(cache.key_of([(path, "file")]))
    assert len(keys) == 6


def test_a_file_with_a_log_beside_it_is_not_kept(place: Path, export: Path) -> None:
    export.with_name(export.name + "-wal").write_bytes(b"not empty")
    assert cache.key_of([(export, "capture.sqlite")]) is None


# ------------------------------------------------------------------------------------------------- damage and trouble


@pytest.mark.parametrize("damage", ["cut", "empty", "one bit", "head", "tail", "other"])
def test_a_damaged_entry_is_read_again_and_replaced(
    place: Path, export: Path, read_count: Callable[[], int], damage: str
) -> None:
    first = load([export])
    (entry,) = entries(place)
    raw = bytearray(entry.read_bytes())
    if damage == "cut":
        raw = raw[: len(raw) // 2]
    elif damage == "empty":
        raw = bytearray()
    elif damage == "other":
        raw = bytearray(os.urandom(len(raw)))
    else:
        raw[{"one bit": len(raw) // 3, "head": 2, "tail": len(raw) - 5}[damage]] ^= 4
    entry.write_bytes(raw)
    assert_same(first, load([export]))
    assert read_count() == 2
    load([export])
    assert read_count() == 2


def test_every_byte_of_an_entry_is_checked(place: Path, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    key = cache.key_of([(tmp_path / "x", "x")])
    assert key
    assert cache.keep(key, Capture(missing=[Missing(Reason.CUT, "a", "b", "c")], session={"gpu": "x"}))
    (entry,) = entries(place)
    raw = entry.read_bytes()
    for at in range(0, len(raw), max(1, len(raw) // 300)):
        entry.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
        assert cache.recall(key) is None
    entry.write_bytes(raw)
    kept = cache.recall(key)
    assert kept
    assert kept.missing == [Missing(Reason.CUT, "a", "b", "c")]


def test_what_would_come_back_otherwise_is_not_kept(place: Path) -> None:
    for capture in (
        Capture(gpu_ops=pd.DataFrame({"a": [1]}, index=[7])),
        Capture(gpu_ops=pd.DataFrame({"a": [1, "x", b"y"]}, dtype=object)),
        Capture(timing={"a": (1, 2)}),
        Capture(timing={"a": {1}}),
    ):
        assert not cache.keep("k", capture)
    assert list(place.iterdir()) == []


def test_off_and_a_folder_that_cannot_be_written(
    place: Path, export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(cache.ENVIRONMENT, str(tmp_path / "file"))
    assert len(load([export]).gpu_ops) == 3000
    monkeypatch.setenv(cache.ENVIRONMENT, "off")
    assert cache.folder() is None
    assert len(load([export]).gpu_ops) == 3000
    assert not place.exists()


def test_the_folder_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cache.ENVIRONMENT, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "kernel-ledger"


def test_small_captures_are_not_kept(tmp_path: Path, export: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.ENVIRONMENT, str(tmp_path / "kept"))
    load([export])
    assert not (tmp_path / "kept").exists()


def test_the_least_used_entries_go_first(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        assert cache.keep(name, Capture())
        os.utime(place / f"{name}.capture", ns=(0, ord(name)))
    assert cache.recall("a")  # used now
    (place / "unfinished-old").write_bytes(b"x")
    os.utime(place / "unfinished-old", (0, time.time() - 90000))
    (place / "unfinished-new").write_bytes(b"x")
    monkeypatch.setattr(cache, "MOST_BYTES", 3 * (place / "a.capture").stat().st_size)
    assert cache.keep("d", Capture())
    assert [path.stem for path in entries(place)] == ["a", "c", "d"]
    assert sorted(path.name for path in place.glob("unfinished-*")) == ["unfinished-new"]


def _keep_and_recall(folder: str, failures: multiprocessing.Queue[int]) -> None:
    os.environ[cache.ENVIRONMENT] = folder
    capture = Capture(gpu_ops=pd.DataFrame({"a": range(1000)}))
    wrong = 0
    for _ in range(60):
        cache.keep("k", capture)
        kept = cache.recall("k")
        wrong += kept is None or len(kept.gpu_ops) != 1000
    failures.put(wrong)


def _start_three(folder: str, failures: multiprocessing.Queue[int]) -> None:
    """Fork three workers from a process of its own: it has no threads, and imports pandas once for all of them."""
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_keep_and_recall, args=(folder, failures)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def test_many_writers_and_readers_at_once(place: Path) -> None:
    context = multiprocessing.get_context("spawn")
    failures = context.Queue()
    starter = context.Process(target=_start_three, args=(str(place), failures))
    starter.start()
    assert [failures.get(timeout=120) for _ in range(3)] == [0, 0, 0]
    starter.join()
    assert [path.name for path in place.iterdir()] == ["k.capture"]


def test_an_entry_says_nothing_of_where_files_lie(place: Path, export: Path) -> None:
    load([export])
    (entry,) = entries(place)
    assert str(export.parent).encode() not in entry.read_bytes()
    assert json.dumps(str(export.parent)).encode() not in entry.read_bytes()
    assert entry.stat().st_mode & 0o077 == 0
