"""Make captures of programs of several ranks with a known skew, as one file or as one of each node, with a clock of its own.

Each rank launches kernels and collectives from its host and waits for its GPU at the end of a step. A collective ends
on all ranks a transfer after its last start. So every time is known, and so is what each rank waits.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis.formats.run import CEILINGS
from analysis.formats.spans import spread
from tests.nsys_export import Export

KERNEL = "ncclDevKernel_{}_RING_LL(ncclDevKernelArgsStorage<4096>)"
CALLS = {
    "all_reduce": ("AllReduce_Sum_bf16", "ncclAllReduce"), "all_gather": ("AllGather", "ncclAllGather"),
    "reduce_scatter": ("ReduceScatter_Sum_bf16", "ncclReduceScatter"), "all_to_all": ("AllToAll", "ncclAllToAll"),
    "send_recv": ("SendRecv", "ncclSend"),
}  # fmt: skip
LAYER = {  # what communicates after the parts of a layer
    "ddp": (), "fsdp": ("all_gather",), "tp": ("all_reduce", "all_reduce"), "sp": ("all_to_all", "all_to_all"), "pp": (),
}  # fmt: skip
STEP = {
    "ddp": ("all_reduce",) * 2,
    "fsdp": ("reduce_scatter",) * 2,
    "tp": (),
    "sp": ("all_reduce",),
    "pp": ("send_recv", "all_reduce"),
}
LAUNCH, LAG, SIZE = 6_000, 4_000, 1 << 22
CONDITIONS = {
    "backend": "nccl", "nccl": "2.27.3", "dtype": "bfloat16", "ranks": 2, "gpus": ["NVIDIA H200"] * 2, "torch": "2.11",
    "nccl_variables": {"NCCL_NVLS_ENABLE": "0"}, "driver": "580.1", "measured": "2026-11-23T15:00Z",
}  # fmt: skip


def measured_links(sizes: Iterable[int], time_ns: float) -> dict[str, Any]:
    """The content of ceilings.json of an all-reduce of two ranks, as `harness.links` writes it, but without torch."""
    rows = [
        {"name": "all_reduce", "ranks": 2, "bytes": size, "time_ns": spread([time_ns], 1),
         "byte_per_s": size / time_ns * 1e9, "samples": 1}
        for size in sizes
    ]  # fmt: skip
    return CEILINGS.document({"roofs": [], "links": rows, "link_conditions": CONDITIONS})


@dataclass
class Program:
    """A program of some ranks. Units: ns.

    late     what the rank `slow` computes longer in each step, in `layer`
    own      a kernel of that length that only the rank `slow` runs, in `layer`
    factor   its kernels take so many times as long
    idle     its host works so long at the start of each step, and `first` at that of the first one
    jitter   share by which each kernel differs
    """

    kind: str = "ddp"
    ranks: int = 2
    slow: int = 1
    layer: int = 2
    late: int = 0
    own: int = 0
    factor: float = 1.0
    idle: int = 0
    first: int = 0
    steps: int = 10
    layers: int = 4
    kernel: int = 150_000
    transfer: int = 80_000
    jitter: float = 0.01
    seed: int = 1
    models: tuple[str, ...] = ()
    skews: list[int] = field(default_factory=list)  # of each collective, filled by `exports`

    def exports(self, clocks: tuple[tuple[int, float], ...] = ()) -> list[Export]:
        """Return one export of all ranks; with `clocks` (offset, ns a ns), one of each node, which has such a clock."""
        self._random = random.Random(self.seed)
        nodes = [Export(2025, host=at) for at in range(max(len(clocks), 1))]
        node_of = [rank * len(nodes) // self.ranks for rank in range(self.ranks)]
        files = [nodes[at] for at in node_of]
        self._files, self._clocks = files, [(clocks or ((0, 0.0),))[at] for at in node_of]
        for rank in range(self.ranks):
            files[rank].gpu(rank, self.models[rank] if self.models else "NVIDIA H100 80GB HBM3")
            files[rank].domain("NCCL", 3, **self._place(rank))
            files[rank].nccl("ncclCommInitRank", 1, 2, **self._place(rank), comm=77, ranks=self.ranks, rank=rank)
        self._host, self._gpu = [10_000] * self.ranks, [10_000] * self.ranks
        self._began: set[int] = set()
        self.skews.clear()
        for _ in range(self.steps):
            self._step()
        return nodes

    def save(self, folder: Path, clocks: tuple[tuple[int, float], ...] = ()) -> list[Path]:
        """Write the exports as node0.sqlite …"""
        folder.mkdir(parents=True, exist_ok=True)
        return [one.save(folder / f"node{at}.sqlite") for at, one in enumerate(self.exports(clocks))]

    def _place(self, rank: int) -> dict[str, int]:
        return {"pid": 10 * (rank + 1), "tid": 10 * (rank + 1)}

    def _at(self, rank: int, time: int) -> int:
        offset, rate = self._clocks[rank]
        return round(time * (1 + rate)) + offset

    def _step(self) -> None:
        begin = list(self._host)
        for rank in range(self.ranks):
            first = 0 if rank in self._began else self.first
            self._began.add(rank)
            self._host[rank] += self.idle + first if rank == self.slow else 0
        for layer in range(self.layers):
            starts = list(self._host)
            for part in range(2):
                for rank in range(self.ranks):
                    self._compute(rank, layer, part)
                if part < len(LAYER[self.kind]):
                    self._talk(LAYER[self.kind][part])
            for rank, at in enumerate(starts):
                self._range(rank, f"layer.{layer}", at, self._host[rank])
        for kind in STEP[self.kind]:
            self._talk(kind)
        for rank in range(self.ranks):
            call = self._host[rank] + 1000
            self._host[rank] = max(call + 2000, self._gpu[rank] + 3000)
            self._files[rank].call(
                self._at(rank, call), self._at(rank, self._host[rank]), name="cudaStreamSynchronize_v3020",
                **self._place(rank),
            )  # fmt: skip
            self._range(rank, "step", begin[rank], self._host[rank])

    def _range(self, rank: int, name: str, begin: int, end: int) -> None:
        self._files[rank].push(name, self._at(rank, begin), self._at(rank, end), **self._place(rank))

    def _compute(self, rank: int, layer: int, part: int) -> None:
        slow = rank == self.slow
        for kernel in ("gemm", "gelu", "norm"):
            length = self.kernel * (1 + self._random.uniform(-self.jitter, self.jitter)) * (self.factor if slow else 1)
            here = slow and layer == self.layer and part == 0 and kernel == "gemm"
            self._launch(rank, kernel, self._start(rank), round(length) + self.late * here)
            if here and self.own:
                self._launch(rank, "only_here", self._start(rank), self.own)

    def _start(self, rank: int) -> int:
        self._host[rank] += LAUNCH
        return max(self._gpu[rank] + 1000, self._host[rank] + LAG)

    def _launch(self, rank: int, name: str, start: int, length: int, grid: int = 1056) -> None:
        call = self._host[rank]
        end = start + length
        self._gpu[rank] = end
        corr = self._files[rank].call(self._at(rank, call - 5000), self._at(rank, call), **self._place(rank))
        self._files[rank].kernel(
            name, self._at(rank, start), self._at(rank, end), corr, pid=10 * (rank + 1), device=rank, grid=(grid, 1, 1)
        )

    def _talk(self, kind: str) -> None:
        name, call = CALLS[kind]
        starts = [self._start(rank) for rank in range(self.ranks)]
        self.skews.append(max(starts) - min(starts))
        for rank, start in enumerate(starts):
            end = max(starts) + self.transfer + self._random.randint(0, 1500)
            at = self._host[rank]
            said = self._at(rank, at - 5500), self._at(rank, at + 400)
            self._files[rank].nccl(call, *said, **self._place(rank), comm=77, bytes=SIZE)
            self._launch(rank, KERNEL.format(name), start, end - start, grid=24)
