"""Time components with a tracer that marks the start and the end of each one.

On a GPU, the marks are CUDA events. A sleeping kernel holds the GPU back until the CPU has launched the whole step. The
GPU then runs the step back to back, so the events time the GPU and not the launches. Without a GPU, the marks are
readings of the CPU's clock. Events come from a preallocated pool; a step neither allocates nor waits.

Events cost time: they delay the next kernel, and a part of the delay lies between the two events of a component.
`Stopwatch.own_ns` measures this part with kernels of known time, so that callers can subtract it.
"""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple, Protocol, TypeVar

import torch

from harness.ranges import Tracer, span
from harness.timing import hold_gpu

T = TypeVar("T")
HOLD = "hold"  # the range around the sleeping kernel; the analysis ignores its kernels
_FIRST_HOLD_NS, _MOST_HOLD_NS, _MARGIN = 2e6, 5e7, 1.25


class Clock(Protocol):
    """Mark points in the stream of work, and return the time between two marks after `synchronise`.

    `free` means that extra marks do not change the readings of others.
    """

    name: str
    free: bool

    def restart(self) -> None: ...

    def mark(self) -> int: ...

    def elapsed_ns(self, start: int, end: int) -> float: ...

    def hold(self, hold_ns: float) -> None: ...

    def has_passed(self, mark: int) -> bool: ...

    def synchronise(self) -> None: ...

    def work(self) -> None: ...


class CpuClock:
    """The CPU's clock: a mark is the time of the call."""

    name = "CPU clock"
    free = True

    def __init__(self) -> None:
        self._marks: list[int] = []

    def restart(self) -> None:
        self._marks.clear()

    def mark(self) -> int:
        self._marks.append(time.perf_counter_ns())
        return len(self._marks) - 1

    def elapsed_ns(self, start: int, end: int) -> float:
        return self._marks[end] - self._marks[start]

    def hold(self, hold_ns: float) -> None:
        """Do nothing: the CPU runs the work itself."""

    def has_passed(self, mark: int) -> bool:
        return False

    def synchronise(self) -> None:
        """Do nothing: the CPU has already run the work."""

    def work(self) -> None:
        """Do the smallest piece of work: a call."""


class CudaClock:
    """CUDA events of a pool on the current stream."""

    name = "CUDA events"
    free = False

    def __init__(self, pool: int = 1024) -> None:
        self._stream = torch.cuda.current_stream()
        self._events: list[Any] = []
        self._used = 0
        self._ones = torch.ones(1024, device="cuda")
        self._grow(pool)

    def _grow(self, count: int) -> None:
        for _ in range(count):
            event = torch.cuda.Event(enable_timing=True)
            event.record(self._stream)  # torch creates the event at the first record
            self._events.append(event)
        torch.cuda.synchronize()

    def restart(self) -> None:
        if self._used == len(self._events):
            self._grow(self._used)
        self._used = 0

    def mark(self) -> int:
        index = self._used
        if index == len(self._events):
            self._events.append(torch.cuda.Event(enable_timing=True))
        self._used += 1
        self._events[index].record(self._stream)
        return index

    def elapsed_ns(self, start: int, end: int) -> float:
        return float(self._events[start].elapsed_time(self._events[end])) * 1e6

    def hold(self, hold_ns: float) -> None:
        hold_gpu(hold_ns)

    def has_passed(self, mark: int) -> bool:
        return bool(self._events[mark].query())

    def synchronise(self) -> None:
        torch.cuda.synchronize()

    def work(self) -> None:
        """Launch one short kernel."""
        self._ones.mul_(1.0)


def make_clock(device: str) -> Clock:
    return CudaClock() if device == "cuda" else CpuClock()


class Instance(NamedTuple):
    """One execution of a component; `ordinal` counts the instances of its path, including dropped ones."""

    path: str
    ordinal: int
    time_ns: float


