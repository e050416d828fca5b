"""Run a program with the library of delays, and ask it for interleaved blocks of steps."""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from analysis.formats.errors import InputError
from analysis.formats.measured import Intervention, MeasuredTarget
from harness.measure_fix.shared import SLOTS, Block, Kind, Mode, Shared, State
from harness.measure_fix.slopes import Slope, bounded, slope, together
from harness.measure_fix.targets import MODES, ON_HOST, Decider, Target

POLL_S = 0.0005
BLOCK_S, LEAST_STEPS, MOST_STEPS = 0.05, 25, 5000  # of a block: the last delay of a block is never hidden
LONG_NS = 5_000_000  # longer steps: half as many in a block
GROWTH, LEVELS = 0.1, 3  # all delays of a step together, of the step; how often they may double
SHORTEST_NS, LONGEST_NS = 2000, 200_000_000
APART_NS = 100_000  # mean distance of delays: each costs a launch
MOST_ROUNDS, ENOUGH = 60, 6  # rounds of four blocks
WIDE, NARROW = 0.2, 0.03  # intervals that need longer delays, and no more rounds
COPIES, COPY_NS = "[CUDA mem", 20_000  # a copy that waits for a kernel starts later, so its control waits for one, too
SPED_UP = 0.9  # of a part's time, so much faster the host virtually is
START_UP_S = 180.0
WARM_STEPS, WARM_S = 10, 0.5
END_S = 0.5  # for the library to free what it took


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
    look_s: float = 0.1
    files: dict[Path, Shared] = field(default_factory=dict)

    def start(self, log: Path | None) -> None:
        """Start the program; its own output goes on, or to a file."""
        calls = any(one.change in ON_HOST for one in self.decider.targets)
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
                        self.files[path].head.in_graphs = self.decider.in_graphs
                    except ValueError:  # still being made
                        continue
            for one in self.files.values():
                one.decide(self.decider)
                if one.head.state == State.REFUSED:
                    raise InputError(f"The program runs without delays: {one.head.said.decode()}")
            if self.process.poll() is not None:
                raise EndedError
            if time.monotonic() >= end:
                return
            time.sleep(POLL_S)

    @property
    def active(self) -> list[Shared]:
        """Return the files of the processes that launch something."""
        return [one for one in self.files.values() if one.head.state == State.ATTACHED and one.head.contexts]

    def wait_for_steps(self) -> str:
        """Wait until the program repeats its steps; return the name that marks them."""
        end = time.monotonic() + START_UP_S
        while time.monotonic() < end:
            self.poll(0.05)
            if self.decider.step and self.active and all(one.head.steps > 2 for one in self.active):
                break
            if not self.decider.step and self.active and all(sum(one.counted()) > 50 for one in self.active):
                self._find_marker()
                if self.decider.step:
                    break
        else:
            raise InputError(_no_step(self))
        first, warm_from = [one.head.steps for one in self.active], time.monotonic()
        while time.monotonic() - warm_from < WARM_S or any(
            one.head.steps < begun + WARM_STEPS for one, begun in zip(self.active, first, strict=False)
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
            self.poll(self.look_s)
            looks.append(watched.counted())
        self.look_s *= 2  # should these have been too short
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
        """Let the program run these blocks, and return them with what was measured; of ranks, all together.

        Raises:
            EndedError: the program ended.
            InputError: no block ended within the limit.
        """
        active = self.active
        margin = 0 if len(active) == 1 else 5 + int(0.05 / max(self.seconds_of_step(), 1e-6))
        firsts, begun = [], [one.head.steps for one in active]
        for one, now in zip(active, begun, strict=True):
            mine = self.rank is None or one.head.rank in (self.rank, -1)
            firsts.append(one.head.published)
            asked = [each if mine else Block(each.steps, SLOTS, Mode.CONTROL, 0) for each in blocks]
            starts = [
                now + margin + sum(each.steps for each in blocks[:at]) if margin else 0 for at in range(len(blocks))
            ]
            one.publish(list(zip(starts, asked, strict=True)))
        end = time.monotonic() + limit_s
        while any(one.head.done < first + len(blocks) for one, first in zip(active, firsts, strict=True)):
            self.poll(0.002)
            if time.monotonic() > end:
                raise InputError("The program makes no more steps; name what repeats with --step.")
        read = [[one.block(first + at) for one, first in zip(active, firsts, strict=True)] for at in range(len(blocks))]
        return [_of_ranks(asked, found) for asked, found in zip(blocks, read, strict=True)]

    def seconds_of_step(self) -> float:
        """Return the recent time of a step."""
        watched = self.active[0]
        began, steps = time.monotonic(), watched.head.steps
        while watched.head.steps < steps + 4 and time.monotonic() < began + 5:
            self.poll(0.01)
        return (time.monotonic() - began) / max(watched.head.steps - steps, 1)

    def end(self) -> None:
        """Let the library free what it took, then end the program."""
        for one in self.files.values():
            one.head.asked_to_end = 1
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(END_S)
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
    """Return the block of all processes: the time of the slowest, and what the delayed ones delayed."""
    touched = together([one for one in found if one.slot == asked.slot] or found)
    scale = touched.steps // asked.steps
    return replace(
        asked,
        end_ns=max(one.time_ns for one in found),
        delays=touched.delays // scale,
        delayed_ns=touched.delayed_ns // scale,
        part_ns=touched.part_ns // scale,
        hits=touched.hits // scale,
    )


@dataclass
class Plan:
    """How one target is measured: the two settings, and how many delays a step has."""

    quiet: Block
    changed: Block
    each: float
    step_ns: float
    part_ns: float


def _plan(run: Run, slot: int, target: Target, step_ns: float) -> Plan | None:
    """Return the settings of a target, found with a probe; None if nothing of it comes."""
    control_mode, mode = MODES[target.change]
    least = LEAST_STEPS if step_ns < LONG_NS else LEAST_STEPS // 2
    steps = min(max(least, round(BLOCK_S * 1e9 / step_ns)), MOST_STEPS)
    quiet = Block(steps, slot, control_mode, 0)
    probe = run.measure([replace(quiet, mode=mode) if mode is Mode.REMOVE else quiet])[0]
    each = max(probe.hits, probe.delays) / steps
    if not each:
        return None
    if mode is Mode.REMOVE:
        return Plan(replace(quiet, slot=SLOTS), replace(quiet, mode=mode), each, probe.step_ns, 0.0)
    if (every := round(each * APART_NS / probe.step_ns)) > 1:
        quiet = replace(quiet, every=every)
        probe = run.measure([quiet])[0]
        each = max(probe.hits, probe.delays, 1) / steps
    if mode is Mode.DELAY and any(name.startswith(COPIES) for name in target.met):
        quiet = replace(quiet, mode=mode, length_ns=round(min(COPY_NS, GROWTH * probe.step_ns / each)))
    return Plan(quiet, replace(quiet, mode=mode), each, probe.step_ns, probe.part_ns / steps)


@dataclass(frozen=True)
class Level:
    """The rounds with one length of the delay."""

    length_ns: int
    rounds: list[tuple[Block, Block]]
    slope: Slope | None


def _level(
    run: Run, plan: Plan, length_ns: int, end: float, wide_end: float, before: Sequence[tuple[Block, Block]] = ()
) -> Level:
    """Measure rounds beside those `before` until the interval is narrow or the time over; `wide_end`: if it is wide."""
    changed = replace(plan.changed, length_ns=plan.quiet.length_ns + length_ns)
    pairs = list(before)
    while True:
        found = run.measure([plan.quiet, changed, changed, plan.quiet])
        pairs.append((together([found[0], found[3]]), together(found[1:3])))
        told = slope(pairs)
        if len(pairs) < ENOUGH:
            continue
        width = told.high - told.low if told else 0.0
        over = time.monotonic() > (wide_end if width > WIDE else end)
        if len(pairs) >= MOST_ROUNDS or over or width < NARROW:
            return Level(length_ns, pairs, told)


def _lengths(target: Target, plan: Plan) -> list[int]:
    """Return the lengths of a delay to try, ns: the next one where steps vary too much for the one before."""
    if target.change is Intervention.REMOVE:
        return [0]
    longest = LONGEST_NS
    if target.change is Intervention.VIRTUAL_HOST:
        if plan.part_ns < SHORTEST_NS:
            return []
        longest = round(min(SPED_UP * plan.part_ns / plan.each, LONGEST_NS))
        return [longest]
    grown = [GROWTH * 2**at * plan.step_ns / plan.each for at in range(LEVELS)]
    return sorted({round(min(max(one, SHORTEST_NS), longest)) for one in grown})


@dataclass
class Experiment:
    """One target in interleaved rounds. `step_ns`: a step without delays.

    Where the steps vary too much, the delays become longer. A step is a longest path, so its slope can only grow with
    the delay: a longer one bounds the slope of the first from above, and says nothing of its lower end.
    """

    run: Run
    slot: int
    target: Target
    step_ns: float
    plan: Plan | None = None
    levels: list[Level] = field(default_factory=list)

    def measure(self, seconds: float) -> None:
        """Measure as many rounds as the time allows: with longer delays, twice that."""
        begun = time.monotonic()
        self.plan = plan = _plan(self.run, self.slot, self.target, self.step_ns)
        if plan is None:
            return
        lengths = _lengths(self.target, plan)
        for at, length in enumerate(lengths):
            end = begun + seconds * (1 + at / 2)
            last = at == len(lengths) - 1
            self.levels.append(_level(self.run, plan, length, end, end if last else end - seconds / 2))
            wide = self.levels[-1].slope
            if wide is None or wide.high - wide.low <= WIDE:
                break

    def again(self, seconds: float) -> None:
        """Measure further rounds of the first delay."""
        if self.plan is not None:
            end, first = time.monotonic() + seconds, self.levels[0]
            self.levels[0] = _level(self.run, self.plan, first.length_ns, end, end, first.rounds)

    @property
    def wide(self) -> bool:
        """Whether the interval says little and more rounds may help."""
        told = bounded([one.slope for one in self.levels])
        return told is not None and told.high - told.low > WIDE and len(self.levels[0].rounds) < MOST_ROUNDS

    def row(self) -> MeasuredTarget:
        """Return what was measured so far, or why nothing was."""
        target, plan = self.target, self.plan
        if plan is None:
            return _row(target, why=_why(self.run, target))
        if not self.levels:
            return _row(target, per_step=plan.each, part_ns=plan.part_ns, why="It takes less than 2 µs of a step.")
        first = self.levels[0]
        told = bounded([one.slope for one in self.levels])
        controls = together([one for level in self.levels for one, _ in level.rounds])
        return _row(
            target,
            per_step=plan.each,
            length_ns=float(first.length_ns),
            step_ns=float(np.median([one.step_ns for one, _ in first.rounds])),
            rounds=sum(len(one.rounds) for one in self.levels),
            slope=told.value if told else None,
            low=told.low if told else None,
            high=told.high if told else None,
            part_ns=controls.part_ns / controls.steps if target.change in ON_HOST else None,
            why="" if told else "No round delayed anything.",
        )


def _why(run: Run, target: Target) -> str:
    if not target.met:
        return "Nothing matches."
    if target.change is Intervention.REMOVE and any(one.head.unchanged for one in run.active):
        return "A graph cannot be changed."
    return f"It came in no step, though {len(target.met)} names match."


def _row(target: Target, **values: object) -> MeasuredTarget:
    empty: dict[str, object] = dict.fromkeys(("per_step", "length_ns", "step_ns", "slope", "low", "high"))
    known = {"change": target.change, "target": target.text, "within": target.within, "names": sorted(target.met)}
    return MeasuredTarget(**known | empty | {"rounds": 0, "why": ""} | values)  # type: ignore[arg-type]
