"""Planning what ncu counts: the choice, its selection as ncu carries it out, and what the counters then stand for."""

import json
import lzma
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis import counting
from analysis.capture.model import Capture
from analysis.formats.counting import COUNT_PLAN, SELECTION
from analysis.planning import cost, select
from analysis.planning.cost import Cost
from analysis.tables import groups
from analysis.tables.join import path_matcher, prepare_launches
from harness.profile import argv
from tests.declared import analyse
from tests.gpu.counting import compare

ROOT = Path(__file__).resolve().parents[2]
LAYERS, STEPS = 6, 3
PER_LAYER = (("attn", "gemm", 40_000), ("attn", "gemm", 40_000), ("mlp", "gemm", 90_000), ("mlp", "act", 3_000))


def program(layers: int = LAYERS, steps: int = STEPS) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The launches of a decoder and its ranges: every step pushes the same paths."""
    ops, ranges, now = [], [], 0
    for _ in range(steps):
        for layer in range(layers):
            for part in ("attn", "mlp"):
                path = f"decode/h.{layer}/{part}"
                start = now
                for where, kernel, time in PER_LAYER:
                    if where == part:
                        now += 10
                        ops.append((now, path, kernel, time, len(ranges)))
                ranges.append((start + 5, now + 5, part, path))
        now += 10
        ops.append((now, "decode/head", "gemm", 500_000, len(ranges)))
        ranges.append((now - 5, now + 5, "head", "decode/head"))
    launches = pd.DataFrame(ops, columns=["api_start_ns", "path", "name", "duration_ns", "owner"])
    launches = launches.assign(start_ns=launches["api_start_ns"], kind="kernel", grid="8x1x1", block="128x1x1", pid=1)
    launches["grid"] = np.where(launches["path"] == "decode/head", "64x1x1", launches["grid"])
    frame = pd.DataFrame(ranges, columns=["start_ns", "end_ns", "name", "path"])
    return groups.with_groups(prepare_launches(launches.assign(tid=1, device="GPU"))), frame


def ncu_replays(launches: pd.DataFrame, include: list[str], invocations: str) -> list[int]:
    """What ncu does with a selection: count each kernel's launches inside the filters, keep the numbers asked for."""
    matchers = [path_matcher(pattern) for pattern in include]
    assert all(matchers)
    seen: dict[str, int] = {}
    kept = []
    for row, (path, name) in enumerate(zip(launches["path"], launches["name"], strict=True)):
        if include and not any(m(path.split("/")) for m in matchers if m):
            continue
        seen[name] = seen.get(name, 0) + 1
        if not invocations or re.search(invocations, str(seen[name])):
            kept.append(row)
    return kept


FREE = Cost(pass_by_s=0.0)  # a machine on which ncu passes by launches for nothing, as it does with one pass


def test_two_launches_of_every_group_when_there_is_time():
    launches, ranges = program()
    choice = select.choose(launches, ranges, FREE, 1000)
    counted = launches.iloc[choice.rows].groupby(groups.GROUP).size()
    assert counted.min() == 2
    assert len(counted) == 5  # two gemms of attn told apart by their place, two of mlp, one of the head
    assert len(choice.rows) < len(launches) / 2


@pytest.mark.parametrize("budget", [18, 25, 40, 1000])
@pytest.mark.parametrize("with_ranges", [True, False])
def test_the_selection_gives_ncu_exactly_the_planned_launches(budget, with_ranges):
    launches, ranges = program(steps=20)
    choice = select.choose(launches, ranges if with_ranges else ranges.head(0), Cost(), budget)
    assert ncu_replays(launches, list(choice.include), choice.invocations) == choice.rows.tolist()
    assert choice.seconds <= max(budget, Cost().startup_s + budget / 2 + 0.1)


def test_most_gpu_time_comes_first():
    launches, ranges = program()
    choice = select.choose(launches, ranges, Cost(startup_s=1.0, pass_by_s=0.0), 1.75)
    counted = launches.iloc[choice.rows]
    assert set(counted["folded"]) == {"decode/h.*/mlp", "decode/head"}  # 1.6 and 1.5 ms, the others 0.7 each
    assert "act" not in set(counted["kernel"])


