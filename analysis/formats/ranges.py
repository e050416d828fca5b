"""Names of NVTX ranges that this project opens: its domain, the names of steps, the domains of libraries."""

from __future__ import annotations

DOMAIN = "kernel_ledger"
PREFIX = f"{DOMAIN}:"  # as nsys prints it, and the prefix of names if NVTX has no domains
CALIBRATION = f"{DOMAIN} calibration"  # ranges that only measure the cost of a range
STEP = "step "  # automatic ranges: `step Decoder(4 x 1024)`
STEP_NAMES = ("step", "decode", "prefill")
# Domains in which libraries open ranges by themselves. They tell nothing about the program's own ranges.
NCCL = "NCCL:"  # prefix of NCCL's own ranges
LIBRARIES = ("CCCL", "NCCL", "cuBLAS", "cublas", "cuDNN", "cudnn", "cuFFT", "cuSOLVER", "cuSPARSE", "TensorRT")


def is_step(name: str) -> bool:
    """Whether a range of this name is a step of its program."""
    return name in STEP_NAMES or name.startswith(STEP)


def without_domain(name: str) -> str:
    """The name without our domain. Ranges with and without it are the same ranges."""
    return name.removeprefix(PREFIX)


def is_own(name: str) -> bool:
    """Whether the program opened this range itself; `name` as `domain:name`, plain in the default domain."""
    return not name.startswith((PREFIX, *(f"{library}:" for library in LIBRARIES)))


# Kind of component -> its colour in Nsight Systems, and words of its class or name. The first matching kind counts; it
# is the category of the range.
KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "step": ("blue", ()),
    "attention": ("orange", ("attn", "attention", "rotary", "scores", "softmax", "mask")),
    "mlp": ("green", ("mlp", "ffn", "feedforward", "expert")),
    "norm": ("purple", ("norm", "ln_")),
    "embedding": ("yellow", ("embed", "wte", "wpe")),
    "convolution": ("red", ("conv",)),
    "linear": ("darkgreen", ("linear", "proj", "head", "qkv", "fc")),
    "activation": ("cyan", ("relu", "gelu", "silu", "activation", "dropout")),
    "backward": ("magenta", ("backward",)),
    "optimiser": ("brown", ()),
    "compiled": ("black", ()),
    "other": ("gray", ()),
}


def kind_of(*names: str) -> str:
    """The kind of a component by its class and its name; the first of them that matches a kind counts."""
    for text in names:
        for kind, (_, words) in KINDS.items():
            if any(word in text.lower() for word in words):
                return kind
    return "other"
