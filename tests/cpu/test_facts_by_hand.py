"""Facts that small changes of the code would break, each on numbers that a reader can check by hand.

tests/mutants.py changes one operator or number at a time; a test here names the fact that a surviving change broke.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.capture.model import GPU_OPS_COLUMNS, Capture, as_table
from analysis.capture.units import base_unit, check_metric
from analysis.diagnosis.host import _rates
from analysis.diagnosis.judge import all_rules
from analysis.diagnosis.limits import find_limits, why_none
from analysis.formats import intervals
from analysis.formats.errors import InputError
from analysis.hardware.devices import Device, architecture, architectures
from analysis.tables import bare as bare_times
from analysis.tables import collectives, gaps, join, periods, traffic
from analysis.tables.bare import blocked
from analysis.tables.roofline import (
    _without_points,
    build_roof_lines,
    build_roofline,
    build_roofs,
    dram_roof,
    refuse_impossible,
)
from analysis.tables.tokens import token_floors
from analysis.tables.units import build_units
from tests.declared import facts_of


def numbers(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.int64)


@pytest.mark.parametrize(
    ("start", "length", "busy", "idle"),
    [
        ([0, 2, 20], [10, 1, 5], 15, [10]),  # the second lies inside the first
        ([0, 5], [10, 10], 15, []),
        ([5, 0], [5, 5], 10, []),  # in any order, and they touch
        ([0, 10, 30], [1, 1, 1], 3, [9, 19]),
        ([], [], 0, []),
    ],
)
def test_the_gpu_is_busy_for_the_union(start: list[int], length: list[int], busy: int, idle: list[int]) -> None:
    found, between = gaps.busy_and_gaps(numbers(*start), numbers(*length))
    assert (found, between.tolist()) == (busy, idle)


def test_steps_of_one_name_have_numbers() -> None:
    assert gaps.step_labels(pd.DataFrame({"path": ["a", "b", "a"]})) == ["a#1", "b", "a#2"]


def test_a_launch_at_the_end_of_a_step_belongs_to_the_next() -> None:
    steps = pd.DataFrame({"start_ns": [0, 100], "end_ns": [100, 200], "pid": [7, 7]}, index=[3, 5])
    ops = pd.DataFrame({"pid": [7] * 5, "api_start_ns": [0, 99, 100, 199, 200]})
    assert gaps.add_other_threads(ops, steps, numbers(-1, -1, -1, -1, -1)).tolist() == [3, 3, 5, 5, -1]
    assert gaps.add_other_threads(ops, steps, numbers(5, -1, -1, -1, -1)).tolist() == [5, 3, 5, 5, -1]
    assert gaps.add_other_threads(ops, steps.head(0), numbers(5, -1, -1, -1, -1)).tolist() == [5, -1, -1, -1, -1]


@pytest.mark.parametrize(
    ("one", "other", "agree"),
    [
        (0.0, 5e6, True),
        (5e6, 0.0, True),
        (5e6, 5.04e6, True),
        (5e6, 5.2e6, False),
        (100.0, 101.005, True),  # 1.005 is less than a hundredth of the larger one
        (-1.0, 1.0, False),
        (0.004, 0.008, True),
    ],
)
def test_pages_of_one_capture_agree_but_for_rounding(one: float, other: float, agree: bool) -> None:
    """A scaled page prints 0 for a small value; else a hundredth, or half of the last digit, is rounding."""
    rows = pd.DataFrame(
        {"ncu_id": [0, 0], "path": "p", "symbol": "s", "grid": "1", "block": "1", "value": [one, other]}
    )
    assert join._agree(rows) == agree


@pytest.mark.parametrize(
    ("pattern", "names", "matches"),
    [
        ("A/*/B", "A/B", True),
        ("A/*/B", "A/x/y/B", True),
        ("A/+/B", "A/B", False),
        ("A/+/B", "A/x/B", True),
        ("A/+/B", "A/x/y/B", False),
        ("[A", "A/B", True),
        ("[B", "A/B", False),
        ("B]", "A/B", True),
        ("A]", "A/B", False),
        ("A/", "x/A/B", True),
        ("A/B", "A/x/B", False),
    ],
)
def test_a_filter_of_ncu_matches_ranges_as_its_manual_says(pattern: str, names: str, matches: bool) -> None:
    matcher = join.path_matcher(pattern)
    assert matcher is not None
    assert matcher(names.split("/")) == matches


def test_one_late_collective_moves_no_clock() -> None:
    """Rank 1 ends 100 ns later, once by a millisecond: its clock is 100 ns ahead."""
    late = [100] * 8 + [1_000_000]
    rows = pd.DataFrame(
        {
            "collective": [*range(9), *range(9)], "kind": "all_reduce", "place": [0] * 9 + [1] * 9,
            "start_ns": [1000 * at for at in range(9)] * 2,
            "end_ns": [1000 * at + 500 for at in range(9)] + [1000 * at + 500 + late[at] for at in range(9)],
        }
    )  # fmt: skip
    clocks = collectives._clocks(rows, 2)
    assert clocks["offset_ns"].tolist() == [0, 100]
    assert clocks["pairs"].tolist() == [0, 9]


def test_the_transfer_of_uneven_collectives_is_their_median() -> None:
    """100, 200 and 900 ns from the last start to the end: 200 ns; one copy alone counts its own time."""
    ends = [1100, 2200, 3900]
    rows = pd.DataFrame(
        {
            "path": "step", "collective": [0, 1, 2], "kind": "all_reduce", "start_ns": [500, 1500, 2500], "end_ns": ends,
            "aligned_end_ns": ends, "last_start_ns": [1000, 2000, 3000], "ranks": pd.array([2] * 3, "Int64"), "partners": 2,
            "payload_bytes": pd.array([4] * 3, "Int64"), "call": "ncclAllReduce", "waiting_ns": 0.0, "transfer_ns": 1.0,
        }
    )  # fmt: skip
    facts: Any = SimpleNamespace(
        matched=SimpleNamespace(rows=rows), exposed=pd.DataFrame({"exposed_ns": [1, 1, 1]}),
        gpu_ops=pd.DataFrame({"duration_ns": [5000]}), links=pd.DataFrame(columns=["kind", "ranks", "bytes", "byte_per_s"]),
    )  # fmt: skip
    build: Any = collectives.build_collectives
    (row,) = getattr(build, "build", build)(facts).to_dict("records")
    assert (row["transfer_p50_ns"], row["count"], row["time_ns"]) == (200, 3, 600 + 700 + 1400)


def test_a_rung_that_decodes_several_tokens_has_the_floor_of_all() -> None:
    """3 + 1 GB at 2 TB/s: 2 ms a token."""
    run = {
        "copy_bytes_per_s": 2e12, "weight_bytes": 3e9, "cache_bytes": 1e9, "rungs": [{"rung": "one"}, {"rung": "four"}],
        "captured": [{"rung": "four", "tokens": 4}],
    }  # fmt: skip
    capture: Any = SimpleNamespace(of=lambda name: run if name == "decode" else None)
    assert token_floors(capture, None, pd.DataFrame()) == {"one/decode": 2e6, "four/decode": 8e6}


@pytest.mark.parametrize(("times", "kept"), [(1.04, True), (1.2, False), (1.0, True)])
def test_a_roof_above_the_datasheet_is_refused(times: float, kept: bool) -> None:
    device: Any = SimpleNamespace(
        dram_bytes_per_s=1e12, fp32_flop_per_s=None, tf32_flop_per_s=None, bf16_flop_per_s=None
    )
    given = {"roofs": [{"name": "dram_copy", "value": times * 1e12, "unit": "byte/s"}]}
    found, refused = refuse_impossible(given, device, None)
    assert found is not None
    assert ([roof["value"] for roof in found["roofs"]], len(refused)) == ([times * 1e12] if kept else [], int(not kept))


def test_a_wait_counts_for_the_step_in_which_it_lies() -> None:
    """The GPU works for the first step until 300, and the second starts at 100: the wait from 150 to 250 is its own."""
    steps = pd.DataFrame({"start_ns": [0, 100], "end_ns": [90, 300], "pid": 1, "tid": 1})
    waits = pd.DataFrame({"start_ns": [80, 150], "end_ns": [95, 250], "pid": 1, "tid": 1})
    found = blocked(steps, np.array([300.0, 300.0]), waits)
    assert found is not None
    assert found.tolist() == [15.0, 100.0]


def test_rates_of_a_range_are_of_all_its_calls() -> None:
    """Two operations of 1 MFLOP, called 10 times in all, in 1 ms: 10 MFLOP / 1 ms."""
    ops = pd.DataFrame({"range": ["h/a", "h/a"], "flops": [1e6, 1e6], "minimum_bytes": [2e6, 2e6]})
    assert _rates("h/a", 1e6, 10, ops)[0] == "runs at 10 GFLOP/s and 20 GB/s"


# Units and bytes


@pytest.mark.parametrize(
    ("name", "base", "accepted"),
    [
        ("gpu__time_duration.sum", "ns", True), ("gpu__time_duration.sum", "", False), ("gpu__time_duration.max", "hz", False),
        ("dram__bytes_read.sum", "byte", True), ("dram__bytes_read.sum", "ns", False), ("dram__bytes.sum.per_second", "byte/s", True),
        ("l1tex__data_bytes_per_thing.sum", "sector", True), ("sm__cycles_active.avg", "cycle", True),
    ],
)  # fmt: skip
def test_a_metric_has_the_unit_that_its_name_tells(name: str, base: str, accepted: bool) -> None:
    if accepted:
        check_metric(name, base, "x.csv")
        return
    with pytest.raises(InputError, match=f"given in {base or 'no unit'} where"):
        check_metric(name, base, "x.csv")


@pytest.mark.parametrize("unit", ["furlong", "sectorss", "xs", "byte/furlong", "Kfoo"])
def test_a_unit_that_is_not_known_is_refused(unit: str) -> None:
    with pytest.raises(InputError, match="is not known"):
        base_unit(unit, "x.csv")


def busy(**columns: list[Any]) -> pd.DataFrame:
    """Return units.csv of launches of kernel k in range r, all measured."""
    count = len(next(iter(columns.values())))
    base = {"kernel": ["k"] * count, "range": ["r"] * count, "counters_from": ["measured"] * count}
    return build_units(facts_of(measured=pd.DataFrame(base | columns)))


def test_a_long_launch_weighs_more_in_the_share_of_a_peak() -> None:
    """100 ns at 0.2 and 300 ns at 0.6 are 0.5; a launch without the metric weighs nothing in it."""
    found = busy(
        duration_ns=[100.0, 300.0, 100.0], dram_throughput_frac=[0.2, 0.6, np.nan], sm_throughput_frac=[0.2, 0.6, 0.0],
        spill_requests=[3, 4, np.nan], registers=[32, 40, 36],
    ).iloc[0]  # fmt: skip
    assert (found["dram_busy_frac"], found["sm_busy_frac"]) == (pytest.approx(0.5), pytest.approx(0.4))
    assert (found["ncu_time_ns"], found["spill_requests"], found["registers"]) == (500, 7, 40)
    assert pd.isna(found["l2_busy_frac"])


def test_launches_weigh_alike_if_one_has_no_duration() -> None:
    found = busy(duration_ns=[100.0, np.nan], l1_throughput_frac=[0.2, 0.6]).iloc[0]
    assert (found["l1_busy_frac"], found["ncu_time_ns"]) == (pytest.approx(0.4), 100)
    assert pd.isna(found["spill_requests"])
    assert pd.isna(busy(duration_ns=[np.nan], l1_throughput_frac=[0.2])["ncu_time_ns"][0])


def test_units_need_a_share_or_spills_and_are_in_order_of_time() -> None:
    table = busy(kernel=["a", "b", "c"], duration_ns=[1.0, 9.0, 5.0], l2_throughput_frac=[0.1, 0.2, 0.3])
    assert table["kernel"].tolist() == ["b", "c", "a"]
    assert table["l2_busy_frac"].tolist() == pytest.approx([0.2, 0.3, 0.1])
    assert busy(duration_ns=[1.0], spill_requests=[0])["spill_requests"].tolist() == [0]
    rows = {"kernel": ["k"], "range": ["r"], "counters_from": ["measured"], "duration_ns": [1.0]}
    assert build_units(facts_of(measured=pd.DataFrame(rows))).empty
    sibling = pd.DataFrame(rows | {"l2_throughput_frac": [0.1], "counters_from": ["sibling"]})
    assert build_units(facts_of(measured=sibling)).empty
    assert build_units(facts_of(measured=pd.DataFrame())).empty


NO_COPIES = pd.DataFrame(columns=["dram_read_bytes", "dram_write_bytes"], dtype="Float64")


def ledger(
    copied: pd.DataFrame = NO_COPIES, ops: pd.DataFrame | None = None, **columns: list[Any]
) -> pd.DataFrame | None:
    measured = pd.DataFrame(columns)
    return traffic.build_traffic(facts_of(Capture(ops=ops), measured=measured, seen_paths={"p"}, copied=copied))


def test_the_ledger_of_another_program_has_the_most_read_range_first() -> None:
    columns = {"path": ["p", "q", "q", "", "r"], "dram_read_bytes": [5, 3, 4, 99, np.nan], "l2_bytes": [1, 2, 3, 4, 5]}
    table = ledger(**columns)
    assert table["range"].tolist() == ["q", "p", "r"]  # what has no range is in no row
    assert table["l2_bytes"].tolist() == [5, 1, 5]
    assert table["dram_read_bytes"].fillna(-1).tolist() == [7, 5, -1]
    assert table["tier"].tolist() == ["counters", "counters", "static"]
    assert table["dram_write_bytes"].isna().all()
    assert ledger(path=["p"], dram_read_bytes=[np.nan]).empty
    assert ledger(path=["p"], kernel=["k"]).empty


def test_a_declared_range_without_a_minimum_has_no_ratio() -> None:
    ops = pd.DataFrame(
        {"range": ["p", "p", "q"], "op": ["softmax", "softmax", "gelu"], "variant": "v", "minimum_bytes": [4, 6, 7],
         "predicted_unfused_bytes": [1, np.nan, 1], "predicted_fused_bytes": np.nan}
    )  # fmt: skip
    given = {"path": ["p"], "dram_read_bytes": [20.0], "dram_write_bytes": [5.0]}
    table = ledger(ops=ops, **given)
    columns = ["range", "minimum_bytes", "predicted_unfused_bytes", "measured_over_minimum"]
    assert table[columns].to_numpy().tolist() == [["p", 10, 1, 2.5]]  # q did not run
    assert table["predicted_fused_bytes"].isna().all()
    zero = ledger(ops=ops.assign(minimum_bytes=0), **given)
    assert zero["measured_over_minimum"].isna().all()


def test_copies_and_sets_count_where_dram_moves_them() -> None:
    """A copy within the GPU reads and writes; one from the host and a set write; one to the host is the link's."""
    rows = [("memcpy", "[CUDA memcpy Device-to-Device]", "p"), ("memset", "[CUDA memset]", "p"),
            ("memcpy", "[CUDA memcpy Host-to-Device]", "p"), ("memcpy", "[CUDA memcpy Device-to-Host]", "p"),
            ("memset", "[CUDA memcpy Device-to-Device]", "q"), ("memcpy", "[CUDA memcpy Device-to-Device]", ""),
            ("kernel", "k", "p")]  # fmt: skip
    ops = pd.DataFrame(rows, columns=["kind", "name", "path"]).assign(bytes=[1, 10, 100, 1000, 7, 5, 3])
    assert traffic.copied_bytes(ops).reset_index().to_numpy().tolist() == [["p", 1, 111], ["q", 0, 7]]
    assert traffic.copied_bytes(ops.tail(1)).empty


