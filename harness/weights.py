"""Load parameters from a seed, the hub, or a local folder.

Only a checkpoint needs transformers. `import_transformers` first looks for the Hugging Face package `kernels`: with it
installed, transformers cannot be imported here, and the error says what to do.
"""

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

from analysis.formats.errors import InputError, UsageError
from harness.gpt2 import GPT2, TORCH_OPS, GPT2Config
from kernels.integrations import hidden_package

RANDOM = "random"
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
# Old checkpoints store their causal masks among the weights.
_NOT_WEIGHTS = re.compile(r"h\.\d+\.attn\.(masked_)?bias")


@dataclass(frozen=True)
class Weights:
    """A model's parameters, its sizes, and the manifest's entry."""

    config: GPT2Config
    state: dict[str, Any]
    source: str
    sha256: str | None


def import_transformers() -> Any:
    """Return the module transformers. Raises InputError, one sentence, if it cannot be imported."""
    if version := hidden_package():
        raise InputError(
            f"The Hugging Face package `kernels` {version} is installed and this repository's folder kernels/ "
            "hides it from transformers: run `pip uninstall kernels` in this environment, or use --weights random."
        )
    try:
        import transformers
    except ImportError as error:
        raise InputError(
            f"transformers cannot be imported ({_one_line(error)}): run `pip install transformers`, or use "
            "--weights random, which needs none."
        ) from error
    return transformers


def load_weights(weights: str = RANDOM, seed: int = 0, config: GPT2Config | None = None) -> Weights:
    """Resolve `--weights`: "random", a folder that save_pretrained wrote, or a hub name ("gpt2").

    `config` gives the sizes of random weights. A checkpoint has its own sizes.
    Raises: InputError (missing, unreadable or mismatched checkpoint), UsageError (neither a file nor a name)
    """
    if weights == RANDOM:
        config = config or GPT2Config()
        return Weights(config, _random_state(config, seed), RANDOM, None)
    path = Path(weights).expanduser()
    if path.is_dir():
        return _from_transformers(str(path), f"folder {path.name}", "local", local=True)
    if path.exists() or path.is_absolute() or weights.startswith((".", "~")):
        raise InputError(f"{weights} is no folder of a checkpoint: give one, or a hub name.")
    if not _HUB_NAME.fullmatch(weights):
        raise UsageError(f"--weights {weights!r} is neither a folder nor a hub name: use random, gpt2, or a path.")
    return _from_transformers(weights, f"checkpoint {weights}", f"transformers:{weights}", local=False)


def encode_prompt(prompt: str, weights: Weights) -> list[int]:
    """Return the token ids of a text, by the checkpoint's tokenizer. Random weights have none: UTF-8 bytes are the ids.

    Raises: UsageError for an empty prompt; InputError if the tokenizer cannot be loaded.
    """
    if not prompt:
        raise UsageError("The prompt is empty: give it a word.")
    if not weights.source.startswith("transformers:"):
        return [byte % weights.config.vocab_size for byte in prompt.encode("utf-8")]
    name = weights.source.removeprefix("transformers:")
    try:
        return list(import_transformers().AutoTokenizer.from_pretrained(name).encode(prompt))
    except InputError:
        raise
    except Exception as error:  # transformers raises many kinds of errors, here and for checkpoints
        raise InputError(
            f"The tokenizer of {name} cannot be loaded ({_one_line(error)}): check the network."
        ) from error


def build_model(
    weights: Weights, softmax: str = "torch", device: Any = "cpu", dtype: Any = torch.float32, ops: str = TORCH_OPS
) -> GPT2:
    """Return a model in eval mode that holds exactly these parameters, converted to `dtype` on `device`."""
    with torch.device("meta"):
        model = GPT2(weights.config, softmax, ops)
    state = {name: tensor.to(device=device, dtype=dtype) for name, tensor in weights.state.items()}
    model.load_state_dict(state, assign=True)
    return model.eval().requires_grad_(False)


