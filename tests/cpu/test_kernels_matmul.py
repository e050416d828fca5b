"""matmul and gemv: byte and FLOP models, tolerance, what a rung does not take, floors, waves, the build for Hopper."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from harness import bench
from harness.bench_files import BENCH_ROWS
from kernels import build, objects
from kernels.matmul import waves
from kernels.registry import item_bytes, ops

MATMUL, GEMV = ops()["matmul"], ops()["gemv"]


def test_bytes_and_flops():
    assert MATMUL.flops((2, 3, 5)) == 2 * 2 * 3 * 5 + 2 * 3
    assert MATMUL.minimum_bytes((2, 3, 5), "bf16") == 2 * (10 + 15 + 3 + 6)
    assert MATMUL.fused_bytes((2, 3, 5), "fp32", "v04_constant_bias") == 4 * (10 + 15 + 3 + 6)
    assert GEMV.flops((3, 5)) == 2 * 15 + 3
    assert GEMV.minimum_bytes((50257, 768), "bf16") == 2 * (50257 * 768 + 768 + 2 * 50257)


def test_the_models_of_the_ledger_are_the_same():
    from harness import ledger

    row = ledger.linear("qkv", 1024, 2304, 768, 4)
    assert (row.flops, row.minimum_bytes) == (MATMUL.flops((1024, 2304, 768)), MATMUL.minimum_bytes(row.shape, "fp32"))


@pytest.mark.parametrize("op", [MATMUL, GEMV], ids=["matmul", "gemv"])
def test_best_by_dtype(op):
    assert op.best_for("fp32") == op.best
    for dtype in op.dtypes:
        assert dtype in op.variants[op.best_for(dtype)].dtypes


def test_a_missing_product_is_beyond_the_tolerance():
    """One average product left out, at the longest K of GPT-2's linear layers."""
    a, weight, bias = MATMUL.make_inputs((4, 8, 3072), "float32")
    reference = MATMUL.reference(a, weight, bias)
    (allowed,) = MATMUL.allowed_error((a, weight, bias), (reference,), MATMUL.variants["v09_warp_tile"])
    assert bool((allowed < (a.double().abs() @ weight.double().abs()) / 3072).all())


def test_the_tolerance_knows_who_cuts_operands():
    inputs = MATMUL.make_inputs((4, 8, 64), "float32")
    reference = MATMUL.reference(*inputs)

    def allowed(variant, values=inputs):
        return float(MATMUL.allowed_error(values, (reference,), MATMUL.variants[variant])[0].mean())

    halves = tuple(value.bfloat16() for value in inputs)
    assert allowed("torch") == allowed("v09_warp_tile") < allowed("torch_tf32") / 100
    assert allowed("v11_wgmma", halves) < allowed("torch", halves)
    cut = tuple((v.view(torch.int32) & ~0x1FFF).view(torch.float32) for v in inputs[:2])  # 10 bits are left
    error = (MATMUL.reference(*cut, inputs[2]) - reference).abs().mean()
    assert allowed("torch") < float(error) < allowed("torch_tf32")


def test_what_a_rung_does_not_take():
    lm_head, padded = MATMUL.shapes["lm_head"], MATMUL.shapes["lm_head_padded"]
    refusing = {name for name, variant in MATMUL.variants.items() if variant.cannot(lm_head, variant.dtypes[0])}
    assert refusing == {
        "triton",  # rows of N that are not aligned
        *("v04_constant_bias", "v07_float4", "v10_mma", "v11_wgmma", "v14_fitted_tile"),
    }
    searched = MATMUL.variants["compile_tuned"]
    assert [name for name, shape in MATMUL.shapes.items() if searched.cannot(shape, "bfloat16")] == ["square_16384"]
    assert not MATMUL.variants["v11_wgmma"].cannot(padded, "bfloat16")


def timed(op, dtype, shape, seconds):
    return bench.Timed(dtype, shape, "cold", 2, {name: [value] * 3 for name, value in seconds.items()})


def test_the_floor_is_the_longer_of_bytes_and_operations():
    roofs = {"fp32": 50e12, "tf32": 400e12, "bf16": 800e12}
    shape = (4096, 4096, 4096)
    rows = bench.rows_of(MATMUL, timed(MATMUL, "float32", shape, {"torch": 3e-3, "torch_tf32": 4e-4}), 4e12, roofs)
    flops = MATMUL.flops(shape)
    assert [row["floor_time_ns"] for row in rows] == [round(flops / 50e3), round(flops / 400e3)]
    assert rows[0]["achieved_flop_per_s"] == round(flops / 3e-3)
    assert tuple(rows[0]) == BENCH_ROWS.names
    small = (1024, 8, 8)
    (row,) = bench.rows_of(MATMUL, timed(MATMUL, "bfloat16", small, {"v11_wgmma": 1e-5}), 4e12, roofs)
    assert row["floor_time_ns"] == round(MATMUL.minimum_bytes(small, "bf16") / 4e3)
    (row,) = bench.rows_of(GEMV, timed(GEMV, "float32", (512, 64), {"torch": 1e-5}), 4e12, {"dram_read": 4.6e12})
    assert row["floor_time_ns"] == round(GEMV.minimum_bytes((512, 64), "fp32") / 4.6e3)
    assert row["achieved_flop_per_s"] == ""