def test_copies_outside_every_range_do_not_hinder_many_paths() -> None:
    """pandas gives an empty index of categories codes of 8 bits, though 200 categories need 16."""
    paths = ["", *(f"h.{layer}" for layer in range(200))]
    kind = pd.CategoricalDtype(paths)
    ops = pd.DataFrame({"kind": "memset", "name": "[CUDA memset]", "path": pd.Series([""], dtype=kind), "bytes": 8})
    columns = {"dram_read_bytes": range(201), "dram_write_bytes": 3.0}
    measured = pd.DataFrame({"path": pd.Series(paths, dtype=kind), **columns})
    table = traffic.build_traffic(facts_of(measured=measured, seen_paths={"h.1"}, copied=traffic.copied_bytes(ops)))
    assert table is not None
    assert set(table["range"]) == set(paths[1:])


def declared(*rows: tuple[str, str, float, float]) -> pd.DataFrame:
    """rows: (op, variant, minimum, read)"""
    return pd.DataFrame(rows, columns=["op", "variant", "minimum_bytes", "dram_read_bytes"]).assign(
        range=[f"r{chr(97 + at)}" for at in range(len(rows))],
        predicted_fused_bytes=np.nan,
        dram_write_bytes=0.0,
        tier="counters",
    )


def test_equal_layers_show_once() -> None:
    table = declared(("a", "v", 1, 5), ("a", "v", 1, 9), ("a", "w", 1, 5), ("a", "v", 2, 5), ("", "x", 1, 7))
    assert traffic.one_per_op(table).index.tolist() == [0, 2, 3]
    assert traffic.one_per_op(table.assign(op="")).index.tolist() == [1, 4, 0, 2, 3]
    assert traffic.one_per_op(table.assign(op=pd.NA)).index.tolist() == [1, 4, 0, 2, 3]


