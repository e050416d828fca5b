"""The study of attentions inside transformers, as far as it goes without a GPU."""

import json

import pandas as pd
import pytest
import torch

from analysis.formats import packed
from analysis.formats.errors import InputError
from harness.gpt2 import GPT2Config
from harness.weights import build_transformers_model, load_weights
from studies import runs
from studies.dropin.files import DROPIN
from studies.dropin.models import MODELS
from tests.machine import ROOT

pytestmark = pytest.mark.studies

PROMPTS = ROOT / "studies/dropin/prompts.csv"

SMALL = GPT2Config(vocab_size=256, n_positions=64, n_embd=128, n_layer=2, n_head=2, n_inner=128)


@pytest.fixture(scope="module")
def measure():
    """The program; it imports transformers, for which only the worker that runs these tests pays."""
    pytest.importorskip("transformers")
    from studies.dropin import measure

    return measure


def test_every_attention_writes_the_same_text_eagerly(measure, monkeypatch):
    monkeypatch.setattr(measure, "TOKENS", 3)
    monkeypatch.setattr(measure, "ROUNDS", 1)
    weights = load_weights("random", 0, SMALL)
    model = build_transformers_model(weights)
    labels = {"model": "gpt2", "dtype": "float32", "batch": 2, "context_tokens": 23}
    left_out: dict[str, str] = {}
    with torch.no_grad():
        rows = measure.measure_cell(
            model, measure.prompts(weights, 2, 20, "cpu"), "eager", labels, left_out, lambda: False
        )
    assert [row["attention"] for row in rows] == ["eager", "sdpa", "kernel_ledger", "kernel_ledger_softmax"]
    for row in rows:
        assert row["same_text"]
        assert (row["samples"], row["prompt_samples"]) == (3, 5)
        assert 0 < row["token_time_p5_ns"] <= row["token_time_p50_ns"] <= row["token_time_p95_ns"]
        assert row["tokens_per_s"] == pytest.approx(2e9 / row["token_time_p50_ns"])
    assert left_out == {
        "flex_attention, gpt2 eager float32 b2 t23": "flex compiles again for every length of a dynamic cache"
    }
    document = {"conditions": {}, "settings": rows, "left_out": left_out}
    DROPIN.document(document)


def test_what_no_longer_fits_is_named(measure):
    left_out: dict[str, str] = {}
    labels = {"model": "gpt2", "dtype": "float32", "batch": 1, "context_tokens": 23}
    assert measure.measure_cell(None, None, "graph", labels, left_out, lambda: True) == []
    assert len(left_out) == len(measure.ATTENTIONS)
    assert left_out["sdpa, gpt2 graph float32 b1 t23"] == "the time given with --seconds was over"


def test_a_model_that_does_not_fit_is_named(measure, monkeypatch):
    def full(*_, **__):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(measure.import_transformers().AutoModelForCausalLM, "from_config", full)
    with pytest.raises(InputError, match="gpt2-xl does not fit into this GPU: choose other --models"):
        measure.build("gpt2-xl", "cpu", torch.bfloat16, small=True)


@pytest.mark.parametrize("folder", runs.folders("models"), ids=lambda folder: folder.name)
def test_in_committed_runs_a_prompt_needs_the_memory_of_sdpa_and_a_graph_less_time(folder):
    document = json.loads(packed.read_bytes(packed.find(folder / DROPIN.name)))
    rows = {}
    for one in DROPIN.check(document, folder.name)["settings"]:
        case = tuple(one[key] for key in ("model", "mode", "batch", "context_tokens"))
        rows[case, one["attention"]] = one
    ours = [case for case, attention in rows if attention == "kernel_ledger"]
    assert {case[0] for case in ours} >= {"gpt2-xl", "llama-3.2-1b", "qwen3-0.6b"}
    for case in ours:
        own, sdpa, eager = (rows.get((case, name)) for name in ("kernel_ledger", "sdpa", "eager"))
        assert own["prompt_peak_bytes"] == sdpa["prompt_peak_bytes"]
        if case[1] == "graph":
            assert own["token_time_p50_ns"] < sdpa["token_time_p50_ns"]
        else:
            assert own["prompt_peak_bytes"] < eager["prompt_peak_bytes"]


def test_a_prompt_loses_what_the_attention_kernel_loses():
    """The rungs of 29 November 2026 beside those before; predicted: at most 1.03 times the time with sdpa."""
    found = pd.read_csv(PROMPTS).set_index(["model", "attention"])
    for model in ("llama-3.2-1b", "qwen3-0.6b", "gpt2-xl"):
        sdpa, before, now = (found.loc[(model, name)] for name in ("sdpa", "kernel_ledger before", "kernel_ledger"))
        assert 1.0 < now["prompt_time_p50_ns"] / sdpa["prompt_time_p50_ns"] < 1.0305
        assert now["prompt_time_p50_ns"] < before["prompt_time_p50_ns"]
        assert 1.25 < now["attention_time_ns"] / sdpa["attention_time_ns"] < 1.5


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_small_layers_of_every_model_take_the_same_switch(measure, tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "TOKENS", 2)
    monkeypatch.setattr(measure, "ROUNDS", 1)
    assert measure.main(["--out", str(tmp_path), "--models", *MODELS]) == 0
    found = json.loads((tmp_path / DROPIN.name).read_text(encoding="utf-8"))
    rows = {(row["model"], row["attention"]): row for row in found["settings"]}
    assert rows.keys() == {(name, one) for name in MODELS for one in measure.ATTENTIONS if one != "flex_attention"}
    assert all(row["same_text"] for row in rows.values())
    assert {row["prompt_peak_bytes"] for row in rows.values()} == {None}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_prompts_are_timed_in_turns_without_a_gpu(measure, tmp_path):
    from studies.dropin import measure_prompts

    file = tmp_path / "prompts.csv"
    assert measure_prompts.main(["--out", str(file), "--models", "llama-3.2-1b", "--repeats", "2"]) == 0
    rows = pd.read_csv(file)
    assert list(rows.columns) == list(pd.read_csv(PROMPTS).columns)
    assert list(rows["attention"]) == ["sdpa", "kernel_ledger"]
    assert (rows["prompt_time_p50_ns"] > 0).all()
