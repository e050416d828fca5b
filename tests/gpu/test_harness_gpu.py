"""The harness on a GPU: parity in FP32, the capture program without a profiler, GPU timing, the manifest."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

pytestmark = pytest.mark.gpu

SMALL = ["--config", "n_layer=2,n_embd=64,n_head=4,n_positions=64,vocab_size=211"]
SHAPES = ["--workloads", "prefill_b1_t32,decode_b1_ctx63"]


def variants() -> list[str]:
    from kernels.registry import ops

    return [name for name, variant in ops()["softmax"].variants.items() if "float32" in variant.dtypes]


@pytest.fixture(autouse=True)
def exact_fp32() -> Any:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("softmax", variants())
def test_logits_and_greedy_tokens_equal_transformers_at_124m(softmax: str) -> None:
    import transformers

    from harness.weights import build_model, load_weights
    from kernels.registry import ops

    if lacks := ops()["softmax"].variants[softmax].lacks:
        pytest.skip(f"{lacks} is not installed")
    weights = load_weights("random", 0)
    model = build_model(weights, softmax, "cuda")
    theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(attn_implementation="eager")).eval()
    theirs.load_state_dict({f"transformer.{name}": value for name, value in weights.state.items()}, strict=False)
    theirs.tie_weights()
    theirs = theirs.to("cuda")
    ids = torch.randint(50257, (1, 40), generator=torch.Generator().manual_seed(1)).cuda()
    cache, past = model.new_cache(1), None
    with torch.inference_mode():
        for start, end in [(0, 32), *((i, i + 1) for i in range(32, 40))]:
            expected = theirs(ids[:, start:end], past_key_values=past, use_cache=True)
            past = expected.past_key_values
            assert float((model(ids[:, start:end], cache) - expected.logits).abs().max()) <= 1e-4
        greedy = theirs.generate(
            ids,
            max_new_tokens=24,
            do_sample=False,
            attention_mask=torch.ones_like(ids),
            pad_token_id=0,
            eos_token_id=-1,
        )
    assert torch.equal(model.generate(ids, 24), greedy)


def test_bare_mode_writes_the_four_files(tmp_path: Path) -> None:
    from harness import run
    from harness.manifest import validate_manifest

    assert run.main(["--mode", "bare", "--out", str(tmp_path), "--samples", "30", *SMALL, *SHAPES]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"manifest.json", "timing.json", "ops.csv", "ceilings.json"}
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert validate_manifest(manifest) == []
    assert manifest["gpu"]["sm_count"] > 0
    assert manifest["clocks"] is not None or manifest["clocks_reason"]
    timing = json.loads((tmp_path / "timing.json").read_text())
    assert len(timing["steps"]) == 4
    assert all(step["gpu_ns"]["p50"] > 0 for step in timing["steps"])


def test_the_capture_program_runs_without_a_tool(tmp_path: Path) -> None:
    from harness import run

    assert run.main(["--mode", "capture", "--bench", "--selftest", "--out", str(tmp_path), *SMALL, *SHAPES]) == 0
    with (tmp_path / "ops.csv").open() as file:
        ranges = [row["range"] for row in csv.DictReader(file)]
    assert "gpt2_fused/decode/h.1/attn/softmax" in ranges
    assert "bench/softmax/torch" in ranges
    assert ranges[-3:] == ["selftest/copy", "selftest/gemm_fp32", "selftest/gemm_bf16"]
    before = (tmp_path / "ops.csv").stat().st_mtime_ns
    assert run.main(["--mode", "capture", "--only", "selftest", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "ops.csv").stat().st_mtime_ns == before


def test_gpu_time_of_a_copy_holds_no_launch_time() -> None:
    from harness.timing import measure_gpu

    source = torch.ones(1 << 28, device="cuda")
    target = torch.empty_like(source)
    cold = measure_gpu(lambda: target.copy_(source), samples=15, cold_l2=True)
    many = measure_gpu(lambda: [target[:1024].copy_(source[:1024]) for _ in range(200)], samples=15)
    seconds_at_1_tb = 2 * source.numel() * 4 / 1e12
    assert 0 < cold.p50_ns < 4e9 * seconds_at_1_tb
    # 200 tiny copies take the CPU about a millisecond to launch and the GPU far less
    assert many.p50_ns < 1.5e6
    assert not many.warnings or "launch time" not in many.warnings[0]


def test_a_step_that_does_not_fit_the_gpu_is_one_sentence(tmp_path: Path, capsys: Any) -> None:
    from harness import run

    config = "n_layer=1,n_embd=64,n_head=1,n_positions=8192,vocab_size=1000000"
    arguments = ["--mode", "bare", "--config", config, "--workloads", "prefill_b64_t8192", "--out", str(tmp_path)]
    assert run.main(arguments) == 3
    assert "ran out of memory" in capsys.readouterr().err
