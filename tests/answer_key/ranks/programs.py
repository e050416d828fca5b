"""Build the programs of cases.toml: four layers in one kind of parallelism, with the injected defect (form a) or without it (b)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F  # noqa: N812

LAYERS, HEADS, MICRO = 4, 16, 4
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


# Layers ------------------------------------------------------------------------------------------------------------


class Layer(nn.Module):  # type: ignore[misc]
    """A residual MLP, or attention over the sequences of all ranks (sp); tp: each rank has its columns."""

    def __init__(self, machine: Machine, kind: str, group: Any, number: int) -> None:
        super().__init__()
        width, place = machine.width, {"device": machine.device, "dtype": machine.dtype}
        inner = 4 * width // (machine.size if kind == "tp" else 1)
        self.machine, self.kind, self.group, self.number = machine, kind, group, number
        self.first = nn.Linear(width, 3 * width if kind == "sp" else inner, bias=False, **place)
        self.second = nn.Linear(width if kind == "sp" else inner, width, bias=False, **place)
        self.inject: Callable[[int], None] = lambda number: None
        self.more_rows = 0

    def forward(self, x: Any) -> Any:
        self.machine.push(f"layer.{self.number}")
        y = SummedBack.apply(x, self.group) if self.kind == "tp" else x
        if self.more_rows:
            y = torch.cat([y, y[: self.more_rows]])
        y = self.first(y)
        y = self.second(self.attend(y) if self.kind == "sp" else F.gelu(y))
        y = y[: len(x)]
        self.inject(self.number)
        if self.kind == "tp":
            y = Summed.apply(y, self.group)
        y = x + y
        self.machine.pop()
        return y

    def attend(self, x: Any) -> Any:
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
        self.host_ns = case["ns"] if self.bad and cause == "host" and "layer" not in case else 0
        self.first_ns = case["ns"] if self.bad and cause == "first_step" else 0
        torch.manual_seed(machine.rank)
        if cause == "own_work":  # on each rank: what fails on one alone lets the others wait
            machine.hold(0)
        rows = self._rows(form)
        layers = [Layer(machine, self.kind, self.group, number) for number in self._numbers()]
        for layer in layers:
            if layer.number == case.get("layer") and "layer_rows" in case:  # b: all ranks share what is more
                share = self.bad if bad else 1 / machine.size
                layer.more_rows = int(rows * (case["layer_rows"] - 1) * share)
            elif self.bad and layer.number == case.get("layer"):
                self._inject(layer)
        self.parameters = [one for layer in layers for one in layer.parameters()]
        self.model: Any = nn.Sequential(*layers)
        self._wrap(bad)
        self.x = torch.randn(rows, machine.width, device=machine.device, dtype=machine.dtype)
        self.source = self.x.cpu().pin_memory() if cause == "host" and machine.on_gpu else None

    def _rows(self, form: str) -> int:
        rows, size = self.machine.rows, self.machine.size
        more = self.case.get("rows", 1.0)
        mine = more if self.bad else 1.0 if form == "a" else (size - 1 + more) / size
        return int(rows * mine) // 64 * 64 // {"sp": size, "pp": 1}.get(self.kind, 1)

    def _numbers(self) -> range:
        if self.kind != "pp":
            return range(self.layers)
        share = self.layers // self.machine.size
        return range(self.machine.rank * share, (self.machine.rank + 1) * share)

    def _inject(self, layer: Layer) -> None:
        what = busy if self.case["cause"] == "host" else self.machine.hold
        self.due = True

        def inject(number: int) -> None:
            if self.due:  # pp: of the first micro-batch alone
                what(self.case["ns"])
                self.due = self.kind != "pp"

        layer.inject = inject

    def _wrap(self, bad: bool) -> None:
        if self.kind == "ddp":
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
        loss = self._pipeline(x) if self.kind == "pp" else self._whole(x)
        with torch.no_grad():
            torch._foreach_add_(self.parameters, [one.grad for one in self.parameters], alpha=-1e-6)
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
