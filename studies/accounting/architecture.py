"""Compute from a model's sizes: its parameters, its matrix products, and the activations that training keeps.

Axes: B batch, T new tokens, Tk cached plus new tokens, C channels, I width of the MLP, V vocabulary, nh heads,
hs their size. Families: "gpt2" (layernorm, learned positions, biases, GELU) and "llama" (RMSNorm, rotary positions, no
biases, gated SiLU, fewer heads for keys and values; Mistral and Qwen belong to it).
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from analysis.formats.errors import InputError, UsageError

TABLE = Path(__file__).with_name("models.toml")
FAMILIES = ("gpt2", "llama")
# model_type of Hugging Face's config.json
_TYPES = {"gpt2": "gpt2", "llama": "llama", "mistral": "llama", "qwen3": "llama"}
FP32, MASK = 4, 1  # bytes: statistics of a norm, a boolean


@dataclass(frozen=True)
class Product:
    """`count` times a batch of matrix products (M, K) x (K, N)."""

    name: str
    m: int
    n: int
    k: int
    batch: int = 1
    count: int = 1

    @property
    def flops(self) -> int:
        """Return FLOPs: a multiplication and an addition for each m, n and k."""
        return 2 * self.batch * self.m * self.n * self.k * self.count

    @property
    def outputs(self) -> int:
        """Return the number of elements in the result."""
        return self.batch * self.m * self.n * self.count


class Architecture(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The sizes of a transformer."""

    family: str
    layers: int
    channels: int
    heads: int
    kv_heads: int = 0
    head_size: int = 0
    inner: int = 0
    vocab: int = 50257
    positions: int = 1024
    tied: bool = False
    qk_norm: bool = False
    name: str = ""

    def whole(self, name: str) -> Architecture:
        """Return the same architecture with its family's defaults filled in.

        Raises: InputError for an unknown family or sizes that do not divide.
        """
        if self.family not in FAMILIES:
            raise InputError(f"{name} has the unknown architecture {self.family!r}: use {', '.join(FAMILIES)}.")
        sizes = (self.layers, self.channels, self.heads, self.vocab)
        if min(sizes) < 1 or (self.channels % self.heads and not self.head_size):
            raise InputError(
                f"{name} has impossible sizes (layers, channels, heads, vocab {sizes}): use positive ones, and a "
                "number of channels that the heads divide."
            )
        gpt2 = self.family == "gpt2"
        return msgspec.structs.replace(
            self,
            name=name,
            kv_heads=self.kv_heads or self.heads,
            head_size=self.head_size or self.channels // self.heads,
            inner=self.inner or 4 * self.channels,
            positions=self.positions if gpt2 else 0,
            tied=gpt2 or self.tied,
        )

    @property
    def attended(self) -> int:
        """Return the number of channels of the queries."""
        return self.heads * self.head_size

    @property
    def kept(self) -> int:
        """Return the number of channels of the keys, equal to that of the values."""
        return self.kv_heads * self.head_size


def known() -> dict[str, Architecture]:
    """Return name -> architecture, from models.toml."""
    rows = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {name: msgspec.convert(row, Architecture).whole(name) for name, row in rows.items()}


def find(model: str) -> Architecture:
    """Return the architecture of a name in models.toml, or of a config.json of Hugging Face.

    Raises: UsageError for an unknown name; InputError for an unusable file.
    """
    if (found := known().get(model.lower())) is not None:
        return found
    path = Path(model)
    if not path.is_file():
        raise UsageError(
            f"{model!r} is not a known model: use {', '.join(known())}, a config.json, a number of parameters such as "
            "70e9, or package.module:build."
        )
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return _of_config(values, path.name)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path.name} is not a model configuration ({error}): give a config.json.") from None


def _of_config(values: Mapping[str, Any], name: str) -> Architecture:
    kind = values.get("model_type")
    if kind not in _TYPES:
        raise InputError(f"{name} has the unknown architecture {kind!r}: use {', '.join(_TYPES)}.")
    if kind == "gpt2":
        found = Architecture(
            family="gpt2", layers=values["n_layer"], channels=values["n_embd"], heads=values["n_head"],
            inner=values.get("n_inner") or 0, vocab=values["vocab_size"], positions=values["n_positions"],
        )  # fmt: skip
    else:
        found = Architecture(
            family="llama", layers=values["num_hidden_layers"], channels=values["hidden_size"],
            heads=values["num_attention_heads"], kv_heads=values.get("num_key_value_heads") or 0,
            head_size=values.get("head_dim") or 0, inner=values["intermediate_size"], vocab=values["vocab_size"],
            tied=bool(values.get("tie_word_embeddings")), qk_norm=kind == "qwen3",
        )  # fmt: skip
    return found.whole(name)


def parameters(of: Architecture) -> dict[str, int]:
    """Return part -> number of parameters in all layers together."""
    c, layers = of.channels, of.layers
    attention = c * (of.attended + 2 * of.kept) + of.attended * c
    if of.family == "gpt2":
        parts = {
            "token embedding": of.vocab * c,
            "positions": of.positions * c,
            "attention": layers * (attention + 3 * c + c),
            "MLP": layers * (2 * c * of.inner + of.inner + c),
            "norms": (2 * layers + 1) * 2 * c,
        }
    else:
        parts = {
            "token embedding": of.vocab * c,
            "attention": layers * attention,
            "MLP": layers * 3 * c * of.inner,
            "norms": (2 * layers + 1) * c + layers * (2 * of.head_size if of.qk_norm else 0),
        }
    return parts if of.tied else {**parts, "output embedding": of.vocab * c}


