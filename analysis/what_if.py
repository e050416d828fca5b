"""Replay the steady step of a capture with changes: how long it would take, and what that saves.

A pattern is searched in the names of operations and calls, or of ranges for --graph and --host. Changes are made in
the order of this list, all at once. Exit status 2: an argument is wrong, or a pattern matches nothing in the step.
"""

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from analysis.capture.load import load
from analysis.capture.model import Capture
from analysis.diagnosis.built import as_given
from analysis.diagnosis.savers import Saver, without_kernels
from analysis.diagnosis.steady_of import steady_of
from analysis.diagnosis.step_rules.launches import WHOLE_GRAPH
from analysis.diagnosis.step_tables import answer_steps
from analysis.facts import Facts
from analysis.formats.console import run_program
from analysis.formats.errors import InputError, LedgerError, UsageError
from analysis.formats.place import program
from analysis.page.trace import of_runs, write_events
from analysis.replay import changes
from analysis.replay.decompose import decompose
from analysis.replay.graph import Graph
from analysis.replay.savings import Change, Saving, Step, saving, step, together, whole
from analysis.replay.simulate import simulate
from analysis.replay.steady import find

PROGRAM = program("what_if.py", "what-if")
GRAPH = "graph", ".*", ""  # the whole step as one, as the report's findings also say
VALUED = {"scale": "0.5", "host": "0.5", "bucket": "4", "stream": "NAME"}  # changes with a value, and an example


def replayed(
    capture: Capture, asked: Sequence[tuple[str, str, str]], phase: str | None = None
) -> tuple[Step, Saving, Change]:
    """Return the steady step, what these changes of it (kind, pattern, value) save, and the change itself.

    Raises:
        UsageError, InputError: as `what_if`, or the capture has no steady step.
    """
    return _answer(capture, asked, phase)[:3]


def _answer(
    capture: Capture, asked: Sequence[tuple[str, str, str]], phase: str | None
) -> tuple[Step, Saving, Change, Saver | None]:
    """Return what `replayed` does, and the answer of the report if it replays this change: then both agree."""
    facts = Facts(capture)
    chosen = _chosen(facts, phase)
    graphed = _graphed(facts, chosen) if GRAPH in asked else None
    if graphed is not None and graphed.replay is not None:
        chosen = graphed.replay.step
    chosen, change = _made(capture, chosen, asked, graphed)
    found = saving(chosen, change)
    told = as_given(found.low, found.high)
    low, high = told.low or 0.0, told.high or 0.0
    if asked and all(kind == "graph" for kind, _, _ in asked):  # it shortens no kernel
        high = max(min(high, without_kernels(chosen)), low)
    known = graphed if asked == [GRAPH] else None
    if known is not None:  # the report also counts other fixes of the cause
        low, high = max(low, min(known.low, high)), min(high, max(known.high, low))
    ends = replace(found, low=low, high=high, low_ns=low * chosen.told_ns, high_ns=high * chosen.told_ns)
    return chosen, ends, change, known


def _graphed(facts: Facts, chosen: Step) -> Saver | None:
    """Return the change of the report that launches all of a step as a CUDA graph; None if it replays none."""
    of_step = [one for one in facts.once(answer_steps) if one.view.step.phase.name == chosen.phase.name]
    found = [one for answer in of_step for one in answer.replayed if one.proposal.what_if == WHOLE_GRAPH]
    return found[0] if found and found[0].replay is not None else None


def what_if(
    capture: Capture, step: Step, asked: Sequence[tuple[str, str, str]], graphed: Saver | None = None
) -> Change:
    """Return the change that these (kind, pattern, value) ask for. `graphed`: that of the report for GRAPH.

    Raises:
        UsageError: a pattern matches nothing in the step, or is no regular expression.
        InputError: the capture lacks host calls.
    """
    known = graphed.replay if graphed is not None else None
    return together([known.change if known and one == GRAPH else _change(capture, step, *one) for one in asked])


