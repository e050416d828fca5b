"""Attribution against a slow oracle, and the identities that must hold whatever the capture."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.capture.model import GPU_OPS_COLUMNS, RANGES_COLUMNS, START_END_COLUMNS, as_table, empty_table
from analysis.tables.attribution import UNATTRIBUTED, attribute, fold_paths
from analysis.tables.layers import build_layers, check_against_nsys, fold_layers, inclusive
from analysis.tables.nsys_sums import range_sums
from tests.declared import facts_of


def make_ranges(rows):
    """rows: (start, end, name, parent row or None[, pid, tid])"""
    paths, levels = [], []
    for row in rows:
        parent = row[3]
        paths.append(row[2] if parent is None else f"{paths[parent]}/{row[2]}")
        levels.append(0 if parent is None else levels[parent] + 1)
    return as_table(
        {
            "range_id": range(len(rows)),
            "parent_id": pd.array([pd.NA if row[3] is None else row[3] for row in rows], dtype="Int64"),
            "start_ns": [row[0] for row in rows],
            "end_ns": [row[1] for row in rows],
            "pid": [row[4] if len(row) > 4 else 1 for row in rows],
            "tid": [row[5] if len(row) > 5 else 1 for row in rows],
            "name": [row[2] for row in rows],
            "level": levels,
            "path": paths,
        },
        RANGES_COLUMNS,
    )


def make_ops(rows):
    """rows: (api start, api end, kernel start, duration, name[, pid, tid])"""
    ops = as_table(
        {
            "api_start_ns": [row[0] for row in rows],
            "api_end_ns": [row[1] for row in rows],
            "start_ns": [row[2] for row in rows],
            "duration_ns": [row[3] for row in rows],
            "name": [row[4] for row in rows],
            "kind": ["kernel"] * len(rows),
            "grid": ["1x1x1"] * len(rows),
            "block": ["32x1x1"] * len(rows),
            "pid": [row[5] if len(row) > 5 else 1 for row in rows],
            "tid": [row[6] if len(row) > 6 else 1 for row in rows],
        },
        GPU_OPS_COLUMNS,
    )
    return ops.sort_values("start_ns", kind="stable").reset_index(drop=True)


def test_the_launch_call_decides_not_the_time_of_the_kernel():
    ranges = make_ranges([(0, 100, "model", None), (0, 40, "h.0", 0), (50, 90, "h.1", 0)])
    ops = make_ops(
        [
            (10, 12, 60, 5, "late"),
            (55, 57, 70, 5, "next"),
            (45, 47, 200, 5, "between"),
            (300, 301, 310, 5, "out"),
        ]
    )
    assert attribute(ops, ranges).tolist() == [1, 2, 0, -1]


def test_other_threads_and_processes_have_their_own_ranges():
    ranges = make_ranges([(0, 100, "a", None, 1, 1), (0, 100, "b", None, 1, 2), (0, 100, "c", None, 2, 1)])
    ops = make_ops(
        [
            (5, 6, 10, 1, "k", 1, 2),
            (5, 6, 11, 1, "k", 2, 1),
            (5, 6, 12, 1, "k", 3, 1),
            (5, 6, 13, 1, "k", 1, 1),
        ]
    )
    assert [ranges["name"][row] if row >= 0 else None for row in attribute(ops, ranges)] == [
        "b",
        "c",
        None,
        "a",
    ]


def test_a_call_that_outlasts_its_range_belongs_to_the_enclosing_one():
    ranges = make_ranges([(0, 100, "outer", None), (0, 10, "inner", 0)])
    assert attribute(make_ops([(8, 12, 20, 1, "k")]), ranges).tolist() == [0]


def test_overlapping_domains_give_the_range_that_started_last():
    ranges = make_ranges([(0, 10, "a", None), (5, 15, "b", None)])
    ops = make_ops([(7, 8, 20, 1, "k"), (12, 13, 21, 1, "k"), (2, 3, 22, 1, "k")])
    assert attribute(ops, ranges).tolist() == [1, 1, 0]


@st.composite
def nested_capture(draw):
    """A random tree of ranges on two threads, and launches anywhere."""
    rows = []

    def grow(start, end, parent, depth, tid):
        at = start
        while at + 2 <= end and draw(st.booleans()):
            first = draw(st.integers(at, end - 1))
            last = draw(st.integers(first + 1, end))
            rows.append((first, last, draw(st.sampled_from(["a", "b", "h.0", "h.1"])), parent, 1, tid))
            row = len(rows) - 1
            if depth < 3:
                grow(first, last, row, depth + 1, tid)
            at = last + 1

    for tid in (1, 2):
        grow(0, 60, None, 0, tid)
    calls = draw(
        st.lists(
            st.tuples(st.integers(0, 60), st.integers(0, 5), st.integers(1, 9), st.integers(1, 3)),
            max_size=15,
        )
    )
    ops = [
        (start, start + length, 100 + n * 20, time, "k", 1, tid) for n, (start, length, time, tid) in enumerate(calls)
    ]
    return make_ranges(rows or [(0, 60, "a", None, 1, 1)]), make_ops(ops or [(0, 1, 100, 1, "k", 1, 3)])


def oracle(ops, ranges):
    spans, owners = list(ranges.itertuples()), []
    for op in ops.itertuples():
        holds = [
            (span.start_ns, span.level, span.Index)
            for span in spans
            if (span.pid, span.tid) == (op.pid, op.tid)
            if span.start_ns <= op.api_start_ns and span.end_ns >= op.api_end_ns
        ]
        owners.append(max(holds)[-1] if holds else -1)
    return owners


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(nested_capture(), st.integers(0, 10**12), st.integers(1, 1000))
def test_attribution_equals_the_oracle_and_survives_time_shift_and_relabelling(capture, shift, pid):
    ranges, ops = capture
    owner = attribute(ops, ranges)
    assert owner.tolist() == oracle(ops, ranges)
    moved_ranges = ranges.assign(start_ns=ranges.start_ns + shift, end_ns=ranges.end_ns + shift, pid=pid)
    moved_ops = ops.assign(
        api_start_ns=ops.api_start_ns + shift,
        api_end_ns=ops.api_end_ns + shift,
        pid=pd.array([pid] * len(ops), dtype="Int64"),
    )
    assert attribute(moved_ops, moved_ranges).tolist() == owner.tolist()


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(nested_capture())
def test_self_times_and_unattributed_sum_to_the_total(capture):
    ranges, ops = capture
    kernels = ops.assign(owner=attribute(ops, ranges))
    layers = build_layers(facts_of(placed=(ranges, kernels), has_timeline=True))
    total = int(ops.duration_ns.sum())
    assert int(layers.gpu_self_time_ns.sum()) == total
    folded = fold_layers(facts_of(layers=layers))
    assert int(folded.gpu_self_time_ns.sum()) == total
    assert int(folded.calls.sum()) == int(layers.calls.sum()) == len(ranges)
    assert layers.range.iloc[-1] == UNATTRIBUTED
    outermost = layers[~layers.range.str.contains("/")]
    assert int(outermost.gpu_time_ns.sum()) == total


def test_kernel_time_per_range_is_compared_with_nsys_own_sums():
    ranges = make_ranges([(0, 100, "model", None), (0, 40, "h", 0), (50, 90, "h", 0)])
    assert inclusive(ranges, np.array([1, 10, 20])).tolist() == [31, 10, 20]
    ops = make_ops([(95, 96, 200, 1, "k"), (10, 11, 210, 10, "k"), (60, 61, 230, 20, "k"), (300, 301, 310, 99, "k")])
    ours = range_sums(ops, ranges, empty_table(START_END_COLUMNS))
    sums = pd.DataFrame({"name": ["model", "h", ""], "pid": [1, 1, 1], "tid": [1, 1, 1], "total_ns": [31, 30, 99]})
    assert check_against_nsys(ours, sums) == (2, 2)
    assert check_against_nsys(ours, sums.assign(total_ns=[31, 31, 99])) == (1, 2)


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["gpt2/h.0/attn", "gpt2/h.1/attn"], ["gpt2/h.*/attn", "gpt2/h.*/attn"]),
        (["model.layers.7.mlp", "model.layers.8.mlp"], ["model.layers.*.mlp"] * 2),
        (["t/t.h.0/t.h.0.attn", "t/t.h.1/t.h.1.attn"], ["t/t.h.*/t.h.*.attn"] * 2),
        (["layer[0]", "layer[1]", "layer[2]"], ["layer[*]"] * 3),
        (["h.0/ln_1", "h.0/ln_2", "h.1/ln_1"], ["h.*/ln_1", "h.*/ln_2", "h.*/ln_1"]),
        (["layer_0", "layer_1"], ["layer_*"] * 2),
        (["Layer 0", "Layer 1", "Layer 3"], ["Layer *"] * 3),
        (["layer1", "layer2"], ["layer1", "layer2"]),
        (["h.0/attn", "h.2/attn"], ["h.*/attn"] * 2),
        (["softmax.256", "softmax.512"], ["softmax.256", "softmax.512"]),
        (["h.3"], ["h.3"]),
        (["b8_t1024", "v01", "v02"], ["b8_t1024", "v01", "v02"]),
        (["", "outside every range"], ["", "outside every range"]),
        (["LayerNorm_1", "LayerNorm_3", "LayerNorm_5"], ["LayerNorm_*"] * 3),
        (["iteration 12", "iteration 13", "iteration 14"], ["iteration *"] * 3),
        (["Step 30 to 40", "Step 40 to 50", "Step 50 to 60"], ["Step * to *"] * 3),
        (["fc.256", "fc.512", "fc.768"], ["fc.256", "fc.512", "fc.768"]),
        (["conv1", "conv2", "conv3"], ["conv1", "conv2", "conv3"]),
        (["k<(bool)0, (int)4>", "k<(bool)1, (int)4>"], ["k<(bool)0, (int)4>", "k<(bool)1, (int)4>"]),
        (["block_0_attn", "block_1_attn"], ["block_*_attn"] * 2),
        (
            ["aten::view, op_id = 314290", "aten::mm, seq = 7, op_id = 314291", "aten::mm, seq = 7, op_id = 314291/mm, op_id = 314300"],
            ["aten::view, op_id = *", "aten::mm, seq = 7, op_id = *", "aten::mm, seq = 7, op_id = */mm, op_id = *"],
        ),
        ([f"mm, seq = {n // 2}" for n in range(90, 130)], ["mm, seq = *"] * 40),
        ([f"gelu, M = {n}" for n in (512, 1024, 2048)] + ["add, M = 512"], ["gelu, M = 512", "gelu, M = 1024", "gelu, M = 2048", "add, M = 512"]),
        (["a\0" + "1" * 5000, "/x.1", "/x.2"], ["a\0" + "1" * 5000, "/x.*", "/x.*"]),
        (["sweep/gelu/v02/256x0", "sweep/gelu/v02/256x1"], ["sweep/gelu/v02/256x0", "sweep/gelu/v02/256x1"]),
    ],
)  # fmt: skip
def test_repeated_layers_fold_and_nothing_else(paths, expected):
    assert fold_paths(pd.Series(paths)).tolist() == expected
