"""Run a program with the library of delays, and ask it for interleaved blocks of steps."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from analysis.formats.errors import InputError
from analysis.formats.measured import Intervention, MeasuredTarget
from harness.measure_fix.shared import SLOTS, Block, Kind, Mode, Name, Shared, State
from harness.measure_fix.slopes import slope
from harness.measure_fix.targets import MODES, Decider, Target

POLL_S = 0.0005
BLOCK_S, LEAST_STEPS, MOST_STEPS = 0.1, 25, 5000  # of a block: the last delay of a block is never hidden
GROWTH, SHORTEST_NS, LONGEST_NS = 0.1, 1000, 200_000_000  # all delays of a step together, of the step
MOST_ROUNDS, START_UP_S = 60, 120.0
WARM_STEPS, WARM_S = 10, 1.0


class EndedError(Exception):
    """The program ended before the rounds did."""


@dataclass
class Run:
    """A running program and the files of its processes."""

    command: Sequence[str]
    folder: Path
    library: Path
    decider: Decider
    rank: int | None = None
    files: dict[Path, Shared] = field(default_factory=dict)
    names: dict[Path, dict[str, Name]] = field(default_factory=dict)

    def start(self, log: Path | None) -> None:
        """Start the program; its own output goes on, or to a file."""
        calls = any(one.change is Intervention.HOST for one in self.decider.targets)
        removes = any(one.change is Intervention.REMOVE for one in self.decider.targets)
        place = {
            "CUDA_INJECTION64_PATH": str(self.library),
            "NVTX_INJECTION64_PATH": str(self.library),
            "KERNEL_LEDGER_DELAYS": str(self.folder),
            **({"KERNEL_LEDGER_CALLS": "1"} if calls else {}),
            **({"KERNEL_LEDGER_REMOVE": "1"} if removes else {}),
        }
        output = log.open("wb") if log else None
        self.process = subprocess.Popen(
            self.command, env=os.environ | place, stdout=output, stderr=output, start_new_session=True
        )

    def poll(self, seconds: float = 0.0) -> None:
        """Decide on new names for a while.

        Raises:
            EndedError: the program ended.
            InputError: the library refused to attach.
        """
        end = time.monotonic() + seconds
        while True:
            for path in self.folder.glob("*.delays"):
                if path not in self.files and path.stat().st_size:
                    try:
                        self.files[path] = Shared(path)
                    except ValueError:  # still being made
                        continue
            for one in self.files.values():
                one.decide(self.decider)
                if one.status.state is State.REFUSED:
                    raise InputError(f"The program runs without delays: {one.status.said}")
            if self.process.poll() is not None:
                raise EndedError
            if time.monotonic() >= end:
                return
            time.sleep(POLL_S)

    @property
    def active(self) -> list[Shared]:
        """Return the files of the processes that launch something."""
        return [one for one in self.files.values() if one.status.state is State.ATTACHED and one.status.contexts]

    def wait_for_steps(self) -> str:
        """Wait until the program repeats its steps; return the name that marks them."""
        end = time.monotonic() + START_UP_S
        while time.monotonic() < end:
            self.poll(0.05)
            if self.decider.step and self.active and all(one.status.steps > 2 for one in self.active):
                break
            if not self.decider.step and self.active and all(sum(one.counted()) > 50 for one in self.active):
                self._find_marker()
                if self.decider.step:
                    break
        else:
            raise InputError(_no_step(self))
        first, warm_from = [one.status.steps for one in self.active], time.monotonic()
        while time.monotonic() - warm_from < WARM_S or any(
            one.status.steps < begun + WARM_STEPS for one, begun in zip(self.active, first, strict=False)
        ):
            self.poll(0.02)
            if time.monotonic() - warm_from > START_UP_S:
                raise InputError(_no_step(self))
        return self.decider.step

    def _find_marker(self) -> None:
        """Take the rarest name that comes in each of ten looks: once a step, if the steps are alike."""
        watched = self.active[0]
        looks = [watched.counted()]
        for _ in range(10):
            self.poll(0.15)
            looks.append(watched.counted())
        size = len(looks[0])
        grown = np.diff(np.array([look[:size] for look in looks]), axis=0)
        steady = [
            (int(grown[:, at].sum()), name.kind is not Kind.RANGE, at)
            for at, name in enumerate(watched.names[:size])
            if name.kind is not Kind.CALL and grown[:, at].min() > 0
        ]
        if not steady:
            return
        name = watched.names[min(steady)[2]]
        self.decider.step = f"^{re.escape(name.text)}$"
        for one in self.active:
            for known in one.names:
                one.set(known, self.decider(known))

    def measure(self, blocks: Sequence[Block], limit_s: float = 120.0) -> list[Block]:
        """Let the program run these blocks, and return them with what was measured; of ranks, their means.

        Raises:
            EndedError: the program ended.
            InputError: no block ended within the limit.
        """
        active = self.active
        margin = 0 if len(active) == 1 else 5 + int(0.05 / max(self.seconds_of_step(), 1e-6))
        start = max(one.status.steps for one in active) + margin
        firsts = []
        for one in active:
            mine = self.rank is None or one.status.rank in (self.rank, -1)
            firsts.append(one.status.published)
            asked = [each if mine else Block(each.steps, SLOTS, Mode.CONTROL, 0) for each in blocks]
            one.publish([(start + sum(b.steps for b in blocks[:at]) if margin else 0, b) for at, b in enumerate(asked)])
        end = time.monotonic() + limit_s
        while any(one.status.done < first + len(blocks) for one, first in zip(active, firsts, strict=True)):
            self.poll(0.002)
            if time.monotonic() > end:
                raise InputError("The program makes no more steps; name what repeats with --step.")
        read = [[one.block(first + at) for one, first in zip(active, firsts, strict=True)] for at in range(len(blocks))]
        return [_of_ranks(asked, found) for asked, found in zip(blocks, read, strict=True)]

    def seconds_of_step(self) -> float:
        """Return the recent time of a step."""
        watched = self.active[0]
        began, steps = time.monotonic(), watched.status.steps
        while watched.status.steps < steps + 4 and time.monotonic() < began + 5:
            self.poll(0.01)
        return (time.monotonic() - began) / max(watched.status.steps - steps, 1)

    def end(self) -> None:
        """Let the library free what it took, then end the program."""
        for one in self.files.values():
            one.ask_to_end()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(0.5)
        for what in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is None:
                os.killpg(self.process.pid, what)
                try:
                    self.process.wait(5)
                except subprocess.TimeoutExpired:
                    continue


def _no_step(run: Run) -> str:
    if not run.files:
        return "The program loaded no CUDA driver; start the program itself, not one that only starts it elsewhere."
    if run.decider.step:
        return f"--step {run.decider.step}: matches nothing that repeats."
    return "Nothing in the program repeats steadily; name what repeats once a step with --step."


def _of_ranks(asked: Block, found: Sequence[Block]) -> Block:
    """Return the block of all processes: their mean time, and what the delayed ones delayed."""
    touched = [one for one in found if one.slot == asked.slot] or list(found)
    times = round(float(np.mean([one.end_ns - one.begin_ns for one in found])))
    mean = {
        name: round(float(np.mean([getattr(one, name) for one in touched])))
        for name in ("delays", "delayed_ns", "hits")
    }
    return Block(asked.steps, asked.slot, asked.mode, asked.length_ns, 0, times, **mean)


def experiment(run: Run, slot: int, target: Target, seconds: float) -> MeasuredTarget:
    """Measure one target in as many interleaved rounds as the time allows."""
    control_mode, mode = MODES[target.change]
    control_slot = SLOTS if target.change is Intervention.REMOVE else slot
    steps = min(max(LEAST_STEPS, round(BLOCK_S / max(run.seconds_of_step(), 1e-7))), MOST_STEPS)
    probe = run.measure([Block(steps, slot, mode if mode is Mode.REMOVE else control_mode, 0)])[0]
    each = (probe.hits if target.change in (Intervention.REMOVE, Intervention.VIRTUAL) else probe.delays) / steps
    if not each:
        why = "A graph cannot be changed." if target.met and mode is Mode.REMOVE else ""
        why = why or (
            f"It came in no step, though {len(target.met)} names match." if target.met else "Nothing matches."
        )
        return _row(target, why=why)
    length = round(min(max(GROWTH * probe.step_ns / each, SHORTEST_NS), LONGEST_NS))
    control, changed = Block(steps, control_slot, control_mode, 0), Block(steps, slot, mode, length)
    begun, pairs = time.monotonic(), list[tuple[Block, Block]]()
    while len(pairs) < MOST_ROUNDS and (len(pairs) < 4 or time.monotonic() - begun < seconds):
        found = run.measure([control, changed, changed, control])
        pairs += [(found[0], found[1]), (found[3], found[2])]
    told = slope(pairs)
    return _row(
        target,
        per_step=each,
        length_ns=0.0 if mode is Mode.REMOVE else float(length),
        step_ns=float(np.median([one.step_ns for one, _ in pairs])),
        rounds=len(pairs),
        slope=told.value if told else None,
        low=told.low if told else None,
        high=told.high if told else None,
        why="" if told else "No round delayed anything.",
    )


def _row(target: Target, **values: object) -> MeasuredTarget:
    empty: dict[str, object] = dict.fromkeys(("per_step", "length_ns", "step_ns", "slope", "low", "high"))
    known = {"change": target.change, "target": target.text, "within": target.within, "names": sorted(target.met)}
    return MeasuredTarget(**known | empty | {"rounds": 0, "why": ""} | values)  # type: ignore[arg-type]