def _change(capture: Capture, step: Step, kind: str, pattern: str, value: str) -> Change:
    try:
        re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--{kind} {pattern}: is no regular expression ({error}); escape brackets with \\.") from None
    graph = step.graph
    if kind in ("graph", "host"):
        if not graph.has_calls:
            raise InputError(f"--{kind} {pattern}: the capture lists no host calls; export cuda_api_trace, too.")
        covered, held, count = changes.in_ranges(capture, graph, pattern)
        if not count or not (held.any() or covered.any()):
            raise UsageError(
                f"--{kind} {pattern}: matches no range of the step {step.phase.name}; {_ranges(capture, graph)}."
            )
        if kind == "graph":
            return lambda base, share: changes.capture_graph(base, held, share)
        factor = _factor(kind, pattern, value)
        part = covered / (graph.c_gap + (graph.c_gap <= 0))
        everything = pattern in (".*", "^.*$", "")
        return lambda base, share: changes.launch_faster(
            changes.host(base, factor, None if everything else part * base.c_gap), held, 1 - share * (1 - factor)
        )
    ops = changes.operations(graph, pattern)
    called = changes.calls(graph, pattern)
    if not ops.any() and not (kind == "drop" and called.any()):
        raise UsageError(f"--{kind} {pattern}: matches no operation of the step {step.phase.name}; {_names(graph)}.")
    if kind == "drop":
        return lambda base, share: changes.drop(base, ops, called, share)
    if kind == "scale":
        factor = _factor(kind, pattern, value)
        return lambda base, share: changes.scale(base, ops, factor, share)
    if kind == "bucket":
        size = _factor(kind, pattern, value)
        talks = ops & changes.collectives(graph)
        if size < 2 or size != int(size) or not talks.any():
            raise UsageError(f"--bucket {pattern}={value}: needs collectives, and a count of at least 2.")
        return lambda base, share: changes.bucket(base, talks, int(size), share)
    if kind == "merge":
        return lambda base, share: changes.merge(base, ops, share)
    return lambda base, share: changes.move(base, ops, value, share)


def _factor(kind: str, pattern: str, value: str) -> float:
    try:
        factor = float(value)
    except ValueError:
        factor = -1.0
    if not 0 <= factor < 1e6:
        raise UsageError(f"--{kind} {pattern}={value}: the factor is no number from 0 on; 0.5 halves the time.")
    return factor


def _names(graph: Graph) -> str:
    sums: dict[str, float] = {}
    for name, ns in zip(graph.o_name.tolist(), graph.o_duration.tolist(), strict=True):
        sums[str(name)] = sums.get(str(name), 0.0) + ns
    longest = sorted(sums, key=lambda name: -sums[name])[:3]
    return f"its longest operations are {', '.join(name[:60] for name in longest)}"


def _ranges(capture: Capture, graph: Graph) -> str:
    ranges = capture.ranges
    inside = ranges[(ranges["start_ns"] < graph.end_ns) & (ranges["end_ns"] > graph.start_ns)]
    names = inside["name"].unique().tolist()[:5]
    return f"its ranges are {', '.join(map(str, names))}" if names else "it has no range, so only .* is possible"


