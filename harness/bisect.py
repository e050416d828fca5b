"""Find the change that made a program slower: over commits, or over packages, flags and environment variables.

    kernel-ledger bisect --good GOOD --bad BAD [--out DIR] [--rounds N] [--bare] [--gate FILE] --cmd COMMAND

GOOD and BAD are commits of this folder's repository, or two lists of words of equal length. A word is a package,
torch==2.10, which is installed into a folder of its own, or a variable, NVCC_FLAGS=-O3+-G, where + stands for a blank.
The words that differ are the changes, in their order.

COMMAND runs in the checkout of a commit, or with the words of a state. If it names $OUT, it writes a census, bench.csv,
rounds.csv or captures there, and runs once a state. Otherwise it is timed in turns (harness.ab).

The search goes on behind a guilty change while BAD is still slower. So all guilty changes and the rest add up to the
whole difference. Exit: 0 found; 1 a command fails; 2 wrong usage; 5 BAD is not slower, or a step is unsure.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.formats.comparison import TURNS
from analysis.formats.console import documented
from analysis.formats.place import program

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = program("bisect", "bisect")
COMPARE = ROOT / "analysis" / "compare.py"
FOUND, FAILED, USAGE, UNSURE = 0, 1, 2, 5
Answer = Mapping[str, Any]  # comparison.json
Compare = Callable[[int, int], Answer]


class BisectError(Exception):
    """One sentence for the user, and the exit code."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


@dataclass(frozen=True)
class State:
    """A point between GOOD and BAD: the change that leads to it, and the shell words before the command."""

    change: str
    prefix: str


def search(count: int, compare: Compare) -> list[tuple[int, Answer]]:
    """Return the guilty changes (k leads from state k - 1 to k), with the comparison of both states.

    `compare(i, j)`: comparison.json of states i and j. States are 0 (GOOD) to `count` (BAD).

    Raises: BisectError if BAD is not slower than GOOD, or a comparison in between is unsure.
    """
    found: list[tuple[int, Answer]] = []
    begin = 0
    while begin < count:
        whole = compare(begin, count)
        if verdict(whole, whole) != "SLOWER":
            if found:
                return found
            why = whole["judged"]["why"] or whole["steps"][0]["said"]
            raise BisectError(UNSURE, f"BAD is not slower than GOOD: {whole['judged']['verdict']}. {why}")
        low, high = begin, count
        while high - low > 1:
            middle = (low + high) // 2
            said = verdict(compare(begin, middle), whole)
            if said == "UNSURE" and verdict(compare(middle, high), whole) != "SLOWER":
                raise BisectError(UNSURE, f"whether change {middle} is guilty is unsure; give more --rounds.")
            low, high = (low, middle) if said == "SLOWER" else (middle, high)
        found.append((high, compare(high - 1, high)))
        begin = high
    return found


def verdict(answer: Answer, whole: Answer) -> str:
    """Return the verdict on what is slower in `whole`: the step, else any of its rows that are slower.

    If no time and no quantity says that, as in a census, the user does: then SLOWER is what differs as in `whole`.
    """
    if answer.get("gate"):
        statuses = {one["status"] for one in answer["gate"]}
        return "SLOWER" if "fail" in statuses else "UNSURE" if "unsure" in statuses else "SAME"
    if whole["steps"][0]["a_ns"] is not None:
        return str(answer["judged"]["verdict"])
    slower = {_key(row) for row in _rows(whole) if row["judged"] and row["judged"]["verdict"] == "SLOWER"}
    if not slower and (changed := _changed(whole)):
        return "SLOWER" if _changed(answer) & changed else "SAME"
    verdicts = [row["judged"]["verdict"] for row in _rows(answer) if row["judged"] and _key(row) in slower]
    return "SLOWER" if "SLOWER" in verdicts else "UNSURE" if "UNSURE" in verdicts or not slower else "SAME"


