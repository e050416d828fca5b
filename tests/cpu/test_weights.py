"""Checkpoints of every container, and one sentence for each that does not serve. No network."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from analysis.formats.errors import InputError, LedgerError, UsageError
from harness import weights as weights_module
from harness.gpt2 import GPT2Config
from harness.weights import build_model, import_transformers, load_weights

CONFIG = GPT2Config(vocab_size=53, n_positions=24, n_embd=128, n_layer=2, n_head=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small checkpoint as transformers saves it."""
    import transformers

    path = tmp_path_factory.mktemp("gpt2-small")
    torch.manual_seed(3)
    transformers.GPT2LMHeadModel(transformers.GPT2Config(**asdict(CONFIG))).save_pretrained(path)
    return path


def logits(source: str, **options: Any) -> Any:
    with torch.inference_mode():
        return build_model(load_weights(source, **options))(torch.arange(10)[None])


def official(folder: Path) -> Any:
    import transformers

    model = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        return model(torch.arange(10)[None]).logits


def one_sentence(error: LedgerError) -> None:
    text = str(error)
    assert "\n" not in text
    assert text.endswith(".")
    assert "/tmp" not in text


def test_a_folder_gives_transformers_logits(folder: Path) -> None:
    loaded = load_weights(str(folder))
    assert (loaded.config, loaded.source) == (CONFIG, "local")
    assert torch.allclose(logits(str(folder)), official(folder), atol=1e-4)


@pytest.fixture(scope="module")
def sharded(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same checkpoint in several files, as transformers saves a large one."""
    import transformers

    path = tmp_path_factory.mktemp("gpt2-sharded")
    transformers.GPT2LMHeadModel.from_pretrained(folder).save_pretrained(path, max_shard_size="400KB")
    assert len(list(path.glob("model-0000?-of-0000?.safetensors"))) > 2
    return path


def test_shards_give_the_same_as_one_file(folder: Path, sharded: Path) -> None:
    whole = load_weights(str(folder))
    loaded = load_weights(str(sharded))
    assert (loaded.config, loaded.sha256) == (whole.config, whole.sha256)


def test_a_hub_name_goes_through_transformers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights_module, "_from_transformers", lambda *a, **k: (a, k))
    assert load_weights("gpt2") == (("gpt2", "checkpoint gpt2", "transformers:gpt2"), {"local": False})
    assert load_weights("openai-community/gpt2")[0][2] == "transformers:openai-community/gpt2"


def change(folder: Path, tmp_path: Path, edit: Any) -> str:
    state = load_file(folder / "model.safetensors")
    edit(state)
    save_file(state, tmp_path / "model.safetensors", {"format": "pt"})
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    return str(tmp_path)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda s: s.pop("transformer.h.1.mlp.c_fc.bias"), "lacks transformer.h.1.mlp.c_fc.bias"),
        (
            lambda s: s.update({"transformer.h.0.attn.rotary": torch.zeros(2)}),
            "unknown tensor transformer.h.0.attn.rotary",
        ),
        (
            lambda s: s.update({"transformer.h.0.attn.c_attn.weight": torch.zeros(384, 128)}),
            "could not load",
        ),
        (lambda s: s.update({"lm_head.weight": torch.zeros(53, 128)}), "lm_head of its own"),
        (lambda s: s.pop("transformer.wte.weight"), "lacks transformer.wte.weight"),
    ],
)
def test_tensors_that_do_not_fit_are_named(folder: Path, tmp_path: Path, edit: Any, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        load_weights(change(folder, tmp_path, edit))
    one_sentence(caught.value)


def test_a_folder_whose_weights_do_not_fit_its_config(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"n_layer": 3}))
    with pytest.raises(InputError) as caught:
        load_weights(str(tmp_path))
    one_sentence(caught.value)
    (tmp_path / "config.json").write_text(json.dumps(config | {"n_embd": 64}))
    with pytest.raises(InputError) as caught:
        load_weights(str(tmp_path))
    one_sentence(caught.value)
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "bert"}))
    with pytest.raises(InputError, match="bert"):
        load_weights(str(tmp_path))


def test_paths_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError) as caught:
        load_weights(str(tmp_path / "empty"))
    one_sentence(caught.value)
    (tmp_path / "model.bin").write_bytes(b"x")
    for given in (str(tmp_path / "model.bin"), "/none.safetensors", "/none", "./none", "~/none"):
        with pytest.raises(InputError) as caught:
            load_weights(given)
        assert str(caught.value).startswith(f"{given} ")  # as it was given
    with pytest.raises(UsageError, match="hub name"):
        load_weights("a/b/c")


def test_a_missing_transformers_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError, match="pip install transformers"):
        import_transformers()
