"""launch_bound: launching takes longer than the kernels."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from analysis.diagnosis.step_rules.view import SYNCHRONISES, Change, Proposal, View, of_each
from analysis.diagnosis.vocabulary import do
from analysis.formats.words import count_of, duration
from analysis.replay import changes
from analysis.replay.decompose import parts_of
from analysis.replay.graph import ALLOCATION, Bools, Graph

WHOLE_GRAPH = "--graph '.*'"
LEAST_LAUNCHES = 4  # of a step, or fewer in a loop of LOOP steps that are not BUSY: a graph would help nothing else
LOOP = 16
JIT_NS = (40e3, 120e3)  # Python needs for the call of a jitted function with few and with many arguments
LOOPS = (0.1, 0.3)  # of a short step: jax.lax.scan makes one call of many steps
MOST_HOST = 0.5  # of the step: host work that takes more may need the results of the kernels before it
SCALAR = 64.0  # bytes
ONCE = 1.2  # interruptions of a step; one of them may stand at its end, which a short step of a loop has not
GRAPHED = 0.5  # of its kernels: who launches more by graphs has no launches to capture, but JAX may call less often
AHEAD = 0.5, 0.9  # of the kernels' time the host needs less, and these have more of the step: it is never waited for
_SINGLE = "a graph of one operation costs as much to launch as the operation"
BUSY = 0.5  # of a step: kernels that take longer are not short enough for one step of few launches to need a graph


def propose(view: View) -> Iterator[Proposal]:
    """Propose to launch the step as a CUDA graph."""
    graph = view.graph
    launches = view.of_step(np.count_nonzero(graph.c_launches))
    idle = view.time(view.kernels) < BUSY * view.parts.wall_ns
    least = 1 if idle and view.step.phase.count >= LOOP else LEAST_LAUNCHES
    joins = view.library == "jax" and not view.to_host().any()  # what the host reads, it may decide by
    if not graph.has_calls or launches < least or (view.graphed > GRAPHED and not joins):
        return
    short = graph.c_gap - view.long_gaps
    own = view.of_step(graph.c_own[graph.c_launches].sum() + short.sum())
    calls = view.of_step((graph.c_own + np.minimum(graph.c_gap, short))[graph.c_launches].sum())
    pageable = view.to_gpu() & of_each(view.memory, lambda memory: "Pageable" in memory, bool)
    held = ~view.calls_of(pageable)  # a graph would copy the same bytes again
    after = _blockers(view)
    waits = view.of_step(view.long_gaps.sum()) > MOST_HOST * view.parts.wall_ns
    works = view.time(view.kernels & (graph.o_group < 0))  # collectives wait for other ranks
    if view.ranks == 1 and own < AHEAD[0] * works and works > AHEAD[1] * view.parts.wall_ns:
        return
    step = "many steps" if round(launches) <= 1 else "the step"  # a graph of one operation saves nothing
    single = step == "many steps" and view.library != "jax"  # for JAX, the advice is to compile the loop
    who = "The host's threads need, all together," if view.is_sum_of_threads(own) else "The host needs"
    who = who if view.ranks == 1 else "Each process needs"
    busy = duration(works if view.ranks > 1 else view.time(parts_of(graph) == "gpu_busy"))  # as the step's bar

    def captured(base: Graph, share: float) -> Graph:
        made = changes.capture_graph(base, held, 0.0)
        return _then_wait(view, base, made) if waits else made

    yield Proposal(
        kind="launch_bound",
        about="launches",
        title=f"Launch {step} as one CUDA graph" if view.graphed <= GRAPHED else "Make one jitted call of many",
        sentence=(
            f"{who} {duration(own)} to launch "
            f"{count_of(launches, 'operation')}, "
            + (f"and the GPU works for {busy}." if view.ranks == 1 else f"and its kernels take {busy}.")
        ),
        change=jitted(view) if view.library == "jax" else captured,
        count=launches,
        time_ns=own,
        after=after,
        what_if=WHOLE_GRAPH,
        wrong_if="the shapes or the order of the launches change from step to step",
        do=f"{do('launch_bound', view.library).replace('the step', step)}: {_SINGLE}" if single else "",
        built_ns=max(calls - works, 0.0) if waits else None,
        best_ns=_batched_ns(view) if idle and not waits else None,
        better="fewer, larger kernels",
    )


def _batched_ns(view: View) -> float:
    """Return what one kernel for many small ones saves: of their time, what it needs to fill the whole GPU is left."""
    graph = view.graph
    filled = view.of_step((graph.o_duration * np.minimum(graph.o_fill, 1.0))[view.kernels].sum())
    return max(1 - filled / min(view.step.bare_ns), 0.0) * view.step.told_ns


def _then_wait(view: View, base: Graph, made: Graph) -> Graph:
    """Let launches before long host work take as long as their kernels, or as before: it may need the results."""
    own, busy = made.c_own.copy(), np.zeros(len(base.c_own))
    known = base.o_call >= 0
    np.add.at(busy, base.o_call[known], base.o_duration[known])
    for seq in range(len(base.seq_pid)):
        rows = np.flatnonzero(base.c_seq == seq)
        for part in np.split(rows, np.flatnonzero(view.long_gaps[rows] > 0)):
            if len(part):
                before = base.c_own[part].sum() + base.c_gap[part[1:]].sum()
                now = made.c_own[part].sum() + made.c_gap[part[1:]].sum()
                own[part[0]] += max(min(float(busy[part].sum()), before) - now, 0.0)
    return replace(made, c_own=own)


def jitted(view: View, held: Bools | None = None) -> Change:
    """Return the change that jax.jit makes of calls: scalars are no uploads any more, and Python runs once a step.

    `held`: the calls, by default all.
    """
    held = np.ones(len(view.graph.c_start), bool) if held is None else held
    main = int(np.bincount(view.graph.c_seq[view.graph.c_launches]).argmax())
    scalars = view.to_gpu() & (view.bytes <= SCALAR) & (view.graph.o_call >= 0)
    scalars[scalars] = held[view.graph.o_call[scalars]]
    wall = view.parts.wall_ns

    def change(base: Graph, share: float) -> Graph:
        made = changes.capture_graph(changes.drop(base, scalars, share=share), held, share)
        each = [min(ns, part * wall) for ns, part in zip(JIT_NS, LOOPS, strict=True)]
        python = (each[0] * share + each[1] * (1 - share)) * base.steps
        first = np.arange(len(base.c_gap)) == np.argmax(base.c_seq == main)
        return replace(made, c_gap=made.c_gap + np.where(first, python, 0.0))

    return change


def _blockers(view: View) -> str:
    """Return the kinds that keep the step from being captured: calls between its kernels that a capture forbids."""
    graph = view.graph
    launches = view.calls_of(view.kernels)
    forbidden = {
        "graph_each_step|allocation" if view.recording.any() else "allocation": view.called(ALLOCATION.pattern),
        "compile_in_loop": view.compiles,
        "sync": view.called(SYNCHRONISES),
    }
    up = view.to_gpu()
    forbidden["pageable_copy|small_copies|repeated_copy"] = view.waiting(up)
    forbidden["sync"] = (forbidden["sync"] & ~view.synchronised(up)) | view.waiting(view.to_host())
    times = dict.fromkeys(forbidden, 0)
    for seq in range(len(graph.seq_pid)):
        rows = np.flatnonzero(graph.c_seq == seq)
        for kinds, called in forbidden.items():
            marks = np.where(called[rows], 2, launches[rows].astype(int))
            marks = marks[marks > 0]
            times[kinds] += int(np.count_nonzero((marks[:-1] == 1) & (marks[1:] == 2)))
    most = max(times, key=lambda kinds: times[kinds])
    allowed = ONCE if view.of_step(np.count_nonzero(graph.c_launches)) >= LEAST_LAUNCHES else 0.0
    return most if view.of_step(times[most]) > allowed else ""