class EventTracer:
    """Mark the start and end of every component whose path `select` accepts, and pass all ranges to `inner`.

    `inner` (NVTX) gets every range, so a capture shows the same run. It also names the root of a step.
    """

    enabled = True
    detail = True

    def __init__(self, clock: Clock, select: Callable[[str], bool], inner: Tracer | None = None) -> None:
        self._clock = clock
        self._select = select
        self._inner = inner if inner is not None and inner.enabled else None
        self._known: dict[str, bool] = {}
        self._stack: list[tuple[str, int]] = []
        self._spans: list[tuple[str, int, int]] = []
        self._ordinals: Counter[str] = Counter()

    def push(self, name: str) -> None:
        if self._inner is not None:
            self._inner.push(name)
        path = f"{self._stack[-1][0]}/{name}" if self._stack else name
        wanted = self._known.get(path)
        if wanted is None:
            wanted = self._known[path] = self._select(path)
        self._stack.append((path, self._clock.mark() if wanted else -1))

    def pop(self) -> None:
        path, start = self._stack.pop()
        if start >= 0:
            self._spans.append((path, start, self._clock.mark()))
        if self._inner is not None:
            self._inner.pop()

    def take(self) -> list[Instance]:
        """Return the instances since the last call, inner components first. Call it after the clock's `synchronise`."""
        instances = []
        for path, start, end in self._spans:
            instances.append(Instance(path, self._ordinals[path], self._clock.elapsed_ns(start, end)))
            self._ordinals[path] += 1
        self._spans.clear()
        return instances


class NullTracer:
    """Open ranges without any effect, to measure the cost of their Python code."""

    enabled = True
    detail = True

    def push(self, name: str) -> None:
        return None

    def pop(self) -> None:
        return None


class Stopwatch:
    """Time one step at a time on a clock, with the GPU held back until the whole step is launched.

    If launching takes longer than the hold, the sample is dropped and the step runs again with a longer hold. After the
    longest hold the sample counts, and `late` is the number of such samples.
    """

    def __init__(self, clock: Clock, ranges: Tracer | None = None) -> None:
        self._clock = clock
        self._ranges = ranges
        self._hold_ns = _FIRST_HOLD_NS
        self.late = 0
        self.forward_ns = 0.0
        self.launch_ns = 0.0

    def time(
        self, step: Callable[[], T], before: Callable[[], object], tracer: EventTracer | None = None, root: str = ""
    ) -> tuple[T, list[Instance]]:
        """Run `step`; return its result and the instances of `tracer`. `before` undoes a dropped sample."""
        clock = self._clock
        while True:
            before()
            clock.synchronise()
            clock.restart()
            with span(self._ranges, HOLD):
                clock.hold(self._hold_ns)
            with span(self._ranges, root) if root else nullcontext():
                first = clock.mark()
                started_ns = time.perf_counter_ns()
                result = step()
                self.launch_ns = time.perf_counter_ns() - started_ns
                was_late = clock.has_passed(first)
                last = clock.mark()
            clock.synchronise()
            instances = tracer.take() if tracer else []
            wanted_ns = min(_MARGIN * self.launch_ns + 20_000, _MOST_HOLD_NS)
            longest = self._hold_ns >= _MOST_HOLD_NS
            self._hold_ns = min(max(2 * self._hold_ns if was_late else 0.95 * self._hold_ns, wanted_ns), _MOST_HOLD_NS)
            if not was_late or longest:
                break
        self.late += was_late
        self.forward_ns = clock.elapsed_ns(first, last)
        return result, instances

    def own_ns(self, calls: int = 200) -> float:
        """Return the time that two marks add to a reading: short kernels with marks between them, less without."""
        clock = self._clock

        def in_a_row() -> None:
            for _ in range(calls):
                clock.work()

        def marked() -> list[tuple[int, int]]:
            pairs = []
            for _ in range(calls):
                start = clock.mark()
                clock.work()
                pairs.append((start, clock.mark()))
            return pairs

        self.time(in_a_row, _nothing)
        period_ns = self.forward_ns / calls
        pairs, _ = self.time(marked, _nothing)
        readings = sorted(clock.elapsed_ns(start, end) for start, end in pairs)
        return readings[calls // 2] - period_ns


def _nothing() -> None:
    return None
