"""Build the programs of cases.toml: four layers in one kind of parallelism, with the injected defect (form a) or without it (b)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F  # noqa: N812

LAYERS, HEADS, MICRO, SEQUENCES = 4, 16, 4, 8
HOOKED = ("overlap", "ring", "padded", "two")  # gradients are reduced beside the backward pass
HOLD = r"""
extern "C" __global__ void hold(long long ns) {
  long long now, end;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  end = now + ns;
  while (now < end) asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
}
"""


class Machine:
    """A rank's device: its ranges, its wait for the GPU, and a kernel that only lasts."""

    def __init__(self, rank: int, size: int, on_gpu: bool) -> None:
        self.rank, self.size, self.on_gpu = rank, size, on_gpu
        self.device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
        self.width, self.rows = (2048, 8192) if on_gpu else (64, 64)
        self.dtype = torch.bfloat16 if on_gpu else torch.float32
        self._kernel: Any = None

    def push(self, name: str) -> None:
        if self.on_gpu:
            torch.cuda.nvtx.range_push(name)

    def pop(self) -> None:
        if self.on_gpu:
            torch.cuda.nvtx.range_pop()

    def synchronise(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()

    def hold(self, ns: int) -> None:
        """Launch a kernel of one thread that lasts `ns` of the GPU's clock in real time."""
        if not self.on_gpu:
            time.sleep(ns / 1e9)
            return
        import cupy
        import numpy as np

        if self._kernel is None:
            self._kernel = cupy.RawKernel(HOLD, "hold")
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream, self.rank):
            self._kernel((1,), (1,), (np.int64(ns),))


def busy(ns: int) -> None:
    """Keep the host busy."""
    end = time.perf_counter_ns() + ns
    while time.perf_counter_ns() < end:
        pass


def sleep(ns: int) -> None:
    """Let the host sleep, and work for the last 0.2 ms: a sleep ends late."""
    end = time.perf_counter_ns() + ns
    time.sleep(max(ns / 1e9 - 2e-4, 0.0))
    busy(end - time.perf_counter_ns())


# Communication with gradients --------------------------------------------------------------------------------------


class Summed(torch.autograd.Function):  # type: ignore[misc]
    """Add over the ranks on the way forward."""

    @staticmethod
    def forward(ctx: Any, x: Any, group: Any) -> Any:
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient, None


class SummedBack(torch.autograd.Function):  # type: ignore[misc]
    """Add the gradients over the ranks on the way back."""

    @staticmethod
    def forward(ctx: Any, x: Any, group: Any) -> Any:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        gradient = gradient.contiguous()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class Exchanged(torch.autograd.Function):  # type: ignore[misc]
    """Give each rank its part of the first axis, and take theirs."""

    @staticmethod
    def forward(ctx: Any, x: Any, group: Any) -> Any:
        ctx.group = group
        found = torch.empty_like(x)
        dist.all_to_all_single(found, x, group=group)
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        gradient = gradient.contiguous()
        found = torch.empty_like(gradient)
        dist.all_to_all_single(found, gradient, group=ctx.group)
        return found, None


class Swapped(torch.autograd.Function):  # type: ignore[misc]
    """Send to the next rank of a ring, and take from the one before."""

    @staticmethod
    def forward(ctx: Any, x: Any, group: Any) -> Any:
        ctx.group = group
        return passed_on(x, 1, group)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return passed_on(gradient.contiguous(), -1, ctx.group), None


