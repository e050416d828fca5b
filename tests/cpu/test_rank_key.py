"""The answer key of ranks: exports are cut and packed, and scored against what was injected."""

import sqlite3
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis.capture.load import load
from analysis.facts import Facts
from tests.answer_key import columns
from tests.rank_programs import Program

HERE = Path(__file__).parents[1] / "answer_key" / "ranks"


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(HERE))
    for name in ("pack", "run", "score"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import run
    import score

    yield run, score
    for name in ("pack", "run", "score"):
        sys.modules.pop(name, None)


def session(folder: Path, windows: dict[str, Program]) -> Path:
    """Return an export in which a program runs in the window of its name."""
    [name], [program] = windows, windows.values()
    [path] = program.save(folder)
    file = sqlite3.connect(path)
    first, last = file.execute("SELECT min(start), max(end) FROM CUPTI_ACTIVITY_KIND_RUNTIME").fetchone()
    file.execute("INSERT INTO StringIds VALUES (9999, ?)", (f"key:{name}",))
    for pid in (10 * (rank + 1) for rank in range(program.ranks)):
        row = (first - 500, last + 900, 59, 9999, (1 << 48) | (pid << 24) | pid)
        file.execute("INSERT INTO NVTX_EVENTS (start, end, eventType, textId, globalTid) VALUES (?, ?, ?, ?, ?)", row)
    file.commit()
    file.close()
    return path


@pytest.mark.slow
def test_a_window_is_cut_packed_and_read_as_before(key: Any, tmp_path: Path) -> None:
    run, score = key
    whole = session(tmp_path / "whole", {"tp4_30us.0": Program("tp", ranks=4, own=30_000)})
    (tmp_path / "cut").mkdir()
    assert run.cut_all(whole, tmp_path / "cut") == 0
    cut = tmp_path / "cut" / "tp4_30us.0.sqlite"
    columns.write({"one": score.pack.read(cut)}, tmp_path / "packed")
    score.pack.write_export(columns.read(tmp_path / "packed")["one"], tmp_path / "again.sqlite")
    calls = [Facts(load([path])).collective_calls for path in (cut, tmp_path / "again.sqlite")]
    pd.testing.assert_frame_equal(*calls, check_exact=False, rtol=0, atol=2 * score.pack.TICK_NS)
    assert calls[0]["bytes"].notna().all()
    row = score.row_of("tp4_30us.0", cut, {"tp4_30us.0": {"a": [1.0, 1.0], "b": [0.9, 0.9]}})
    assert (row["said_rank"], row["said_layer"], row["said_cause"], row["measured"]) == (1, 2, "own_work", 0.1)
    assert any(line.startswith("layer named: 1 of 1") for line in score.totals([row]))


def test_each_program_of_the_key_has_a_truth(key: Any) -> None:
    run, score = key
    assert {case["cause"] for case in run.CASES.values()} == {
        "none",
        "first_step",
        "exposed",
        *score.CAUSES.values(),
    } - {"slow_gpu"}
    for name, case in run.CASES.items():
        assert case["half"] in ("tuned", "blind", "blind_2", "blind_3"), name
        assert case.get("rank", 0) < case.get("ranks", 2), name
        if case["kind"] == "pp" and "layer" in case:  # a layer of its own
            assert case["layer"] * case.get("ranks", 2) // case.get("layers", 4) == case["rank"], name


@pytest.mark.slow
def test_packed_captures_name_a_rank_where_the_others_do_not_wait_for_it_alone(key: Any, tmp_path: Path) -> None:
    score = key[1]
    packed = columns.read(score.pack.CAPTURES)
    rows = {}
    for name in ("new_pp_own_10.0", "new_fsdp_layer_rows.0"):  # a stage of a pipeline, and ranks that wait in turns
        score.pack.write_export(packed[name], tmp_path / f"{name}.sqlite")
        rows[name] = score.row_of(name, tmp_path / f"{name}.sqlite", {})
        assert (rows[name]["said_rank"], rows[name]["said_layer"]) == (0, 0)
        assert rows[name]["said_cause"] == rows[name]["cause"]
    assert rows["new_pp_own_10.0"]["said_ns"] == pytest.approx(17_000, abs=1_000)
