"""Resource accounting: against PyTorch's own count, against the committed counters, and what it answers."""

from typing import Any

import pytest
import torch

from analysis.capture.load import load
from analysis.facts import Facts
from analysis.formats.errors import UsageError
from harness.gpt2 import GPT2Config
from harness.training import TrainingStep
from harness.weights import build_model, import_transformers, load_weights
from harness.workloads import find_workload
from studies.accounting import __main__ as program
from studies.accounting import architecture as models
from studies.accounting import budget, formulas, measure, predictions, tables, tiles
from studies.accounting.architecture import Shape
from tests.committed import folder, needs_committed

pytestmark = pytest.mark.studies

SIZES = {"gpt2": 124_439_808, "gpt2-medium": 354_823_168, "gpt2-large": 774_030_080, "gpt2-xl": 1_557_611_200}
LLAMAS = {"llama-3.2-1b": 1_235_814_400, "llama-3-8b": 8_030_261_248, "llama-3-70b": 70_553_706_496,
          "llama-2-7b": 6_738_415_616, "qwen3-0.6b": 596_049_920}  # fmt: skip
SMALL = GPT2Config(n_layer=2, n_embd=64, n_head=4, n_positions=64, vocab_size=101)


@pytest.fixture(scope="module")
def counted() -> Any:
    """Launches of the committed GPT-2 capture with their counters."""
    return Facts(load([folder("overview") / "captures"])).measured


@pytest.mark.parametrize(("name", "count"), [*SIZES.items(), *LLAMAS.items()])
def test_parameters_are_exact(name: str, count: int) -> None:
    assert models.parameter_count(models.find(name)) == count


def test_llama_has_the_parameters_of_transformers() -> None:
    transformers = import_transformers()
    config = transformers.LlamaConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=96,
        vocab_size=101,
    )  # fmt: skip
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    ours = models._of_config(config.to_dict(), "config.json")
    assert models.parameter_count(ours) == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", ["prefill_b1_t64", "decode_b2_ctx15", "train_b1_t32", "train_b3_t32"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_closed_form_is_what_pytorch_does(name: str, dtype: str) -> None:
    """FLOPs of every product, and of training what is kept for the backward pass: to the byte."""
    of = models.Architecture(family="gpt2", layers=2, channels=64, heads=4, vocab=101, positions=64).whole("small")
    workload = find_workload(name, SMALL)
    shape = Shape(workload.batch, workload.tokens, workload.context, budget.ITEM_BYTES[dtype])
    model = measure.meta_model(SMALL, dtype)
    needed = products = models.forward_products(of, shape)
    for checkpointed in (False, True) if workload.step == "train" else (False,):
        traced = measure.trace_workload(model, workload, checkpointed)
        if workload.step == "train":
            needed = [*products, *models.backward_products(products)]
            loss = 2 * shape.e  # the loss, and the weight that it was divided by
            held = models.activations(of, shape, checkpointed=checkpointed)
            assert held <= traced.held_bytes <= held + loss
            assert traced.peak_bytes > traced.held_bytes
        if not checkpointed:
            assert sum(2 * b * m * n * k for b, m, n, k in traced.products) == models.flops(needed)


@needs_committed
def test_the_committed_counters_agree(counted: Any) -> None:
    """FLOPs within 1 % once padding is off, DRAM reads within 3 %, of fp32 steps that were captured before."""
    of = models.find("gpt2")
    for name in ("prefill_b1_t1024", "decode_b1_ctx1023"):
        workload = find_workload(name)
        traced = measure.trace_workload(measure.meta_model(GPT2Config(), "float32"), workload)
        launches = tables.launches_of({"workload": name}, counted)
        assert len(launches) == traced.operations  # a kernel an operation
        found = tables.count(launches, traced.products)  # type: ignore[arg-type]
        assert found is not None
        total, extra = found
        needed = models.flops(models.forward_products(of, Shape(1, workload.tokens, workload.context)))
        assert needed == pytest.approx(total - extra, rel=predictions.FLOPS_WITHIN)
        assert 0 < extra < 0.05 * total
        assert traced.read_bytes == pytest.approx(launches["dram_read_bytes"].sum(), rel=predictions.BYTES_WITHIN)