def test_the_op_with_most_variants_at_one_size_is_drawn() -> None:
    table = declared(
        *[("a", name, 1, 5) for name in ("v", "w", "x", "v")],
        ("a", "y", 2, 5),
        ("b", "v", 1, 5),
        *[("c", name, 1, np.nan) for name in "wxyz"],
    )
    op, rows = traffic.of_one_op(table)
    assert (op, rows["variant"].tolist()) == ("a", ["v", "w", "x"])
    op, rows = traffic.of_one_op(table[:2])
    assert (op, len(rows)) == ("", 0)


def test_the_figure_leaves_out_what_nobody_sees() -> None:
    table = declared(
        *[("a", f"v{at:02}", 100, 1000.0) for at in range(30)], ("a", "small", 1, 9.0), ("a", "just", 1, 10.0)
    )
    drawn = traffic.for_figure(table)
    assert (len(drawn), drawn["variant"].iloc[0]) == (20, "v00")
    few = traffic.for_figure(table[28:])
    assert few["variant"].tolist() == ["v28", "v29", "just"]
    assert few["measured_over_minimum"].tolist() == [10.0, 10.0, 10.0]
    fused = table.assign(predicted_fused_bytes=[*[np.nan] * 31, 10.0])
    assert traffic.for_figure(fused)["variant"].tolist() == ["just"]


def test_the_figure_says_of_how_many_layers_a_mean_is() -> None:
    table = declared(
        ("a", "v", 10, 20), ("a", "v", 10, 40), ("a", "w", 10, 5), ("a", "x", 10, 7), ("a", "x", 10, np.nan)
    )
    drawn = traffic.for_figure(table.assign(range=["h.0", "h.1", "h.0", "h.0", "h.1"], dram_write_bytes=10.0))
    assert drawn["variant"].tolist() == ["v, mean of 2 layers", "w", "x, 1 of 2 layers"]
    assert drawn["dram_read_bytes"].tolist() == [30, 5, 7]
    assert drawn["measured_over_minimum"].tolist() == [4.0, 1.5, 1.7]


# Busy time of steps


def operations(ops: list[tuple[int, int, str]], **more: Any) -> pd.DataFrame:
    """ops: (start, duration, kind)"""
    base = pd.DataFrame(ops, columns=["start_ns", "duration_ns", "kind"])
    base = base.assign(name="k", pid=1, device="0", api_start_ns=0, correlation_id=range(len(ops))).assign(**more)
    return as_table(dict(base.items()), GPU_OPS_COLUMNS)


def steps_of(
    ops: list[tuple[int, int, str]], step_of_op: list[int], steps: list[tuple[str, int, int]] = (), **more: Any
) -> pd.DataFrame:  # fmt: skip
    """Return the measured columns of gaps.csv. ops: (start, duration, kind); steps: (path, start, end)."""
    named = {name: more.pop(name) for name in ("pid", "device", "api_start_ns", "correlation_id") if name in more}
    frame = operations(ops, **named)
    ranges = pd.DataFrame(list(steps), columns=["path", "start_ns", "end_ns"]).assign(pid=1)
    known = {"bare_wall_ns": {}, "bare_gpu_ns": {}, "set_up": {}, "blocked_ns": None} | more
    return gaps.measure_steps(facts_of(gpu_ops=frame, step_ranges=ranges, step_of_op=np.array(step_of_op), **known))