def test_only_launches_of_the_steps_asked_for_are_worth_a_replay():
    launches, ranges = program()
    rows = select.choose(launches, ranges, FREE, 1000, ["mlp"]).rows
    replayed = launches.iloc[rows]
    assert (replayed[replayed["path"].str.endswith("/mlp")]["name"].value_counts() == 2).all()
    assert "decode/head" not in set(replayed["path"])  # where most of the time is


def test_a_group_of_unequal_durations_is_counted_short_and_long():
    launches, ranges = program()
    which = (launches["kernel"] == "act").to_numpy()
    late = which & (np.cumsum(which) > which.sum() * 0.6)
    launches.loc[late, "duration_ns"] = 300_000
    rows = select.choose(launches, ranges, Cost(), 1000).rows
    times = launches.iloc[rows]
    assert set(times[times["kernel"] == "act"]["duration_ns"]) == {3_000, 300_000}


@pytest.mark.parametrize("odd", ["a/b", "domain:a", ""])
def test_a_name_that_a_filter_cannot_tell_is_left_to_invocation_numbers(odd):
    launches, ranges = program(2, 1)
    launches["path"] = launches["path"].str.replace("decode", odd, regex=False)
    ranges = ranges.assign(name=odd, path=odd or "decode")
    ranges = pd.concat([ranges.assign(name=odd, path=path) for path in launches["path"].unique()])
    choice = select.choose(launches, ranges, Cost(), 1000)
    assert choice.include == ()
    assert ncu_replays(launches, [], choice.invocations) == choice.rows.tolist()


def test_special_characters_of_a_name_are_escaped():
    ranges = pd.DataFrame({"name": ["a", "w[1]*"], "path": ["a", "a/w[1]*"]})
    launches = pd.DataFrame({"path": ["a/w[1]*"]})
    assert select.exact_filters(launches, ranges) == {"a/w[1]*": r"[a/w\[1\]\*]"}


def test_a_range_at_the_root_has_a_filter_only_where_it_stands_alone():
    ranges = pd.DataFrame({"name": ["a", "b", "c"], "path": ["a", "b", "b/c"]})
    launches = pd.DataFrame({"path": ["a", "b", "b/c"]})
    assert select.exact_filters(launches, ranges) == {"a": "a/", "b/c": "[b/c]"}


def test_costs_come_from_the_defaults_then_from_earlier_captures():
    assert cost.fitted([]).pass_s == Cost().pass_s
    assert cost.fitted([], 7).startup_s == 7
    runs = [{"passes": 3, "pass_s": value} for value in (0.1, 0.2, 0.6)] + [{"passes": 5, "pass_s": None}]
    fitted = cost.fitted(runs)
    assert (fitted.pass_s, fitted.passes, fitted.runs) == (0.2, 5, 3)
    learnt = cost.learnt({"startup_s": 10.0, "invocations": ""}, [4] * 50, 30.0)
    assert learnt == {"passes": 4, "replayed": 50, "seconds": 30.0, "pass_s": 0.1}
    assert cost.learnt({"startup_s": 10.0, "invocations": ""}, [4] * 2, 30.0)["pass_s"] is None
    assert Cost().of_launches(np.array([0])) == pytest.approx(12 * 0.0285)


RECORDED = pd.read_csv(ROOT / "tests/cpu/data/counting/recorded.csv")


def expected_s(row: pd.Series) -> float:
    """Seconds of replays that `Cost()` expects of a recorded capture."""
    return float(Cost().of_launches(np.zeros(row["launches"])).sum())