def _changed(answer: Answer) -> set[tuple[tuple[str, str], str, bool]]:
    """Return the quantities of rows without a time that differ, and whether they grew."""
    return {
        (_key(row), one["name"], one["b"] > one["a"])
        for row in _rows(answer)
        if row["a_ns"] is None
        for one in row["quantities"]
        if one["differs"]
    }


def _rows(answer: Answer) -> list[dict[str, Any]]:
    return [row for step in answer["steps"] for row in step["rows"]]


def _key(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["layer"], " ".join(row["a"])


# States ------------------------------------------------------------------------------------------------------


def states(good: str, bad: str, work: Path) -> list[State]:
    """Return all states from GOOD to BAD.

    Raises: BisectError if they are neither commits nor lists of words, or do not differ.
    """
    if _is_commit(good) and _is_commit(bad):
        listed = _git("rev-list", "--reverse", "--first-parent", f"{good}..{bad}").split()
        if not listed:
            raise BisectError(USAGE, f"{bad} is not a descendant of {good}; exchange GOOD and BAD.")
        commits = [_git("rev-parse", good).strip(), *listed]
        return [State(_git("log", "-1", "--format=%h %s", one).strip(), _checkout(one, work)) for one in commits]
    words = [shlex.split(text) for text in (good, bad)]
    changed = [at for at, (x, y) in enumerate(zip(*words, strict=False)) if x != y]
    if len(words[0]) != len(words[1]) or not changed:
        raise BisectError(USAGE, "GOOD and BAD are neither two commits nor two lists of as many words that differ.")
    found, now = [State("GOOD", _words(words[0], work))], list(words[0])
    for at in changed:
        now[at] = words[1][at]
        found.append(State(f"{words[0][at]} → {words[1][at]}", _words(now, work)))
    return found


def _is_commit(text: str) -> bool:
    return " " not in text and "=" not in text and bool(_git("rev-parse", "--verify", "-q", f"{text}^{{commit}}"))


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=False).stdout


def _checkout(commit: str, work: Path) -> str:
    folder = shlex.quote(str(work / commit[:12]))
    add = f"git worktree add -q --detach {folder} {commit}"
    return f"{{ [ -d {folder} ] || {add}; }} && cd {folder} &&"


def _words(words: Sequence[str], work: Path) -> str:
    """Return the shell words of a state: packages are installed beside each other, each version once."""
    exported, paths, install = [], [], []
    for word in words:
        if re.fullmatch(r"[\w.\[\]-]+==\S+", word):
            folder = shlex.quote(str(work / word.replace("==", "-")))
            pip = f"{shlex.quote(sys.executable)} -m pip install -q --no-deps --target {folder} {shlex.quote(word)}"
            install.append(f"{{ [ -d {folder} ] || {pip}; }} &&")
            paths.append(folder)
        else:
            name, sign, value = word.partition("=")
            if not sign or not name.isidentifier():
                raise BisectError(USAGE, f"{word} is neither PACKAGE==VERSION nor NAME=VALUE.")
            exported.append(f"export {name}={shlex.quote(value.replace('+', ' '))} &&")
    if paths:
        exported.append(f"export PYTHONPATH={':'.join(paths)}:$PYTHONPATH &&")
    return " ".join([*install, *exported])


# Measuring ---------------------------------------------------------------------------------------------------