def test_a_step_lasts_until_its_last_operation_and_each_has_its_own() -> None:
    kinds = ["kernel", "memcpy", "kernel", "kernel"]
    ops = [
        (start, length, kind)
        for (start, length), kind in zip([(10, 20), (20, 5), (120, 10), (180, 40)], kinds, strict=True)
    ]
    table = steps_of(
        ops, [0, 0, 1, 1], [("s", 0, 50), ("s", 100, 150), ("t", 300, 310)], blocked_ns=np.array([3.0, 4.0, 0.0]),
        bare_wall_ns={"s": 7.0}, bare_gpu_ns={"s": 5.0},
    )  # fmt: skip
    assert table["step"].tolist() == ["s#1", "s#2", "t"]
    columns = [
        "wall_ns",
        "busy_ns",
        "launches",
        "launch_calls",
        "largest_gaps_ns",
        "blocked_ns",
        "bare_wall_ns",
        "bare_gpu_ns",
    ]
    assert table[columns].astype(object).where(table[columns].notna(), None).to_numpy().tolist() == [
        [50, 20, 1, 1, "", 3, 7, 5], [120, 50, 2, 2, "50", 4, 7, 5], [10, None, None, None, "", 0, None, None]
    ]  # fmt: skip


def test_the_three_longest_gaps_stand_in_order_and_the_profilers_time_is_none() -> None:
    """Gaps of 10, 40, 20 and 30 ns; the profiler holds the program for the last 25 of the 40, and after the end."""
    ops = [(0, 10, "kernel"), (20, 10, "kernel"), (70, 10, "kernel"), (100, 10, "kernel"), (140, 10, "kernel")]
    assert steps_of(ops, [-1] * 5)["largest_gaps_ns"].tolist() == ["40;30;20"]
    held = pd.DataFrame({"start_ns": [45, 145], "end_ns": [70, 900], "pid": [1, 1]})
    ranges = pd.DataFrame({"path": ["s"], "start_ns": [0], "end_ns": [100], "pid": [1]})
    known = {"bare_wall_ns": {}, "bare_gpu_ns": {}, "set_up": {}, "blocked_ns": None}
    table = gaps.measure_steps(
        facts_of(
            Capture(overhead=held), gpu_ops=operations(ops), step_ranges=ranges, step_of_op=np.zeros(5, int), **known
        )
    )
    assert table["largest_gaps_ns"].tolist() == ["30;20;15"]
    assert table["busy_ns"].tolist() == [50]


def test_of_several_gpus_the_busiest_is_judged_and_all_are_named() -> None:
    """GPU 0 is busy for 1 + 1 µs, GPU 1 for 3: two operations at once count once."""
    ops = [(0, 1000, "kernel"), (5000, 1000, "kernel"), (0, 3000, "kernel"), (1000, 1000, "kernel")]
    row = steps_of(ops, [-1] * 4, device=["0", "0", "1", "1"]).iloc[0]
    assert (row["step"], row["busy_ns"], row["launches"], row["wall_ns"]) == ("capture", 3000, 4, 6000)
    assert row["evidence"] == "GPU 1 is the busiest of 2 GPUs; the others are busy for: GPU 0 2.0 µs"
    equal = steps_of(ops[:2], [-1] * 2, device=["b", "a"]).iloc[0]
    assert equal["evidence"].startswith("a is the busiest of 2 GPUs; the others are busy for: b 1.0 µs")


def test_nodes_of_a_graph_share_a_call_and_an_unknown_call_is_one() -> None:
    kernels = [(at, 1, "kernel") for at in range(4)]
    assert steps_of(kernels, [-1] * 4, correlation_id=[5, 5, None, None])["launch_calls"].tolist() == [3]
    copies = [(0, 1, "memcpy"), (1, 1, "kernel"), (2, 1, "memset")]
    assert steps_of(copies, [-1] * 3)[["launches", "launch_calls"]].to_numpy().tolist() == [[1, 1]]


def test_processes_have_numbers_and_lost_launches_are_told() -> None:
    steps = [("s", 0, 50)]
    one = steps_of([(10, 5, "kernel"), (90, 5, "kernel")], [0, -1], steps, pid=[1, 2])
    assert one["evidence"].tolist() == ["of process 1 of 2"]
    lost = "no GPU operation is known to belong to this step: some launches were not recorded"
    assert steps_of([(10, 5, "kernel")], [-1], steps, api_start_ns=[None])["evidence"].tolist() == [lost]
    assert steps_of([(10, 5, "kernel")], [0], steps, api_start_ns=[None])["evidence"].tolist() == [""]
    assert steps_of([(10, 5, "memcpy")], [-1], steps, api_start_ns=[None])["evidence"].tolist() == [""]


def test_a_step_inside_another_is_none_and_ranges_belong_to_the_step_around_them() -> None:
    ranges = pd.DataFrame(
        {"name": ["run", "step", "decode", "layer", "step", "x"], "level": [0, 1, 2, 3, 1, 0], "start_ns": [0, 50, 60, 61, 10, 90],
         "path": ["run", "run/step", "run/step/decode", "run/step/decode/layer", "run/step", "x"]}
    )  # fmt: skip
    steps = gaps.find_steps(ranges)
    assert steps.index.tolist() == [4, 1]
    parents = numbers(-1, 0, 1, 2, 0, -1)
    assert gaps.step_of_rows(ranges, steps, parents).tolist() == [-1, 1, 1, 1, 4, -1]
    backwards = ranges.iloc[::-1].reset_index(drop=True)  # x, step, layer, decode, step, run
    inside = gaps.step_of_rows(backwards, gaps.find_steps(backwards), numbers(-1, 5, 3, 4, 5, -1))
    assert inside.tolist() == [-1, 1, 4, 4, 4, -1]
    first = backwards[1:].reset_index(drop=True)  # the first row is a step
    assert gaps.step_of_rows(first, gaps.find_steps(first), numbers(4, 0, 3, 4, -1)).tolist() == [0, 0, 3, 3, -1]


def test_unions_joined_and_what_lies_outside() -> None:
    merged = intervals.union(numbers(0, 5, 20, 30, 40), numbers(5, 5, 10, 0, 2))
    assert [side.tolist() for side in merged] == [[0, 20, 40], [10, 30, 42]]
    assert intervals.length(merged) == 22
    assert intervals.before(numbers(-1, 0, 5, 10, 20, 25, 99), merged).tolist() == [0, 0, 5, 10, 10, 15, 22]
    assert intervals.covered(numbers(5, 30), numbers(25, 40), merged).tolist() == [10, 0]
    none = intervals.union(numbers(), numbers())
    assert intervals.outside(numbers(5, 5, 5), numbers(25, 25, 25), numbers(0, 1, -1), [merged, none]).tolist() == [
        10,
        20,
        20,
    ]
    assert [side.tolist() for side in intervals.joined(merged, intervals.union(numbers(8), numbers(13)))] == [
        [0, 40],
        [30, 42],
    ]
    assert intervals.before(numbers(3), none).tolist() == [0]


# Bare times of steps


def bare_rows(*rows: tuple[int, int, str, int, int | None], style: str = "push") -> pd.DataFrame:
    """rows: (process, thread, range, start, end); None: never closed"""
    frame = pd.DataFrame(rows, columns=["process", "thread", "range", "start_ns", "end_ns"])
    frame = frame.assign(style=style, end_ns=frame["end_ns"].astype("Float64"))
    return frame.assign(duration_ns=frame["end_ns"] - frame["start_ns"])