def parameter_count(of: Architecture) -> int:
    """Return the number of all parameters; a tied embedding counts once."""
    return sum(parameters(of).values())


@dataclass(frozen=True)
class Shape:
    """One pass: B sequences of T new tokens after `context` cached ones; `e` is the bytes of an element."""

    batch: int
    tokens: int
    context: int = 0
    e: int = 2

    @property
    def rows(self) -> int:
        return self.batch * self.tokens

    @property
    def total(self) -> int:
        return self.context + self.tokens


def forward_products(of: Architecture, shape: Shape) -> list[Product]:
    """Return the matrix products of a forward pass, with dense attention: masked scores count too."""
    n, c, layers = shape.rows, of.channels, of.layers
    heads, tokens, total, hs = shape.batch * of.heads, shape.tokens, shape.total, of.head_size
    attention = [
        Product("scores", tokens, total, hs, heads, layers),
        Product("values", tokens, hs, total, heads, layers),
        Product("proj", n, c, of.attended, count=layers),
    ]
    if of.family == "gpt2":
        first = [Product("qkv", n, 3 * c, c, count=layers)]
        mlp = [Product("fc", n, of.inner, c, count=layers), Product("mlp proj", n, c, of.inner, count=layers)]
    else:
        first = [Product("q", n, of.attended, c, count=layers), Product("k, v", n, of.kept, c, count=2 * layers)]
        mlp = [
            Product("gate, up", n, of.inner, c, count=2 * layers),
            Product("down", n, c, of.inner, count=layers),
        ]
    return [*first, *attention, *mlp, Product("lm_head", n, of.vocab, c)]


def backward_products(products: list[Product]) -> list[Product]:
    """Return the products of the backward pass: for each product two gradients, with twice its FLOPs."""
    found = []
    for one in products:
        found.append(replace(one, name=f"{one.name}, left gradient", n=one.k, k=one.n))
        found.append(replace(one, name=f"{one.name}, right gradient", m=one.k, k=one.m))
    return found


def flops(products: list[Product]) -> int:
    """Return FLOPs of all products."""
    return sum(one.flops for one in products)


def kv_bytes(of: Architecture, shape: Shape) -> int:
    """Return the bytes of the keys and values of all layers and tokens, cached and new."""
    return 2 * of.layers * shape.batch * shape.total * of.kept * shape.e


def block_activations(of: Architecture, shape: Shape, *, fused_attention: bool = False) -> int:
    """Return the bytes that one block keeps for its backward pass, including its input.

    Eager: the sum over operations. GPT-2 keeps inputs and outputs of both norms, q, k, v, the attention weights, the
    merged heads, and input and output of GELU: 16 C a token for an MLP of 4 C, plus the weights. Fused attention
    keeps one number a row and its output instead of the weights.
    """
    n, c, e = shape.rows, of.channels, shape.e
    attention = of.attended + 2 * of.kept + of.attended  # q, k, v, and the merged heads
    weights = shape.batch * of.heads * shape.tokens * (FP32 if fused_attention else shape.total * e)
    if of.family == "gpt2":
        return n * e * (4 * c + attention + 2 * of.inner) + weights + 2 * 2 * n * FP32
    return n * e * (4 * c + attention + 4 * of.inner) + weights + 2 * n * FP32


def head_activations(of: Architecture, shape: Shape) -> int:
    """Return the bytes that the last norm, the LM head and the loss keep: two rows, V log-probabilities a token."""
    n = shape.rows
    stats = 2 * FP32 if of.family == "gpt2" else FP32
    return n * shape.e * (2 * of.channels + of.vocab) + n * stats


def autocast_activations(of: Architecture, shape: Shape) -> tuple[int, int]:
    """Return the bytes that a block of GPT-2 keeps under autocast with weights in float32, and those of the rest.

    Inputs of the norms, results of softmax and log-probabilities stay in float32 (`FP32`). Products read elements of
    shape.e bytes: their inputs, the attention weights once more, the logits, and a copy of each weight matrix.
    """
    n, c, e = shape.rows, of.channels, shape.e
    weights = shape.batch * of.heads * shape.tokens * shape.total * (FP32 + e)
    matrices = e * c * (of.attended + 2 * of.kept + of.attended + 2 * of.inner)
    read = n * e * (2 * c + 2 * of.attended + 2 * of.kept + 2 * of.inner)
    block = 2 * n * (c + 2) * FP32 + read + weights + matrices
    return block, n * (c + 2 + of.vocab) * FP32 + n * e * (c + of.vocab) + e * c * of.vocab


def activations(of: Architecture, shape: Shape, *, checkpointed: bool = False, fused_attention: bool = False) -> int:
    """Return the bytes kept after the forward pass: of all blocks, or with checkpoints only of the blocks' inputs."""
    block = (
        shape.rows * of.channels * shape.e
        if checkpointed
        else block_activations(of, shape, fused_attention=fused_attention)
    )
    return of.layers * block + head_activations(of, shape)