def build_transformers_model(weights: Weights, device: Any = "cpu", dtype: Any = torch.float32) -> Any:
    """transformers' own GPT2LMHeadModel with these parameters, in eval mode and without an end token."""
    transformers = import_transformers()
    config = weights.config
    theirs = transformers.GPT2Config(
        **{field.name: getattr(config, field.name) for field in fields(GPT2Config)},
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    model = transformers.GPT2LMHeadModel(theirs)
    result = model.transformer.load_state_dict(weights.state, strict=False)
    model.tie_weights()
    wrong = [name for name in result.missing_keys if not _NOT_WEIGHTS.fullmatch(name)] + list(result.unexpected_keys)
    if wrong:
        raise InputError(
            f"transformers {transformers.__version__} does not know the tensor {wrong[0]}: use release 5.17."
        )
    return model.to(device=device, dtype=dtype).eval().requires_grad_(False)


def static_cache(model: Any, tokens: int) -> Any:
    """Return an empty cache of fixed size for a transformers model."""
    return import_transformers().StaticCache(config=model.config, max_cache_len=tokens)


def _random_state(config: GPT2Config, seed: int) -> dict[str, Any]:
    """Seeded parameters with GPT-2's own initialisation: N(0, 0.02), residual projections / sqrt(2 n_layer).

    The CPU draws them, so a seed gives the same numbers on every device.
    """
    with torch.device("meta"):
        shapes = {name: tensor.shape for name, tensor in GPT2(config).state_dict().items()}
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, shape in shapes.items():
        if name.endswith(".bias"):
            state[name] = torch.zeros(shape)
        elif ".ln_" in name or name.startswith("ln_"):
            state[name] = torch.ones(shape)
        else:
            std = 0.02 / math.sqrt(2 * config.n_layer) if name.endswith("c_proj.weight") else 0.02
            state[name] = torch.empty(shape).normal_(std=std, generator=generator)
    return state


def _from_transformers(name: str, label: str, source: str, local: bool) -> Weights:
    if local and not (Path(name) / "config.json").is_file():
        raise InputError(f"The {label} has no config.json: give the folder that save_pretrained wrote.")
    transformers = import_transformers()
    transformers.utils.logging.disable_progress_bar()
    try:
        declared = transformers.AutoConfig.from_pretrained(name, local_files_only=local)
        if declared.model_type != "gpt2":
            raise InputError(f"The {label} is a {declared.model_type} model: this harness runs gpt2 only.")
        model, report = transformers.GPT2LMHeadModel.from_pretrained(
            name, local_files_only=local, dtype=torch.float32, output_loading_info=True
        )
    except InputError:
        raise
    except Exception as error:  # transformers raises OSError, ValueError, RuntimeError, SafetensorError …
        raise InputError(
            f"transformers could not load the {label} ({_one_line(error)}): check the name, the files and, "
            "for a hub name, the network."
        ) from error
    lacks = sorted(set(report["missing_keys"]) - {"lm_head.weight"})
    more = sorted(name for name in report["unexpected_keys"] if not _NOT_WEIGHTS.search(name))
    if lacks or more:
        found = f"lacks {lacks[0]}" if lacks else f"has the unknown tensor {more[0]}"
        raise InputError(f"The {label} {found}: it does not fit its config.json, so get it again.")
    state = _plain_names(model.state_dict())
    head = state.pop("lm_head.weight", None)
    if head is not None and not torch.equal(head, state["wte.weight"]):
        raise InputError(f"The {label} has an lm_head of its own, which this harness ties: use a tied one.")
    return Weights(GPT2Config.from_dict(declared.to_dict()), state, source, _digest(state))


def _plain_names(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return names without the `transformer.` prefix, and without the masks that old checkpoints hold."""
    plain = {name.removeprefix("transformer."): tensor for name, tensor in state.items()}
    return {name: tensor for name, tensor in plain.items() if not _NOT_WEIGHTS.fullmatch(name)}


def _digest(state: Mapping[str, Any]) -> str:
    """Return a sha256 of names, types, shapes and bytes. It does not depend on the file format."""
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().contiguous().cpu()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.view(torch.uint8).numpy().data if tensor.numel() else b"")
    return digest.hexdigest()


def _one_line(error: BaseException) -> str:
    """Return the first line of an error, shortened and without local paths."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    text = re.sub(r"(?<![\w.:/])(/[^\s'\",;:()]+)+", "<path>", text)
    return text if len(text) <= 160 else text[:157] + "…"
