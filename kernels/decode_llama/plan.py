"""Read a model's configuration, and order its weights as the warps of the decode kernel use them.

A unit is 8 rows by 32 columns of a matrix. A tile is the units of 8 rows. Each block has some tiles of every matrix,
and each of its warps a slice of their columns. A warp takes a group of tiles at a time, of these a step of columns, of
these tile by tile: a step of x stays in its registers. decode_llama.cuh computes the same parts.

This module needs neither torch nor a GPU; `pack` imports torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]

WARPS, TILE_ROWS, UNIT_COLUMNS = 8, 8, 32
MOST_STEP = 8
UNIT = TILE_ROWS * UNIT_COLUMNS
HEAD_SIZES = (32, 64, 128, 256)
MOST_BATCH = 8
MATRICES = ("qkv", "projection", "gate_up", "down")  # of a layer, in the order of their use
HEAD = "head"
MODELS = ("llama", "qwen3")  # model_type of the configurations
INSTEAD = "run it with transformers' generate()"


class UnservedError(ValueError):
    """A configuration that the kernel cannot serve. The message is one sentence, and names what can."""


@dataclass(frozen=True)
class Shape:
    """What the kernel is compiled for: the sizes of a model, its batch, and the blocks of a launch."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    inner: int
    vocabulary: int
    qk_norm: bool
    epsilon: float
    positions: int
    batch: int = 1
    blocks: int = 132
    slot_units: int = 4  # of a copy to shared memory
    least_rows: int = 256  # cached rows of a block at least

    @property
    def attended(self) -> int:
        return self.heads * self.head_size

    @property
    def qkv_rows(self) -> int:
        return self.attended + 2 * self.kv_heads * self.head_size

    def rows(self, matrix: str) -> int:
        """Return the rows of a matrix."""
        found = {"qkv": self.qkv_rows, "gate_up": 2 * self.inner, HEAD: self.vocabulary}
        return found.get(matrix, self.hidden)

    def columns(self, matrix: str) -> int:
        """Return the columns of a matrix."""
        return {"projection": self.attended, "down": self.inner}.get(matrix, self.hidden)

    def tiles(self, matrix: str) -> int:
        return -(-self.rows(matrix) // TILE_ROWS)

    @property
    def group(self) -> int:
        """Return the tiles whose sums a block adds at once."""
        return 16 if self.batch == 1 else 24 // self.batch

    @property
    def weight_bytes(self) -> int:
        """Return the bytes of weights that a token reads: the matrices and norms of all layers, the LM head."""
        layer = sum(self.rows(one) * self.columns(one) for one in MATRICES) + 2 * self.hidden
        return 2 * (self.layers * layer + (self.vocabulary + 1) * self.hidden)

    def cache_bytes(self, context: int) -> int:
        """Return the bytes of the keys and values of `context` tokens, of all sequences."""
        return 4 * self.layers * self.batch * self.kv_heads * self.head_size * context

    @property
    def defines(self) -> dict[str, int]:
        """Return the constants of the generated source."""
        return {
            "HIDDEN": self.hidden, "LAYERS": self.layers, "HEADS": self.heads, "KV_HEADS": self.kv_heads,
            "SIZE": self.head_size, "INNER": self.inner, "VOCABULARY": self.vocabulary, "BATCH": self.batch,
            "QK_NORM": int(self.qk_norm), "BLOCKS": self.blocks, "SLOT_UNITS": self.slot_units,
            "LEAST_ROWS": self.least_rows,
        }  # fmt: skip


def shape_of(config: Any, batch: int = 1, blocks: int = 132) -> Shape:
    """Return the shape of a transformers configuration. Raises: UnservedError."""
    name = getattr(config, "model_type", None)
    if name not in MODELS:
        raise UnservedError(f"The generated engine serves {' and '.join(MODELS)}, not {name}: {INSTEAD}.")
    if config.hidden_act != "silu":
        raise UnservedError(f"The generated engine has SwiGLU only, not {config.hidden_act}: {INSTEAD}.")
    for bias in ("attention_bias", "mlp_bias"):
        if getattr(config, bias, False):
            raise UnservedError(f"The generated engine adds no biases, and the configuration has {bias}: {INSTEAD}.")
    if getattr(config, "use_sliding_window", False):
        raise UnservedError(f"The generated engine attends to the whole context, not to a sliding window: {INSTEAD}.")
    kind = rope_of(config)["rope_type"]
    if kind not in ("default", "llama3"):
        raise UnservedError(f"The generated engine rotates as default and llama3 do, not as {kind}: {INSTEAD}.")
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    shape = Shape(
        hidden=config.hidden_size,
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_size=size,
        inner=config.intermediate_size,
        vocabulary=config.vocab_size,
        qk_norm=name == "qwen3",
        epsilon=config.rms_norm_eps,
        positions=config.max_position_embeddings,
        batch=batch,
        blocks=blocks,
    )
    if size not in HEAD_SIZES:
        raise UnservedError(f"The generated engine has heads of 32, 64, 128 or 256 channels, not of {size}: {INSTEAD}.")
    if shape.heads % shape.kv_heads:
        raise UnservedError(f"{shape.heads} query heads cannot share {shape.kv_heads} key heads equally: {INSTEAD}.")
    for what, columns in (("width", shape.hidden), ("width of its MLP", shape.inner)):
        if columns % UNIT_COLUMNS:
            raise UnservedError(
                f"The generated engine needs a multiple of {UNIT_COLUMNS}, and the model has a {what} of {columns}: "
                f"{INSTEAD}."
            )
    if not 1 <= batch <= MOST_BATCH:
        raise UnservedError(
            f"The generated engine decodes 1 to {MOST_BATCH} sequences at once, not {batch}: {INSTEAD}."
        )
    # longer copies are faster if a warp's part is no whole number of the short ones, and x leaves room
    whole = all(shape.columns(one) % (WARPS * 4 * UNIT_COLUMNS) == 0 for one in MATRICES)
    # at context 2,048 Qwen3-0.6B was 4 % faster with 128 rows than with 256; at 400 Llama-3.2-1B was 4 % slower
    least_rows = 128 if size == 128 and shape.heads == 2 * shape.kv_heads else 256
    return replace(shape, slot_units=4 if whole or batch > 2 else 8, least_rows=least_rows)


def rope_of(config: Any) -> dict[str, Any]:
    """Return how a configuration rotates queries and keys, with "rope_type" and "rope_theta"."""
    found = dict(getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {})
    found.setdefault("rope_type", "default")
    found.setdefault("rope_theta", getattr(config, "rope_theta", 10000.0))
    return found


def rotation(config: Any, size: int, positions: int) -> npt.NDArray[np.float32]:
    """Return the cosines and sines of each position, before their rounding to bf16: (positions, 2, size / 2)."""
    rope = rope_of(config)
    inverse = np.float32(1) / np.float32(rope["rope_theta"]) ** (np.arange(0, size, 2, dtype=np.float32) / size)
    if rope["rope_type"] == "llama3":
        low, high, before = rope["low_freq_factor"], rope["high_freq_factor"], rope["original_max_position_embeddings"]
        turns = before * inverse / np.float32(2 * math.pi)
        smooth = np.clip((turns - low) / (high - low), 0, 1)
        inverse = (1 - smooth) * inverse / rope["factor"] + smooth * inverse
    angles = np.arange(positions, dtype=np.float32)[:, None] * inverse.astype(np.float32)
    return np.stack([np.cos(angles), np.sin(angles)], 1)


def part(count: int, index: int, of: int) -> tuple[int, int]:
    """Return the part [begin, end) of `count` that number `index` of `of` has."""
    return count * index // of, count * (index + 1) // of


class Plan(NamedTuple):
    """Where units go. A warp's chunk k lies at chunk `begins[warp] + k * stride`; a token takes `chunks[warp]` of them.

    `stream[matrix]` and `inside[matrix]` are (tiles, units of a tile): the warp that uses a unit, and its place among
    the warp's units. Those of the next layer follow `steps[warp]` units behind.
    """

    stream: dict[str, Numbers]
    inside: dict[str, Numbers]
    steps: Numbers
    begins: Numbers
    chunks: Numbers
    stride: int
    slot_units: int

    @property
    def units(self) -> int:
        """Return the units of the packed weights, with those that pad them."""
        return int((self.begins + (self.chunks - 1) * self.stride).max() + 1) * self.slot_units


def plan(shape: Shape, *, together: bool = True) -> Plan:
    """Return the order of all units. `together`: what warps use at the same time lies together, else a warp's units."""
    streams = shape.blocks * WARPS
    so_far = np.zeros(streams, np.int64)
    inside: dict[str, Numbers] = {}
    stream: dict[str, Numbers] = {}
    for matrix in (*MATRICES, HEAD):
        if matrix == HEAD:
            steps = so_far.copy()
            so_far *= shape.layers
        tiles, units = shape.tiles(matrix), shape.columns(matrix) // UNIT_COLUMNS
        owner, place = (np.empty((tiles, units), np.int64) for _ in range(2))
        step = min(-(-units // WARPS), MOST_STEP)
        for number in range(streams):
            begin, end = part(tiles, number // WARPS, shape.blocks)
            first, last = part(units, number % WARPS, WARPS)
            owner[begin:end, first:last] = number
            for tile in range(begin, end, shape.group):
                for unit in range(first, last, step):
                    found = place[tile : min(tile + shape.group, end), unit : min(unit + step, last)]
                    found[:] = so_far[number] + np.arange(found.size).reshape(found.shape)
                    so_far[number] += found.size
        stream[matrix], inside[matrix] = owner, place
    chunks = -(-so_far // shape.slot_units)
    begins = np.arange(streams) if together else np.cumsum(chunks) - chunks
    return Plan(stream, inside, steps, begins, chunks, streams if together else 1, shape.slot_units)


def _gate_up(gate: Any, up: Any) -> Any:
    """Return tiles of four rows of the gate and four of up."""
    import torch

    columns = gate.shape[1]
    return torch.stack([gate.reshape(-1, 4, columns), up.reshape(-1, 4, columns)], 1).reshape(-1, columns)


def matrices(weights: Mapping[str, Any], layer: int) -> dict[str, Any]:
    """Return the matrices of a layer, (rows, columns), from the names of a transformers checkpoint."""
    import torch

    def of(name: str) -> Any:
        return weights[f"model.layers.{layer}.{name}.weight"]

    return {
        "qkv": torch.cat([of(f"self_attn.{one}_proj") for one in "qkv"]),
        "projection": of("self_attn.o_proj"),
        "gate_up": _gate_up(of("mlp.gate_proj"), of("mlp.up_proj")),
        "down": of("mlp.down_proj"),
    }


def lm_head(weights: Mapping[str, Any]) -> Any:
    """Return the LM head, which may be the embedding."""
    return weights.get("lm_head.weight", weights["model.embed_tokens.weight"])


def _units(matrix: Any) -> Any:
    """Return a matrix as units: (tiles, units of a tile, UNIT); rows that are missing in the last tile are 0."""
    import torch

    rows, columns = matrix.shape
    if rows % TILE_ROWS:
        matrix = torch.cat([matrix, matrix.new_zeros(-rows % TILE_ROWS, columns)])
    return matrix.view(-1, TILE_ROWS, columns // UNIT_COLUMNS, UNIT_COLUMNS).transpose(1, 2).reshape(-1, UNIT)


def pack(weights: Mapping[str, Any], shape: Shape, made: Plan) -> Any:
    """Return the weights in the order of the plan: (units, UNIT) bf16, on their device."""
    import torch

    device = weights["model.embed_tokens.weight"].device
    packed = torch.zeros(made.units, UNIT, dtype=torch.bfloat16, device=device)
    begins, steps = (torch.from_numpy(one).to(device) for one in (made.begins, made.steps))
    stream, inside = (
        {matrix: torch.from_numpy(found.ravel()).to(device) for matrix, found in of.items()}
        for of in (made.stream, made.inside)
    )

    def put(matrix: str, tensor: Any, layer: int) -> None:
        warp = stream[matrix]
        unit = inside[matrix] + layer * steps[warp]
        chunk = begins[warp] + unit // made.slot_units * made.stride
        packed[chunk * made.slot_units + unit % made.slot_units] = _units(tensor.to(torch.bfloat16))

    for layer in range(shape.layers):
        for matrix, tensor in matrices(weights, layer).items():
            put(matrix, tensor, layer)
    put(HEAD, lm_head(weights), 0)
    return packed


def pack_norms(weights: Mapping[str, Any], shape: Shape) -> Any:
    """Return the weights of norms: of each layer before attention, before the MLP, of q, of k; then the last norm."""
    import torch

    parts = []
    ones = torch.ones(shape.head_size, device=weights["model.norm.weight"].device)
    for layer in range(shape.layers):
        of = f"model.layers.{layer}."
        parts += [weights[f"{of}input_layernorm.weight"], weights[f"{of}post_attention_layernorm.weight"]]
        parts += [weights[f"{of}self_attn.{one}_norm.weight"] if shape.qk_norm else ones for one in "qk"]
    return torch.cat([one.to(torch.bfloat16) for one in (*parts, weights["model.norm.weight"])])
