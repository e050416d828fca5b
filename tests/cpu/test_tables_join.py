"""The join refuses what it cannot know: every way in which two runs may differ, and what becomes of it."""

import pandas as pd
import pytest

from analysis.capture.model import Capture
from analysis.tables.attribution import UNATTRIBUTED
from analysis.tables.join import (
    _launch_places,
    _several_runs,
    build_coverage,
    join,
    path_matcher,
    prepare_counters,
    prepare_launches,
)
from tests.declared import facts_of


def launches(*rows):
    """rows: (path, kernel[, grid])"""
    frame = pd.DataFrame(
        [(row[0], row[1], row[2] if len(row) > 2 else "1x1x1") for row in rows],
        columns=["path", "kernel", "grid"],
    )
    return frame.assign(block="32x1x1", duration_ns=10, registers=16, symbol=frame["kernel"])


def counters(*rows, file="a.csv"):
    frame = pd.DataFrame(
        [(row[0], row[1], row[2] if len(row) > 2 else "1x1x1") for row in rows],
        columns=["path", "name", "grid"],
    )
    return frame.assign(block="32x1x1", ncu_id=range(len(frame)), pid=1, file=file)


def rows_of(joined):
    return joined.launches["counters_row"].tolist()


MODEL = [
    ("gpt2/h.0", "gemm"),
    ("gpt2/h.0", "gemm"),
    ("gpt2/h.0", "add"),
    ("gpt2/h.1", "gemm"),
    ("gpt2/h.1", "gemm"),
    ("gpt2/h.1", "add"),
]


def test_equal_runs_match_one_to_one():
    joined = join(launches(*MODEL), prepare_counters(counters(*MODEL)), [])
    assert rows_of(joined) == [0, 1, 2, 3, 4, 5]
    assert joined.matched == 6


def test_the_same_kernel_in_another_layer_is_another_kernel():
    joined = join(launches(*MODEL), prepare_counters(counters(*MODEL[3:])), ["h.1/"])
    assert rows_of(joined) == [-1, -1, -1, 0, 1, 2]
    assert joined.launches["requested"].tolist() == [False] * 3 + [True] * 3


def test_a_capture_that_was_cut_off_matches_its_prefix():
    joined = join(launches(*MODEL), prepare_counters(counters(*MODEL[:4])), None)
    assert rows_of(joined) == [0, 1, 2, 3, -1, -1]
    assert "ended early" in joined.how


def test_a_window_from_the_middle_is_refused():
    # one gemm of two: it may be the first or the second
    captured = [("gpt2/h.0", "add"), ("gpt2/h.0", "gemm")]
    joined = join(launches(*MODEL[:3]), prepare_counters(counters(*captured)), None)
    assert rows_of(joined) == [-1, -1, 0]
    assert joined.launches["refused"][0] == "nsys and ncu saw a different number of these kernels in this range"


def test_captures_in_folders_of_their_own_may_number_their_launches_alike():
    def pages(folder, *rows):
        both = [counters(*rows, file=f"{folder}/{page}.csv") for page in ("raw", "ratios")]
        return [page.assign(**{f"{folder}{at}.sum": 1.0}) for at, page in enumerate(both)]

    one, other = pages("a", ("a/x", "k"), ("a/y", "k")), pages("b", ("b/x", "j"), ("b/y", "j"))
    found = prepare_counters(pd.concat([*one, *other], ignore_index=True))
    assert found["path"].tolist() == ["a/x", "a/y", "b/x", "b/y"]
    assert found[["a0.sum", "a1.sum"]].sum().tolist() == [2, 2]
    assert "folder" not in found
    same = pages("b", ("b/x", "j"), ("a/y", "k"))
    both = pd.concat([*one, *same], ignore_index=True)
    assert prepare_counters(both)["path"].tolist() == [
        "a/raw.csv/a/x", "a/raw.csv/a/y", "b/raw.csv/b/x", "b/raw.csv/a/y",
    ]  # fmt: skip
    assert prepare_counters(both, first_run=True)["path"].tolist() == ["a/x", "a/y"]