def passed_on(x: Any, hop: int, group: Any) -> Any:
    """Send to the rank `hop` further, and return what the one as far before sends."""
    rank, size, found = dist.get_rank(), dist.get_world_size(), torch.empty_like(x)
    ops = [
        dist.P2POp(dist.isend, x, (rank + hop) % size, group),
        dist.P2POp(dist.irecv, found, (rank - hop) % size, group),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return found


# Layers ------------------------------------------------------------------------------------------------------------


class Layer(nn.Module):  # type: ignore[misc]
    """A residual MLP, or attention: over the sequences of all ranks (sp, ring) or over padded ones (padded).

    tp: each rank has its columns; moe: each rank has an expert, `wider` times as wide.
    """

    def __init__(self, machine: Machine, kind: str, group: Any, number: int, wider: float = 1.0) -> None:
        super().__init__()
        width, place = machine.width, {"device": machine.device, "dtype": machine.dtype}
        inner = int(4 * width // (machine.size if kind == "tp" else 1) * wider) // 64 * 64
        self.machine, self.kind, self.group, self.number = machine, kind, group, number
        self.attends = kind in ("sp", "ring", "padded")
        self.first = nn.Linear(width, 3 * width if self.attends else inner, bias=False, **place)
        self.second = nn.Linear(width if self.attends else inner, width, bias=False, **place)
        self.inject: Callable[[int], None] = lambda number: None
        self.more_rows = 0

    def forward(self, x: Any) -> Any:
        self.machine.push(f"layer.{self.number}")
        y = SummedBack.apply(x, self.group) if self.kind == "tp" else x
        if self.kind == "moe":
            y = Exchanged.apply(y, self.group)
        if self.more_rows:
            y = torch.cat([y, y[: self.more_rows]])
        y = self.first(y)
        y = self.second(getattr(self, f"attend_{self.kind}")(y) if self.attends else F.gelu(y))
        y = y[: len(x)]
        self.inject(self.number)
        if self.kind == "tp":
            y = Summed.apply(y, self.group)
        elif self.kind == "moe":
            y = Exchanged.apply(y.contiguous(), self.group)
        y = x + y
        self.machine.pop()
        return y

    def attend_padded(self, x: Any) -> Any:
        """(rows, 3 C) of sequences that are padded to one length -> (rows, C)."""
        q, k, v = x.view(SEQUENCES, len(x) // SEQUENCES, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v).permute(0, 2, 1, 3).reshape(len(x), -1)

    def attend_ring(self, x: Any) -> Any:
        """(rows, 3 C) of this rank's tokens -> (rows, C): over its keys, and over those of the rank before."""
        x = x.view(1, len(x), 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        q, own = x[0], x[1:].contiguous()
        other = Swapped.apply(own, self.group)
        y = F.scaled_dot_product_attention(q, *own) + F.scaled_dot_product_attention(q, *other)
        return y[0].permute(1, 0, 2).reshape(x.shape[3], -1)

    def attend_sp(self, x: Any) -> Any:
        """(rows, 3 C) of this rank's tokens -> (rows, C): its heads over all tokens, between two exchanges."""
        rows, size = len(x), self.machine.size
        x = x.view(rows, 3, size, HEADS // size, -1).permute(2, 0, 1, 3, 4).contiguous()
        q, k, v = Exchanged.apply(x, self.group).view(size * rows, 3, HEADS // size, -1).permute(1, 2, 0, 3)
        y = F.scaled_dot_product_attention(q[None], k[None], v[None])[0]  # heads, tokens, channels
        y = y.view(HEADS // size, size, rows, -1).permute(1, 2, 0, 3).contiguous()
        return Exchanged.apply(y, self.group).permute(1, 0, 2, 3).reshape(rows, -1)


class Program:
    """One rank of a program. `step` runs one step; `form` b has no defect."""

    def __init__(self, case: dict[str, Any], form: str, machine: Machine) -> None:
        self.case, self.machine, self.layers = case, machine, case.get("layers", LAYERS)
        if machine.on_gpu:
            machine.width, machine.rows = case.get("width", 2048), case.get("all_rows", 8192)
        self.kind, cause = case["kind"], case["cause"]
        bad = form == "a"
        self.bad = bad and machine.rank == case.get("rank")
        self.group = limited(case["channels"]) if bad and "channels" in case and machine.on_gpu else dist.group.WORLD
        loads = cause == "host" and "layer" not in case and "sleeps" not in case
        self.host_ns = case["ns"] if self.bad and loads else 0
        self.first_ns = case["ns"] if self.bad and cause == "first_step" else 0
        torch.manual_seed(machine.rank)
        if cause == "own_work":  # on each rank: what fails on one alone lets the others wait
            machine.hold(0)
        rows, share = self._rows(form), self.bad if bad else 1 / machine.size  # b: all ranks share what is more
        like = "tp" if self.kind == "two" else self.kind
        layers = []
        for number in self._numbers():
            here = number == case.get("layer")
            wider = 1 + (case.get("layer_width", 1.0) - 1) * share * here
            layers.append(Layer(machine, like, self.group, number, wider))
            if here and "layer_rows" in case:
                layers[-1].more_rows = int(rows * (case["layer_rows"] - 1) * share)
            elif self.bad and ((here and "ns" in case) or "sleeps" in case):
                self._inject(layers[-1])
        self.parameters = [one for layer in layers for one in layer.parameters()]
        self.model: Any = nn.Sequential(*layers)
        self.works: list[Any] = []
        self._wrap(bad)
        self.x = torch.randn(rows, machine.width, device=machine.device, dtype=machine.dtype)
        self.source = self.x.cpu().pin_memory() if cause == "host" and machine.on_gpu else None

    def _rows(self, form: str) -> int:
        rows, size = self.machine.rows, self.machine.size
        more = self.case.get("rows", 1.0)
        mine = more if self.bad else 1.0 if form == "a" else (size - 1 + more) / size
        return int(rows * mine) // 64 * 64 // (size if self.kind in ("sp", "ring") else 1)

    def _numbers(self) -> range:
        if self.kind != "pp":
            return range(self.layers)
        share = self.layers // self.machine.size
        return range(self.machine.rank * share, (self.machine.rank + 1) * share)

    def _inject(self, layer: Layer) -> None:
        what, ns = busy if self.case["cause"] == "host" else self.machine.hold, self.case["ns"]
        if "sleeps" in self.case:  # a part in each layer
            what, ns = sleep, ns // self.layers
        self.due = True

        def inject(number: int) -> None:
            if self.due:  # of the first micro-batch alone
                what(ns)
                self.due = self.kind not in ("pp", "accumulate")

        layer.inject = inject

    def _wrap(self, bad: bool) -> None:
        if self.kind in ("ddp", "accumulate"):
            one_bucket = {"bucket_cap_mb": 8192} if bad and self.case["cause"] == "exposed" else {}
            ids = [self.machine.rank] if self.machine.on_gpu else None
            self.model = nn.parallel.DistributedDataParallel(
                self.model, device_ids=ids, process_group=self.group, gradient_as_bucket_view=True, **one_bucket
            )
            if bad and self.case["cause"] == "small_buckets":
                # DDP compares annotations, and these are texts here
                self.model.register_comm_hook(self.group, lambda group, bucket: in_pieces(group, bucket))
        elif self.kind == "fsdp":
            from torch.distributed.fsdp import fully_shard

            for layer in self.model:
                fully_shard(layer)
            fully_shard(self.model)
            self.parameters = list(self.model.parameters())
        elif self.kind in HOOKED:
            group = dist.new_group() if self.kind == "two" else self.group
            pieces = 64 if bad and self.case["cause"] == "small_buckets" else 1

            def reduce(parameter: Any) -> None:
                parts = parameter.grad.chunk(pieces)
                self.works += [dist.all_reduce(part, group=group, async_op=True) for part in parts]

            for one in self.parameters:
                one.register_post_accumulate_grad_hook(reduce)
        elif self.kind == "zero":
            self.flat = torch.cat([one.detach().reshape(-1) for one in self.parameters])
            sizes = [one.numel() for one in self.parameters]
            for one, part in zip(self.parameters, self.flat.split(sizes), strict=True):
                one.data = part.view_as(one)

    def step(self) -> None:
        machine = self.machine
        machine.push("step")
        self.due = True
        if self.first_ns:
            busy(self.first_ns)
            self.first_ns = 0
        machine.push("load")
        busy(100_000 + self.host_ns)
        x = self.x if self.source is None else self.source.to(machine.device, non_blocking=True)
        machine.pop()
        loss = {"pp": self._pipeline, "accumulate": self._accumulated}.get(self.kind, self._whole)(x)
        for work in self.works:
            work.wait()
        self.works.clear()
        gradients = [one.grad for one in self.parameters]
        with torch.no_grad():
            if self.kind == "zero":
                self._sharded(gradients)
            else:
                torch._foreach_add_(self.parameters, gradients, alpha=-1e-6)
        del gradients
        for parameter in self.parameters:
            parameter.grad = None
        loss = loss.detach().float().reshape(1)
        dist.all_reduce(loss, group=self.group)
        loss.item()
        machine.pop()

    def _whole(self, x: Any) -> Any:
        loss = self.model(x).float().square().mean()
        loss.backward()
        return loss

    def _accumulated(self, x: Any) -> Any:
        """Add the gradients of micro-batches, and reduce those of the last one."""
        parts = x.chunk(MICRO)
        for number, part in enumerate(parts):
            with self.model.no_sync() if number < len(parts) - 1 else contextlib.nullcontext():
                loss = self._whole(part)
        return loss

    def _sharded(self, gradients: list[Any]) -> None:
        """Update the part of the parameters that this rank owns, and gather those of all (ZeRO-1)."""
        whole = torch.cat([one.reshape(-1) for one in gradients])
        mine = torch.empty(len(whole) // self.machine.size, device=whole.device, dtype=whole.dtype)
        dist.reduce_scatter_tensor(mine, whole, group=self.group)
        own = self.flat.chunk(self.machine.size)[self.machine.rank].add(mine, alpha=-1e-6)
        dist.all_gather_into_tensor(self.flat, own, group=self.group)

    def _pipeline(self, x: Any) -> Any:
        """Run all micro-batches forward, then all of them back (GPipe)."""
        rank, last = self.machine.rank, self.machine.size - 1
        inputs, outputs = [], []
        for part in x.chunk(MICRO):
            mine = part if rank == 0 else torch.empty_like(part)
            if rank:
                dist.recv(mine, rank - 1)
            inputs.append(mine.detach().requires_grad_(rank > 0))
            outputs.append(self.model(inputs[-1]))
            if rank < last:
                dist.send(outputs[-1].detach(), rank + 1)
        total = torch.zeros(1, device=self.machine.device)
        for mine, output in zip(inputs, outputs, strict=True):
            if rank == last:
                loss = output.float().square().mean()
                loss.backward()
                total += loss.detach()
            else:
                gradient = torch.empty_like(output)
                dist.recv(gradient, rank + 1)
                output.backward(gradient)
            if rank:
                dist.send(mine.grad, rank - 1)
        return total


def limited(channels: int) -> Any:
    """Return a group of all ranks whose collectives get so many channels of NCCL."""
    options = dist.ProcessGroupNCCL.Options()
    options.config.min_ctas = options.config.max_ctas = channels
    return dist.new_group(pg_options=options)


def in_pieces(group: Any, bucket: Any) -> Any:
    """Reduce a bucket of DDP in 64 pieces, as many tiny buckets would."""
    works = [dist.all_reduce(piece, group=group, async_op=True) for piece in bucket.buffer().chunk(64)]
    return works[-1].get_future().then(lambda _: bucket.buffer())