@pytest.mark.parametrize("row", [row for _, row in RECORDED.iterrows()], ids=lambda row: row["program"])
def test_the_recorded_captures_are_those_of_the_committed_runs(row):
    captures = ROOT / row["folder"] / "captures"
    assert json.loads((captures / "ncu.json").read_text())["seconds"] == row["seconds"]
    raw = next(captures.glob("ncu_raw.csv*"))
    text = lzma.decompress(raw.read_bytes()) if raw.suffix == ".xz" else raw.read_bytes()
    assert len(text.splitlines()) == row["launches"] + 2  # behind the names and the units
    if (captures / "nsys.json").is_file():  # else the start-up is that of the same program, planned
        assert json.loads((captures / "nsys.json").read_text())["seconds"] == row["startup_s"]


def test_the_margin_is_the_largest_residual_of_the_recorded_captures():
    residuals = [(row["seconds"] - row["startup_s"]) / expected_s(row) for _, row in RECORDED.iterrows()]
    assert max(residuals) == pytest.approx(cost.MARGIN, abs=0.005)
    assert min(residuals) == pytest.approx(0.89, abs=0.005)


@pytest.mark.parametrize("row", [row for _, row in RECORDED.iterrows()], ids=lambda row: row["program"])
@pytest.mark.parametrize("budget", [60, 90, 120])
def test_a_planned_capture_ends_within_its_budget_on_every_recorded_machine(row, budget):
    """The launches that a plan of this budget takes, each as long as in the recorded capture."""
    planned = Cost(startup_s=row["startup_s"])
    replays = int(planned.for_replays(planned.within(budget), row["launches"]) / planned.of_launches(np.zeros(1))[0])
    took = row["startup_s"] + replays * (row["seconds"] - row["startup_s"]) / row["launches"]
    assert took <= budget


def test_the_margin_follows_the_spread_of_earlier_captures():
    def after(*pass_s):
        return cost.fitted([{"passes": 12, "pass_s": value} for value in pass_s]).margin

    assert after(0.03, 0.04) == cost.MARGIN
    assert after(0.03, 0.03, 0.042) == pytest.approx(1.4)
    assert after(0.03, 0.03, 0.03) == cost.LEAST_MARGIN
    assert Cost(startup_s=10.0, margin=1.25).within(60.0) == pytest.approx(50.0)
    assert Cost(startup_s=70.0).within(60.0) == 60.0


# --- what the counters stand for ---


def captured(launches: pd.DataFrame, rows: list[int], read: dict[int, float] | None = None) -> pd.DataFrame:
    """Rows of ncu for these launches; `read` says how many bytes each reads (default: by kernel)."""
    picked = launches.iloc[rows].reset_index(drop=True)
    usual = picked["kernel"].map({"gemm": 1e6, "act": 2e5})
    return pd.DataFrame(
        {
            "ncu_id": range(len(picked)), "file": "ncu_raw.csv", "pid": 7, "name": picked["name"],
            "grid": picked["grid"], "block": picked["block"], "device": "GPU", "cc": "9.0", "path": picked["path"],
            "gpu__time_duration.sum": picked["duration_ns"] * 1.1, "dram__bytes_write.sum": 0.0,
            "dram__bytes_read.sum": [(read or {}).get(row, value) for row, value in zip(rows, usual, strict=True)],
        }
    )  # fmt: skip


UNITS = {"gpu__time_duration.sum": "ns", "dram__bytes_write.sum": "byte", "dram__bytes_read.sum": "byte"}


def report(launches, ranges, rows, plan=None, counters=None):
    """The report of a timeline, a plan of `rows` and what ncu captured."""
    choice = select.Choice(np.array(rows), (), (), 0.0, 0.0)
    table = pd.DataFrame(select.planned_groups(launches, choice, Cost()))
    every = ranges.assign(range_id=range(len(ranges)), parent_id=pd.NA, pid=1, tid=1, level=2)
    ops = launches.drop(columns=["kernel", "symbol"], errors="ignore")
    ops = ops.assign(api_end_ns=launches["api_start_ns"], registers=16, stream=7, bytes=pd.NA, memory="",
                          correlation_id=range(len(launches)), graph_node_id=pd.NA)  # fmt: skip
    capture = Capture(
        gpu_ops=ops,
        ranges=every,
        counters=captured(launches, rows) if counters is None else counters,
        counter_units=UNITS,
        ours={"count_plan": table if plan is None else plan},
        tools=[{"kind": "tool-status", "tool": "ncu", "status": "ok", "planned": True, "nvtx_include": []}],
    )
    return analyse(capture)