def test_another_grid_is_refused():
    joined = join(launches(("p", "k", "8x1x1")), prepare_counters(counters(("p", "k", "4x1x1"))), [])
    assert rows_of(joined) == [-1]
    assert "grid or block differ" in joined.launches["refused"][0]
    assert (
        build_coverage(facts_of(joined=joined, has_counters=True, has_timeline=True))["reason"][0]
        == "grid or block differ between the two runs"
    )


def test_one_pair_of_another_shape_refuses_its_whole_group():
    seen = launches(("p", "k", "1x1x1"), ("p", "k", "1x1x1"), ("p", "k", "2x1x1"))
    captured = counters(("p", "k", "1x1x1"), ("p", "k", "2x1x1"), ("p", "k", "1x1x1"))
    assert rows_of(join(seen, prepare_counters(captured), [])) == [-1, -1, -1]


def test_one_step_of_several_equal_ones_is_refused():
    step = [("gpt2/decode", "gemm"), ("gpt2/decode", "add")]
    joined = join(launches(*step, *step, *step), prepare_counters(counters(*step)), [])
    assert rows_of(joined) == [-1] * 6
    assert "different number" in joined.launches["refused"][0]
    five = [("p", "k")] * 5
    assert rows_of(join(launches(*five), prepare_counters(counters(("p", "k"))), [])) == [-1] * 5


@pytest.mark.parametrize("column", ["tid", "pid", "device"])
def test_launches_of_several_threads_processes_or_devices_are_refused(column):
    seen = launches(("p", "k"), ("p", "k"), ("q", "k")).assign(pid=1, tid=1, device="0")
    seen[column] = ["1", "2", "1"]
    joined = join(seen, prepare_counters(counters(("p", "k"), ("p", "k"), ("q", "k"))), [])
    assert rows_of(joined) == [-1, -1, 2]
    assert "several threads" in joined.launches["refused"][0]


def test_two_pages_of_one_capture_become_one_row_a_launch():
    first = counters(*MODEL[:3]).assign(a=[1.0, 2.0, 3.0], b=float("nan"))
    second = counters(*MODEL[:3], file="b.csv").assign(a=float("nan"), b=[4.0, 5.0, 6.0])
    merged = prepare_counters(pd.concat([first, second], ignore_index=True))
    assert merged[["a", "b"]].to_numpy().tolist() == [[1, 4], [2, 5], [3, 6]]
    assert rows_of(join(launches(*MODEL[:3]), merged, [])) == [0, 1, 2]


def test_a_launch_that_one_page_lacks_does_not_shift_the_others():
    first = counters(*[("p", "k")] * 3).assign(a=[1.0, 2.0, 3.0], b=float("nan"))
    second = counters(*[("p", "k")] * 3, file="b.csv").assign(a=float("nan"), b=[4.0, 5.0, 6.0]).iloc[[0, 2]]
    merged = prepare_counters(pd.concat([first, second], ignore_index=True))
    assert merged["a"].tolist() == [1, 2, 3]
    assert merged["b"].fillna(-1).tolist() == [4, -1, 6]


@pytest.mark.parametrize(
    ("other", "values"), [(MODEL[:3], [1.0, 2.0, 99.0]), (MODEL[1:4], [1.0, 1.0, 1.0])]
)  # fmt: skip
def test_captures_that_contradict_each_other_are_two_runs(other, values):
    first = counters(*MODEL[:3]).assign(a=[1.0, 2.0, 3.0])
    second = counters(*other, file="b.csv").assign(a=values)
    both = prepare_counters(pd.concat([first, second]))
    assert both["a"].tolist() == [1.0, 2.0, 3.0, *values]
    assert both["file"].nunique() == 2
    assert prepare_counters(pd.concat([first, second]), first_run=True)["a"].tolist() == [1.0, 2.0, 3.0]


def test_one_program_captured_twice_executes_equal_instructions_and_has_the_times_of_the_first():
    first = counters(*MODEL[:3]).assign(**{"time": [1.0, 2.0, 3.0], "smsp__inst_executed.sum": [1e6, 2e6, 3e6]})
    again = first.assign(file="b.csv", pid=2, time=[1.1, 2.2, 2.7], more=1.0)
    merged = prepare_counters(pd.concat([first, again], ignore_index=True))
    assert merged[["time", "more"]].to_numpy().tolist() == [[1, 1], [2, 1], [3, 1]]
    assert merged["path"].tolist() == [path for path, _ in MODEL[:3]]
    more = counters(*reversed(MODEL), file="b.csv").assign(**{"time": 5.0, "smsp__inst_executed.sum": 7e6})
    more.loc[[3, 4, 5], "smsp__inst_executed.sum"] = [3e6, 1e6, 2e6]  # its launches have other numbers
    merged = prepare_counters(pd.concat([first, more], ignore_index=True))
    assert merged["time"].tolist() == [1, 2, 3, 5, 5, 5]
    changed = again.assign(**{"smsp__inst_executed.sum": [1e6, 2e6, 4e6]})
    assert len(prepare_counters(pd.concat([first, changed], ignore_index=True))) == 6


