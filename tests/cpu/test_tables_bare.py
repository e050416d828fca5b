"""Bare times of ranges and steps: first occurrences, walls, verdicts, findings, each from files as programs leave them."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis.capture.load import load
from analysis.diagnosis.findings import findings_of
from analysis.diagnosis.step_tables import build_changes
from analysis.diagnosis.steps import build_steps
from analysis.facts import Facts
from analysis.formats.bare import BARE_RANGES
from analysis.formats.errors import InputError
from analysis.formats.run import TIMING
from analysis.page.markdown import render_markdown
from analysis.pipeline import analyse
from analysis.tables.bare import build_bare_times
from tests.declared import missing_of
from tests.nsys_export import Export

US = 1000
SYNC = "cudaStreamSynchronize_v3020"


def timeline(
    *, name: str = "decode", steps: int = 3, wall: int = 200, launches: int = 4, kernel: int = 10, wait: int = 0,
    behind: int = 0, gap: int = 50, number: bool = False,
) -> Export:  # fmt: skip
    """Steps under nsys; times in us. Each `launches` kernels of `kernel` us, the last `behind` us after its step's end,
    else within; then the host waits for `wait` us inside the step, until its end.
    """
    export = Export()
    export.gpu()
    for at in range(steps):
        start = at * (wall + gap) * US
        end = start + wall * US
        export.push(f"{name}_{at}" if number else name, start, end)
        for place in range(launches):
            call = start + (place + 1) * US
            last = end + (behind or -1) * US - (launches - place - 1) * kernel * US
            run = (max(last - kernel * US, call + 1), max(last, call + 2))
            export.launch("k", (call, call + 900), run)
        if wait:
            export.call(end - wait * US, end - 1, name=SYNC)
    return export


def bare(
    *times: tuple[str, float, float | None], process: int = 0, thread: int = 0, rank: Any = ""
) -> list[tuple[Any, ...]]:
    """Rows of bare_ranges.csv from (name, start, end) in us; END None: never closed."""
    return [
        (process, rank, thread, round(start * US), "" if end is None else round(end * US), "push", name)
        for name, start, end in times
    ]


def regular(count: int, period: float, length: float, name: str = "decode") -> list[tuple[Any, ...]]:
    return bare(*((name, at * period, at * period + length) for at in range(count)))


@pytest.fixture
def world(tmp_path: Path):
    def made(export: Export | None, rows: list[tuple[Any, ...]], timing: dict[str, float] | None = None) -> Facts:
        if export:
            export.save(tmp_path / "timeline.sqlite")
        (tmp_path / "bare_ranges.csv").write_text(BARE_RANGES.text(rows), encoding="utf-8")
        if timing:
            steps = [{"range": path, "wall_ns": {"p50": wall}} for path, wall in timing.items()]
            (tmp_path / "timing.json").write_text(json.dumps(TIMING.document({"steps": steps})))
        return Facts(load([tmp_path]))

    return made


# --- the first ones ---


def test_bare_times_of_ranges(world) -> None:
    rows = bare(*[row for at, first in enumerate((90, 9, 9)) for row in (
        ("decode", at * 100, at * 100 + 95), ("h.0", at * 100, at * 100 + first / 2), ("h.1", at * 100 + 46, at * 100 + 46 + first / 2))])  # fmt: skip
    rows += bare(("decode", 400, None), ("decode", 0, 5), process=1, rank=3)
    table = world(timeline(), rows).once(build_bare_times).set_index("range")
    layer = table.loc["decode/h.*"]
    assert (layer["calls"], layer["first_calls"], layer["first_ns"], layer["bare_p50_ns"]) == (6, 2, 45_000, 4500)
    step = table.loc["decode"]
    assert (step["calls"], step["never_closed"], step["first_calls"]) == (5, 1, 0)
    assert step["nsys_p50_ns"] == 200_000
    assert pd.isna(layer["nsys_p50_ns"])


# --- walls ---


# --- verdicts ---


@pytest.mark.parametrize(
    ("run", "period", "length", "expected"),
    [
        # the GPU works for 40 µs of 150; the host makes no call for 149 µs
        ({}, 150, 140, ("host_work", 150, 40, 0, "start to start")),
        # one block at a time for 120 of 150 µs
        ({"kernel": 30, "launches": 4, "behind": 5}, 150, 140, ("serial_streams", 150, 120, 0, "start to start")),
        # the step ends in a synchronisation: what lies between the steps is not its own
        ({"wait": 20}, 400, 100, ("sync", 100, 40, 20, "start to end")),
        # half of the step the host waits, the other half the GPU: under nsys it waits for launches
        ({"wait": 60}, 400, 100, ("launch_bound", 100, 40, 60, "start to end")),
        # one launch in 300 µs is no launching
        ({"launches": 1}, 300, 290, ("host_work", 300, 10, 0, "start to start")),
        # nothing synchronises: the host launches 120 µs of work every 20 µs
        ({"kernel": 30, "behind": 5}, 20, 15, ("serial_streams", 120, 120, 0, "start to start")),
    ],
)  # fmt: skip
def test_verdicts(world, run: dict[str, int], period: int, length: int, expected: tuple[Any, ...]) -> None:
    row = world(timeline(**run), regular(10, period, length)).once(build_steps).iloc[0]
    verdict, wall, busy, blocked, how = expected
    assert row["verdict"] == verdict, row["evidence"]
    assert (row["bare_wall_ns"], row["busy_ns"]) == (wall * US, busy * US)
    assert row["blocked_ns"] == pytest.approx(blocked * US, abs=1)
    assert row["bare_from"] == how
    assert row["busy_frac"] == pytest.approx(busy / wall)
    assert row["host_ns"] == (length if how == "start to end" else period) * US
    assert row["timed"] == 10 - (how == "start to start")


def test_a_step_that_ran_once_says_so(world) -> None:
    row = world(timeline(steps=1), regular(1, 0, 150)).steps.iloc[0]
    assert "timed only once" in row["evidence"]


def test_the_harness_goes_first(world) -> None:
    row = world(timeline(), regular(9, 150, 140), {"decode": 45_000.0}).steps.iloc[0]
    assert (row["bare_wall_ns"], row["bare_from"]) == (45_000, "harness")


def test_steps_with_numbers_are_one_kind(world) -> None:
    """The bare run has all steps and the timeline two of them: names are folded over both."""
    rows = bare(*((f"step_{at}", at * 150, at * 150 + 140) for at in range(12)))
    made = world(timeline(name="step", number=True, steps=2), rows)
    assert made.steps[["step", "timed"]].to_numpy().tolist() == [["step_*", 11]]
    assert made.gaps["step"].tolist() == ["step_0", "step_1"]


def test_without_such_a_name_the_outermost_range_that_repeats_is_the_step(world) -> None:
    export = timeline(name="iteration", steps=2)
    export.push("train", -1 * US, 900 * US)
    export.push("load", 600 * US, 601 * US)
    export.push("load", 602 * US, 603 * US)  # launches nothing
    rows = bare(("train", 0, 5000), *(("iteration", at * 150, at * 150 + 140) for at in range(9)))
    made = world(export, rows)
    assert made.steps["step"].tolist() == ["train/iteration"]
    assert len(made.gaps) == 2


def test_a_bare_run_of_another_program_is_a_gap(world) -> None:
    made = world(timeline(), regular(9, 150, 140, name="other"))
    assert "bare times of the steps" in [gap.what for gap in missing_of(made)]


@pytest.mark.slow
def test_the_committed_prefill_stays_bound_by_its_gpu_and_decode_by_launches() -> None:
    captures = Path(__file__).resolve().parents[2] / "reports" / "h200-gpt2-fp32" / "captures"
    steps = Facts(load([captures])).once(build_steps).set_index("step")
    prefill, decode = steps.loc["gpt2/prefill"], steps.loc["gpt2/decode"]
    assert prefill[["bare_wall_ns", "busy_ns", "verdict"]].tolist() == [10_461_162, 9_940_121, "precision"]
    assert decode[["bare_wall_ns", "busy_ns", "verdict"]].tolist() == [4_012_960, 633_018, "launch_bound"]
    assert prefill["blocked_ns"] > 1_000_000  # cuda_api_trace has the wait that follows the range
    assert decode["blocked_ns"] < 50_000


# --- findings ---


@pytest.mark.parametrize(
    ("run", "bare_us", "kind"),
    [
        ({}, (150, 140), "host_work"),
        ({"wait": 20}, (400, 100), "sync"),
    ],
)
def test_findings_say_what_a_step_waits_for(world, run: dict[str, int], bare_us: tuple[int, int], kind: str) -> None:
    made = world(timeline(**run), regular(10, *bare_us))
    found = made.once(findings_of)[0]
    assert found.kind == kind
    assert found.do
    changes = made.once(build_changes).set_index(["step", "kind", "about"])
    for cited in found.cells:
        assert changes.loc[tuple(cited.row.values()), cited.column] == cited.value


# --- the report ---


def test_a_bare_run_alone_has_a_report(tmp_path: Path) -> None:
    rows = bare(*[row for at in range(4) for row in (("step", at * 10, at * 10 + 9), ("a", at * 10, at * 10 + 4))])
    (tmp_path / "bare_ranges.csv").write_text(BARE_RANGES.text(rows))
    made = analyse(load([tmp_path]))
    times = made.tables["bare_times"].set_index("range")
    assert times.loc["step/a", "bare_p50_ns"] == 4000
    assert times["nsys_p50_ns"].isna().all()
    assert made.tables["layers"]["range"].tolist() == ["step", "step/a"]
    assert "time on the GPU" in [gap.what for gap in made.report.missing]
    text = render_markdown(made.report, made.tables)
    assert "Ranges without a profiler" in text


def test_the_page_shows_the_three_numbers(tmp_path: Path) -> None:
    timeline(wait=60).save(tmp_path / "timeline.sqlite")
    (tmp_path / "bare_ranges.csv").write_text(BARE_RANGES.text(regular(9, 400, 100)))
    made = analyse(load([tmp_path]))
    text = render_markdown(made.report, made.tables)
    rows = [line for line in text.splitlines() if line.startswith("| decode |")]
    assert any(all(shown in row for shown in ("100 µs", "40 µs", "60 µs")) for row in rows)


def test_a_range_that_ends_before_it_starts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bare_ranges.csv").write_text(BARE_RANGES.text(bare(("a", 5, 4))))
    with pytest.raises(InputError, match="the range in row 1 ends before it starts"):
        load([tmp_path])
