"""A small machine that runs a program of launches, copies and waits, and gives the capture of it."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.capture.model import CALLS_COLUMNS, GPU_OPS_COLUMNS, RANGES_COLUMNS, Capture, as_table, nest_ranges

US = 1_000
CALL, LAG, GAP = 5 * US, 4 * US, 1 * US  # a call, from call to start, between two operations of a stream

Action = tuple[Any, ...]
_COPIES = {  # name, memory, and whether the host waits
    "h2d": ("Host-to-Device", "Pageable -> Device", True), "d2h": ("Device-to-Host", "Device -> Pageable", True),
    "pinned": ("Host-to-Device", "Pinned -> Device", False), "read": ("Device-to-Host", "Device -> Pinned", False), "page_in": ("Unified Host-to-Device", "", False),
    "page_out": ("Unified Device-to-Host", "", False), "d2d": ("Device-to-Device", "Device -> Device", False),
}  # fmt: skip


class Machine:
    """Run a program of actions, one after the other.

    ("work", ns) · ("launch", name, ns, stream, grid) · ("h2d" | "d2h" | "pinned" | "read" | "d2d", name, ns, stream, bytes) ·
    ("page_in" | "page_out", ns, ns, bytes): a page that moves so long before now, for so long · ("sync",) · ("free",) · ("call", name, ns) · ("record" | "wait", event, stream) · ("range", name) … ("end",)
    """

    def __init__(self, program: Sequence[Action]) -> None:
        self.now, self.tails = 1_000_000, {7: 0}
        self.calls: list[tuple[int, int, str, int]] = []
        self.ops: list[tuple[Any, ...]] = []
        self.ranges: list[tuple[str, int, int]] = []
        self.events: dict[str, int] = {}
        opened: list[tuple[str, int]] = []
        for kind, *rest in program:
            if kind == "work":
                self.now += rest[0]
            elif kind == "range":
                opened.append((rest[0], self.now))
            elif kind == "end":
                name, begin = opened.pop()
                self.ranges.append((name, begin, self.now))
            elif kind in ("page_in", "page_out"):
                before, ns, size = rest
                name = f"[CUDA memcpy {_COPIES[kind][0]}]"
                row = (self.now - before, ns, "migration", name, "", "", size, 99, None, None, None)
                self.ops.append(row)
            elif kind == "sync":
                self._call("cudaDeviceSynchronize", max([self.now + CALL, *(t + 2 * US for t in self.tails.values())]))
            elif kind == "call":
                self._call(rest[0], self.now + rest[1])
            elif kind == "free":
                self._call("cudaFree", max([self.now, *self.tails.values()]) + 30 * US)
            elif kind == "record":
                self.events[rest[0]] = self.tails[rest[1]]
                self._call("cudaEventRecord", self.now + US)
            elif kind == "wait":
                self._call("cudaStreamWaitEvent", self.now + US)
                self.tails[rest[1]] = max(self.tails.get(rest[1], 0), self.events[rest[0]])
            else:
                self._launch(kind, *rest)

    def _call(self, name: str, end: int) -> None:
        self.calls.append((self.now, end, name, len(self.calls) + 1))
        self.now = end

    def _launch(self, kind: str, name: str, ns: int, stream: int = 7, size: str | int = "") -> None:
        begin = self.now
        start = max(self.tails.get(stream, 0) + GAP, begin + LAG)
        self.tails[stream] = start + ns
        if kind == "launch":
            self._call("cudaLaunchKernel", begin + CALL)
            row: tuple[Any, ...] = ("kernel", name, "", size or "1x1x1", None)
        else:
            way, memory, waits = _COPIES[kind]
            self._call("cudaMemcpyAsync", max(begin + CALL, start + ns + 3 * US) if waits else begin + CALL)
            row = ("memcpy", f"[CUDA memcpy {way}]", memory, "", size or 1 << 20)
        self.ops.append((start, ns, *row, stream, begin, self.now, len(self.calls)))

    def capture(self) -> Capture:
        columns = "start_ns duration_ns kind name memory grid bytes stream api_start_ns api_end_ns correlation_id"
        ops = pd.DataFrame(self.ops, columns=columns.split()).assign(pid=1, tid=1, device="GPU (0)", block="128x1x1")
        calls = pd.DataFrame(self.calls, columns=["start_ns", "end_ns", "name", "correlation_id"]).assign(pid=1, tid=1)
        calls["name"] = calls["name"].astype("category")
        names = [("range_id", range(len(self.ranges)))] + [
            (n, [r[i] for r in self.ranges]) for i, n in enumerate(("name", "start_ns", "end_ns"))
        ]
        ranges = pd.DataFrame(dict(names)).assign(pid=1, tid=1)
        return Capture(
            gpu_ops=as_table(dict(ops.sort_values("start_ns", ignore_index=True)), GPU_OPS_COLUMNS),
            calls=as_table(dict(calls), CALLS_COLUMNS),
            ranges=nest_ranges(ranges) if self.ranges else as_table(dict(ranges), RANGES_COLUMNS),
        )


def kernels(count: int, ns: int, work: int, name: str = "layer", stream: int = 7) -> list[Action]:
    return [a for i in range(count) for a in (("work", work), ("launch", f"{name}{i % 3}", ns, stream))]