def test_what_was_counted_stands_for_the_rest_of_its_group():
    launches, ranges = program()
    rows = select.choose(launches, ranges, Cost(), 1000).rows.tolist()
    content, tables = report(launches, ranges, rows)
    table = tables["counting"]
    assert table["counted"].sum() == len(rows)
    assert (table["counted"] + table["extrapolated"]).sum() == len(launches)
    assert any(note.startswith(f"Counted {len(rows)} of {len(launches)} launches, which stand for 100%") for note in
               content["notes"])  # fmt: skip
    kernels = tables["kernels"].set_index(["kernel", "range"])
    expected = launches["duration_ns"].groupby([launches["kernel"], launches["folded"]]).sum() * 1.1
    assert kernels["ncu_time_ns"].astype(float).to_dict() == pytest.approx(expected.to_dict())


def test_representatives_that_differ_speak_for_themselves_alone():
    launches, ranges = program()
    rows = select.choose(launches, ranges, FREE, 1000).rows.tolist()
    act = [row for row in rows if launches["kernel"][row] == "act"]
    content, tables = report(launches, ranges, rows, counters=captured(launches, rows, {act[0]: 3e5}))
    table = tables["counting"].set_index("kernel")
    assert table.loc["act", "extrapolated"] == 0
    assert table.loc["act", "differ_frac"] == pytest.approx(1 / 3)
    assert table.loc["act", "reason"] == "the replayed launches of its group differ by 33%"
    assert table.loc["gemm", "extrapolated"].gt(0).all()
    assert any("do not speak for the others" in gap["why"] for gap in content["missing"])


def test_a_launch_that_ncu_did_not_replay_is_named_and_surplus_joins_nothing():
    launches, ranges = program()
    rows = select.choose(launches, ranges, Cost(), 1000).rows.tolist()
    head = [row for row in rows if launches["path"][row] == "decode/head"]
    kept = sorted({*rows, *range(3)} - {head[0]})
    _, tables = report(launches, ranges, rows, counters=captured(launches, kept))
    table = tables["counting"].set_index("range")
    assert table.loc["decode/head", "counted"] == 0
    assert "different number" in table.loc["decode/head", "reason"]
    assert tables["counting"]["counted"].sum() <= len(rows) - len(head)


def test_what_the_budget_did_not_reach_is_a_gap_with_a_larger_budget():
    launches, ranges = program()
    rows = launches.index[launches["path"] == "decode/head"].tolist()
    content, tables = report(launches, ranges, rows)
    assert tables["counting"].set_index("range").loc["decode/head", "counted"] == len(rows)
    gap = next(gap for gap in content["missing"] if gap["what"].startswith("the counters of"))
    assert gap["what"] == f"the counters of {len(launches) - len(rows)} of {len(launches)} launches"
    assert (gap["why"], "--budget" in gap["do"]) == ("the time of the plan was spent on others", True)


def test_a_plan_of_another_timeline_is_a_gap_and_selects_nothing():
    launches, ranges = program()
    rows = [0, 1, 2]
    plan = pd.DataFrame(select.planned_groups(launches, select.Choice(np.array(rows), (), (), 0.0, 0.0), Cost()))
    content, tables = report(launches, ranges, rows, plan=plan.assign(nsys_time_ns=plan["nsys_time_ns"] + 1))
    assert "counting" not in tables
    assert any("another timeline" in gap["why"] for gap in content["missing"])


# --- a GPU's captures: see tests/gpu/counting ---

CAPTURED = Path(__file__).parent / "data" / "counting"


@pytest.fixture(scope="module")
def captured_table() -> pd.DataFrame:
    return compare.table_of(CAPTURED)


