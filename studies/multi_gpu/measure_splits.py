"""Time the splits of splits.py on the ranks that torchrun starts, and our all-reduce beside NCCL's.

    torchrun --nproc-per-node 4 -m studies.multi_gpu.measure_splits --out RUN

Rank 0 adds an entry for each to RUN/captures/multi_gpu.json: the time on one GPU (rank 0 alone), the time of the
slowest rank, and the largest error of the result. A sample is of a queue that the host fills while the GPU sleeps.
"""

import argparse
import importlib
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn import functional as F  # noqa: N812
from torch.nn.attention.bias import causal_lower_right

from harness.timing import hold_gpu
from studies.multi_gpu.measure import write
from studies.multi_gpu.measure_ranks import CUDA, join
from studies.multi_gpu.splits import SIZES, SPLITS, WINDOW, Split

SAMPLES, CALLS, HOLD_NS = 15, 5, 1_500_000
COLUMNS = ("op", "split", "shape", "gpus", "one_ns", "found_ns", "found_p5_ns", "found_p95_ns", "error")
HEADS, WIDTH = 12, 768
Run = Callable[[], Any]

ONE_SHOT = r"""
extern "C" __global__ void one_shot(const float4 *x, float4 *out, const unsigned long long *buffers,
                                    const unsigned long long *flags, int rank, int ranks, int count, unsigned epoch,
                                    int half) {
  // Each block copies its part into this rank's buffer, tells the same block of each peer, waits for theirs, and adds.
  int part = (count + gridDim.x - 1) / gridDim.x, first = blockIdx.x * part, last = min(first + part, count);
  float4 *mine = (float4 *)buffers[rank] + half;
  for (int i = first + threadIdx.x; i < last; i += blockDim.x) mine[i] = x[i];
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x < ranks) {
    unsigned *theirs = (unsigned *)flags[threadIdx.x] + blockIdx.x * ranks + rank;
    unsigned *own = (unsigned *)flags[rank] + blockIdx.x * ranks + threadIdx.x, seen;
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(theirs), "r"(epoch) : "memory");
    do asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(own) : "memory");
    while (seen < epoch);
  }
  __syncthreads();
  for (int i = first + threadIdx.x; i < last; i += blockDim.x) {
    float4 sum = ((const float4 *)buffers[0])[half + i];
    for (int r = 1; r < ranks; r++) {
      float4 one = ((const float4 *)buffers[r])[half + i];
      sum.x += one.x, sum.y += one.y, sum.z += one.z, sum.w += one.w;
    }
    out[i] = sum;
  }
}
"""
BLOCKS, THREADS, MOST = 64, 512, 1 << 22  # bytes


