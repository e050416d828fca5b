"""Measure the roofs of this machine's GPU: DRAM copy and read, L2 read, L1 read, FP32, TF32 and BF16.

`measure_ceilings()` returns what ceilings.json holds. `known_bytes_copy(n)` is also the self-test's copy.
Importing needs neither torch nor a GPU.
"""

import contextlib
import ctypes
import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SAMPLES = 30
WARMUP = 5
# Seconds before each sample. Matrix products back to back reach the power limit, so that their roof would be too low.
PAUSE = 0.02
DRAM_BYTES = 2 << 30  # many times any L2
L1_BLOCKS_PER_SM = 2
GEMM_N = 8192
TENSOR_STEPS = 1024  # as many as a block of 8192 cubed takes
COPY_SYMBOL = "known_bytes_copy"


def known_bytes_copy(count: int) -> Callable[[], None]:
    """Return a call that launches a kernel which reads `count` bytes of DRAM and writes as many.

    Raises: ValueError if `count` is no multiple of 4096; kernels.build.BuildError without a GPU or a compiler.
    """
    import torch

    source, target = _random_bytes(count), torch.empty(count, dtype=torch.uint8, device="cuda")
    return copy_of(source, target)


def copy_of(source: Any, target: Any) -> Callable[[], None]:
    """Return a call that copies the bytes of one CUDA tensor to another of the same size, a multiple of 4096.

    Raises: ValueError for another size; kernels.build.BuildError without a GPU or a compiler.
    """
    count = source.numel() * source.element_size()
    if count <= 0 or count % 4096 or count != target.numel() * target.element_size():
        raise ValueError(f"known_bytes_copy takes a multiple of 4096 bytes, got {count}")
    _library()
    return lambda: _launch("copy_known_bytes", source, target, count)


def read_once_of(source: Any) -> Callable[[], None]:
    """Return a call that reads the bytes of one CUDA tensor as the roof of reads does.

    Raises: kernels.build.BuildError without a GPU or a compiler.
    """
    import torch

    sink = torch.zeros(16, dtype=torch.uint8, device=source.device)
    count = source.numel() * source.element_size()
    _library()
    return lambda: _launch("read_dram", source, sink, count)


def read_of(source: Any) -> Callable[[], None]:
    """Return a call that reads the bytes of one CUDA tensor once, with loads that L2 keeps like any others.

    Raises: kernels.build.BuildError without a GPU or a compiler.
    """
    import torch

    sink = torch.zeros(16, dtype=torch.uint8, device=source.device)
    blocks = 2 * torch.cuda.get_device_properties(source.device).multi_processor_count
    count = source.numel() * source.element_size()
    _library()
    return lambda: _launch("read_l2", source, sink, count, 1, blocks)