@pytest.mark.parametrize(("program", "missing"), [("qwen", 2), ("gpt2", 0)])
def test_ncu_replayed_what_was_planned(program, missing):
    # ncu took [decode], a filter of one range alone, for no launch at all: the planner now writes none such
    ours = compare.planned(CAPTURED / program)
    refused = ours[ours["requested"] & (ours["counters_row"] < 0)]
    assert len(refused) == missing
    assert set(refused["path"]) <= {"decode"}
    assert set(refused["refused"]) <= {"ncu has no such kernel in this range"}
    measured = ours[ours["counters_from"] == "measured"]
    assert measured["counters_row"].is_unique
    assert len(measured) == len(compare.load([CAPTURED / program / "captures" / "ncu_raw.csv.xz"]).counters)


@pytest.mark.slow
def test_a_planned_capture_says_of_each_layer_what_a_whole_one_says(captured_table):
    equal_passes = captured_table[captured_table["against"].str.startswith("12 passes")]
    equal_passes = equal_passes[equal_passes["with_counters"] > 0]
    assert equal_passes.groupby("program").size().to_dict() == {"gpt2": 21, "qwen": 27}
    layers = equal_passes["range"].str.contains("layers.*", regex=False) & equal_passes["program"].eq("qwen")
    assert layers.sum() == 26
    assert equal_passes["bytes_off_frac"].abs().max() < compare.BYTES_WITHIN
    assert equal_passes["time_off_frac"].abs().max() < compare.TIME_WITHIN


def test_launches_that_are_passed_by_cost_time():
    launches, ranges = program(steps=40)
    paid, free = (select.choose(launches, ranges.head(0), one, 60) for one in (Cost(), FREE))
    assert max(paid.numbers) < max(free.numbers)  # the last launch that is replayed comes early
    number = launches.groupby(["pid", "name"]).cumcount().to_numpy() + 1
    passed = paid.rows[-1] + 1 - len(paid.rows)
    replays = Cost().of_launches(launches["duration_ns"].to_numpy()[paid.rows]).sum()
    assert paid.seconds == pytest.approx(Cost().startup_s + len(launches) * Cost().skip_s + replays + passed * 0.1)
    assert set(number[paid.rows]) == set(paid.numbers)
    filtered = select.choose(launches, ranges, Cost(), 60)
    assert filtered.include  # outside of which nothing is passed by


def test_a_long_program_without_ranges_is_counted_at_its_beginning():
    launches, ranges = program(steps=800)
    choice = select.choose(launches, ranges.head(0), Cost(startup_s=2.0), 60)
    assert choice.seconds <= 60
    counted = launches.iloc[choice.rows].groupby("kernel").size()
    assert counted.min() >= 2
    assert choice.rows[-1] < 600


def test_a_pass_is_not_learnt_where_launches_were_passed_by():
    assert cost.learnt({"startup_s": 1.0, "invocations": "^(1)$"}, [4] * 50, 30.0)["pass_s"] is None


def test_a_budget_of_90_s_covers_nine_tenths_of_a_program_with_189_groups():
    launches, ranges = counting.launches_of(CAPTURED / "qwen" / "captures")
    assert launches.groupby(groups.GROUP).ngroups == 189
    choice = select.choose(launches, ranges, Cost(startup_s=21), 90)
    group = launches.groupby(groups.GROUP).ngroup()
    known = launches["duration_ns"][group.isin(group.iloc[choice.rows])].sum() / launches["duration_ns"].sum()
    assert known > 0.9
    assert choice.seconds <= 90
    assert ncu_replays(launches, list(choice.include), choice.invocations) == choice.rows.tolist()
    plenty = select.choose(launches, ranges, Cost(startup_s=21), 1000)
    assert len(plenty.rows) < 400  # and not 650, for the hundredth of the time that no filter can tell