def test_first_calls_are_left_out_on_each_thread() -> None:
    """Thread 1: 90 then 10, 20, 30, 40; thread 2: only 50, and one that was never closed."""
    ends = [90, 10, 20, 30, 40]
    rows = bare_rows(
        *[(1, 1, "r", 0, end) for end in ends], (1, 2, "r", 0, 50), (1, 2, "r", 0, None), (1, 3, "r", 0, None)
    )
    found = bare_times.steady_state(rows, "duration_ns")
    assert (found["first_calls"], found["first_ns"], found["steady"], found["bare_p50_ns"]) == (1, 90, 5, 30)
    none = bare_times.steady_state(rows[:0], "duration_ns")
    assert (none["first_calls"], none["first_ns"], none["steady"]) == (0, None, 0)
    assert np.isnan(none["bare_p50_ns"])


def test_bare_times_hold_every_range_of_both_runs() -> None:
    rows = bare_rows((1, 1, "a", 0, 30), (1, 1, "b", 5, 9), (1, 1, "a", 50, 90), (1, 1, "a", 100, None))
    ranges = pd.DataFrame({"path": ["a", "a", "b"], "start_ns": [0, 100, 300], "end_ns": [60, 180, 301]})
    facts: Any = facts_of(bare=rows, ranges=ranges, folded={"a": "a", "b": "b"})
    table = bare_times.build_bare_times(facts)
    columns = ["range", "calls", "never_closed", "first_calls", "first_ns", "bare_p50_ns", "nsys_p50_ns"]
    assert table[columns].to_numpy().tolist() == [["a", 3, 1, 0, 30, 35, 70], ["b", 1, 0, 0, 4, 4, 1]]
    (gap,) = (
        [bare_times._never_closed.build(facts)]
        if hasattr(bare_times._never_closed, "build")
        else [bare_times._never_closed(facts)]
    )
    assert gap is not None
    assert gap.what == "the bare time of 1 of 4 ranges"
    few = bare_times._most_time(pd.DataFrame({"bare_p50_ns": range(1, 100), "calls": [100, *[1] * 98]}))
    assert few.index[0] == 0
    assert few.index[-1] == 98


@pytest.mark.parametrize(
    ("launched", "calls", "steps"),
    [
        (["run/a", "run/b"], {"run": 1, "run/a": 5, "run/b": 2}, ["run/a", "run/b"]),
        (["run/a"], {"run": 2, "run/a": 5}, ["run"]),  # the outermost
        (["run/a"], {"run": 1, "run/a": 1, "run/b": 9}, []),  # b launches nothing
        ([""], {"run": 9}, []),
    ],
)
def test_the_outermost_range_that_repeats_and_launches_is_the_step(
    launched: list[str], calls: dict[str, int], steps: list[str]
) -> None:
    ranges = pd.DataFrame({"path": ["run/b", "run/a", "run"], "start_ns": [9, 5, 0]})
    assert bare_times.find_repeated(ranges, launched, {}, calls)["path"].tolist() == steps


def test_steps_that_end_in_a_wait_end_with_their_gpu() -> None:
    """Step 1 waits until 45 for work that ends at 40, step 2 until 95 for what ends at 99; step 3 has no work."""
    steps = pd.DataFrame({"start_ns": [0, 50, 100], "end_ns": [50, 100, 150], "pid": 1, "tid": 1})
    until = numbers(40, 99, 0)
    waits = pd.DataFrame({"start_ns": [30, 80, 148], "end_ns": [45, 95, 160], "pid": 1, "tid": 1})
    assert bare_times.ends_in_wait(steps, until, waits).tolist() == [True, False, False]
    assert bare_times.ends_in_wait(steps, until, waits.assign(tid=2)).tolist() == [False, False, False]
    assert bare_times.ends_in_wait(steps, numbers(40, 90, 0), waits).tolist() == [True, True, False]
    assert bare_times.ends_in_wait(steps, numbers(50, 101, 0), None).tolist() == [True, False, True]
    ops = operations([(10, 30, "kernel"), (60, 39, "kernel"), (20, 5, "kernel")])
    assert bare_times.gpu_until(ops, steps, numbers(0, 1, 0)).tolist() == [40, 99, 0]


def test_copies_of_pageable_memory_are_waits() -> None:
    ops = operations([(10, 5, "memcpy"), (20, 5, "memcpy"), (30, 5, "kernel")]).assign(
        memory=["Pageable -> Device", "Pinned -> Device", ""], api_start_ns=[1, 2, 3], api_end_ns=[8, 9, 10], tid=1
    )
    calls = pd.DataFrame({"start_ns": [50], "end_ns": [60], "pid": [1], "tid": [1]})
    found = bare_times.waiting_calls(Capture(waits=calls), ops)
    assert found is not None
    assert found[["start_ns", "end_ns"]].to_numpy().tolist() == [[50, 60], [1, 8]]
    assert bare_times.waiting_calls(Capture(), ops) is None


def test_waits_that_overlap_count_once() -> None:
    """Steps 0 to 50 and 100 to 150; waits 10 to 30, 20 to 40 and 45 to 120; the second step's GPU ends at 130."""
    steps = pd.DataFrame({"start_ns": [0, 100], "end_ns": [50, 150], "pid": 1, "tid": 1})
    waits = pd.DataFrame({"start_ns": [45, 10, 20], "end_ns": [120, 30, 40], "pid": 1, "tid": 1})
    found = blocked(steps, np.array([10.0, 130.0]), waits)
    assert found is not None
    assert found.tolist() == [30 + 5, 20]
    assert blocked(steps, np.array([10.0, 130.0]), None) is None


def test_a_step_without_a_wait_lasts_until_the_next_of_its_kind() -> None:
    rows = bare_rows(
        (1, 1, "a", 0, 5), (1, 1, "b", 10, 12), (1, 1, "a", 30, 38), (1, 1, "a", 70, 71), (2, 1, "a", 80, 83)
    )
    found = bare_times.walls_of_steps(rows, {"a": False, "b": True})
    assert found["wall_ns"].fillna(-1).tolist() == [-1, 2, 40, -1, -1]  # a to b is no step; 30 to 70 is
    assert found["bare_from"].tolist() == ["start to start", "start to end", *["start to start"] * 3]
    alternating = bare_times.walls_of_steps(rows[:3], {"a": False, "b": False})
    assert alternating["wall_ns"].fillna(-1).tolist() == [10, 20, -1]
    alone = bare_times.walls_of_steps(rows[-1:], {"a": False})
    assert (alone["wall_ns"].tolist(), alone["bare_from"].tolist()) == ([3], ["start to end"])
    assert bare_times.walls_of_steps(rows.assign(style="start"), {"a": False}).empty


def kinds(*rows: tuple[str, str, int, int, float]) -> pd.DataFrame:
    """rows: (range, bare_from, steady, first_calls, bare_p50_ns)"""
    names = ["range", "bare_from", "steady", "first_calls", "bare_p50_ns"]
    return pd.DataFrame(rows, columns=names).assign(first_ns=np.nan)