def test_captures_of_different_kernels_are_one_list():
    first = counters(*MODEL[:3]).assign(a=[1.0, 2.0, 3.0])
    apart = prepare_counters(pd.concat([first, counters(*MODEL[3:], file="b.csv").assign(a=1.0)]))
    assert rows_of(join(launches(*MODEL), apart, [])) == [0, 1, 2, 3, 4, 5]


def test_without_ranges_in_ncu_only_equal_counts_match():
    bare = counters(("", "gemm"), ("", "gemm"), ("", "add"))
    joined = join(launches(*MODEL[:3], ("gpt2/h.1", "add")), prepare_counters(bare), None)
    assert rows_of(joined) == [0, 1, -1, -1]
    assert "no NVTX ranges" in joined.how


def test_siblings_are_filled_only_on_request_and_marked():
    captured = prepare_counters(counters(*MODEL[:3]))
    plain = join(launches(*MODEL), captured, ["h.0/"])
    assert rows_of(plain)[3:] == [-1, -1, -1]
    filled = join(launches(*MODEL), captured, ["h.0/"], extrapolate=True)
    assert rows_of(filled)[3:] == [0, 0, 2]
    assert filled.launches["counters_from"].tolist() == ["measured"] * 3 + ["sibling"] * 3
    assert filled.matched == 3
    assert build_coverage(facts_of(joined=filled, has_counters=True, has_timeline=True))["extrapolated"].sum() == 3


def test_no_counters_and_no_timeline_are_not_errors():
    assert rows_of(join(launches(*MODEL), prepare_counters(counters()), None)) == [-1] * 6
    assert join(launches(), prepare_counters(counters(*MODEL)), None).launches.empty


@pytest.mark.parametrize("pattern", ["regex:gpt2.*/", "domain@gpt2/", "gpt2", "a/,b/"])
def test_filters_that_are_not_understood_say_so(pattern):
    assert path_matcher(pattern) is None


def test_the_first_page_with_a_value_counts():
    pages = [counters(*MODEL[:1], file=name).assign(value=value) for name, value in (("a.csv", 5e6), ("b.csv", 5.04e6))]
    assert prepare_counters(pd.concat(pages))["value"].tolist() == [5e6]
    assert prepare_counters(pd.concat([pages[0].assign(value=float("nan")), pages[1]]))["value"].tolist() == [5.04e6]


def test_coverage_counts_each_range_and_says_why_the_rest_is_missing():
    asked = [*MODEL[:2], ("gpt2/h.0", "mul"), ("", "norm")]
    joined = join(launches(*asked), prepare_counters(counters(*MODEL[:2])), [])
    table = build_coverage(facts_of(joined=joined, has_counters=True, has_timeline=True))
    columns = ["range", "seen", "requested", "matched", "extrapolated", "reason"]
    assert table[columns].to_numpy().tolist() == [
        ["gpt2/h.0", 3, 3, 2, 0, "ncu has no such kernel in this range"],
        [UNATTRIBUTED, 1, 1, 0, 0, "ncu has no such kernel in this range"],
    ]
    assert build_coverage(facts_of(joined=joined, has_counters=False, has_timeline=True)).empty
    assert build_coverage(facts_of(joined=joined, has_counters=True, has_timeline=False)).empty


def test_only_launches_that_ncu_had_to_count_have_a_reason():
    one_range = join(launches(*MODEL), prepare_counters(counters(*MODEL[3:5])), ["h.1/"])
    assert one_range.launches["refused"].tolist() == [*[""] * 5, "ncu has no such kernel in this range"]
    bare = join(launches(*MODEL), prepare_counters(counters(("", "gemm"), ("", "gemm"))), ["h.1/"])
    assert rows_of(bare) == [-1, -1, -1, 0, 1, -1]
    assert [bool(why) for why in bare.launches["refused"]] == [False] * 5 + [True]


