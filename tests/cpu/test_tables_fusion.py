"""The fusion plan: hand-built captures with known answers, and what must hold for any program."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.capture.model import GPU_OPS_COLUMNS, RANGES_COLUMNS, Capture, as_table
from analysis.fusion import opmap
from analysis.fusion import plan as fusion
from analysis.tables.roofline import build_roofline, build_roofs
from tests.declared import facts_of

MIB = 1 << 20
MUL = "void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> >, std::array<char*, 2ul> >(int, T2, T3)"
POW = "void at::native::vectorized_elementwise_kernel<4, at::native::pow_tensor_scalar_kernel_impl<float, float>(at::TensorIteratorBase&, T2)::[lambda(float) (instance 2)], std::array<char*, 2ul> >(int, T2, T3)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int, T2, T3)"
TANH = "void at::native::vectorized_elementwise_kernel<4, at::native::tanh_kernel_cuda(at::TensorIteratorBase&)::[lambda() (instance 2)]::operator()() const::[lambda(float) (instance 1)], std::array<char*, 2ul> >(int, T2, T3)"
FILL = "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::masked_fill_kernel(at::TensorIterator&)::[lambda(float, bool) (instance 1)]>(at::TensorIteratorBase&)::[lambda(int) (instance 1)]>(int, T3)"
COPY = "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::[lambda(float) (instance 1)]>(at::TensorIteratorBase&)::[lambda(int) (instance 1)]>(int, T3)"
SOFTMAX = "void softmax_warp_forward<float, float, float, 10, false, false>(T2*, T1 const*, int, int, int, bool const*)"
NORM = "void at::native::vectorized_layer_norm_kernel<float, float, false>(int, T2, T1 const*)"
GELU = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::[lambda(float) (instance 1)], std::array<char*, 2ul> >(int, T2, T3)"
GEMM = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n"
ARGMAX = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>, unsigned int, long, 4> >(T3)"

ROOFS = build_roofs({"roofs": [{"name": "dram_copy", "unit": "byte/s", "value": 1e12}]}, None)


def timeline(*launches: Any) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """gpu_ops, ranges and counters of launches (path, name, µs, more): each 2 µs apart, all queued at the start.

    A new range instance opens where the path changes, and around it each of its parents that is a step.
    """
    ops: dict[str, list[Any]] = {name: [] for name in GPU_OPS_COLUMNS}
    ranges: list[dict[str, Any]] = []
    counters = []
    start, last = 1_000_000, ""
    owners, paths = [], []
    for at, (path, name, micros, *more) in enumerate(launches):
        extra: dict[str, Any] = more[0] if more else {}
        if path != last or extra.get("again"):
            step = fusion.step_of(path)
            if step and step != path and (not last.startswith(step + "/") or extra.get("step")):
                ranges.append({"path": step, "start_ns": at * 10, "end_ns": at * 10 + 1})
            ranges.append({"path": path, "start_ns": at * 10, "end_ns": at * 10 + 9})
            last = path
        owners.append(len(ranges) - 1)
        paths.append(path)
        values = {
            "start_ns": start,
            "duration_ns": int(micros * 1000),
            "kind": "memcpy" if "memcpy" in name else "kernel",
            "name": name,
            "grid": extra.get("grid", "1x1x1"),
            "block": "128x1x1",
            "stream": extra.get("stream", 7),
            "bytes": extra.get("bytes"),
            "device": "GPU (0)",
            "api_start_ns": at * 10 + 1,
            "api_end_ns": at * 10 + 2,
            "pid": 1,
            "tid": 1,
        }
        start += values["duration_ns"] + 2000
        for column, cells in ops.items():
            cells.append(values.get(column))
        if values["kind"] == "kernel":
            read, write = extra.get("l2", (np.nan, np.nan))
            dram = extra.get("dram", (np.nan, np.nan))
            moved = (*dram, read, write)
            counters.append(dict(zip(fusion.MOVED, moved, strict=True)))
    frame = pd.DataFrame(ranges)
    table = as_table(
        {
            "range_id": list(range(len(frame))),
            "start_ns": frame["start_ns"],
            "end_ns": frame["end_ns"],
            "pid": [1] * len(frame),
            "tid": [1] * len(frame),
            "name": frame["path"].str.rpartition("/")[2],
            "level": frame["path"].str.count("/"),
            "path": frame["path"],
        },
        RANGES_COLUMNS,
    )
    return as_table(ops, GPU_OPS_COLUMNS).assign(owner=owners, path=paths), table, pd.DataFrame(counters)


def flow(*ops: tuple[str, str, Sequence[Any], Sequence[Any]]) -> pd.DataFrame:
    """dataflow.csv of operations (path, op, inputs, outputs); a tensor is (storage, elements, more)."""
    rows, ordinals = [], dict[str, int]()
    for path, op, reads, writes in ops:
        ordinal = ordinals.get(path, -1) + 1
        ordinals[path] = ordinal
        for role, tensors in (("in", reads), ("out", writes)):
            for place, (storage, elements, *more) in enumerate(tensors):
                extra: dict[str, Any] = more[0] if more else {}
                rows.append(
                    {
                        "range": path,
                        "call": extra.get("call", 0),
                        "ordinal": ordinal,
                        "op": op,
                        "operand": f"{role}{place}",
                        "storage": storage,
                        "offset": extra.get("offset", 0),
                        "shape": str(elements),
                        "strides": "1",
                        "dtype": "float32",
                        "bytes": extra.get("bytes", 4 * elements),
                        "view": 0,
                        "masked_frac": extra.get("masked", np.nan),
                        "freed": extra.get("freed", pd.NA if role == "out" and extra.get("kept") else 0),
                    }
                )
    return pd.DataFrame(rows)


def plan(
    captured: Any, dataflow: pd.DataFrame | None = None, ops: pd.DataFrame | None = None, **more: Any
) -> tuple[pd.DataFrame, pd.DataFrame]:
    gpu_ops, ranges, counters = captured
    known = {
        "gpu_ops": gpu_ops, "ranges": ranges, "measured": counters, "roofs": more.get("roofs", ROOFS),
        "l2_bytes": more.get("l2_bytes"), "bare_gpu_ns": more.get("queued_ns", {}),
        "roofline": more.get("roofline", build_roofline(facts_of(measured=pd.DataFrame(), roofs=ROOFS))),
    }  # fmt: skip
    facts = facts_of(Capture(dataflow=dataflow, ops=ops), **known)
    return facts.once(fusion.build_fusion), facts.once(fusion.build_check)


MASK, SOFT = "m/prefill/h.0/mask", "m/prefill/h.0/softmax"
N = 1 << 18  # elements: 1 MiB


def softmax_flow() -> pd.DataFrame:
    return flow(
        (MASK, "aten.mul.Tensor", [(0, N)], [(1, N)]),
        (MASK, "aten.masked_fill.Scalar", [(1, N), (2, N // 4, {"bytes": N // 4, "masked": 0.5})], [(3, N)]),
        (SOFT, "aten._softmax.default", [(3, N)], [(4, N, {"kept": True})]),
    )


def softmax_timeline(**more: Any) -> Any:
    return timeline(
        (MASK, MUL, 10, more),
        (MASK, "[CUDA memcpy Device-to-Device]", 10, {"bytes": MIB}),
        (MASK, FILL, 20, more),
        (SOFT, SOFTMAX, 15, more),
    )


def test_scale_mask_softmax_by_hand() -> None:
    table, _ = plan(softmax_timeline(), softmax_flow())
    row = table.iloc[0]
    assert len(table) == 1
    assert (row["pattern"], row["step"], row["scope"]) == ("scale + mask + softmax", "m/prefill", "sibling ranges")
    assert row["range"] == f"{MASK} + {SOFT}"
    assert row["kernels"] == "mul > memcpy > masked_fill > softmax"
    assert (row["occurrences"], row["launches"], row["now_from"], row["tier"]) == (1, 4, "shapes", "timing")
    assert row["now_bytes"] == 8 * MIB + N // 4  # scale, copy, fill and softmax read and write, and the mask
    assert row["after_bytes"] == MIB // 2 + N // 4 + MIB  # what the mask keeps, the mask, the result
    assert row["now_time_ns"] == 55_000
    # 1e12 byte/s, the shortest kernel (copies are none) is the scale's 10 µs
    assert row["bound_time_ns"] == pytest.approx((MIB * 1.5 + N // 4) / 1e3 + 10_000, abs=1)
    # and 2 µs before each of three launches
    assert row["gain_ns"] == pytest.approx(55_000 - row["bound_time_ns"] + 3 * 2000, abs=1)
    assert "50% of its input is masked out" in row["evidence"]


def test_what_is_read_later_or_outlives_the_chain_is_still_written() -> None:
    ops = [
        ("m/h.0", "aten.add.Tensor", [(0, N), (1, N)], [(2, N, {"freed": 2})]),
        ("m/h.0/ln", "aten.native_layer_norm.default", [(2, N)], [(3, N), (4, 8)]),
        ("m/h.0", "aten.mm.default", [(3, N)], [(5, N)]),
        ("m/h.0", "aten.mm.default", [(5, N)], [(6, N)]),
    ]
    launches = [("m/h.0", ADD, 5), ("m/h.0/ln", NORM, 5), ("m/h.0", GEMM, 50), ("m/h.0", GEMM, 50)]
    table, _ = plan(timeline(*launches), flow(*ops))
    assert table.iloc[0]["pattern"] == "residual + LayerNorm"
    assert table.iloc[0]["scope"] == "nested ranges"
    assert table.iloc[0]["after_bytes"] == 3 * MIB  # two in, the normalised one out; the statistics are gone
    ops[3] = ("m/h.0", "aten.mm.default", [(5, N), (2, N)], [(6, N)])  # the sum is read once more
    table, _ = plan(timeline(*launches), flow(*ops))
    assert table.iloc[0]["after_bytes"] == 4 * MIB
    ops[3] = ("m/h.0", "aten.mm.default", [(5, N)], [(6, N)])
    ops[0] = ("m/h.0", "aten.add.Tensor", [(0, N), (1, N)], [(2, N, {"freed": 3})])  # or returned
    table, _ = plan(timeline(*launches), flow(*ops))
    assert table.iloc[0]["after_bytes"] == 4 * MIB


def test_repeated_layers_are_one_row_and_numbers_are_per_step() -> None:
    launches, ops = [], []
    for step in range(2):
        for layer in range(3):
            path = f"m/decode/h.{layer}/act"
            launches += [(path, ADD, 4, {"again": True, "step": layer == 0}), (path, GELU, 4), ("m/decode/x", GEMM, 9)]
            base = 10 * (3 * step + layer)
            call = {"call": step}
            ops += [
                (path, "aten.add.Tensor", [(base, N, call)], [(base + 1, N, call)]),
                (path, "aten.gelu.default", [(base + 1, N, call)], [(base + 2, N, call)]),
                ("m/decode/x", "aten.mm.default", [(base + 2, N, {"call": 9})], [(base + 3, N, {"call": 9})]),
            ]
    table, _ = plan(timeline(*launches), flow(*ops))
    row = table[table["pattern"] == "bias + GELU"].iloc[0]
    assert (row["range"], row["occurrences"], row["launches"]) == ("m/decode/h.*/act", 3, 6)
    assert (row["now_bytes"], row["after_bytes"], row["now_time_ns"]) == (3 * 4 * MIB, 3 * 2 * MIB, 3 * 8000)


def test_kernels_that_cannot_be_assigned_give_no_gain() -> None:
    launches = [(MASK, MUL, 10), (MASK, "strange", 10), (MASK, FILL, 20), (SOFT, SOFTMAX, 15)]
    table, _ = plan(timeline(*launches), softmax_flow())
    assert len(table) == 1
    assert table.iloc[0][["now_time_ns", "gain_ns"]].isna().all()
    assert table.iloc[0]["after_bytes"] > 0
    assert "not certain" in table.iloc[0]["evidence"]
    assert table.iloc[0]["tier"] == "static"


def test_chains_stay_on_one_stream_and_in_one_step() -> None:
    captured = timeline(
        (MASK, MUL, 10),
        (MASK, "[CUDA memcpy Device-to-Device]", 10, {"bytes": MIB}),
        (MASK, FILL, 20),
        (SOFT, SOFTMAX, 15, {"stream": 8}),
    )
    table, _ = plan(captured, softmax_flow())
    assert table["pattern"].tolist() == ["mul + masked_fill"]


def test_kernels_under_the_compute_roof_are_in_no_chain() -> None:
    roofline = pd.DataFrame(
        {"kernel": [fusion.symbols.key(SOFTMAX)], "range": [SOFT], "level": ["dram"], "bound": ["compute"]}
    )
    table, _ = plan(softmax_timeline(), softmax_flow(), roofline=roofline)
    assert table["pattern"].tolist() == ["mul + masked_fill"]


def test_a_single_operation_behind_a_product_is_an_epilogue() -> None:
    ops = flow(
        ("m/prefill/fc", "aten.addmm.default", [(0, 8), (1, N)], [(2, N, {"freed": 2})]),
        ("m/prefill/act", "aten.gelu.default", [(2, N)], [(3, N)]),
        ("m/prefill/proj", "aten.mm.default", [(3, N)], [(4, N)]),
    )
    captured = timeline(
        ("m/prefill/fc", GEMM, 50), ("m/prefill/act", GELU, 5), ("m/prefill/proj", GEMM, 50), ("m/prefill/x", MUL, 1)
    )
    table, _ = plan(captured, ops)
    row = table.iloc[0]
    assert (row["pattern"], row["scope"]) == ("bias + GELU behind a matrix product", "epilogue")
    assert "cuBLASLt" in row["evidence"]
    assert (row["now_bytes"], row["after_bytes"], row["bound_time_ns"]) == (3 * MIB, MIB, 0)
    assert row["gain_ns"] == 5000 + 2000
    kept = ops.assign(freed=ops["freed"].where(ops["storage"] != 2, 3))  # the product's result outlives it
    assert plan(captured, kept)[0].empty


def test_argmax_of_the_logits_is_named() -> None:
    ops = flow(
        ("m/decode/head", "aten.mm.default", [(0, 8)], [(1, N, {"freed": 2})]),
        ("m/decode/pick", "aten.argmax.default", [(1, N)], [(2, 1)]),
    )
    captured = timeline(("m/decode/head", GEMM, 50), ("m/decode/pick", ARGMAX, 5))
    assert plan(captured, ops)[0].iloc[0]["pattern"] == "logits + argmax"
    without = plan(captured)[0].iloc[0]
    assert without["pattern"] == "logits + argmax"
    assert pd.isna(without["gain_ns"])
    assert "size unknown" in without["evidence"]


def test_copies_out_of_one_tensor_are_one_kernel() -> None:
    path = "m/prefill/qkv"
    outs = [(2, N, {"kept": True}), (3, N, {"kept": True})]
    ops = flow(
        (path, "aten.mm.default", [(0, 8)], [(1, 3 * N)]),
        (path, "aten.copy_.default", [(1, N, {"offset": N})], outs[:1]),
        (path, "aten.copy_.default", [(1, N, {"offset": 2 * N})], outs[1:]),
    )
    table, _ = plan(timeline((path, GEMM, 50), (path, COPY, 5), (path, COPY, 5)), ops)
    row = table.iloc[0]
    assert (row["pattern"], row["scope"]) == ("QKV split and permute", "one range")
    assert (row["now_bytes"], row["after_bytes"]) == (4 * MIB, 4 * MIB)


# Without a dataflow ------------------------------------------------------------------------------------------

ACT = "m/prefill/h.0/act"
GELU_RUN = [MUL, POW, MUL, ADD, MUL, TANH, ADD, MUL]


def test_manual_gelu_is_known_by_its_kernels_and_sized_by_grid_and_counters() -> None:
    grid = {"grid": "192x1x1"}
    counted = {**grid, "l2": (4.0 * 192 * 1024, 4.0 * 192 * 1024)}
    first = [(ACT, name, 2, counted) for name in GELU_RUN]
    second = [("m/prefill/h.1/act", name, 2, grid) for name in GELU_RUN]
    table, _ = plan(timeline(*first, ("m/prefill/x", GEMM, 9), *second))
    assert len(table) == 1
    row = table.iloc[0]
    assert (row["pattern"], row["occurrences"], row["launches"]) == ("manual GELU in eight operations", 2, 16)
    assert row["after_bytes"] == 2 * 2 * 192 * 1024 * 4
    assert row["gain_ns"] > 0
    assert "tensors of 782,340 to 786,432 bytes" in row["evidence"]  # eight elements a thread, as the counters tell


def test_a_run_that_is_no_known_pattern_has_no_gain() -> None:
    counters = {"l2": (float(MIB), float(MIB))}
    table, _ = plan(timeline((ACT, TANH, 2, counters), (ACT, MUL, 2, counters)))
    assert table["pattern"].tolist() == ["tanh + mul"]
    assert table["gain_ns"].isna().all()
    assert fusion.NO_DATAFLOW in table.iloc[0]["evidence"]


def test_no_ranges_and_no_kernels_give_an_empty_plan() -> None:
    gpu_ops, ranges, counters = timeline((ACT, GEMM, 2))
    assert plan((gpu_ops, ranges, counters))[0].empty
    assert plan((gpu_ops.iloc[:0], ranges.iloc[:0], counters.iloc[:0]))[0].empty
    static, _ = plan((gpu_ops.iloc[:0], ranges.iloc[:0], counters.iloc[:0]), softmax_flow())
    assert static["tier"].tolist() == ["static"]
    assert static["after_bytes"].iloc[0] == MIB // 2 + N // 4 + MIB


# The check ---------------------------------------------------------------------------------------------------


def declared(*variants: str) -> pd.DataFrame:
    rows = [
        {"op": "soft", "variant": name, "range": f"bench/soft/{name}", "shape": "1x2", "dtype": "fp32"}
        for name in variants
    ]
    return pd.DataFrame(rows)


def bench_timeline(**built: dict[str, Any]) -> Any:
    path = "bench/soft/torch"
    chain = [(path, MUL, 10), (path, "[CUDA memcpy Device-to-Device]", 10, {"bytes": MIB}), (path, FILL, 20)]
    chain.append((path, SOFTMAX, 15))
    return timeline(*chain, *((f"bench/soft/{name}", "softmax_ours", *spec) for name, spec in built.items()))


def bench_flow() -> pd.DataFrame:
    frame = softmax_flow()
    ordinal = [0, 0, 1, 1, 1, 2, 2]
    return frame.assign(range="bench/soft/torch", ordinal=ordinal)


READ, WRITE = MIB // 2 + N // 4, MIB


@pytest.mark.parametrize(
    ("micros", "dram", "within", "words"),
    [
        (11.5, (READ, WRITE), "yes", []),
        (11.5, (READ, 0.97 * WRITE), "yes", ["31.46 kB of its results still lay in L2"]),
        (11.5, (2 * READ, WRITE), "no", ["that the mask throws away more than it must"]),
        (23.0, (READ, WRITE), "no", ["times the bound"]),
    ],
)
def test_a_built_kernel_is_held_against_the_plan(
    micros: float, dram: tuple[float, float], within: str, words: list[str]
) -> None:
    captured = bench_timeline(ours=(micros, {"dram": dram}))
    _, check = plan(captured, bench_flow(), declared("torch", "ours"), l2_bytes=MIB // 4)
    row = check.iloc[0]
    assert (row["op"], row["variant"], row["pattern"]) == ("soft", "ours", "scale + mask + softmax")
    assert row["predicted_bytes"] == READ + WRITE
    assert row["bytes_error_frac"] == pytest.approx(sum(dram) / (READ + WRITE) - 1)
    assert row["predicted_time_ns"] == pytest.approx((READ + WRITE) / 1e3 + 10_000, abs=1)
    assert row["time_error_frac"] == pytest.approx(micros * 1e3 / row["predicted_time_ns"] - 1, abs=1e-3)
    assert (row["now_time_ns"], row["within"], row["tier"]) == (55_000, within, "counters")
    assert all(word in row["reason"] for word in words)


def test_kernels_in_a_model_are_checked_after_those_alone() -> None:
    path, built = "bench/soft/torch", []
    for layer in range(2):
        built.append((f"ours/prefill/h.{layer}/softmax", "softmax_ours", 12 + layer))
    names = [MUL, "[CUDA memcpy Device-to-Device]", FILL, SOFTMAX]
    ranges = [MASK, MASK, MASK, SOFT]
    alone = [(path, name, 10, {"bytes": MIB}) for name in names]
    model = [(range_, name, 10, {"bytes": MIB}) for range_, name in zip(ranges, names, strict=True)]
    captured = timeline(*alone, ("bench/soft/ours", "softmax_ours", 14), *model, *built)
    rows = [(path, "torch"), ("bench/soft/ours", "ours"), (MASK, "torch"), (SOFT, "torch")]
    rows += [(launch[0], "ours") for launch in built]
    ops = pd.DataFrame(
        [{"op": "soft", "variant": name, "range": where, "shape": "1", "dtype": "fp32"} for where, name in rows]
    )
    recorded = pd.concat([bench_flow(), softmax_flow().assign(storage=lambda rows: rows["storage"] + 100)])
    queued = {"m/prefill": 90_000.0, "ours/prefill": 60_000.0}
    table, check = plan(captured, recorded, ops, l2_bytes=MIB // 4, queued_ns=queued)
    assert check["range"].tolist() == ["bench/soft/ours", "ours/prefill/h.*/softmax"]
    assert check["measured_gain_ns"].tolist() == [pd.NA, 30_000]
    assert check["predicted_gain_ns"].iloc[1] == table["gain_ns"].iloc[0]
    other = pd.DataFrame([{"op": "norm", "variant": "x", "range": "ours/prefill/n", "shape": "1", "dtype": "fp32"}])
    _, unlike = plan(captured, recorded, pd.concat([ops, other]), l2_bytes=MIB // 4, queued_ns=queued)
    assert unlike["measured_gain_ns"].isna().all()  # the steps differ in more than this op
    assert check["measured_time_ns"].tolist() == [14_000, 12_500]
    assert check["reason"].iloc[1].startswith("mean of 2 launches, 0 with counters")
    assert check["measured_bytes"].isna().all()


def test_a_chain_that_is_not_all_of_its_range_is_not_checked() -> None:
    path = "bench/soft/torch"
    gpu_ops = timeline((path, MUL, 10), (path, GEMM, 10), ("bench/soft/ours", "softmax_ours", 11.5))
    dataflow = flow((path, "aten.mul.Tensor", [(0, N)], [(1, N)]), (path, "aten.mm.default", [(1, N)], [(2, N)]))
    assert plan(gpu_ops, dataflow, declared("torch", "ours"), l2_bytes=MIB)[1].empty


# What holds for any program ----------------------------------------------------------------------------------

OPS = {
    "aten.mul.Tensor": (1, 1, (MUL,)),
    "aten.add.Tensor": (2, 1, (ADD,)),
    "aten.gelu.default": (1, 1, (GELU,)),
    "aten._softmax.default": (1, 1, (SOFTMAX,)),
    "aten.native_layer_norm.default": (1, 3, (NORM,)),
    "aten.clone.default": (1, 1, (COPY,)),
    "aten.masked_fill.Scalar": (1, 1, ("[CUDA memcpy Device-to-Device]", FILL)),
    "aten.mm.default": (2, 1, (GEMM,)),
    "kernel_ledger.thing.default": (1, 1, ("thing",)),
}


@st.composite
def programs(draw: st.DrawFn) -> tuple[pd.DataFrame, list[Any]]:
    """A program in which every operation reads tensors that exist, and its launches."""
    ops: list[Any] = []
    launches: list[Any] = []
    tensors = [0, 1]
    for _ in range(draw(st.integers(2, 12))):
        name = draw(st.sampled_from(sorted(OPS)))
        inputs, outputs, kernels = OPS[name]
        path = draw(st.sampled_from(["m/prefill/a", "m/prefill/a/x", "m/prefill/b"]))
        reads: list[Any] = [(draw(st.sampled_from(tensors[-4:])), N) for _ in range(inputs)]
        if name == "aten.masked_fill.Scalar":
            reads.append((10_000, N, {"bytes": N, "masked": draw(st.floats(0, 1))}))
        made = [len(tensors) + place for place in range(outputs)]
        tensors += made
        lives = {"freed": draw(st.integers(len(ops) + 1, len(ops) + 4))}
        ops.append((path, name, reads, [(storage, N, lives) for storage in made]))
        launches += [(path, kernel, 3, {"bytes": MIB} if "memcpy" in kernel else {}) for kernel in kernels]
    return flow(*ops), launches


@settings(max_examples=100, deadline=None)
@given(programs())
def test_fusing_never_moves_more_and_no_launch_counts_twice(program: Any) -> None:
    dataflow, launches = program
    nodes = fusion.read_nodes(dataflow)
    gpu_ops, ranges, counters = timeline(*launches)
    # the recorder saw one instance of each range
    ranges = ranges.drop_duplicates("path").reset_index(drop=True)
    gpu_ops["owner"] = gpu_ops["path"].map(dict(zip(ranges["path"], ranges.index, strict=True)))
    work = fusion.prepare_work(gpu_ops, ranges, counters)
    fusion.assign_launches(nodes, work, {})
    found = fusion.from_dataflow(nodes, work) + fusion.from_kernels(work, {(n.path, n.call) for n in nodes})
    taken = [row for candidate in found for row in candidate.rows or ()]
    assert len(taken) == len(set(taken))
    machine = fusion.measure_machine(gpu_ops, ROOFS, None)
    for candidate in found:
        assert candidate.after <= candidate.now
        numbers: dict[str, Any] = fusion.evaluate(candidate, work, machine)
        assert not numbers["gain_ns"] < 0
        if candidate.rows is None or np.isnan(candidate.after):
            assert np.isnan(numbers["gain_ns"])


def test_the_plan_of_each_registered_chain_is_what_its_op_declares() -> None:
    """Bytes from the recorded dataflow alone against the byte models that are written by hand beside each kernel."""
    pytest.importorskip("torch")
    from analysis.capture.ours import read_table
    from analysis.formats.run import DATAFLOW
    from harness import op_rows, run
    from kernels.registry import ops

    launches, shapes = [], {}
    for op in ops().values():
        if not op_rows.bench_variants(op):
            continue
        shape = (2, 3, 64, 64) if op.name == "softmax" else tuple(max(2, size) for size in op.check_shapes[-1])
        inputs, baseline = op.make_inputs(shape, "float32", device="cpu"), op.variant(op.baseline).fn
        baseline(*inputs)  # what it keeps from call to call is no part of it
        shapes[op.name] = shape
        path = ("bench", op.name, op.baseline)
        launches.append(run.Launch(path, lambda f=baseline, i=inputs: f(*i), plain=True))
    recorded = run.record_dataflow([], launches).encode()
    nodes = fusion.read_nodes(read_table(DATAFLOW, recorded, "dataflow.csv")[0])
    readers = fusion._Readers.among(nodes)
    gpu_ops, ranges, counters = timeline((ACT, GEMM, 1))
    work = fusion.prepare_work(gpu_ops, ranges, counters)
    seen = []
    for chain in fusion.find_chains(nodes, work):
        op = ops()[chain[0].path.split("/")[1]]
        parts = sum(node.path == chain[0].path for node in nodes)
        if op.name in ("matmul", "rmsnorm") or len(chain) < parts:  # on a CPU, PyTorch's RMSNorm is several operations
            continue
        seen.append(op.name)
        read, write, _ = fusion.bytes_after(chain, readers)
        shape, declared_bytes = shapes[op.name], op.minimum_bytes(shapes[op.name], "float32")
        # the recorded chain also reads the mask, which the kernel makes itself
        extra = shape[-1] * shape[-2] if op.name == "softmax" else 0
        assert read + write == pytest.approx(declared_bytes + extra, rel=1e-5), op.name
        clone = 2 * 4 * int(np.prod(shape)) if op.name == "softmax" else 0  # masked_fill copies first
        assert sum(map(fusion.bytes_now, chain)) == op.unfused_bytes(shape, "float32") + clone, op.name
    assert {"softmax", "bias_gelu", "residual_layernorm", "split_permute"} <= set(seen)
    assert len(seen) == len(set(seen))


# Kernels and operations --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ops", "kinds", "expected"),
    [
        (["aten.mul.Tensor", "aten.masked_fill.Scalar"], ["mul", "memcpy", "masked_fill"], [1, 2]),
        (["aten.masked_fill_.Scalar"], ["masked_fill"], [1]),
        (["aten.addmm.default", "aten.copy_.default"], ["memset", "matrix", "matrix", "copy"], [3, 1]),
        (["aten.empty.memory_format", "aten.add_.Tensor"], ["add"], [0, 1]),
        (["aten.topk.default", "aten.mul.Tensor"], ["a", "b", "mul"], [2, 1]),
        (["aten.topk.default", "aten.sort.default"], ["a", "b", "c"], None),  # one and two, or two and one
        (["aten.mul.Tensor"], ["add"], None),
        (["aten.mul.Tensor"], [], None),
        ([], ["mul"], None),
        ([], [], []),
    ],
)
def test_launches_are_assigned_where_there_is_one_way(ops: list[str], kinds: list[str], expected: list[int]) -> None:
    found = opmap.assign(ops, kinds)
    assert (None if found is None else [len(taken) for taken in found]) == expected


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (MUL, "mul"), (POW, "pow"), (ADD, "add"), (TANH, "tanh"), (FILL, "masked_fill"), (COPY, "copy"),
        (SOFTMAX, "softmax"), (NORM, "layer_norm"), (GELU, "gelu"), (GEMM, "matrix"), (ARGMAX, "argmax"),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float, float>(int)", "matrix"),
        ("known_bytes_copy(uint4 const*, uint4*)", "known_bytes_copy"),
    ],
)  # fmt: skip
def test_kernels_are_known_by_their_names(name: str, kind: str) -> None:
    assert opmap.kind_of_kernel(name) == kind


def test_a_fusion_that_is_there_to_take_is_named() -> None:
    assert fusion.ready_made("add + tanh + mul", "step N(4)/layers.0") == ""
    assert "functional.rms_norm" in fusion.ready_made("add + RMSNorm", "step N(4)/layers.0/norm")
    assert "scaled_dot_product_attention" in fusion.ready_made("scale + mask + softmax", "step N(4)/attn")
    assert fusion.ready_made("scale + mask + softmax", MASK) == ""  # a program with ranges of its own
    assert "fused=True" in fusion.ready_made("mul + add", "step AdamW")
    assert fusion.ready_made("mul + add", "step backward") == ""


def test_what_was_recorded_once_holds_for_every_instance_of_its_step() -> None:
    once = [
        (MASK, MUL, 10),
        (MASK, "[CUDA memcpy Device-to-Device]", 10, {"bytes": MIB}),
        (MASK, FILL, 10),
        (SOFT, SOFTMAX, 10),
    ]
    again = [(MASK, MUL, 10, {"step": True}), *once[1:]]
    one = plan(timeline(*once), softmax_flow())[0].iloc[0]
    three = plan(timeline(*once, *again, *again), softmax_flow())[0]
    assert len(three) == 1
    row = three.iloc[0]
    same = ["pattern", "occurrences", "launches", "now_bytes", "after_bytes", "now_time_ns", "bound_time_ns", "gain_ns"]
    assert row[same].tolist() == one[same].tolist()  # per step


def test_a_step_whose_ranges_differ_is_not_repeated() -> None:
    captured = timeline((MASK, MUL, 10), (MASK, FILL, 10), (SOFT, SOFTMAX, 10))
    nodes = fusion.read_nodes(softmax_flow())
    twice = pd.concat([captured[1], captured[1][captured[1]["path"] == "m/prefill"]])
    assert len(fusion.repeat_nodes(nodes, twice)) == len(nodes)
    once = [(node.number, node.call, node.writes[0].storage) for node in fusion.repeat_nodes(nodes, captured[1])]
    assert once == [(0, 0, 1), (1, 0, 3), (2, 0, 4)]


def test_a_chain_in_a_cuda_graph_counts_at_each_launch_of_the_graph() -> None:
    """The dataflow was recorded with the modules, and the kernels run below the launch of the graph."""
    inside, step = "step Net", "step CUDAGraph"
    chain = [ADD, NORM]
    gpu_ops, ranges, counters = timeline(
        *((inside, name, 8) for name in chain),
        *((step, name, 5, {"again": name == ADD}) for _ in range(3) for name in chain),
    )
    block = ranges.index[ranges["path"] == inside][0]
    captured = gpu_ops.assign(recorded=[-1, -1, *[block] * 6]), ranges, counters
    dataflow = flow(
        (inside, "aten.add.Tensor", [(0, N), (1, N)], [(2, N, {"kept": True})]),
        (inside, "aten.native_layer_norm.default", [(2, N)], [(3, N, {"kept": True})]),
    )
    table = plan(captured, dataflow)[0].set_index("step")
    graph = table.loc[step]
    assert (graph["pattern"], graph["range"]) == ("residual + LayerNorm", f"{step}/[graph] {inside}")
    assert (graph["occurrences"], graph["launches"], graph["now_time_ns"]) == (1, 2, 10_000)
    assert graph["after_bytes"] == 4 * 4 * N  # both inputs, the sum and the norm
    assert table.loc["step Net", "now_time_ns"] == 16_000
    without = plan((gpu_ops.assign(recorded=-1), ranges, counters), dataflow)[0].set_index("step")
    assert pd.isna(without.loc[step, "gain_ns"])  # nobody knows where it was recorded