def test_a_step_that_ran_once_has_no_time_beside_others() -> None:
    steps = pd.DataFrame({"path": ["a", "b", "c", "a"]})
    own = {one: one for one in "abc"}
    once, often, timed = ("a", "start to end", 1, 0, 5.0), ("b", "start to end", 9, 0, 7.0), ("a", "harness", 1, 0, 5.0)
    assert bare_times.bare_wall_ns(kinds(once, often), steps, own) == {"b": 7.0}
    assert bare_times.bare_wall_ns(kinds(once), steps, own) == {"a": 5.0}
    assert bare_times.bare_wall_ns(kinds(timed, often), steps, own) == {"a": 5.0, "b": 7.0}
    assert bare_times.bare_wall_ns(kinds((*once[:3], 1, 5.0), often), steps, own) == {"a": 5.0, "b": 7.0}
    assert (
        bare_times.bare_wall_ns(kinds(once)[:0], steps, own)
        == bare_times.bare_wall_ns(kinds(once), steps[:0], own)
        == {}
    )


def test_alternating_steps_fill_the_gpu_together() -> None:
    """Rounds of 100 ns: a keeps the GPU busy for 30, b for 50 (median of 40, 50 and 90). The later half of 12 counts."""
    rows = bare_rows(*[(1, 1, "ab"[at % 2], 50 * at + (900 if at > 5 else 0), 50 * at + 999) for at in range(12)])
    steps = pd.DataFrame({"path": ["a", "b", "b", "b"]}, index=[2, 4, 5, 6])
    ops = pd.DataFrame({"duration_ns": [10, 20, 40, 50, 90]})
    found = bare_times.filled(
        rows, kinds(("a", "start to end", 9, 0, 5.0)), ops, steps, numbers(2, 2, 4, 5, 6), {"a": "a", "b": "b"}
    )
    assert found == {"a": 0.8, "b": 0.8}
    assert (
        bare_times.filled(
            rows, kinds(("a", "harness", 9, 0, 5.0)), ops, steps, numbers(2, 2, 4, 5, 6), {"a": "a", "b": "b"}
        )
        == {}
    )
    alone = rows[rows["range"] == "a"]
    assert (
        bare_times.filled(alone, kinds(("a", "x", 9, 0, 5.0)), ops, steps, numbers(2, 2, 4, 5, 6), {"a": "a", "b": "b"})
        == {}
    )
    few = rows[:4]
    assert (
        bare_times.filled(few, kinds(("a", "x", 9, 0, 5.0)), ops, steps, numbers(2, 2, 4, 5, 6), {"a": "a", "b": "b"})
        == {}
    )


def test_a_kind_of_step_is_never_shorter_than_its_gpu_work() -> None:
    measured = pd.DataFrame({"busy_ns": [60, 100, 80, 7], "blocked_ns": [1, 3, pd.NA, 2], "launches": [4, 6, 5, 1]})
    steps = pd.DataFrame({"path": ["a", "a", "a", "b"]})
    bare = kinds(("a", "start to end", 9, 2, 50.0), ("b", "start to end", 1, 0, 10.0))
    facts: Any = facts_of(bare_steps=bare, gaps=measured, step_ranges=steps, folded={"a": "a", "b": "b", "c": "c"})
    table = bare_times.measure_kinds(facts)
    columns = ["step", "bare_wall_ns", "busy_ns", "blocked_ns", "launches", "timed", "first_calls", "host_ns"]
    assert table[columns].to_numpy().tolist() == [["a", 80, 80, 2, 5, 9, 2, 50], ["b", 10, 7, 2, 1, 1, 0, 10]]
    assert table["busy_frac"].tolist() == [1.0, 0.7]
    assert [bool(text) for text in table["evidence"]] == [False, True]
    harness = facts_of(
        bare_steps=bare.assign(bare_from="harness"), gaps=measured, step_ranges=steps, folded={"a": "a", "b": "b"}
    )
    assert bare_times.measure_kinds(harness)["evidence"].tolist() == ["", ""]
    assert bare_times.measure_kinds(facts_of(bare_steps=bare, gaps=measured[:3], step_ranges=steps)).empty


def test_a_harness_tells_the_time_of_its_steps() -> None:
    timed = {
        "steps": [
            {"range": "run/s", "wall_ns": {"p5": 4, "p50": 5, "p95": 9}, "samples": 7},
            {"range": "t", "wall_ns": {"p50": 3}},
        ]
    }
    rows = bare_rows((1, 1, "s", 0, 8), (1, 1, "u", 0, 6))
    steps = pd.DataFrame({"path": ["run/s", "u"]})
    found = bare_times.bare_steps(Capture(timing=timed), rows, steps, np.array([True, True]), {"run/s": "s", "u": "u"})
    columns = ["range", "bare_from", "first_calls", "steady", "bare_p50_ns"]
    assert found[columns].to_numpy().tolist() == [
        ["s", "harness", 0, 7, 5],
        ["u", "start to end", 0, 1, 6],
        ["t", "harness", 0, 0, 3],
    ]
    assert bare_times.bare_steps(Capture(), rows, steps[:0], np.array([], bool), {}).empty
    assert bare_times.bare_steps(Capture(), rows[:0], steps, np.array([True, True]), {"run/s": "s", "u": "u"}).empty


def launched(text: str) -> np.ndarray:
    return np.array([ord(letter) for letter in text], dtype=np.int64)


@pytest.mark.parametrize(
    ("text", "length", "period"),
    [
        ("xabababy", 2, (1, 2, 3)), ("xababa", 2, (1, 2, 0)),  # two and a half repeats are too few
        ("abcabcabcabx", 3, (0, 3, 3)), ("aab" * 3, 2, (1, 2, 0)),
    ],
)  # fmt: skip
def test_a_period_counts_whole_repeats(text: str, length: int, period: tuple[int, int, int]) -> None:
    assert periods._repeated(launched(text), length) == period


def test_a_period_has_two_launches_and_covers_half_of_all() -> None:
    assert periods.find_period(launched("abababcdefgh")) == (0, 2, 3)  # 6 of 12
    assert periods.find_period(launched("abababcdefghi")) is None  # 6 of 13
    assert periods.find_period(launched("ababab")) == (0, 2, 3)
    assert periods.find_period(launched("aaaaa")) is None
    assert min(periods._lengths(launched("ab" * 40))) >= 2
    assert periods.find_period(launched("aabaab" * 4)) == (0, 3, 8)


# Roofs


def gpu(**more: Any) -> Device:
    given = {
        "name": "G",
        "cc": "9.0",
        "sm_count": 100,
        "l2_bytes": 50_000_000,
        "dram_bytes_per_s": 4e12,
        "fp32_flop_per_s": 50e12,
        "source": "s",
    }
    return Device(**(given | more))