class OneShot:
    """Our all-reduce: one kernel, in which each rank reads the buffers of all peers over NVLink.

    Two halves of the buffers take turns, so a rank overwrites only what all have read.
    """

    def __init__(self, rank: int, size: int, device: Any) -> None:
        from torch.distributed import _symmetric_memory as symmetric

        group = dist.group.WORLD
        self.data = symmetric.empty(2 * MOST // 4, dtype=torch.float32, device=device)
        self.flags = symmetric.empty(BLOCKS * size, dtype=torch.int32, device=device)
        self.flags.zero_()
        self.places = [symmetric.rendezvous(one, group) for one in (self.data, self.flags)]
        pointers = [torch.tensor(list(one.buffer_ptrs), dtype=torch.int64, device=device) for one in self.places]
        self.buffers, self.marks = pointers
        self.rank, self.size, self.epoch = rank, size, 0
        self.cupy = importlib.import_module("cupy")
        self.kernel = self.cupy.RawKernel(ONE_SHOT, "one_shot")
        torch.cuda.synchronize()
        dist.barrier()

    def __call__(self, x: Any, out: Any) -> None:
        cupy = self.cupy
        self.epoch += 1
        count, half = x.numel() // 4, (self.epoch % 2) * (MOST // 16)
        blocks = max(1, min(BLOCKS, count // THREADS))
        numbers = (np.int32(self.rank), np.int32(self.size), np.int32(count), np.uint32(self.epoch), np.int32(half))
        pointers = (np.uint64(one.data_ptr()) for one in (x, out, self.buffers, self.marks))
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream, self.rank):
            self.kernel((blocks,), (THREADS,), (*pointers, *numbers))


# Splits -------------------------------------------------------------------------------------------------------------


def windowed(q: Any, k: Any, v: Any, before: Any = None) -> Any:
    """Let each query see WINDOW keys up to its own. `before`: keys and values of the block before the first."""
    batch, heads, tokens, width = q.shape
    blocks = tokens // WINDOW
    lead = before if before is not None else (k[:, :, :WINDOW] * 0, v[:, :, :WINDOW] * 0)

    def pairs(x: Any, first: Any) -> Any:
        x = torch.cat([first, x], dim=2)
        own = x.unfold(2, 2 * WINDOW, WINDOW)  # batch, heads, blocks, width, keys
        return own.transpose(-1, -2).reshape(batch, heads * blocks, 2 * WINDOW, width)

    at, key = torch.arange(WINDOW, device=q.device)[:, None], torch.arange(2 * WINDOW, device=q.device)[None]
    mask = (key <= at + WINDOW) & (key > at)
    y = F.scaled_dot_product_attention(
        q.reshape(batch, heads * blocks, WINDOW, width), pairs(k, lead[0]), pairs(v, lead[1]), attn_mask=mask
    )
    return y.reshape(batch, heads, tokens, width)


def causal(q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def programs(split: Split, rank: int, size: int, device: Any) -> tuple[Run, Run, Callable[[Any], Any]]:
    """Return what one GPU computes, what this rank computes, and the part of the former that equals the latter."""
    generator = torch.Generator(device).manual_seed(0)  # the same on all ranks
    if split.op in ("attention", "windowed"):
        return _attention(split, rank, size, lambda *shape: torch.randn(*shape, device=device, generator=generator))
    rows = split.batch * split.tokens
    x, other = (torch.randn(rows, WIDTH, device=device, generator=generator) for _ in range(2))
    weight = torch.randn(WIDTH, 4 * WIDTH, device=device, generator=generator) / 28
    mine = slice(rank * rows // size, (rank + 1) * rows // size)
    if split.op == "residual":
        return lambda: x + other, lambda: x[mine] + other[mine], lambda whole: whole[mine]
    if split.op == "layernorm":
        return lambda: F.layer_norm(x, (WIDTH,)), lambda: F.layer_norm(x[mine], (WIDTH,)), lambda whole: whole[mine]
    if split.by == "rows":
        return lambda: x @ weight, lambda: x[mine] @ weight, lambda whole: whole[mine]
    parts = weight.chunk(size, 1)[rank].contiguous()
    if split.by == "columns":
        return lambda: x @ weight, lambda: x @ parts, lambda whole: whole.chunk(size, 1)[rank]
    inner, own = x.chunk(size, 1)[rank].contiguous(), weight.chunk(size, 0)[rank].contiguous()

    def summed() -> Any:
        y = inner @ own
        dist.all_reduce(y)
        return y

    return lambda: x @ weight, summed, lambda whole: whole


def _attention(split: Split, rank: int, size: int, noise: Callable[..., Any]) -> tuple[Run, Run, Callable[[Any], Any]]:
    q, k, v = (noise(split.batch, HEADS, split.tokens, WIDTH // HEADS) for _ in range(3))
    run = windowed if split.op == "windowed" else causal
    if split.by != "sequence":
        axis = 0 if split.by == "batch" else 1
        own = [one.tensor_split(size, axis)[rank].contiguous() for one in (q, k, v)]
        return lambda: run(q, k, v), lambda: run(*own), lambda whole: whole.tensor_split(size, axis)[rank]
    if split.op == "windowed":
        return _halo(q, k, v, rank, size)
    # Causal rows differ in work, so a rank has one part from the start and one from the end.
    length = split.tokens // (2 * size)
    places = (rank, 2 * size - 1 - rank)
    own_q = [q[:, :, at * length : (at + 1) * length].contiguous() for at in places]
    kv = torch.stack([k, v])
    sent = torch.stack([kv[..., at * length : (at + 1) * length, :] for at in places]).contiguous()

    def gathered() -> Any:
        every = sent.new_empty(size, *sent.shape)
        dist.all_gather_into_tensor(every.flatten(0, 1), sent)
        parts = [every[min(at, 2 * size - 1 - at), int(at >= size)] for at in range(2 * size)]
        whole = torch.cat(parts, dim=-2)
        found = []
        for at, one in zip(places, own_q, strict=True):
            keys, values = whole[..., : (at + 1) * length, :]
            bias = causal_lower_right(length, (at + 1) * length)
            found.append(F.scaled_dot_product_attention(one, keys, values, attn_mask=bias))
        return torch.cat(found, dim=2)

    def part(whole: Any) -> Any:
        return torch.cat([whole[:, :, at * length : (at + 1) * length] for at in places], dim=2)

    return lambda: causal(q, k, v), gathered, part


def _halo(q: Any, k: Any, v: Any, rank: int, size: int) -> tuple[Run, Run, Callable[[Any], Any]]:
    """Split a windowed attention by tokens: a rank needs the last window of keys and values of the rank before."""
    own_q, own_k, own_v = (one.chunk(size, 2)[rank].contiguous() for one in (q, k, v))
    last = torch.stack([own_k[:, :, -WINDOW:], own_v[:, :, -WINDOW:]]).contiguous()

    def run() -> Any:
        got = torch.empty_like(last)
        ops = [dist.P2POp(dist.isend, last, rank + 1)] if rank < size - 1 else []
        ops += [dist.P2POp(dist.irecv, got, rank - 1)] if rank else []
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        return windowed(own_q, own_k, own_v, (got[0], got[1]) if rank else None)

    return lambda: windowed(q, k, v), run, lambda whole: whole.chunk(size, 2)[rank]


# Times --------------------------------------------------------------------------------------------------------------


def time_of(run: Run, size: int, device: Any) -> list[float]:
    """Return sorted GPU times of a call, ns; with `size` ranks those of the slowest. All call this at once."""
    for _ in range(3):
        run()
    found = []
    for _ in range(SAMPLES):
        torch.cuda.synchronize()
        if size > 1:
            dist.all_reduce(torch.zeros(1, device=device))
        hold_gpu(HOLD_NS)
        if size > 1:
            dist.all_reduce(torch.zeros(1, device=device))  # all GPUs start together
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(CALLS):
            run()
        end.record()
        torch.cuda.synchronize()
        found.append(begin.elapsed_time(end) * 1e6 / CALLS)
    if size > 1:
        told = torch.tensor(found, dtype=torch.float64, device=device)
        dist.all_reduce(told, dist.ReduceOp.MAX)
        found = told.tolist()
    return sorted(found)


def measure(rank: int, size: int, device: Any) -> list[dict[str, Any]]:
    """Return the rows of all splits and of the all-reduces."""
    rows = []
    for split in SPLITS:
        one, many, part = programs(split, rank, size, device)
        alone = time_of(one, 1, device)  # all ranks, each for itself
        error = float((many() - part(one())).abs().max())
        rows.append(_row(split.op, split.by, split.shape, size, alone, time_of(many, size, device), error))
    try:
        ours = OneShot(rank, size, device)
    except (RuntimeError, ImportError) as reason:
        print(f"our all-reduce is left out: {reason}", file=sys.stderr)
        return rows
    for count in SIZES if size > 1 else ():
        x = torch.randn(count // 4, device=device)
        out, known = torch.empty_like(x), x.clone()
        dist.all_reduce(known)
        ours(x, out)
        error = float((out - known).abs().max())
        nccl = time_of(lambda y=known: dist.all_reduce(y), size, device)  # type: ignore[misc]
        found = time_of(lambda x=x, out=out: ours(x, out), size, device)  # type: ignore[misc]
        rows.append(_row("all_reduce", "ours", f"{count} byte", size, nccl, found, error))
    return rows


def _row(op: str, by: str, shape: str, size: int, one: list[float], found: list[float], error: float) -> dict[str, Any]:
    middle, low, high = (found[math.floor(share * (len(found) - 1))] for share in (0.5, 0.05, 0.95))
    return dict(zip(COLUMNS, (op, by, shape, size, round(one[len(one) // 2]), round(middle), round(low), round(high),
                              error), strict=True))  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="measure_splits", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="run folder")
    options = parser.parse_args(argv)
    options.device = CUDA
    torch.set_float32_matmul_precision("highest")
    with join("splits", CUDA) as world, torch.inference_mode():
        world.watch.limit_s = 60.0
        rows = measure(world.rank, world.size, world.device)
        if world.first:
            write(options, rows, "splits", COLUMNS[:4], list(argv or sys.argv[1:]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