CHANGES = {
    "drop": ("REGEX", "leave out operations or calls, with the host work that leads to them"),
    "scale": ("REGEX=FACTOR", "multiply the duration of operations"),
    "merge": ("REGEX", "make one operation of matching neighbours"),
    "bucket": ("REGEX=COUNT", "make one collective of each COUNT matching ones in a row"),
    "graph": ("REGEX", "launch what is inside ranges as CUDA graphs; .* is the whole step"),
    "host": ("REGEX=FACTOR", "multiply host work inside ranges; .* is the whole step"),
    "stream": ("REGEX=NAME", "move operations to another stream"),
}


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """Return the options of a command line. A pattern may begin with a dash, which argparse takes for an option."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1].startswith("--") and joined[-1][2:] in CHANGES and not word.startswith("--"):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return _parser().parse_args(joined)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("capture", nargs="+", type=Path, help="files or folders of one capture")
    for kind, (metavar, text) in CHANGES.items():
        parser.add_argument(f"--{kind}", metavar=metavar, action="append", default=[], help=text)
    parser.add_argument("--phase", metavar="NAME", help="steady phase to change (default: the one with the most time)")
    parser.add_argument("--timeline", metavar="FILE", type=Path, help="write both timelines as a Chrome trace")
    parser.add_argument(
        "--json", action="store_true", help="print step_ns, replayed_ns, changed_ns and saves_frac only"
    )
    return parser


def changes_of(args: argparse.Namespace) -> list[tuple[str, str, str]]:
    """Return the changes that a command line asks for, as (kind, pattern, value).

    Raises: UsageError for one without its value.
    """
    found = []
    for kind in CHANGES:
        for text in getattr(args, kind):
            pattern, sign, value = text.rpartition("=") if kind in VALUED else (text, "=", "")
            if not sign or (kind == "stream" and not value):
                raise UsageError(f"--{kind} {text}: has no =; write --{kind} REGEX={VALUED[kind]}.")
            found.append((kind, pattern, value))
    return found


def _chosen(facts: Facts, name: str | None) -> Step:
    steady = find(facts.capture)
    if name is not None or steady.phases:
        judged = facts.once(steady_of)  # what the report shows, also where nothing repeats
        steady = judged if name in {None, *(one.name for one in judged.phases)} else steady
    if not steady.phases:
        raise InputError(f"{steady.reason} Without one, no change can be replayed.")
    phases = [one for one in steady.phases if name in (None, one.name)]
    if not phases:
        known = ", ".join(one.name for one in steady.phases)
        raise UsageError(f"--phase {name}: is no steady phase of the capture; these are: {known}.")
    chosen = step(facts.capture, phases[0])
    if min(chosen.bare_ns) <= 0:
        raise InputError(f"The step {chosen.phase.name} takes no time, so no change can save any.")
    return chosen


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit status."""
    args = parsed(sys.argv[1:] if arguments is None else arguments)
    try:
        asked = changes_of(args)
        chosen, found, change, known = _answer(load(args.capture), asked, args.phase)
        if chosen.reason and args.json:
            raise InputError(chosen.reason)
        if args.timeline:
            write_events(args.timeline, of_runs(chosen.run, simulate(change(chosen.graph, 0.5))))
    except LedgerError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return error.exit_code
    if args.json:
        saves = {"low": round(found.low, 5), "high": round(found.high, 5)}
        times = {"step_ns": chosen.step_ns, "replayed_ns": chosen.run.step_ns, "changed_ns": found.changed_ns}
        print(json.dumps({name: round(ns) for name, ns in times.items()} | {"saves_frac": saves}))
        return 0
    _print(chosen, found if asked else None)
    if known is not None and (known.low, known.high) != (found.low, found.high):
        least = f"at most {known.high:.1%}" if known.low <= 0 else f"{known.low:.1%} to {known.high:.1%}"
        print(f"The report says {least}: it allows for other fixes of the same cause.")
    return 0


def _made(
    capture: Capture, chosen: Step, asked: Sequence[tuple[str, str, str]], graphed: Saver | None
) -> tuple[Step, Change]:
    """Return the step and its change. A pattern that these steps lack may match in others: then all steps count."""
    try:
        return chosen, what_if(capture, chosen, asked, graphed)
    except LedgerError:
        steps = whole(chosen.phase)
        if len(steps) <= chosen.graph.steps:
            raise
        every = step(capture, chosen.phase, steps)
        return every, what_if(capture, every, asked)


def _print(chosen: Step, found: Any) -> None:
    phase, parts = chosen.phase, decompose(chosen.told_run, chosen.told_ns)
    own, seen = f"{chosen.told_ns / 1e3:,.1f} µs", f"{chosen.step_ns / 1e3:,.1f} µs"
    print(
        f"Step {phase.name.removeprefix('step').strip()}".rstrip()
        + f": {f'{own} without a profiler, {seen} under it' if chosen.bare_known else f'{seen} under the profiler'}"
        + f" ({phase.count} steady steps), replayed {chosen.off:+.1%}"
    )
    for part, ns in sorted(parts.busy_parts, key=lambda item: -item[1]):
        print(f"  {part:14} {ns / 1e3:12,.1f} µs  {ns / max(parts.wall_ns, 1):4.0%}")
    for note in (*chosen.graph.notes, chosen.reason):
        if note:
            print(note)
    if not chosen.bare_known:
        print("No bare time of this step is known, so the saving also depends on what the profiler costs the host.")
    if found is not None:
        print(f"Changed: {found.changed_ns / 1e3:,.1f} µs under the profiler")
        print(
            f"Saves {found.low:.1%} to {found.high:.1%} of the step "
            f"({found.low_ns / 1e3:,.1f} to {found.high_ns / 1e3:,.1f} µs)"
        )


if __name__ == "__main__":
    sys.exit(run_program(main))