def test_slow_variants_are_timed_apart(monkeypatch):
    took = {"torch": 1e-4, "v01_naive": 9e-3, "v08_register_tile": 9e-4, "v09_warp_tile": 1.1e-4}
    monkeypatch.setattr(bench, "_in_turn", lambda steps, *_, **__: {name: [took[name]] for name in steps})
    original = torch.Generator
    monkeypatch.setattr(torch, "Generator", lambda device: original("cpu"))
    real = torch.randn
    monkeypatch.setattr(torch, "randn", lambda *a, device=None, **kw: real(*a, **kw))
    groups = bench.groups_by_speed(MATMUL, list(took), "float32", (8, 8, 8), 40)
    assert [group.variants for group in groups] == [
        ["torch", "v08_register_tile", "v09_warp_tile"],
        ["torch", "v01_naive"],
    ]
    assert [(group.launches, group.warmup, group.seconds) for group in groups] == [(10, 3, 4.0), (1, 1, 0.4)]
    groups = bench.groups_by_speed(GEMV, ["torch", "v01_naive"], "float32", (8, 8), 40)
    assert [(group.variants, group.rounds, group.launches) for group in groups] == [(["torch", "v01_naive"], 40, 10)]
    without = list(took)[1:]  # nothing is slow without a baseline
    assert [group.variants for group in bench.groups_by_speed(MATMUL, without, "float32", (8, 8, 8), 40)] == [without]


def test_a_group_of_long_launches_takes_seconds(monkeypatch):
    took = {"torch": 0.2, "v01_naive": 1.2, "v05_coalesced": 1.0, "v08_register_tile": 0.7}
    monkeypatch.setattr(bench, "_in_turn", lambda steps, *_, **__: {name: [took[name]] for name in steps})
    monkeypatch.setattr(bench, "MANY_FLOPS", 1.0)
    op = replace(MATMUL, make_inputs=lambda *_, **__: ())
    fast, slow = bench.groups_by_speed(op, list(took), "float32", (8, 8, 8), 40)
    assert (fast.variants, fast.launches, fast.warmup) == (["torch", "v08_register_tile"], 1, 1)
    assert (slow.variants, slow.launches, slow.warmup) == (["torch", "v01_naive", "v05_coalesced"], 1, 0)


def test_what_would_take_too_long_is_left_out_and_said(monkeypatch):
    monkeypatch.setattr(bench, "_in_turn", lambda steps, *_, **__: {name: [0.1] for name in steps})
    op = replace(MATMUL, make_inputs=lambda *_, **__: ())
    sizes = [MATMUL.shapes[name] for name in ("square_4096", "square_8192", "square_16384")]
    found = bench.left_out(op, "v01_naive", "float32", sizes)
    assert list(found) == sizes[1:]  # 64 times the operations of 2048 and of 4096
    assert found[sizes[1]] == pytest.approx(6.4, rel=1e-2)
    lines = bench.left_out_lines(MATMUL, {("float32", "v01_naive"): found, ("float32", "torch"): {}})
    assert lines[0] == "v01_naive, fp32 square_8192: about 6.4 s a launch"
    assert "  v01_naive, fp32 square_8192: about 6.4 s a launch\n" in bench.left_out_text("it is slow", lines)
    assert bench.left_out_lines(MATMUL, {("float32", "torch"): {}}) == []
    assert bench.left_out_text("it is slow", []) == ""
    assert bench.left_out(GEMV, "v01_naive", "float32", list(GEMV.shapes.values())) == {}


def test_no_shape_is_begun_after_the_time_given_and_what_is_left_is_named(monkeypatch, tmp_path):
    now, timed_shapes = [0.0], []

    def time_shape(_op, variants, dtype, shape, *_):
        now[0] += 10.0
        timed_shapes.append((dtype, shape))
        return bench.rows_of(MATMUL, timed(MATMUL, dtype, shape, dict.fromkeys(variants, 1e-3)), 4e12)

    monkeypatch.setattr(bench.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(bench, "time_shape", time_shape)
    monkeypatch.setattr(
        bench, "check_variant", lambda op, name, dtype, *_: [bench.Check(name, dtype, (1,), "", 0, 0, True)]
    )
    monkeypatch.setattr(bench, "left_out", lambda *_: {})
    monkeypatch.setattr(bench, "measure_copy", lambda _: {"torch_copy": [4e12]})
    monkeypatch.setattr(bench, "measure_empty", lambda: [4e-6, 4.1e-6, 5e-6])
    monkeypatch.setattr(bench, "measure_roofs", lambda _: {})
    monkeypatch.setattr(bench, "microbenchmark_text", lambda rows, _: f"{len(rows)} rows\n")
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "a GPU")
    names = ["qkv", "proj", "fc"]
    assert bench.bench(MATMUL, tmp_path, ["float32"], names, ["torch"], 3, seconds=15.0) == 0
    assert timed_shapes == [("float32", MATMUL.shapes[name]) for name in names[:2]]
    left = ["fp32 fc"]
    assert json.loads((tmp_path / "bench.json").read_text("utf-8"))["left_out"] == left
    assert (tmp_path / "microbenchmark.txt").read_text("utf-8") == (
        "2 rows\n\nleft out, as --seconds 15 had passed:\n" + "".join(f"  {what}\n" for what in left)
    )
    assert len((tmp_path / "bench.csv").read_text("utf-8").splitlines()) == 3