def test_limits_are_shares_of_the_datasheet_until_roofs_are_measured() -> None:
    """DRAM reads 0.953 and copies 0.89 of 4 TB/s, tensor cores 0.802 of 900 TFLOP/s; L2 holds 0.381 of 50 MB dirty."""
    found = find_limits(gpu(bf16_flop_per_s=900e12, fp16_flop_per_s=1e12), None)
    assert found is not None
    own = architecture("9.0")
    assert (found.dram_read_bytes_per_s, found.dram_copy_bytes_per_s) == (
        pytest.approx(3.812e12),
        pytest.approx(3.56e12),
    )
    assert (found.tensor_flop_per_s, found.dirty_bytes) == (pytest.approx(721.8e12), pytest.approx(19.05e6))
    assert found.tensor_rates["fp64"] * 721.8e12 == pytest.approx(0.962 * 50e12)  # as many a cycle as FP32 has lanes
    assert found.sm_clock_hz == pytest.approx(50e12 / (2 * own["fp32_lanes"] * 100))
    assert found.l2_size_bytes == 50e6
    assert (found.sm_count, found.schedulers) == (100.0, own["schedulers"])
    roofs = [
        {"name": "dram_read", "value": 3e12},
        {"name": "dram_copy", "value": 2e12},
        {"name": "bf16", "value": 7e14},
    ]
    seen = find_limits(gpu(fp16_flop_per_s=1e12), 50, {"roofs": roofs})
    assert seen is not None
    assert (seen.dram_read_bytes_per_s, seen.dram_copy_bytes_per_s, seen.tensor_flop_per_s) == (3e12, 2e12, 7e14)
    assert (seen.sm_count, seen.sm_clock_hz) == (50.0, found.sm_clock_hz)  # the datasheet is of the whole board
    half = find_limits(gpu(fp16_flop_per_s=1e12), None)
    assert half is not None
    assert half.tensor_flop_per_s == pytest.approx(0.802e12)


def test_limits_that_nobody_states_are_unknown() -> None:
    found = find_limits(gpu(fp32_flop_per_s=None, l2_bytes=None), None)
    assert found is not None
    assert {"tensor_flop_per_s", "sm_clock_hz", "l2_size_bytes", "dirty_bytes"} <= set(found.unknown)
    assert "dram_read_bytes_per_s" not in found.unknown
    assert find_limits(None, 100) is None
    assert find_limits(gpu(cc="1.0"), 100) is None
    assert find_limits(gpu(sm_count=0), None) is None
    assert find_limits(gpu(sm_count=0), 7) is not None


@pytest.mark.parametrize(
    ("device", "said"),
    [
        (None, "GPU of the counters is unknown"),
        (gpu(cc="1.0"), "no compute capability 1.0"),
        (gpu(cc=""), "of this GPU"),
        (gpu(), "how many SMs"),
    ],
)
def test_why_a_gpu_has_no_limits(device: Device | None, said: str) -> None:
    assert said in why_none(device)


def test_the_datasheet_gives_a_roof_to_every_level_and_pipe() -> None:
    given = {
        "roofs": [
            {"name": "dram_copy", "value": 3.0},
            {"name": "dram_read", "value": 4.0},
            {"name": "fp32", "value": 9.0},
        ]
    }
    roofs = build_roofs(given, gpu(l2_bytes_per_s=8e12), ["fp64"]).set_index("name")
    assert roofs.index.tolist() == ["dram", "l2", "l1", "fp32", "tf32", "bf16", "fp64"]
    assert roofs["measured"].fillna(-1).tolist() == [4, -1, -1, 9, -1, -1, -1]
    assert roofs["datasheet"].fillna(-1).tolist()[:6] == [4e12, 8e12, -1, 50e12, -1, -1]
    assert roofs.at["fp64", "datasheet"] > 0
    assert (roofs.attrs["from"], roofs.attrs["dram_read"], roofs.attrs["dram_copy"]) == ("datasheet", 4, 3)
    assert build_roofs(None, gpu(derived=("x",))).attrs["from"] == "derived"


def test_a_roof_of_l1_follows_from_clock_and_sms() -> None:
    """100 SMs of 128 bytes at 2 GHz are 25.6 TB/s; 5 % above is a boost."""
    manifest = {"gpu": {"sm_count": 100}, "clocks": {"sm_mhz": {"max": 2000}}}
    for value, kept in ((26.88e12, 1), (26.89e12, 0)):
        given = {"roofs": [{"name": "l1_read", "value": value, "unit": "byte/s"}]}
        found, missing = refuse_impossible(given, None, manifest)
        assert found is not None
        assert (len(found["roofs"]), len(missing)) == (kept, 1 - kept)
        assert refuse_impossible(given, None, None)[1] == []
    assert "100 SMs x 128 bytes x 2.00 GHz allows (25.6)" in missing[0].why


def test_the_roof_of_dram_follows_the_mix() -> None:
    """Copies at 2 and reads at 4: a written byte takes 2/2 − 1/4 = 0.75, so half of each takes 0.5."""
    roofs = build_roofs({"roofs": [{"name": "dram_copy", "value": 2.0}, {"name": "dram_read", "value": 4.0}]}, None)
    assert [dram_roof(roofs, share) for share in (1.0, 0.5, 0.0)] == pytest.approx([4.0, 2.0, 1 / 0.75])
    alone = build_roofs({"roofs": [{"name": "dram_copy", "value": 2.0}]}, None)
    assert dram_roof(alone, 0.25) == 2.0
    odd = build_roofs({"roofs": [{"name": "dram_copy", "value": 9.0}, {"name": "dram_read", "value": 4.0}]}, None)
    assert dram_roof(odd, 0.25) == 9.0  # reads slower than a copy: no rate of writes


def points(**columns: list[Any]) -> pd.DataFrame:
    count = len(next(iter(columns.values())))
    base = {"kernel": ["k"] * count, "range": ["r"] * count, "duration_ns": [1000.0] * count, "flops": [4e6] * count, "flops_pipe": ["fp32"] * count,
            "dram_read_bytes": [1e6] * count, "dram_write_bytes": [1e6] * count, "l2_bytes": [4e6] * count, "l1_bytes": [8e6] * count}  # fmt: skip
    return pd.DataFrame(base | columns)


ROOFS = {
    "roofs": [
        {"name": "dram_copy", "value": 4e12},
        {"name": "l2_read", "value": 8e12},
        {"name": "fp32", "value": 10e12},
    ]
}


def roofline(rows: pd.DataFrame, device: Device | None = None, roofs: dict[str, Any] | None = ROOFS) -> pd.DataFrame:
    return build_roofline(facts_of(measured=rows, roofs=build_roofs(roofs, device)))


def test_a_point_stands_under_the_lower_of_two_roofs() -> None:
    """4 MFLOP in 1 µs are 4 TFLOP/s. DRAM: 2 FLOP a byte at 4 TB/s is 8, below 10. L2: 1 FLOP a byte at 8 TB/s is 8."""
    dram, l2, l1 = roofline(points(flops=[4e6])).to_dict("records")
    assert (dram["level"], dram["intensity_flop_per_byte"], dram["achieved_flop_per_s"]) == (
        "dram",
        2.0,
        pytest.approx(4e12),
    )
    assert (dram["roof_flop_per_s"], dram["roof_frac"], dram["bound"]) == (
        pytest.approx(8e12),
        pytest.approx(0.5),
        "memory",
    )
    assert (dram["achieved_byte_per_s"], dram["bandwidth_frac"], dram["roof_from"]) == (
        pytest.approx(2e12),
        pytest.approx(0.5),
        "measured",
    )
    assert (l2["roof_flop_per_s"], l2["bandwidth_frac"]) == (pytest.approx(8e12), pytest.approx(0.5))
    assert np.isnan(l1["roof_flop_per_s"])
    assert pd.isna(l1["bound"])
    compute = roofline(points(flops=[8e6])).iloc[0]
    assert (compute["roof_flop_per_s"], compute["roof_frac"], compute["bound"]) == (
        pytest.approx(10e12),
        pytest.approx(0.8),
        "compute",
    )


