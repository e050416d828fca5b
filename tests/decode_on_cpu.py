"""Compile the decode kernels for the CPU (tests/cuda_on_cpu), and run them on a small GPT-2."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from harness.decode.check import peaked_weights
from harness.decode.engines import Engine, new_state, sizes_of
from harness.gpt2 import GPT2Config
from harness.weights import Weights, build_model
from kernels.decode.contract import Sampling
from kernels.decode.device import FEW_SLOTS, DeviceProgram, Library
from kernels.decode.plan import Shape

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / "build" / "decode_on_cpu"
KERNELS = ROOT / "kernels" / "decode"
SIMULATION = ROOT / "tests" / "cuda_on_cpu"
FLAGS = ("-std=c++17", "-O2", "-g1", "-pthread", "-Wall", "-Wextra", "-Werror", "-Wno-maybe-uninitialized")

TINY = Shape(width=64, heads=4, warps=2, cluster=2, capacity=128)
CONFIG = GPT2Config(vocab_size=97, n_positions=64, n_embd=64, n_layer=2, n_head=4)
PERSISTENT, FEW = "decode_run_persistent", "decode_run_few"
PATIENCE_NS = 60_000_000_000  # a kernel on a busy machine is not stuck


def compiled(
    changes: Mapping[str, tuple[str, str]] | None = None, more: Sequence[str] = ("-shared", "-fPIC"),
    main: str = "decode.cpp",
) -> Path:  # fmt: skip
    """Return the kernels as a library, which is compiled again after a change of a source.

    changes   file -> texts to replace in it
    more      more flags of the compiler
    main      the file of tests/cuda_on_cpu to compile

    Raises: ValueError if a source does not hold a text exactly once.
    """
    sources = {path.name: path.read_text("utf-8") for path in [*KERNELS.glob("*.*h"), *SIMULATION.iterdir()]}
    for name, (old, new) in (changes or {}).items():
        if sources[name].count(old) != 1:
            raise ValueError(f"{name} holds {old!r} {sources[name].count(old)} times")
        sources[name] = sources[name].replace(old, new)
    content = hashlib.sha256("\0".join([*FLAGS, *more, main, *sources, *sources.values()]).encode()).hexdigest()[:16]
    found = PLACE / content / "decode.so"
    found.parent.mkdir(parents=True, exist_ok=True)
    with (found.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another test may need the same library now
        if not found.is_file():
            for name, text in sources.items():
                (found.parent / name).write_text(text, encoding="utf-8")
            partial = found.with_suffix(".partial")
            command = ["g++", *FLAGS, *more, "-I", str(found.parent), "-o", str(partial), str(found.parent / main)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            partial.replace(found)
    return found


@functools.cache
def library() -> Library:
    return Library.load(compiled(), TINY)


def rounded(weights: Weights) -> Weights:
    """Return weights whose values bf16 holds exactly, so that the float32 model is the reference."""
    state = {name: tensor.bfloat16().float() for name, tensor in weights.state.items()}
    return Weights(weights.config, state, weights.source, weights.sha256)


@functools.cache
def rounded_weights() -> Weights:
    return rounded(peaked_weights(CONFIG))


@functools.cache
def reference() -> Any:
    return build_model(rounded_weights())


def engine(
    launcher: str = PERSISTENT, *, of: Library | None = None, most: int | None = None, slots: int | None = None, stamped: int = 0,
    patience_ns: int = PATIENCE_NS, threads: int = 1, seed: int = 0, silent: tuple[int, int] = (-1, 0),
) -> Engine:  # fmt: skip
    """Return an engine on the CPU that prefills with the model in bfloat16 and decodes with the kernels.

    Blocks run in `threads` threads of the operating system. `seed` decides the order in which CUDA threads take turns.
    Of block silent[0], all words after the first silent[1] are lost.
    """
    of, weights = of or library(), rounded_weights()
    of.launchers.cpu_settings(threads, seed, silent[0], silent[1])
    sizes = sizes_of(weights, "bfloat16")
    state = new_state(sizes, "cpu")
    state.keys.fill_(torch.nan)  # rows that were not written may hold anything
    state.values.fill_(torch.nan)
    model = build_model(weights, dtype=torch.bfloat16)
    most = most or (1 if launcher == FEW else sizes.capacity)
    slots = slots or (FEW_SLOTS if launcher == FEW else 13)
    program = DeviceProgram(
        of, launcher, model.state_dict(), sizes, state, slots=slots, most=most, stamped=stamped, patience_ns=patience_ns
    )
    return Engine("persistent", model, sizes, state, program, Sampling())