def test_the_microbenchmark_of_an_op_bound_by_arithmetic_shows_its_rate():
    roofs = {"fp32": 50e12, "tf32": 400e12, "bf16": 800e12}
    seconds = {"torch": 2.7e-3, "v13_split_k": 2.9e-3}
    rows = bench.rows_of(MATMUL, timed(MATMUL, "float32", MATMUL.bench_shape, seconds), 4e12, roofs)
    conditions = {"gpu": {"name": "a GPU"}, "driver": "1", "torch": "2", "triton": "3", "copy_byte_per_s": {"x": 4e12}}
    assert "TFLOP/s" in bench.microbenchmark_text(rows, conditions | {"roofs": roofs})


def test_the_microbenchmark_says_what_an_empty_kernel_takes():
    rows = bench.rows_of(MATMUL, timed(MATMUL, "float32", MATMUL.bench_shape, {"torch": 2.7e-3}), 4e12, {})
    conditions = {"gpu": {"name": "a GPU"}, "driver": "1", "torch": "2", "triton": "3", "copy_byte_per_s": {"x": 4e12}}
    empty = {"p5": 4010, "p50": 4130, "p95": 4300}
    told = "an empty kernel, timed as isolated: 4.13 (4.01 – 4.30) us, a part of every such time\n"
    assert told in bench.microbenchmark_text(rows, conditions | {"empty_kernel_ns": empty})
    assert "empty kernel" not in bench.microbenchmark_text(rows, conditions)


def test_where_the_wave_is_lost():
    assert waves.tiles(1793) == 225
    # the lecture's step, on its 108 multiprocessors, and where it is on 132
    assert dict(waves.steps(108, 2048)) == {1792: 2.0}
    assert dict(waves.steps(132, 2300)) == {2048: 2.0}
    assert [waves.waves(n, 132) for n in (1792, 1793, 2048, 2049)] == [1, 1, 1, 2]


def test_waves_without_a_gpu_are_a_prediction_and_overwrite_nothing(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    kept = tmp_path / "waves.csv"
    kept.write_text("measured")
    assert waves.main(["--out", str(kept)]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("error: --out keeps times")
    assert said.err.count("\n") == 1
    assert (said.out, kept.read_text()) == ("", "measured")
    assert waves.main([]) == 0
    said = capsys.readouterr()
    assert "nothing is timed" in said.err
    assert said.out.splitlines()[:2] == ["n,multiprocessors,tiles,waves", "1408,132,121,1"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(multi_processor_count=108))
    monkeypatch.setattr(waves, "measure", lambda n: [1e-6, 2e-6, 3e-6])
    assert waves.main(["--out", str(kept)]) == 0
    assert kept.read_text().splitlines()[:2] == ["n,multiprocessors,tiles,waves,time_p50_ns", "1408,108,121,1,2000"]


def test_the_instructions_of_hopper_alone_are_compiled_for_it():
    for name in ("v11_wgmma", "v12_ring", "v13_split_k", "v14_fitted_tile", "v15_padded", "v16_any_rows"):
        assert [objects.target(build.FOLDER / "matmul" / f"{name}.cu", arch) for arch in (80, 90)] == ["80", "90a"]
    assert objects.target(build.FOLDER / "matmul" / "v10_mma.cu", 90) == "90"


def test_gradients_by_hand():
    a, weight, bias = (value.requires_grad_() for value in MATMUL.make_inputs((3, 4, 5), "float32"))
    out = MATMUL.call("v09_warp_tile")(a, weight, bias)
    out.sum().backward()
    torch.testing.assert_close(a.grad, weight.sum(1).expand(3, 5))
    torch.testing.assert_close(bias.grad, torch.full((4,), 3.0))
    assert math.isfinite(float(weight.grad.sum()))


def test_a_vector_is_no_matrix():
    with pytest.raises(ValueError, match=r"a of shape \(M, K\)"):
        MATMUL.call("torch")(torch.zeros(3), torch.zeros(3, 2), torch.zeros(2))
    with pytest.raises(ValueError, match=r"weight of shape \(N, K\)"):
        GEMV.call("torch")(torch.zeros(3, 2), torch.zeros(3), torch.zeros(3))


def test_the_check_shapes_of_gemv_reach_rows_of_three_and_of_six_packets_a_lane():
    """v05 takes N of 16384 or more and rows up to 3 KB; some rows end inside a packet of the last lane's turn."""
    for dtype in GEMV.dtypes:
        rows = [k * item_bytes(dtype) for n, k in GEMV.check_shapes if n >= 16384]
        assert {-(-row // 1536) for row in rows if row <= 3072} == {1, 2}
        assert any(row % 512 for row in rows if 1536 < row <= 3072)
