"""Compute the cost of a model on a GPU: memory, time by both roofs, and the days of a training run."""

from dataclasses import dataclass

from analysis.formats.errors import InputError, UsageError
from analysis.hardware.devices import Device, find_device
from studies.accounting.architecture import (
    Architecture,
    Shape,
    activations,
    backward_products,
    flops,
    forward_products,
    kv_bytes,
    parameter_count,
)

ITEM_BYTES = {"float32": 4, "tf32": 4, "bfloat16": 2, "float16": 2}
_RATE = {
    "float32": "fp32_flop_per_s",
    "tf32": "tf32_flop_per_s",
    "bfloat16": "bf16_flop_per_s",
    "float16": "fp16_flop_per_s",
}
ID_BYTES = 8
# fp32 weights, gradients and two moments of AdamW; or bf16 weights and gradients, fp32 moments and master weights.
TRAINED_BYTES = 16
DAY_S = 86_400


def device(name: str) -> Device:
    """Return the GPU of that name.

    Raises: UsageError for a GPU outside devices.toml.
    """
    found = find_device(name)
    if found is None:
        raise UsageError(f"There is no GPU {name!r} in analysis/hardware/devices.toml: use 'NVIDIA H200', for example.")
    return found


def peak(gpu: Device, dtype: str) -> float:
    """Return the datasheet's FLOP/s for products of this type.

    Raises: UsageError for a type that the GPU lacks.
    """
    rate = getattr(gpu, _RATE[dtype])
    if not rate:
        raise UsageError(f"The {gpu.name} has no {dtype} products: use another --dtype.")
    return float(rate)


@dataclass(frozen=True)
class Roofs:
    """FLOPs and bytes of a step, and the time of each at the datasheet's rate."""

    flops: float
    bytes: float
    compute_s: float
    memory_s: float

    @property
    def bound(self) -> str:
        return "compute" if self.compute_s >= self.memory_s else "memory"


def roofs(gpu: Device, dtype: str, flops_: float, bytes_: float) -> Roofs:
    """Return the least times for this number of FLOPs and bytes."""
    return Roofs(flops_, bytes_, flops_ / peak(gpu, dtype), bytes_ / gpu.dram_bytes_per_s)


@dataclass(frozen=True)
class Memory:
    """Bytes of a training step by purpose."""

    weights: int
    gradients: int
    optimizer: int
    data: int
    activations: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.data + self.activations


def training_memory(
    of: Architecture, shape: Shape, *, checkpointed: bool = False, fused_attention: bool = False
) -> Memory:
    """Return memory of a training step at the end of its forward pass; AdamW keeps two moments in the weights' type."""
    weights = parameter_count(of) * shape.e
    kept = activations(of, shape, checkpointed=checkpointed, fused_attention=fused_attention)
    return Memory(weights, weights, 2 * weights, 2 * shape.rows * ID_BYTES, kept)


def forward_bytes(of: Architecture, shape: Shape) -> int:
    """Return the least bytes of a pass.

    It reads each weight once (of an untied embedding only the tokens' rows) and the KV cache, and writes the new keys
    and values and the logits."""
    unused = 0 if of.tied else of.vocab * of.channels
    unused += of.positions * of.channels
    weights = (parameter_count(of) - unused) * shape.e
    rows = 2 * shape.rows * of.channels * shape.e  # of both embeddings
    return weights + rows + kv_bytes(of, shape) + shape.rows * of.vocab * shape.e


def training_bytes(of: Architecture, shape: Shape, *, checkpointed: bool = False) -> int:
    """Return the least bytes of a training step.

    It reads the weights for both passes, writes and reads gradients and activations, and reads and writes the weights
    and AdamW's two moments."""
    memory = training_memory(of, shape, checkpointed=checkpointed)
    update = memory.weights * 2 + memory.optimizer * 2 + memory.gradients
    return 2 * memory.weights + memory.gradients + update + 2 * memory.activations


def training_flops(of: Architecture, shape: Shape, *, checkpointed: bool = False) -> int:
    """Return FLOPs of the products of both passes; checkpoints add a second forward pass of the blocks."""
    forward = forward_products(of, shape)
    again = flops(forward[:-1]) if checkpointed else 0
    return flops(forward) + flops(backward_products(forward)) + again


def mfu(model_flops: float, seconds: float, gpu: Device, dtype: str) -> float:
    """Model FLOPs utilisation: FLOPs that the model needs over the GPU's peak FLOPs in the same time."""
    return model_flops / seconds / peak(gpu, dtype)


def training_days(parameters: float, tokens: float, gpu: Device, gpus: int, mfu_frac: float, dtype: str) -> float:
    """Return days of a training run, at 6 FLOPs for each parameter and token."""
    return 6 * parameters * tokens / (gpus * peak(gpu, dtype) * mfu_frac) / DAY_S


def largest_model(gpu: Device, gpus: int) -> float:
    """Return the largest number of parameters that fit the GPUs with gradients and AdamW, without activations.

    Raises: InputError if the GPU's memory is unknown.
    """
    return gpus * memory_of(gpu) / TRAINED_BYTES


def memory_of(gpu: Device) -> float:
    """Return the bytes of DRAM.

    Raises: InputError if devices.toml lacks them.
    """
    if gpu.memory_bytes is None:
        raise InputError(f"devices.toml does not say how much memory the {gpu.name} has: add memory_bytes to it.")
    return gpu.memory_bytes


def check_fits(name: str, needed: float, gpu: Device, gpus: int) -> None:
    """Raise InputError if `needed` bytes do not fit the GPUs."""
    if needed > gpus * memory_of(gpu):
        more = -int(-needed // memory_of(gpu))
        raise InputError(
            f"{name} needs {needed / 1e9:,.1f} GB and {gpus} {gpu.name} {'has' if gpus == 1 else 'have'} "
            f"{gpus * memory_of(gpu) / 1e9:,.0f} GB: use {more} GPUs, a smaller batch, or --checkpointing."
        )