def test_a_kernel_without_flops_has_its_share_of_the_bandwidth() -> None:
    row = roofline(points(flops=[0.0])).iloc[0]
    assert (row["roof_frac"], row["bandwidth_frac"]) == (pytest.approx(0.5), pytest.approx(0.5))
    assert pd.isna(row["roof_flop_per_s"])
    unknown = roofline(points(flops=[np.nan])).iloc[0]
    assert pd.isna(unknown["bound"])
    assert pd.isna(unknown["roof_frac"])
    assert unknown["bandwidth_frac"] == pytest.approx(0.5)


def test_the_datasheet_serves_only_where_nothing_was_measured() -> None:
    row = roofline(points(flops=[4e6]), gpu(), None).iloc[0]
    assert (row["roof_from"], row["roof_datasheet_flop_per_s"], row["bandwidth_frac"]) == (
        "datasheet",
        pytest.approx(8e12),
        pytest.approx(0.5),
    )
    both = roofline(points(flops=[4e6]), gpu(dram_bytes_per_s=40e12)).iloc[0]
    assert (both["roof_from"], both["bandwidth_frac"]) == ("measured", pytest.approx(0.5))
    assert both["roof_datasheet_flop_per_s"] == pytest.approx(50e12)


def test_a_point_where_both_roofs_meet_is_bound_by_memory() -> None:
    """5 MFLOP over 2 MB at 4 TB/s are the 10 TFLOP/s of the pipe."""
    row = roofline(points(flops=[5e6])).iloc[0]
    assert (row["bound"], row["roof_flop_per_s"]) == ("memory", pytest.approx(10e12))


def test_the_mix_of_a_row_is_of_all_its_launches() -> None:
    """Reads of 1 and 3 MB, writes of 3 and 1 MB: half of each, which is the rate of a copy."""
    roofs = {"roofs": [{"name": "dram_copy", "value": 2e12}, {"name": "dram_read", "value": 4e12}]}
    rows = points(flops=[0.0, 0.0], dram_read_bytes=[1e6, 3e6], dram_write_bytes=[3e6, 1e6])
    assert roofline(rows, None, roofs).iloc[0]["bandwidth_frac"] == pytest.approx(8e6 / 2e-6 / 2e12)


def test_the_l2_of_a_whole_gpu_is_shared_by_its_sms() -> None:
    cc = next(one for one in architectures() if "l2_bytes_a_cycle" in architecture(one))
    found = find_limits(gpu(cc=cc), 64)
    assert found is not None
    assert found.l2_bytes == architecture(cc)["l2_bytes_a_cycle"] / 64


def test_launches_add_up_and_an_unknown_one_leaves_the_sum_unknown() -> None:
    rows = points(flops=[1e6, 3e6], duration_ns=[1000.0, 3000.0], l2_bytes=[np.nan, 4e6])
    dram, l2, _ = roofline(rows).to_dict("records")
    assert (dram["flops"], dram["bytes"], dram["achieved_flop_per_s"]) == (4e6, 4e6, pytest.approx(1e12))
    assert pd.isna(l2["bytes"])
    assert pd.isna(roofline(points(flops=[1e6, np.nan]))["flops"].iloc[0])
    nothing = roofline(points(flops=[np.nan], dram_read_bytes=[np.nan]))
    assert nothing["level"].tolist() == ["l2", "l1"]


def test_bytes_that_l1_does_not_count_are_unknown_there() -> None:
    levels = roofline(points(flops=[1e6], l1_bytes=[0.0])).set_index("level")["bytes"]
    assert pd.isna(levels["l1"])
    neither = roofline(points(flops=[1e6], l1_bytes=[0.0], l2_bytes=[0.0])).set_index("level")["bytes"]
    assert neither["l1"] == 0
    whole = roofline(points(flops=[1e6], dram_read_bytes=[np.nan], dram_bytes=[7e6])).set_index("level")["bytes"]
    assert whole["dram"] == 7e6


def test_the_longest_kernel_comes_first_with_its_levels_in_order() -> None:
    table = roofline(points(kernel=["a", "b", "a"], duration_ns=[1000.0, 5000.0, 1000.0]))
    assert list(zip(table["kernel"], table["level"], strict=True)) == [
        (k, level) for k in "ba" for level in ("dram", "l2", "l1")
    ]


def test_known_roofs_are_lines() -> None:
    roofs = build_roofs(ROOFS, gpu())
    table = build_roof_lines(facts_of(roofs=roofs, roofline=points(flops=[1.0]))).set_index("roof")
    assert table.index.tolist() == ["dram", "l2", "fp32"]
    assert (table.at["dram", "measured_byte_per_s"], table.at["dram", "datasheet_byte_per_s"]) == (4e12, 4e12)
    assert (table.at["fp32", "measured_flop_per_s"], table.at["fp32", "datasheet_flop_per_s"]) == (10e12, 50e12)
    assert pd.isna(table.at["fp32", "measured_byte_per_s"])
    assert table["tier"].tolist() == ["timing"] * 3
    assert build_roof_lines(facts_of(roofs=roofs, roofline=points(flops=[1.0]).head(0))).empty


def lacking(**columns: list[Any]) -> list[str]:
    joined = SimpleNamespace(launches=pd.DataFrame())
    rows = points(flops=[1.0], dram_bytes=[2.0], flops_fp32=[3.0], **columns)
    return [gap.what for gap in _without_points(facts_of(measured=rows, joined=joined))]


def test_a_roofline_names_what_it_lacks() -> None:
    assert lacking() == []
    assert lacking(duration_ns=[np.nan]) == ["the roofline's durations"]
    rows = points(flops=[np.nan], dram_bytes=[np.nan], flops_fp32=[3.0])
    (gap,) = _without_points(facts_of(measured=rows, joined=SimpleNamespace(launches=pd.DataFrame())))
    assert gap.what == "the roofline's DRAM bytes and FLOPs"
    assert "tensor" in gap.why
    (plain,) = _without_points(
        facts_of(measured=rows.assign(flops_fp32=np.nan), joined=SimpleNamespace(launches=pd.DataFrame()))
    )
    assert "tensor" not in plain.why
    assert _without_points(facts_of(measured=rows, joined=SimpleNamespace(launches=rows))) == []


@pytest.mark.parametrize(
    ("read", "busy", "l2", "holds"),
    [(1.5e6, 0.9, 9e6, False), (1.51e6, 0.9, 9e6, True), (1.51e6, 0.45, 9e6, False), (1.51e6, 0.9, 1.05e6, False)],
)
def test_dram_reads_twice_what_exceeds_the_addressed_bytes_by_half(
    read: float, busy: float, l2: float, holds: bool
) -> None:
    (rule,) = [one for one in all_rules() if one.cited == ("dram_read_bytes", "accessible_bytes")]

    kernel: Any = type("Kernel", (dict,), {"busy": {"dram": busy}})
    kernel = kernel(dram_read_bytes=read, accessible_bytes=1e6, l2_read_bytes=l2)
    assert bool(rule.holds(kernel)) is holds
