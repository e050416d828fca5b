"""NVTX ranges that this project opens: domain, names of steps, domains of libraries, numbers of their payload.

The hook of automatic ranges loads this file in the program's own Python: it needs the standard library alone.
"""

import json
from collections.abc import Mapping

DOMAIN = "kernel_ledger"
PREFIX = f"{DOMAIN}:"  # as nsys prints it, and the prefix of names if NVTX has no domains
CALIBRATION = f"{DOMAIN} calibration"  # ranges that only measure the cost of a range
STEP = "step "  # automatic ranges: `step Decoder(4 x 1024)`
STEP_NAMES = ("step", "decode", "prefill")
WARM_UP = "warm up"  # range of work that only prepares what follows; ranks wait in it for the profiler of others
# Domains in which libraries open ranges by themselves. They tell nothing about the program's own ranges.
NCCL = "NCCL:"  # prefix of NCCL's own ranges
_LEFT_OPEN = f"{NCCL}ncclCommInitRank"
LIBRARIES = ("CCCL", "NCCL", "cuBLAS", "cublas", "cuDNN", "cudnn", "cuFFT", "cuSOLVER", "cuSPARSE", "TensorRT")


def is_step(name: str) -> bool:
    """Return whether a range of this name is a step of its program."""
    return name in STEP_NAMES or name.startswith(STEP)


def warms_up(path: str) -> bool:
    """Return whether a range with this path lies in a warm-up, or is one."""
    return path.split("/", 1)[0] == WARM_UP


def without_domain(name: str) -> str:
    """Return the name without our domain. Ranges with and without it are the same ranges."""
    return name.removeprefix(PREFIX)


def never_closes(name: str) -> bool:
    """Return whether NCCL opens a range of this name and never closes it: ncclCommInitRank, ncclCommInitRankConfig.

    Such a range encloses nothing, although profilers show it around all that its thread does later.
    """
    return name.startswith(_LEFT_OPEN)


def is_own(name: str) -> bool:
    """Return whether the program opened this range itself; `name` as `domain:name`, plain in the default domain."""
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
    """Return the kind of a component by its class and its name; the first of them that matches a kind counts."""
    for text in names:
        for kind, (_, words) in KINDS.items():
            if any(word in text.lower() for word in words):
                return kind
    return "other"


# The least work of ranges, which nsys-ui shows on hover ---------------------------------------------------------------

WORK = ("minimum_bytes", "flops")
PARAMETERS = "parameter_bytes"  # of the module of an automatic range


def work_text(work: Mapping[str, Mapping[str, int]]) -> str:
    """Return the text of a file with the least work of ranges: path -> name of a number -> the number.

    Unknown is absent.
    """
    return json.dumps(work, indent=0) + "\n"


def read_work(path: str | None) -> dict[str, dict[str, int]]:
    """Return the least work of ranges from such a file; nothing without one, or where it is damaged."""
    try:
        with open(path or "", encoding="utf-8") as file:
            found = json.load(file)
        return {str(name): {str(what): int(number) for what, number in work.items()} for name, work in found.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}