def measured(all_states: Sequence[State], options: argparse.Namespace) -> Compare:
    """Return the function that compares two states; each comparison, and each table, is made once."""
    answers: dict[tuple[int, int], Answer] = {}
    once = "$OUT" in options.cmd
    out = options.out.resolve()

    def table(state: int) -> Path:
        folder = out / f"state-{state}"
        if not folder.is_dir():
            folder.mkdir(parents=True)
            _run(f"{all_states[state].prefix} {options.cmd}", os.environ | {"OUT": str(folder)})
        return folder

    def compare(i: int, j: int) -> Answer:
        if (i, j) in answers:
            return answers[i, j]
        if once:
            sides = [str(table(i)), "--", str(table(j))]
        else:
            folder = out / f"{i}-{j}"
            commands = [f"{all_states[state].prefix} {options.cmd}" for state in (i, j)]
            more = ["--bare"] if options.bare else ["--no-counters"]
            words = [str(ROOT / "harness" / "ab.py"), "--rounds", str(options.rounds), "--out", str(folder), *more]
            done = subprocess.run(
                [sys.executable, *words, "--a", commands[0], "--b", commands[1], "--", "--json"],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode == 1:
                raise BisectError(FAILED, (done.stderr.strip().splitlines() or ["a command failed"])[-1])
            sides = [str(folder / "a"), "--", str(folder / "b")]
        gate = ["--gate", str(options.gate)] if options.gate else []
        done = subprocess.run(
            [sys.executable, str(COMPARE), "--json", *gate, *sides], capture_output=True, text=True, check=False
        )
        if not done.stdout:
            raise BisectError(FAILED, (done.stderr.strip().splitlines() or ["compare.py failed"])[-1])
        answers[i, j] = json.loads(done.stdout)
        print(f"  {i} → {j}: {answers[i, j]['judged']['verdict']}", file=sys.stderr)
        return answers[i, j]

    return compare


def _run(command: str, environment: Mapping[str, str]) -> None:
    done = subprocess.run(["bash", "-c", command], env=dict(environment), capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise BisectError(FAILED, f"`{command}` ended with {done.returncode}: {last}")


# Telling -----------------------------------------------------------------------------------------------------


def told(all_states: Sequence[State], found: Sequence[tuple[int, Answer]], whole: Answer) -> list[str]:
    """Return the lines of the answer: each guilty change with its part, what replaced what, and the rest."""
    lines = []
    total = _difference(whole)
    rest = total
    for change, answer in found:
        part = _difference(answer)
        rest = None if rest is None or part is None else rest - part
        shown = f" ({part / 1e3:+.1f} of {total / 1e3:+.1f} µs)" if part is not None and total else ""
        lines.append(f"guilty: {all_states[change].change}{shown}")
        lines.append(f"  {answer['steps'][0]['said']}")
        slower = [row for row in _rows(answer) if row["judged"] and row["judged"]["verdict"] == "SLOWER"]
        changed = {key for key, *_ in _changed(answer)}
        for row in slower or [row for row in _rows(answer) if _key(row) in changed]:
            lines.append(f"  {row['layer']} {', '.join(row['b'][:2])}: {row['cause'] or row['judged']['why']}")
    if rest is not None:
        lines.append(f"all other changes together: {rest / 1e3:+.1f} µs")
    return lines


def _difference(answer: Answer) -> float | None:
    step = answer["steps"][0]
    return None if step["a_ns"] is None or step["b_ns"] is None else step["b_ns"] - step["a_ns"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit status."""
    parser = documented(PROGRAM, __doc__)
    parser.add_argument("--good", required=True, metavar="GOOD", help="a commit, or words")
    parser.add_argument("--bad", required=True, metavar="BAD", help="the same, slower")
    parser.add_argument("--cmd", required=True, metavar="COMMAND", help="what to run in each state")
    default = Path("runs") / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-bisect"
    parser.add_argument("--out", type=Path, default=default, metavar="DIR", help="where everything goes")
    parser.add_argument(
        "--rounds", type=int, default=TURNS, metavar="N", help=f"rounds of each comparison (default: {TURNS})"
    )
    parser.add_argument("--bare", action="store_true", help="time whole processes, without nsys")
    parser.add_argument("--gate", type=Path, metavar="FILE", help="a state is bad if this gate fails")
    options = parser.parse_args(arguments)
    work = options.out.resolve() / "states"
    try:
        all_states = states(options.good, options.bad, work)
        compare = measured(all_states, options)
        last = len(all_states) - 1
        found = search(last, compare)
        print("\n".join(told(all_states, found, compare(0, last))))
    except BisectError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return error.code
    finally:
        for folder in work.glob("*/.git"):
            _git("worktree", "remove", "--force", str(folder.parent))
    return FOUND


if __name__ == "__main__":
    sys.exit(main())