# --- the program ---


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder with the committed timeline of GPT-2."""
    source = ROOT / "reports" / "h200-gpt2-fp32" / "captures" / "nsys"
    shutil.copytree(source, tmp_path / "captures" / "nsys")
    return tmp_path


def test_the_program_writes_both_files_and_says_the_plan(run, monkeypatch, capsys):
    monkeypatch.setenv("KERNEL_LEDGER_CACHE", str(run / "cache"))
    assert counting.main([str(run), "--budget", "60"]) == 0
    selection = json.loads((run / "raw" / SELECTION.name).read_text())
    SELECTION.check(selection, SELECTION.name)
    said = capsys.readouterr().out
    assert f"ncu is to replay {selection['replayed']} of 798 launches" in said
    text = (run / "captures" / COUNT_PLAN.name).read_text()
    assert text.startswith(COUNT_PLAN.header)
    assert sum(len(line.split(",")[-2].split()) for line in text.splitlines()[1:]) == selection["replayed"]
    assert selection["time_share"] > 0.97
    assert selection["expected_s"] <= 60
    launches, _ = counting.launches_of(run / "captures")
    rows = ncu_replays(launches, selection["include"], selection["invocations"])
    assert len(rows) == selection["replayed"]


def test_steps_are_ranges_of_the_timeline(run, capsys):
    assert counting.main([str(run), "--steps", "decode"]) == 0
    rows = (run / "captures" / COUNT_PLAN.name).read_text().splitlines()[1:]
    assert {"decode" in line.split(",")[0].split("/") for line in rows if line.split(",")[-2]} == {True}
    assert counting.main([str(run), "--steps", "decode,training"]) == 3
    assert "--steps training is not a range with launches: use " in capsys.readouterr().err


@pytest.mark.slow
def test_what_a_capture_took_is_remembered(run, monkeypatch, capsys):
    monkeypatch.setenv("KERNEL_LEDGER_CACHE", str(run / "cache"))
    assert counting.main([str(run)]) == 0
    assert counting.main([str(run), "--learn"]) == 3
    (run / "captures" / "ncu.json").write_text(json.dumps({"kind": "tool-status", "seconds": 50}))
    (run / "raw" / "ncu.log").write_text('==PROF== Profiling "k" - 0: 0%....100% - 10 passes\n' * 100)
    assert counting.main([str(run), "--learn"]) == 0
    assert "ncu replayed 100 launches in 50 s" in capsys.readouterr().out
    assert counting._earlier() == [
        {"passes": 10, "replayed": 100, "seconds": 50.0, "pass_s": pytest.approx((50 - 16.6) / 1000)}
    ]
    (run / "captures" / "ncu.json").unlink()
    assert counting.main([str(run)]) == 0
    assert json.loads((run / "raw" / SELECTION.name).read_text())["passes"] == 10
    (run / "cache" / "capture_costs.json").write_text("{}")
    assert counting._earlier() == []


def test_no_timeline_is_one_sentence(tmp_path, capsys):
    assert counting.main([str(tmp_path / "nowhere")]) == 3
    assert len(capsys.readouterr().err.splitlines()) == 1
    with pytest.raises(SystemExit, match="2"):
        counting.main([str(tmp_path), "--budget", "0"])


def test_a_selection_becomes_options_of_ncu(run, monkeypatch):
    monkeypatch.setenv("KERNEL_LEDGER_CACHE", "off")
    assert counting.main([str(run)]) == 0
    selection = json.loads((run / "raw" / SELECTION.name).read_text())
    assert argv.of_plan(selection) == {"include": selection["include"], "numbers": argv.PLANNED}
    named = argv.of_plan(selection | {"include": [], "invocations": "^(1|3)$"})
    assert named["numbers"][2:] == ["--kernel-id", ":::^(1|3)$", "--launch-count", str(selection["replayed"])]
    with pytest.raises(argv.ArgumentError, match="larger --budget"):
        argv.of_plan(selection | {"replayed": 0})


def test_a_committed_capture_is_not_planned_in_place(capsys: pytest.CaptureFixture[str]) -> None:
    captures = ROOT / "examples/h200/two_streams/captures"
    before = (captures / COUNT_PLAN.name).read_bytes()
    assert counting.main([str(captures), "--budget", "7"]) == 2
    assert "is a committed capture, which stays as it is; copy it" in capsys.readouterr().err
    assert (captures / COUNT_PLAN.name).read_bytes() == before
