"""The launch that splits qkv into a KV cache: its source compiled for the CPU, and when a model uses it.

The last rung of the permutations is compiled for the CPU, too.
"""

from __future__ import annotations

import ctypes
import functools
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import torch

from harness import gpt2
from harness.gpt2 import GPT2, GPT2Config, KVCache
from harness.training import NoCache
from harness.weights import build_model, load_weights
from kernels.permute.op import merge_chain, split_chain
from kernels.registry import FOLDER
from tests.random_bits import bits, noise

# What the source needs of CUDA. A launch runs its threads one after another.
CUDA = """
#pragma once
#include <cstdint>
enum cudaError_t { cudaSuccess, cudaErrorInvalidConfiguration, cudaErrorMisalignedAddress };
using cudaStream_t = void*;
struct alignas(8) uint2 { uint32_t x, y; };
struct alignas(16) uint4 { uint32_t x, y, z, w; };
inline struct { uint32_t x; } blockIdx, threadIdx;
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(threads)
inline uint32_t __umulhi(uint32_t a, uint32_t b) { return static_cast<uint32_t>((uint64_t{a} * b) >> 32); }
"""
# v04 streams stores that L2 does not hold; how many is counted
VEC = """
#pragma once
inline int64_t streamed = 0;
template <typename Raw> void __stcs(Raw* to, Raw value) { *to = value; ++streamed; }
inline void prefetch_l2(const void*, uint32_t) {}
"""
CHECK = "#pragma once\n#define RETURN_IF_LAUNCH_FAILED()\n"
OVERLAP = """
#pragma once
#include <cuda_runtime.h>
inline int width = 0;  // of the packets of the last launch
inline void let_next_start() {}
inline void wait_for_previous() {}
template <typename Kernel> bool compiled_to_wait(Kernel) { return true; }
template <typename Raw, typename... Rest>
cudaError_t launch_overlapped(void (*kernel)(const Raw*, Rest...), bool, int blocks, int threads, cudaStream_t,
                              const Raw* from, Rest... rest) {
  width = sizeof(Raw);
  for (blockIdx.x = 0; blockIdx.x < static_cast<uint32_t>(blocks); ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < static_cast<uint32_t>(threads); ++threadIdx.x) kernel(from, rest...);
  return cudaSuccess;
}
"""
MAIN = """
#include "into_cache.cu"
extern "C" int run(const void* qkv, void* q, void* keys, void* values, void* k, void* v, int64_t elements,
                   const int* sizes) {
  const cudaError_t status = permute_into_cache({qkv, q, keys, values, k, v, elements, sizes[0], sizes[1], sizes[2],
                                                 sizes[3], sizes[4], sizes[5], nullptr});
  return status == cudaSuccess ? width : -status;
}
#include "v04_by_size.cu"
// what takes more packets than v04's divisions do
cudaError_t permute_v02_split(const PermuteCall&) { return cudaErrorMisalignedAddress; }
cudaError_t permute_v02_merge(const PermuteCall&) { return cudaErrorMisalignedAddress; }
extern "C" int permute(int split, const void* from, void* first, void* second, void* third, int64_t elements,
                       const int* sizes) {
  const PermuteCall call = {from, {first, second, third}, elements, sizes[0], sizes[1], sizes[2], sizes[3], nullptr};
  streamed = 0;
  const cudaError_t status = split ? permute_v04_split(call) : permute_v04_merge(call);
  return status == cudaSuccess ? width + 100 * (streamed > 0) : -status;
}
extern "C" uint32_t quotient(uint32_t number, uint32_t by) { return Divisor(by).quotient(number); }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The source, compiled for the CPU."""
    place = tmp_path_factory.mktemp("into_cache")
    texts = {"cuda_runtime.h": CUDA, "check.cuh": CHECK, "overlap.cuh": OVERLAP, "vec.cuh": VEC, "main.cpp": MAIN}
    for name, text in texts.items():
        (place / name).write_text(text, encoding="utf-8")
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-shared", "-fPIC"]
    command = [
        "g++",
        *flags,
        f"-I{place}",
        f"-I{FOLDER / 'permute'}",
        f"-I{FOLDER / 'include'}",
        "-o",
        str(place / "a.so"),
        str(place / "main.cpp"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = ctypes.CDLL(str(place / "a.so"))
    loaded.quotient.argtypes, loaded.quotient.restype = [ctypes.c_uint32] * 2, ctypes.c_uint32
    return loaded


def on_cpu(library: Any, qkv: Any, keys: Any, values: Any, first: int, copies: bool) -> list[Any]:
    """What the binding does (permute.h), with the kernel on the CPU. The last result is the width of its packets."""
    (batch, heads, capacity, size), tokens = keys.shape, qkv.shape[1]
    made = [qkv.new_empty(batch, heads, tokens, size) for _ in range(3 if copies else 1)]
    places = [ctypes.c_void_p(value.data_ptr()) for value in (qkv, made[0], keys, values, *made[1:])]
    places += [ctypes.c_void_p()] * (6 - len(places))
    sizes = (ctypes.c_int * 6)(tokens, heads, size, capacity, first, qkv.element_size())
    width = library.run(*places, ctypes.c_int64(qkv.numel() // 3), sizes)
    assert width > 0
    return [*made, width]


# --- the kernel ----------------------------------------------------------------------------------------------
SIZES = [(1, 1, 64), (1, 12, 64), (3, 12, 64), (3, 5, 20), (2, 3, 6), (2, 2, 33), (1, 1, 1)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(("batch", "heads", "size"), SIZES)
@pytest.mark.parametrize(("tokens", "first", "behind"), [(1, 0, 0), (7, 0, 0), (65, 0, 3), (31, 9, 0), (2, 40, 5)])
@pytest.mark.parametrize("copies", [False, True])
def test_the_kernel_moves_every_element_to_its_place(
    library: Any, dtype: Any, batch: int, heads: int, size: int, tokens: int, first: int, behind: int, copies: bool
) -> None:
    qkv = noise(batch, tokens, 3 * heads * size, dtype=dtype, seed=1)
    before = noise(2, batch, heads, first + tokens + behind, size, dtype=dtype, seed=2)
    cache = before.clone()
    q, *both, width = on_cpu(library, qkv, cache[0], cache[1], first, copies)
    expected = split_chain(qkv, heads)
    assert torch.equal(bits(q), bits(expected[0]))
    assert len(both) == 2 * copies
    for got, right in zip(both, expected[1:], strict=False):
        assert torch.equal(bits(got), bits(right))
    # rows of other tokens keep their bits
    before[:, :, :, first : first + tokens] = torch.stack(expected[1:])
    assert torch.equal(bits(cache), bits(before))
    whole = size * dtype.itemsize
    assert width <= min(16, whole & -whole)


# --- the rung of the permutations ----------------------------------------------------------------------------
def permuted(library: Any, values: Any, heads: int, tokens: int, size: int, *, split: bool) -> tuple[list[Any], int]:
    """What the binding does (permute.h), with the kernel on the CPU; the width of its packets, plus 100 if it streamed."""
    elements = values.numel() // (3 if split else 1)
    made = [values.new_empty(elements) for _ in range(3 if split else 1)]
    places = [ctypes.c_void_p(one.data_ptr()) for one in (values, *made)] + [ctypes.c_void_p()] * (3 - len(made))
    sizes = (ctypes.c_int * 4)(tokens, heads, size, values.element_size())
    return made, library.permute(int(split), *places, ctypes.c_int64(elements), sizes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(("batch", "heads", "size"), SIZES)
@pytest.mark.parametrize("tokens", [1, 7, 65])
def test_heads_are_split_and_merged(library: Any, dtype: Any, batch: int, heads: int, size: int, tokens: int) -> None:
    qkv = noise(batch, tokens, 3 * heads * size, dtype=dtype, seed=1)
    got, width = permuted(library, qkv, heads, tokens, size, split=True)
    expected = split_chain(qkv, heads)
    for part, right in zip(got, expected, strict=True):
        assert torch.equal(bits(part), bits(right.flatten()))
    (merged,), also = permuted(library, expected[0], heads, tokens, size, split=False)
    assert torch.equal(bits(merged), bits(merge_chain(expected[0]).flatten()))
    assert width == also > 0


# bytes of merge's input below 8 MB, up to 128 MB, and above; of split's output below and above 128 MB
@pytest.mark.parametrize(("batch", "streams"), [(2, False), (5, False), (44, True)])
def test_every_size_is_moved_whole(library: Any, batch: int, streams: bool) -> None:
    tokens, heads, size = 1000, 12, 64
    by_heads = torch.arange(batch * heads * tokens * size, dtype=torch.int32).view(batch, heads, tokens, size)
    (merged,), width = permuted(library, by_heads, heads, tokens, size, split=False)
    assert torch.equal(merged, merge_chain(by_heads).flatten())
    assert width == 16
    qkv = torch.arange(3 * by_heads.numel(), dtype=torch.int32).view(batch, tokens, -1)
    got, width = permuted(library, qkv, heads, tokens, size, split=True)
    assert all(torch.equal(one, right.flatten()) for one, right in zip(got, split_chain(qkv, heads), strict=True))
    assert width == 16 + 100 * streams


# --- the model -----------------------------------------------------------------------------------------------
CONFIG = GPT2Config(vocab_size=97, n_positions=64, n_embd=128, n_layer=2, n_head=2)  # heads of 64: one `attend`
NARROW = GPT2Config(vocab_size=97, n_positions=64, n_embd=32, n_layer=2, n_head=4)

Call = tuple[tuple[int, ...], int, int, bool]  # shape of qkv, capacity, first row, whether k and v are copied


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch, library: Any) -> list[Call]:
    """The calls of the launch, of a model whose tensors seem to be on a GPU."""
    calls: list[Call] = []

    def launch(qkv: Any, keys: Any, values: Any, first: int, copies: bool) -> list[Any]:
        calls.append((tuple(qkv.shape), keys.shape[2], first, copies))
        return on_cpu(library, qkv, keys, values, first, copies)[:-1]

    monkeypatch.setattr(gpt2, "_on_gpu", lambda tensor: True)
    monkeypatch.setattr(gpt2, "_launches", lambda tensor: False)
    monkeypatch.setattr(gpt2, "_split_into_cache", lambda dtype: launch)
    monkeypatch.setattr(GPT2, "lm_head", lambda self, x: torch.nn.functional.linear(x, self.wte.weight))
    return calls


def model_of(config: GPT2Config = CONFIG, ops: str = "best", dtype: Any = torch.float32) -> GPT2:
    return build_model(load_weights(config=config, seed=3), ops=ops, dtype=dtype)


def ids_of(batch: int, tokens: int) -> Any:
    return torch.randint(97, (batch, tokens), generator=torch.Generator().manual_seed(4))


def run(model: GPT2, batch: int, capacity: int, cuts: tuple[int, ...]) -> list[Any]:
    """Logits of a text in pieces that end at `cuts`, then keys and values."""
    cache, ids, found = model.new_cache(batch, capacity), ids_of(batch, cuts[-1]), []
    with torch.inference_mode():
        for end in cuts:
            found.append(model(ids[:, cache.length : end], cache))
    return [*found, cache.keys, cache.values]


def plainly(work: Callable[[], list[Any]]) -> list[Any]:
    """The results of the same model without the launch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpt2, "_split_into_cache", lambda dtype: None)
        return work()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("config", [CONFIG, NARROW], ids=["attend", "scores"])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(("capacity", "cuts"), [(21, (21,)), (40, (21,)), (40, (20, 21, 27, 40))])
def test_a_model_gives_the_same_bits_with_the_launch(
    launched: list[Call], config: GPT2Config, dtype: Any, batch: int, capacity: int, cuts: tuple[int, ...]
) -> None:
    work = functools.partial(run, model_of(config, dtype=dtype), batch, capacity, cuts)
    expected = plainly(work)
    assert not launched
    for got, right in zip(work(), expected, strict=True):
        assert torch.equal(got, right)
    attends = config.head_size == 64
    pieces = zip((0, *cuts), cuts, strict=False)
    assert launched == [
        ((batch, end - begin, 3 * config.n_embd), capacity, begin, attends and not begin and capacity > end)
        for begin, end in pieces
        if end - begin > 1  # not a decode step
        for _ in range(config.n_layer)
    ]


def test_what_the_kernel_does_not_support_keeps_the_copies(launched: list[Call]) -> None:
    cache, qkv = model_of().new_cache(2, 8), torch.zeros(2, 4, 3 * 128)
    with torch.inference_mode():
        assert cache.split(0, qkv) is not None
        assert cache.split(0, qkv[:, :1]) is None  # a decode step
        assert cache.split(0, torch.zeros(2, 4, 6 * 128)[..., ::2]) is None
        assert cache.split(0, qkv.bfloat16()) is None
        wide = torch.zeros(*cache.keys.shape[:-1], 2 * CONFIG.head_size)[..., : CONFIG.head_size]
        assert KVCache.over(wide, wide.clone()).split(0, qkv) is None
        assert NoCache(4, "cpu").split(0, qkv) is None
    assert len(launched) == 1


# --- the LM head ---------------------------------------------------------------------------------------------
def test_one_row_of_the_lm_head_is_a_gemv(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, with ops="best" and without gradients."""
    asked: list[str] = []
    kernel = gpt2._kernel

    def noted(op: str, dtype: Any = torch.float32) -> Any:
        asked.append(op)
        return kernel(op, dtype)

    def logits(*, ops: str = "best", batch: int = 1, last_only: bool = True, gradients: bool = False) -> Any:
        asked.clear()
        with torch.set_grad_enabled(gradients):
            return model_of(ops=ops)(ids_of(batch, 5), last_only=last_only)

    monkeypatch.setattr(gpt2, "_kernel", noted)
    expected = logits()
    assert "gemv" not in asked
    monkeypatch.setattr(gpt2, "_on_gpu", lambda tensor: True)
    monkeypatch.setattr(gpt2, "_split_into_cache", lambda dtype: None)
    torch.testing.assert_close(logits(), expected, rtol=1e-5, atol=1e-5)
    assert asked.count("gemv") == 1
    for others in ({"ops": "fused"}, {"batch": 2}, {"last_only": False}, {"gradients": True}):
        logits(**others)  # type: ignore[arg-type]
        assert "gemv" not in asked, others