def tensor_peaks(samples: int = SAMPLES) -> dict[str, float]:
    """Return what the tensor cores of a Hopper GPU reach with operands in shared memory, in FLOP/s: bf16 and fp8.

    A kernel that also loads its operands cannot be faster. On other GPUs there is none.
    Raises: kernels.build.BuildError without a GPU or a compiler.
    """
    import torch

    if torch.cuda.get_device_capability() != (9, 0):
        return {}
    sms = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
    library, sink = _tensor_library(), torch.zeros(16, dtype=torch.uint8, device="cuda")
    found = {}
    for name, dtype in (("bf16", torch.bfloat16), ("fp8", torch.float8_e4m3fn)):
        tiles = torch.randn(library.tensor_bytes() // dtype.itemsize, device="cuda").to(dtype)

        def launch(tiles: Any = tiles, fp8: bool = name == "fp8") -> None:
            stream = torch.cuda.current_stream().cuda_stream
            if code := library.run_tensor(tiles.data_ptr(), sink.data_ptr(), fp8, TENSOR_STEPS, sms, stream):
                raise RuntimeError(f"run_tensor failed with CUDA error {code}")

        flop = 2.0 * 128 * 256 * (128 // dtype.itemsize) * TENSOR_STEPS * sms
        found[name] = flop / _quantile(sorted(_time(launch, samples)), 0.5)
    return found


@functools.cache
def _tensor_library() -> ctypes.CDLL:
    from kernels.build import shared_library

    library = ctypes.CDLL(str(shared_library("tensor", Path(__file__).with_name("tensor.cu"))))
    pointer, number = ctypes.c_void_p, ctypes.c_int
    library.tensor_bytes.restype = ctypes.c_int64
    library.run_tensor.argtypes = [pointer, pointer, number, number, number, pointer]
    return library


@functools.cache
def _library() -> ctypes.CDLL:
    """Return the launchers of ceilings.h. nvcc alone compiles them in a few seconds, without torch's headers."""
    from kernels.build import shared_library

    library = ctypes.CDLL(str(shared_library("ceilings")))
    pointer, size, number, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_float
    arguments: dict[str, list[Any]] = {
        "l1_bytes_per_block": [],
        "ffma_per_step": [],
        "copy_known_bytes": [pointer, pointer, size, pointer],
        "read_dram": [pointer, pointer, size, pointer],
        "read_l2": [pointer, pointer, size, number, number, pointer],
        "read_l1": [pointer, pointer, number, number, pointer],
        "run_ffma": [pointer, real, real, number, number, pointer],
    }
    for name, types in arguments.items():
        getattr(library, name).argtypes = types
    return library


def _launch(name: str, *arguments: Any) -> None:
    """Call a launcher on torch's current stream, with tensors as pointers.

    Raises: RuntimeError for a CUDA error.
    """
    import torch

    values = [value.data_ptr() if isinstance(value, torch.Tensor) else value for value in arguments]
    if code := getattr(_library(), name)(*values, torch.cuda.current_stream().cuda_stream):
        raise RuntimeError(f"{name} failed with CUDA error {code}")


def measure_ceilings(samples: int = SAMPLES, progress: bool = True) -> dict[str, Any]:
    """Return every roof of this machine's GPU: `value` is the median of `samples` timed launches, with p5 and p95.

    Units: byte/s and flop/s. Raises kernels.build.BuildError without a GPU or a compiler.
    """
    import torch
    from tqdm import tqdm

    roofs, clocks = [], []
    for name, unit, how, amount, launch in tqdm(list(_roofs()), desc="roofs", disable=None if progress else True):
        rates = sorted(amount / seconds for seconds in _time(launch, samples))
        roofs.append(
            {
                "name": name,
                "unit": unit,
                "value": _quantile(rates, 0.50),
                "p5": _quantile(rates, 0.05),
                "p95": _quantile(rates, 0.95),
                "samples": len(rates),
                "how": how,
            }
        )
        with contextlib.suppress(Exception):  # needs NVML; a roof without its clock is still a roof
            clocks.append(float(torch.cuda.clock_rate()))
    return {
        "kind": "ceilings",
        "schema_version": 1,
        "gpu": torch.cuda.get_device_name(),
        "roofs": roofs,
        "clocks": {
            "sm_mhz": {"min": min(clocks), "median": _quantile(sorted(clocks), 0.5), "max": max(clocks)},
            "samples": len(clocks),
        }
        if clocks
        else None,
    }


def _roofs() -> Iterator[tuple[str, str, str, float, Callable[[], Any]]]:
    """Yield (name, unit, how, bytes or FLOPs of one launch, launch) for each roof."""
    import torch

    library = _library()
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    sms, l2_bytes = properties.multi_processor_count, properties.L2_cache_size
    large, sink = _random_bytes(DRAM_BYTES), torch.zeros(16, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(large)
    size = f"{DRAM_BYTES >> 30} GiB"

    how = f"bytes read plus bytes written by Tensor.copy_ of {size} (the driver's own copy)"
    yield "dram_copy", "byte/s", how, 2.0 * DRAM_BYTES, lambda: target.copy_(large)
    how = f"a checksum of {size}, eight 16-byte reads in flight a thread"
    yield "dram_read", "byte/s", how, float(DRAM_BYTES), lambda: _launch("read_dram", large, sink, DRAM_BYTES)

    # a quarter of L2: on GPUs with two L2 halves, each half may keep its own copy
    blocks = 2 * sms
    l2_set = large[: l2_bytes // 4 // 4096 * 4096]
    passes = max(1, (8 << 30) // l2_set.numel())
    how = f"{passes} checksums of {l2_set.numel()} bytes, a quarter of L2, loads that skip L1"
    l2_bytes_read = float(passes * l2_set.numel())
    launch = functools.partial(_launch, "read_l2", l2_set, sink, l2_set.numel(), passes, blocks)
    yield "l2_read", "byte/s", how, l2_bytes_read, launch

    l1_blocks, l1_passes = L1_BLOCKS_PER_SM * sms, 2000
    block_bytes = library.l1_bytes_per_block()
    l1_set = large[: l1_blocks * block_bytes]
    how = f"{l1_passes} checksums by each of {l1_blocks} blocks of {block_bytes >> 10} KiB of its own"
    l1_bytes = float(l1_passes * l1_set.numel())
    yield "l1_read", "byte/s", how, l1_bytes, lambda: _launch("read_l1", l1_set, sink, l1_passes, l1_blocks)

    steps, ffma_blocks = 4000, 8 * sms
    flop = 2.0 * library.ffma_per_step() * steps * ffma_blocks * 256
    how = f"{flop:.3g} FLOP of FFMA in eight independent chains a thread, 2048 threads an SM"
    yield "fp32", "flop/s", how, flop, lambda: _launch("run_ffma", sink, 0.999, 0.001, steps, ffma_blocks)

    for name, dtype, precision in (("tf32", torch.float32, "high"), ("bf16", torch.bfloat16, "highest")):
        left, right = (torch.randn(GEMM_N, GEMM_N, device="cuda").to(dtype) for _ in range(2))
        how = f"torch.matmul of {GEMM_N}^3 random {name}, 2 n^3 FLOP"
        yield name, "flop/s", how, 2.0 * GEMM_N**3, _matmul(left, right, precision)
    if torch.cuda.get_device_capability() >= (8, 9):
        eighths = [torch.randn(GEMM_N, GEMM_N, device="cuda").to(torch.float8_e4m3fn) for _ in range(2)]
        how = f"torch._scaled_mm of {GEMM_N}^3 random e4m3 with fast accumulation, 2 n^3 FLOP"
        yield "fp8", "flop/s", how, 2.0 * GEMM_N**3, _scaled(*eighths)


def _scaled(left: Any, right: Any) -> Callable[[], Any]:
    import torch

    one = torch.ones((), device="cuda")
    return functools.partial(torch._scaled_mm, left, right.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True)


def _matmul(left: Any, right: Any, precision: str) -> Callable[[], Any]:
    import torch

    out = torch.empty_like(left)

    def run() -> None:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(precision)
        try:
            torch.matmul(left, right, out=out)
        finally:
            torch.set_float32_matmul_precision(before)

    return run


def _random_bytes(count: int) -> Any:
    import torch

    # never zeros: GPUs move and multiply them faster than data
    return torch.randint(0, 256, (count,), dtype=torch.uint8, device="cuda")


def _time(launch: Callable[[], Any], samples: int) -> list[float]:
    """The seconds of each of `samples` launches, by CUDA events. A pause and an untimed launch precede each."""
    import torch

    for _ in range(WARMUP):
        launch()
    seconds = []
    for _ in range(samples):
        torch.cuda.synchronize()
        time.sleep(PAUSE)
        launch()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        launch()
        end.record()
        torch.cuda.synchronize()
        seconds.append(start.elapsed_time(end) / 1e3)
    return seconds


def _quantile(ordered: list[float], fraction: float) -> float:
    at = fraction * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])
