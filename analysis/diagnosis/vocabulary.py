"""Name the causes that rules speak of, and give the words of kinds.toml by the names of any version."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path

from analysis.formats import symbols
from analysis.formats.place import here
from analysis.formats.report import kind_of, kinds
from analysis.formats.words import begin

# What columns say of a cause and of how sure it is.
CAUSE = here("the cause: an identifier of analysis/diagnosis/kinds.toml", "the cause, as its identifier")
SURE = "how often such a verdict is right"
_LIBRARIES = (
    ("pytorch", re.compile(r"\bat::|\bc10::|^triton_(poi|red|per|tem|mm)_|FillFunctor|ampere_|cudnn::")),
    ("jax", re.compile(r"^(loop|input|wrapped|fused|gemm)_\w+|_fusion(_\d+)?$|^fusion(_\d+)?$")),
    ("cupy", re.compile(r"^cupy_|^_?cupy")),
)
NONE_AT_ROOF, LAUNCH_LATENCY = "none_at_roof", "launch_latency"


def words(name: str) -> Mapping[str, str]:
    """Return `what` and `cure` of a cause."""
    return kinds()[kind_of(name)]


def cure(name: str, kernel: str) -> str:
    """Return what to do about a cause in a kernel; "" if nobody but its library can."""
    return words(name)["closed" if symbols.is_closed(kernel) else "cure"]


@cache
def advice() -> dict[str, dict[str, str]]:
    """Return what to do, by kind and library (`any` for all others)."""
    return tomllib.loads(Path(__file__).with_name("advice.toml").read_text("utf-8"))


def do(kind: str, library: str) -> str:
    """Return what to do about a cause in a program of a library: by default the cure in kinds.toml."""
    own = advice().get(kind, {})
    told = own.get(library) or own.get("any") or kinds()[kind_of(kind)]["cure"]
    return begun(told)


def begun(told: str) -> str:
    """Return advice as the begin of a sentence; code keeps its case."""
    return begin(told) if re.match(r"[a-z]+ ", told) else told


@lru_cache(maxsize=1 << 16)
def _library(name: str) -> str:
    return next((one for one, pattern in _LIBRARIES if pattern.search(name)), "")


def library_of(names: Iterable[object], times: Iterable[float]) -> str:
    """Return pytorch, jax, cupy or cuda: the library that launches most of the GPU's time, by the names of kernels.

    A twentieth of the time is enough, or one kernel that only PyTorch has.
    """
    by_name: dict[str, float] = {}
    for name, ns in zip(names, times, strict=True):
        by_name[str(name)] = by_name.get(str(name), 0.0) + ns
    known: dict[str, float] = {}
    for name, ns in by_name.items():
        if library := _library(name):
            known[library] = known.get(library, 0.0) + ns
    enough = sum(known.values()) > 0.05 * sum(by_name.values()) or any("at::native" in name for name in by_name)
    return max(known, key=lambda name: known[name]) if enough else "cuda"