def test_each_of_several_filters_asks_for_its_ranges():
    joined = join(launches(*MODEL, ("other", "gemm")), prepare_counters(counters(*MODEL)), ["h.0/", "h.1/"])
    assert joined.launches["requested"].tolist() == [True] * 6 + [False]
    assert joined.how.startswith("ncu had to count the ranges h.0/, h.1/.")
    unknown = join(launches(*MODEL), prepare_counters(counters(*MODEL)), ["h.0/", "regex:x"])
    assert unknown.launches["requested"].all()
    assert unknown.how.startswith("No file says")


def test_a_plan_names_the_launches_that_ncu_counts():
    joined = join(launches(*MODEL), prepare_counters(counters(*MODEL[3:4], MODEL[5])), None, planned=[3, 5])
    assert joined.launches["requested"].tolist() == [False, False, False, True, False, True]
    assert rows_of(joined) == [-1, -1, -1, 0, -1, 1]
    assert joined.how.startswith("ncu had to count 2 launches")


def test_only_a_plan_of_collectives_is_of_one_rank():
    """Two processes launch the same kernel: of a plan with a collective, ncu saw only the planned rank's launches."""
    both = [("s", "k"), ("s", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"), ("s", "k")]
    seen = launches(*both).assign(pid=[1, 1, 2])
    for names, found in ((seen["kernel"], [0, 1, -1]), (["k"] * 3, [-1, 1, -1])):
        joined = join(seen.assign(name=names), prepare_counters(counters(*both[:2])), None, planned=[0, 1])
        assert rows_of(joined) == found
    assert rows_of(join(seen.assign(name=seen["kernel"]), prepare_counters(counters(*both)), [])) == [-1, 1, -1]


def test_threads_are_places():
    frame = pd.DataFrame({"pid": [1, 1, 2], "tid": [1, 2, 1]})
    assert _launch_places(frame).nunique() == 3
    assert _launch_places(frame[[]]).tolist() == [0, 0, 0]


@pytest.mark.parametrize("timeline", [True, False])
def test_several_runs_of_the_same_kernels_are_named(timeline):
    files = [
        counters(*MODEL, file=f"{name}.csv").assign(value=value)
        for name, value in (("a", 1.0), ("b", 9.0), ("c", 99.0))
    ]
    (gap,) = _several_runs(facts_of(Capture(counters=pd.concat(files)), has_timeline=timeline))
    assert gap.what == "which of 3 runs of ncu to believe"
    assert gap.why.startswith("a.csv, b.csv, c.csv hold different values")
    assert gap.why.endswith("the first run is shown" if timeline else "below the name of its file")
    same = pd.concat([files[0], files[0].assign(file="b.csv")])
    for rows in (files[0], same, pd.concat([files[0][:3], files[1][3:]])):
        assert _several_runs(facts_of(Capture(counters=rows), has_timeline=timeline)) == []


@pytest.mark.parametrize(("times", "said"), [(3.0, ["the true time of 6 launches"]), (1.4, [])])
def test_runs_of_one_program_whose_times_are_far_apart_are_named(times, said):
    counted = counters(*MODEL, file="a.csv").assign(**{"smsp__inst_executed.sum": 5e3, "gpu__time_duration.sum": 1e4})
    again = counted.assign(**{"file": "b.csv", "gpu__time_duration.sum": 1e4 * times})
    found = _several_runs(facts_of(Capture(counters=pd.concat([counted, again])), has_timeline=True))
    assert [one.what for one in found] == said


def test_launches_are_kernels_in_the_order_of_their_calls():
    ops = pd.DataFrame(
        {
            "kind": ["kernel", "memcpy", "kernel", "kernel"],
            "api_start_ns": [30, 5, 10, None],
            "start_ns": [31, 6, 90, 20],
        }
    )
    ops = ops.assign(name=["b", "x", "a", "c"], api_start_ns=ops["api_start_ns"].astype("Int64"))
    assert prepare_launches(ops)["name"].tolist() == ["a", "c", "b"]
    assert prepare_launches(ops[2:3])["name"].tolist() == ["a"]