def test_tiles_are_read_from_names() -> None:
    nvjet = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
    assert tiles.tile_of(nvjet) == tiles.Tile(256, 128, 64, True)
    xmma = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_stage3_warpsize1x4x1_ffma_aligna4"
    # what ncu counted of this launch, to the operation
    product = (1, 1024, 50257, 768)
    flops = tiles.padded(xmma, (16, 197, 1), product) + tiles.beside(xmma, (16, 197, 1), (128, 1, 1), product)
    assert flops == 79_425_961_984
    assert tiles.tile_of("cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>") == tiles.Tile(
        256, 128, 8, False
    )
    # the head of the bf16 prefill, as ncu counted it
    turing = "cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>"
    assert tiles.padded(turing, (64, 50, 1), product) == 79_121_350_656
    vector = "nvjet_sm90_tst_64x64_64x4_1x2_h_bz_coopA_NNT"  # a matrix times a vector fills one row of each tile
    assert tiles.padded(vector, (64, 1, 1), (1, 1, 4096, 4096)) == 64 * 2 * 4096 * 4096
    assert tiles.is_product("gemv2T_kernel_val<…>")
    assert not tiles.is_product("cublasLt::splitKreduce_kernel<…>")
    assert not tiles.is_product("vectorized_layer_norm_kernel")


# Answers -----------------------------------------------------------------------------------------------------


# The training step -------------------------------------------------------------------------------------------


def test_a_training_step_learns_and_checkpoints_change_nothing() -> None:
    model = build_model(load_weights(config=SMALL, seed=1))
    workload = find_workload("train_b2_t16", SMALL)
    plain_step, checkpointed = (TrainingStep(model, workload, 0, checkpointed) for checkpointed in (False, True))
    losses = [float(plain_step.run()) for _ in range(5)]
    assert losses[-1] < losses[0]
    assert [float(checkpointed.run()) for _ in range(5)] == pytest.approx(losses, rel=1e-5)
    assert all(parameter.grad is None for parameter in plain_step.model.parameters())
    assert not any(parameter.requires_grad for parameter in model.parameters())  # it trains a copy


def test_formulas_that_skip_attention_or_count_padding_give_no_mfu(capsys: pytest.CaptureFixture[str]) -> None:
    of, shape = models.find("gpt2"), Shape(4, 1024)
    exact = formulas.model_flops("products", of, shape)
    assert exact == 3_499_779_686_400
    assert formulas.model_flops("6ND + attention", of, shape) == 6 * 124_439_808 * 4096 + 12 * 12 * 768 * 1024 * 4096
    assert formulas.model_flops("Megatron", of, shape) == pytest.approx(exact, rel=1e-3)
    assert formulas.FORMULAS["6ND"].flops(of, shape) == pytest.approx(0.874 * exact, rel=1e-3)
    for name, words in (("6ND", "skips"), ("96BsLh^2", "repeat"), ("6ND + attention of padded rows", "padding")):
        with pytest.raises(UsageError, match=words):
            formulas.model_flops(name, of, shape)
    assert program.main(["gpt2", "--batch", "4", "--seconds", "0.0287", "--formula", "6ND"]) == 2
    assert "6ND gives no MFU: it skips" in capsys.readouterr().err
    assert program.main(["gpt2", "--formula", "7ND", "--seconds", "1"]) == 2
    assert "There is no formula '7ND'" in capsys.readouterr().err


def test_predicted_times_follow_from_shapes_alone() -> None:
    case = next(one for one in predictions.CASES if one.workload == "decode_b1_ctx1023")
    kept = predictions.predicted_times()
    assert len(kept) == len(predictions.CASES)
    assert kept[case.model, case.workload, case.dtype, ""] == pytest.approx(measure.predict_time(case), abs=1)
