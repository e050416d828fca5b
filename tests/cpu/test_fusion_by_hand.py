"""The fusion plan on a few operations whose bytes a reader can add up."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.fusion import opmap
from analysis.fusion import plan as fusion
from analysis.fusion.plan import Candidate, Machine, Node, Operand, Work
from analysis.tables.roofline import build_roofs

ROOFS = build_roofs({"roofs": [{"name": "dram_copy", "unit": "byte/s", "value": 2e12}]}, None)
NAN = math.nan


def machine(**more: Any) -> Machine:
    given = {
        "roofs": ROOFS,
        "l2_rate": 5e12,
        "dram_sheet": 3e12,
        "l2_bytes": 1_000.0,
        "shortest_ns": 2_000.0,
        "gap_ns": 500.0,
    }
    return Machine(**(given | more))


def work(*labels: str, **columns: Any) -> Work:
    count = len(labels)
    given: dict[str, Any] = {
        "path": ["r"] * count, "call": [0] * count, "folded": ["r"] * count, "place": [0] * count, "label": list(labels), "kernel": list(labels),
        "grid": ["1x1x1"] * count, "block": ["32x1x1"] * count,
    }  # fmt: skip
    numbers = {"duration_ns": [1000.0] * count, **dict.fromkeys(fusion.MOVED, [NAN] * count)}
    objects = {name: np.array(columns.get(name, values), dtype=object) for name, values in given.items()}
    return Work(**objects, **{name: np.array(columns.get(name, values), float) for name, values in numbers.items()})


def candidate(**more: Any) -> Candidate:
    given: dict[str, Any] = {
        "pattern": "mul + add", "paths": ("r", "r"), "kernels": ("mul", "add"), "rows": (0, 1), "launches": 2, "now": 8e6, "read": 3e6,
        "write": 1e6, "bound_bytes": 4e6,
    }  # fmt: skip
    return Candidate(**(given | more))


def tensor(
    storage: int, size: int = 100, *, freed: float = NAN, masked: float = NAN, elements: int = 25, offset: int = 0
) -> Operand:
    return Operand(storage, offset, size, elements, masked, freed, offset, ((4, size // 4),))


def node(number: int, op: str, reads: list[Operand], writes: list[Operand], path: str = "r") -> Node:
    return Node(number, path, 0, f"aten.{op}.Tensor", reads, writes)


# The machine


@pytest.mark.parametrize(
    ("more", "read", "write", "rate"),
    [
        ({}, 600.0, 400.0, (5e12, "L2, where it all fits")), ({}, 600.0, 401.0, (2e12, "DRAM")),
        ({"l2_rate": NAN}, 1.0, 1.0, (2e12, "DRAM")), ({"l2_bytes": -1.0}, 0.0, 0.0, (2e12, "DRAM")),
        ({"roofs": build_roofs(None, None)}, 9e6, 9e6, (3e12, "DRAM by the datasheet")),
    ],
)  # fmt: skip
def test_what_fits_into_l2_runs_at_its_rate(
    more: dict[str, Any], read: float, write: float, rate: tuple[float, str]
) -> None:
    assert machine(**more).rate(read, write) == rate


def test_reads_and_writes_have_the_rate_of_their_mix() -> None:
    """A copy at 2 TB/s and reads at 4: a written byte takes 2/2 − 1/4 = 0.75 ps, so three reads and a write 4/1.5 TB/s."""
    roofs = build_roofs({"roofs": [{"name": "dram_copy", "value": 2e12}, {"name": "dram_read", "value": 4e12}]}, None)
    rate, name = machine(roofs=roofs).rate(3e6, 1e6)
    assert (rate, name) == (pytest.approx(4e12 / 1.5), "DRAM")


def test_the_gap_between_queued_kernels_is_their_median() -> None:
    """Gaps of 2, 8 and 4 ns between queued kernels; 90 where the host was late; none between two streams."""
    ops = pd.DataFrame(
        {"start_ns": [0, 12, 30, 44, 144, 200], "duration_ns": [10, 10, 10, 10, 10, 7], "kind": ["kernel"] * 5 + ["memcpy"], "stream": [1] * 5 + [2],
         "device": "0", "api_end_ns": pd.array([0, 1, 2, 3, 120, 5], "Int64")}
    )  # fmt: skip
    found = fusion.measure_machine(ops, ROOFS, 50.0)
    assert (found.gap_ns, found.shortest_ns, found.l2_bytes) == (4, 10, 50)
    assert fusion.measure_machine(ops.assign(stream=range(6)), ROOFS, None).gap_ns == 0
    assert fusion.measure_machine(ops.assign(device=list("010101")), ROOFS, None).gap_ns == 0
    assert math.isnan(fusion.measure_machine(ops.tail(1), ROOFS, None).shortest_ns)


@pytest.mark.parametrize(
    ("value", "text"), [(999.0, "0.999 kB"), (1e6, "1 MB"), (2.5e9, "2.5 GB"), (999_999.0, "1,000 kB"), (1e9, "1 GB")]
)
def test_bytes_have_a_unit(value: float, text: str) -> None:
    assert fusion._bytes(value) == text


@pytest.mark.parametrize(
    ("path", "step"), [("run/decode/h.0", "run/decode"), ("decode", "decode"), ("run/h.0", ""), ("", "")]
)
def test_the_step_of_a_path_ends_with_a_step(path: str, step: str) -> None:
    assert fusion.step_of(path) == step


# Operations


@pytest.mark.parametrize(
    ("offset", "shape", "strides", "size", "layout"),
    [
        (3, "2x4", "4x1", 32, (8, 12, ((16, 2), (4, 4)))), (0, "4x2", "1x4", 32, (8, 0, ((16, 2), (4, 4)))),
        (1, "8x4", "0x1", 16, (32, 4, ((4, 4),))),  # each of the eight rows is the same
        (2, "1x4", "9x1", 16, (4, 8, ((4, 4),))), (0, "", "", 4, (1, 0, ())),
    ],
)  # fmt: skip
def test_the_layout_of_a_view_is_in_bytes(
    offset: int, shape: str, strides: str, size: int, layout: tuple[Any, ...]
) -> None:
    assert fusion._layout(offset, shape, strides, size) == layout


def test_a_chain_reads_its_inputs_once_and_writes_what_lives_on() -> None:
    """a·b makes t, t + a makes u: reads a and b, writes u; t is freed before operation 2."""
    chain = [
        node(0, "mul", [tensor(1), tensor(2)], [tensor(3, freed=2)]),
        node(1, "add", [tensor(3), tensor(1)], [tensor(4)]),
    ]
    read, write, notes = fusion.bytes_after(chain, fusion._Readers.among(chain))
    assert (read, write, notes) == (200, 100, ["saves 1 tensor that nothing else reads"])
    assert sum(fusion.bytes_now(one) for one in chain) == 600
    later = [*chain, node(2, "add", [tensor(3)], [tensor(5)])]
    assert fusion.bytes_after(chain, fusion._Readers.among(later))[:2] == (200, 200)
    kept = [node(0, "mul", [tensor(1), tensor(2)], [tensor(3, freed=3)]), chain[1]]
    assert fusion.bytes_after(kept, fusion._Readers.among(kept))[:2] == (200, 200)


def test_a_view_inside_another_is_not_read_again() -> None:
    whole, half, other = tensor(1, 100), tensor(1, 50, offset=48), tensor(1, 100, offset=1000)
    views = {one.key: one for one in (whole, half, other)}
    assert fusion._once({one.key: float(one.bytes) for one in (half, whole, other)}, views) == 200


def test_masked_fill_copies_its_input_first_and_a_gather_takes_its_rows() -> None:
    assert fusion.bytes_now(node(0, "masked_fill", [tensor(1), tensor(2, 25)], [tensor(3)])) == 100 + 25 + 100 + 200
    assert fusion.bytes_now(node(0, "embedding", [tensor(1, 9000), tensor(2, 8)], [tensor(3, 40)])) == 40 + 8 + 40


def test_what_a_mask_throws_away_need_not_be_read() -> None:
    chain = [
        node(0, "mul", [tensor(1)], [tensor(2)]),
        node(1, "masked_fill", [tensor(2), tensor(3, 25, masked=0.4)], [tensor(4)]),
    ]
    found, notes = fusion._masked_out(chain, {tensor(1).key: 100.0})
    assert found == {tensor(1).key: 40.0}
    assert notes == ["40% of its input is masked out (recorded) and need not be read"]
    assert fusion._masked_out([node(0, "softmax", [tensor(1)], [tensor(2)]), *chain[1:]], {tensor(1).key: 100.0}) == (
        {},
        [],
    )
    again = [*chain, node(2, "add", [tensor(1)], [tensor(5)])]
    assert fusion._masked_out(again, {tensor(1).key: 100.0}) == ({}, [])


def test_operations_are_one_chain_where_they_share_a_tensor() -> None:
    first = node(0, "mul", [tensor(1)], [tensor(2)])
    assert fusion._connected([first], node(1, "add", [tensor(2)], [tensor(9)], path="s"))
    assert fusion._connected([first], node(1, "add", [tensor(1)], [tensor(9)]))
    assert not fusion._connected([first], node(1, "add", [tensor(1)], [tensor(9)], path="s"))
    assert not fusion._connected([first], node(1, "add", [tensor(7)], [tensor(9)]))
    updates = [
        node(at, "mul", [tensor(at)], [tensor(at, elements=size)], path="step Adam")
        for at, size in ((1, 5), (2, 5), (3, 6))
    ]
    assert fusion._connected(updates[:1], updates[1])
    assert not fusion._connected(updates[:1], updates[2])


@pytest.mark.parametrize(
    ("names", "pattern"),
    [
        (["mul", "masked_fill", "softmax"], "scale + mask + softmax"), (["add", "softmax"], "mask + softmax"), (["mul", "softmax"], "mul + softmax"),
        (["add", "gelu"], "bias + GELU"), (["add", "layer_norm"], "residual + LayerNorm"), (["mul", "layer_norm"], "mul + LayerNorm"),
        (["copy"], "copy"), (["copy", "clone"], "QKV split and permute"), (["copy"] * 3, "QKV split and permute"), (["copy"] * 4, "copies"),
        (["copy", "cat"], "copies"), (["silu", "mul"], "SwiGLU"), (["add", "silu", "mul"], "add + SwiGLU"), (["memcpy", "add", "gelu"], "bias + GELU"),
        (["add", "tanh", "mul"], "add + tanh + mul"), (["_to_copy", "pow", "mean", "add", "rsqrt", "mul", "_to_copy", "mul"], "RMSNorm"),
        (["add", "_to_copy", "pow", "mean", "add", "rsqrt", "mul", "_to_copy", "mul"], "add + RMSNorm"),
        (["mul", "neg", "cat", "mul", "add", "mul", "neg", "cat", "mul", "add"], "rotary embedding + rotary embedding"),
        (["native_batch_norm", "relu"], "BatchNorm + ReLU"), (["cudnn_batch_norm", "add", "relu"], "BatchNorm + ReLU"), (["_to_copy", "_to_copy"], "casts"),
    ],
)  # fmt: skip
def test_known_chains_have_a_name(names: list[str], pattern: str) -> None:
    assert fusion.name_pattern(names) == pattern


@pytest.mark.parametrize(
    ("paths", "scope"),
    [(["a/b", "a/b"], "one range"), (["a/b", "a/c"], "sibling ranges"), (["a/b", "a"], "nested ranges"), (["a/b", "ab/c"], "neighbouring ranges"),
     (["a", "ab/c"], "neighbouring ranges")],
)  # fmt: skip
def test_the_ranges_of_a_chain_have_a_relation(paths: list[str], scope: str) -> None:
    assert fusion.scope_of(paths) == scope


@pytest.mark.parametrize(
    ("op", "reads", "freed", "bound", "now"),
    [("gelu", [tensor(1)], 2.0, 0.0, 300.0), ("add", [tensor(1), tensor(5)], 2.0, 100.0, 400.0), ("gelu", [tensor(1)], 3.0, None, 0.0),
     ("gelu", [tensor(1)], NAN, None, 0.0), ("gelu", [tensor(7)], 2.0, None, 0.0), ("tanh", [tensor(1)], 2.0, None, 0.0)],
)  # fmt: skip
def test_a_product_takes_over_what_reads_its_result_alone(
    op: str, reads: list[Operand], freed: float, bound: float | None, now: float
) -> None:
    """The result of 100 bytes is written, read and written again; as an epilogue, only what else is read moves."""
    product = node(0, "mm", [], [tensor(1, freed=freed)])
    after = node(1, op, reads, [tensor(2)])
    found = fusion.epilogue_candidate(product, after, fusion._Readers.among([product, after]), work())
    assert (found.bound_bytes if found else None) == bound
    if found:
        assert (found.now, found.write, found.launches, found.kernels) == (now, 100, 1, ("matrix", op))
    read_again = [product, after, node(2, "add", [tensor(1)], [])]
    assert fusion.epilogue_candidate(product, after, fusion._Readers.among(read_again), work()) is None


# Kernels without a dataflow


def test_sizes_come_from_counters_else_from_grid_and_block() -> None:
    name = "vectorized_elementwise_kernel<4, F<float>, std::array<char*, 3> >"
    known = work("add", kernel=[name], l2_read_bytes=[80.0], l2_write_bytes=[40.0])
    assert fusion.size_of(known, 0, {}) == fusion.Size((80, 80), (40, 40), "L2 (ncu)")
    unknown = work("add", kernel=[name], grid=["3x1x1"], block=["32x1x1"])
    assert fusion.size_of(unknown, 0, {name: 4}) == fusion.Size(
        (257 * 8, 384 * 8), (257 * 4, 384 * 4), "grid and block"
    )
    assert fusion.size_of(unknown, 0, {}) is None


def test_a_measured_launch_tells_the_elements_of_a_thread() -> None:
    name = "vectorized_elementwise_kernel<4, F<float>, std::array<char*, 3> >"
    for written, each in ((384 * 4.0, 4), (257 * 4.0, 4), (385 * 4.0, None), (768 * 4.0, 8)):
        found = fusion.elements_a_thread(work("add", kernel=[name], grid=["3x1x1"], l2_write_bytes=[written]))
        assert found == ({name: each} if each else {})


@pytest.mark.parametrize(
    ("kernel", "a_thread", "count"),
    [
        ("elementwise_kernel<128, 2, F<float> >", None, (2 * 32 * 2 + 1, 3 * 32 * 2)), ("vectorized_elementwise_kernel<4, F>", 4, (257, 384)),
        ("vectorized_elementwise_kernel<4, F>", None, None), ("unrolled_elementwise_kernel<F>", 4, None), ("gemm", 4, None),
    ],
)  # fmt: skip
def test_elements_of_a_kernel_follow_from_its_launch(
    kernel: str, a_thread: int | None, count: tuple[int, int] | None
) -> None:
    assert opmap.element_count(kernel, "3x9x9", "32x1x1", a_thread) == count


@pytest.mark.parametrize(
    ("kernel", "item", "tensors"),
    [
        ("k<float, std::array<char*, 2ul> >", 4, 2),
        ("k<c10::Half>", 2, None),
        ("k<double>", 8, None),
        ("k<float, double>", None, None),
        ("k", None, None),
    ],
)
def test_the_item_of_a_kernel_is_its_only_floating_type(kernel: str, item: int | None, tensors: int | None) -> None:
    assert (opmap.item_bytes(kernel), opmap.pointers(kernel)) == (item, tensors)


def test_an_assignment_counts_only_if_it_is_the_only_one() -> None:
    mul, add = "aten.mul.Tensor", "aten.add.Tensor"
    assert opmap.assign([mul], ["mul", "mul"]) is None
    absent = [frozenset({0})]
    assert opmap.assign_some([add, mul], ["mul"], [frozenset({0})]) == [range(0, 0), range(0, 1)]
    assert opmap.assign_some([mul, mul], ["mul"], [frozenset({0}), frozenset({1})]) is None  # either may be absent
    assert opmap.assign_some([mul, add], ["mul", "add"], absent) == [range(0, 1), range(1, 2)]
    assert opmap.assign_some([mul], ["tanh"], []) is None


def test_runs_are_neighbours_on_one_stream_in_one_step() -> None:
    def found(**more: Any) -> list[tuple[int, ...] | None]:
        return [one.rows for one in fusion.from_kernels(work("mul", "tanh", "matrix", "mul", "exp", **more), set())]

    assert found() == [(0, 1), (3, 4)]
    assert found(place=[0, 1, 0, 0, 0]) == [(3, 4)]
    assert found(path=["a/x", "b/y", "r", "r", "r"]) == [(3, 4)]
    assert found(path=["a/x", "a/y", "r", "r", ""]) == [(0, 1)]
    assert [one.rows for one in fusion.from_kernels(work("mul", "tanh"), {("r", 0)})] == []


def test_argmax_behind_a_product_keeps_nothing_of_the_logits() -> None:
    (one,) = fusion.from_kernels(work("matrix", "argmax", l2_read_bytes=[NAN, 500.0], l2_write_bytes=[NAN, 8.0]), set())
    assert (one.pattern, one.rows, one.now, one.read, one.write, one.bound_bytes) == (
        "logits + argmax",
        (1,),
        1000,
        0,
        8,
        0,
    )
    assert len(one.notes) == 1


def test_a_known_run_reads_its_inputs_and_writes_its_result_once() -> None:
    """Kernels 0 and 1 read 100 and write 100 each; as one, they read what the first reads and write what the last does."""
    sizes = work("mul", "add", l2_read_bytes=[100.0, 100.0], l2_write_bytes=[100.0, 100.0])
    one = fusion._known_run([0, 1], sizes, {}, [0], [1])
    assert (one.now, one.read, one.write, one.bound_bytes) == (400, 100, 100, 200)
    differ = work("mul", "add", l2_read_bytes=[100.0, 100.0], l2_write_bytes=[105.1, 100.0])
    assert "different sizes" in fusion._known_run([0, 1], differ, {}, [0], [1]).notes[0]
    near = work("mul", "add", l2_read_bytes=[100.0, 100.0], l2_write_bytes=[105.0, 100.0])
    assert fusion._known_run([0, 1], near, {}, [0], [1]).write == 100
    assert "size unknown" in fusion._known_run([0, 1], work("mul", "add"), {}, [0], [1]).notes[0]


# Numbers of a row


def test_the_gain_is_the_time_less_the_bound_and_the_launches_saved() -> None:
    """4 MB at 2 TB/s are 2 µs, and 2 µs of the shortest kernel; 9 µs today, and a launch less saves 0.5 µs."""
    timed = work("mul", "add", duration_ns=[5_000.0, 4_000.0], dram_read_bytes=[3e6, 2e6], dram_write_bytes=[1e6, 1e6])
    row = fusion.evaluate(candidate(), timed, machine())
    assert (row["now_time_ns"], row["bound_time_ns"], row["gain_ns"]) == (9_000, 4_000, 5_500)
    assert (row["measured"], row["measured_by"], row["after_bytes"], row["launches"]) == (7e6, "DRAM (ncu)", 4e6, 2)
    assert row["evidence"] == [
        "at least 4 MB at 2.00 TB/s (DRAM) and the 2.0 µs of the shortest kernel",
        "1 launch fewer, 0.50 µs idle before each",
    ]
    assert fusion.evaluate(candidate(launches=3), timed, machine())["gain_ns"] == 6_000
    fast = fusion.evaluate(candidate(), work("mul", "add"), machine())
    assert (fast["gain_ns"], fast["measured_by"]) == (500, "")
    epilogue = fusion.evaluate(candidate(epilogue=True, bound_bytes=0.0), timed, machine())
    assert (epilogue["bound_time_ns"], epilogue["gain_ns"], epilogue["measured_by"]) == (0, 9_000 + 1_000, "")
    assert "it moves no bytes of its own" in epilogue["evidence"]  # type: ignore[operator]


@pytest.mark.parametrize(("l2_bytes", "source"), [(1e6, "DRAM (ncu)"), (1.01e6, "L2 (ncu)")])
def test_bytes_of_a_chain_four_times_l2_are_those_of_dram(l2_bytes: float, source: str) -> None:
    moved = {
        "dram_read_bytes": [5e6, 0],
        "dram_write_bytes": [0, 0],
        "l2_read_bytes": [6e6, 0],
        "l2_write_bytes": [0, 0],
    }
    assert (
        fusion.evaluate(candidate(), work("mul", "add", **moved), machine(l2_bytes=l2_bytes))["measured_by"] == source
    )


def test_bytes_below_the_least_were_in_a_cache_and_unknown_rows_have_no_gain() -> None:
    moved = {"dram_read_bytes": [3e6, 0], "dram_write_bytes": [0, 0]}
    assert fusion.evaluate(candidate(), work("mul", "add", **moved), machine())["measured_by"] == ""
    row = fusion.evaluate(candidate(rows=None), work("mul", "add"), machine())
    assert math.isnan(float(str(row["gain_ns"])))
    assert str(row["evidence"]).startswith("['it is not certain")


@pytest.mark.parametrize(
    ("read", "write", "asked", "error", "said"),
    [
        (3e6, 1e6, NAN, 0.15, []), (3.03e6, 1e6, 3e6, 0.0, []), (3.04e6, 1e6, 3.0149e6, 0.0, ["L2 fetches 40 kB more than the kernel asks of it"]),
        (3.04e6, 1e6, 3.02e6, 0.0, ["reads 40 kB more than it must"]), (2.96e6, 1e6, NAN, 0.0, ["reads 40 kB less than planned"]),
        (3e6, 0.98e6, NAN, 0.0, ["20 kB of its results were not written to DRAM"]), (3e6, 1.02e6, NAN, 0.0, ["writes 20 kB more than planned"]),
        (3e6, 1e6, NAN, 0.2, ["takes 1.20 times the bound"]), (NAN, 1e6, NAN, -0.16, ["ncu has no bytes of this kernel", "takes 0.84 times the bound"]),
        (3e6, 0.9991e6, NAN, 0.0, []),
    ],
)  # fmt: skip
def test_a_built_kernel_says_where_it_differs(
    read: float, write: float, asked: float, error: float, said: list[str]
) -> None:
    assert list(fusion._reasons(candidate(), read, write, asked, error, machine(), far=True)) == said


def test_a_small_working_set_is_not_judged_and_a_mask_explains_more_reads() -> None:
    near = list(fusion._reasons(candidate(), 3e6, 0.98e6, NAN, 0.0, machine(l2_bytes=2e6), far=False))
    assert near == [
        "the working set is only 2 times L2, so it is not judged",
        "20 kB of its results still lay in L2 when the kernel ended",
    ]
    masked = candidate(notes=("40% of its input is masked out",))
    (said,) = fusion._reasons(masked, 4.6e6, 1e6, NAN, 0.0, machine(), far=True)
    assert said == "reads 1.6 MB that the mask throws away more than it must"
    (less,) = fusion._reasons(masked, 4.5e6, 1e6, NAN, 0.0, machine(), far=True)
    assert less == "reads 1.5 MB more than it must"


def test_a_check_is_the_mean_of_its_launches() -> None:
    """Two built kernels of 4 and 6 µs; the plan says 4 µs. Reads 3.0 and 3.2 of 3 MB, writes 1 MB."""
    both = work(
        "fused", "fused", duration_ns=[4_000.0, 6_000.0], dram_read_bytes=[3e6, 3.2e6], dram_write_bytes=[1e6, 1e6]
    )
    row = fusion._check(("op", "8", "f32", "v1", "r"), [candidate(), candidate()], both, [0, 1], machine(), 900.0)
    assert (row["measured_bytes"], row["predicted_bytes"], row["bytes_error_frac"]) == (
        4.1e6,
        4e6,
        pytest.approx(0.025),
    )
    assert (row["measured_time_ns"], row["predicted_time_ns"], row["time_error_frac"]) == (5_000, 4_000, 0.25)
    assert (row["within"], row["over_l2"], row["now_time_ns"], row["predicted_gain_ns"]) == (
        "no",
        4_000,
        10_000,
        2 * 6_500,
    )
    assert str(row["reason"]).startswith("mean of 2 launches, 2 with counters; reads 100 kB more")
    exact = fusion._check(("op", "8", "f32", "v1", "r"), [candidate()], both, [0], machine(), NAN)
    assert (exact["within"], exact["reason"], exact["tier"]) == ("yes", "", "counters")
    assert math.isnan(float(str(exact["predicted_gain_ns"])))
    near = fusion._check(("op", "8", "f32", "v1", "r"), [candidate()], both, [0], machine(l2_bytes=1.01e6), NAN)
    assert near["within"] is pd.NA
