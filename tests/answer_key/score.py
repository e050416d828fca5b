"""Score the replay and the first screen against the programs of the answer key.

    python tests/answer_key/score.py SET --replay [--only REGEX] [--gpu h100]
    python tests/answer_key/score.py SET --screen
    python tests/answer_key/score.py SET --truth            measured savings alone
    python tests/answer_key/score.py SET --unpack DIR       captures as folders: DIR/NAME/GPU/FORM/captures/
    python tests/answer_key/score.py --sets                 the two tables of the README, from the committed results

SET is tuned or a blind set. Results stand in SET/replay_latest.csv and SET/screen_latest.csv; the first
look at a set stays in SET/replay_first_look.csv and SET/screen_first_look.csv, and is never written again.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT)]

from analysis import api, pipeline  # noqa: E402
from analysis.formats.errors import LedgerError  # noqa: E402
from analysis.show import document, dumped  # noqa: E402
from tests.answer_key import pack  # noqa: E402

SETS = (
    "tuned",
    *(f"blind_{half}{number}" for number in ("", "_2", "_3", "_4") for half in ("replay", "screen")),
    "blind_5",
    "blind_6",
    "blind_7",
    "blind_8",
    "blind_9",
    "blind_measured",
    "blind_measured_2",
    "blind_measured_3",
    "blind_measured_4",
    "blind_measured_5",
    "blind_measured_6",
    "blind_measured_7",
)
PAPER = "blind_daydream"  # the networks of a rival's paper: nothing is fitted to them, and no total counts them
KNOWN, WORTH, WINS = 0.02, 0.01, 0.03  # half of the interval of a pair that counts; worth advising; more than nothing
REPLAY_WIDTH, SCREEN_WIDTH = 0.24 + 1e-9, 0.5 + 1e-9  # widest interval of a prediction, of the step


@dataclass(frozen=True)
class Figure:
    """How many of how many, and the share that is the goal: 0 if none may be, None without a goal."""

    many: int
    all: int
    goal: float | None

    @property
    def is_met(self) -> bool:
        return self.many / self.all >= self.goal if self.goal else self.goal == 0 and not self.many


def share(goal: float) -> str:
    """Return a goal as a document shows it: `85 %`, or `0`."""
    return f"{goal * 100:.0f} %" if goal else "0"


def looks(head: str, rows: Mapping[str, Sequence[Mapping[str, Figure]]], names: Sequence[str] = ()) -> str:
    """Return a table of {what: figures of the first look, and of today}, of all or these names. Bold: it met its goal."""
    goals = {name: one.goal for name, one in next(iter(rows.values()))[0].items() if not names or name in names}
    heads = [name if goal is None else f"{name} (goal: {share(goal)})" for name, goal in goals.items()]
    lines = [f"| {head} | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    differ = {name for first, today in rows.values() for name in goals if first[name].all not in (0, today[name].all)}
    for what, (first, today) in rows.items():
        cells = []
        for name in goals:
            was, now = first[name], today[name]
            seen = f"{was.many}/{was.all}" if name in differ else f"{was.many}"
            seen = f"**{seen}**" if was.is_met else seen
            cells.append(f"{seen} → {now.many}{'/' if name in differ else ' of '}{now.all}" if was.all else "–")
        lines.append(f"| {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


@dataclass(frozen=True)
class Truth:
    """What was measured: milliseconds of a step of both forms, and the saving with its 95 % interval (of a step of a)."""

    a_ms: float
    b_ms: float | None
    saving: float | None
    low: float | None
    high: float | None

    @property
    def counts(self) -> bool:
        """Whether the saving is known to 2 % of the step."""
        return self.low is not None and self.high is not None and (self.high - self.low) / 2 <= KNOWN


def truth(times: dict[str, Any]) -> Truth:
    """Return the median saving of the rounds, each with one block of both forms, and its bootstrap interval."""
    a = np.array(times["a"])
    a_ms = float(np.median(a)) * 1e3
    if not times.get("b"):
        return Truth(a_ms, None, None, None, None)
    b = np.array(times["b"])
    savings = 1 - b / a
    drawn = np.random.default_rng(0).choice(savings, (2000, len(savings)))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return Truth(a_ms, float(np.median(b)) * 1e3, float(np.median(savings)), float(low), float(high))


def declared(name: str) -> dict[str, dict[str, Any]]:
    """Return the declarations of a set."""
    return tomllib.loads((HERE / name / "programs.toml").read_text(encoding="utf-8"))


def truths(name: str) -> dict[tuple[str, str], Truth]:
    """Return (program, GPU) -> what was measured."""
    times = pack.read_times(HERE / name)
    return {(program, gpu): truth(found) for gpu, of in times.items() for program, found in of.items()}


def unpack(name: str, program: str, gpu: str, target: Path) -> Path:
    """Unpack a program's captures as target/PROGRAM/GPU/FORM/captures/ and return the folder of form a."""
    for title, text in pack.parts(HERE / name, f"{program}-{gpu}"):
        form, file = title.split("/")
        inside = {"bare_ranges.csv": "captures", "trace.json": "torch"}.get(file, "captures/nsys")
        folder = target / program / gpu / form / inside
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text, encoding="utf-8")
    return target / program / gpu / "a"


def captured(name: str, only: str, gpu: str) -> list[tuple[str, str]]:
    """Return (program, GPU) of the packed captures of a set."""
    found = []
    for one in sorted(pack.read(HERE / name)):
        program, _, on = one.rpartition("-")
        if re.search(only, program) and gpu in ("", on):
            found.append((program, on))
    return found


def shown(value: float | None, digits: int = 4) -> str:
    """Return a number for a table; "" if it is unknown."""
    return "" if value is None else f"{value:.{digits}f}"


def save(rows: list[dict[str, str]], name: str, what: str) -> None:
    """Write the results, also as the first look if there was none."""
    for file in (f"{what}_latest.csv", f"{what}_first_look.csv"):
        path = HERE / name / file
        if rows and (not path.exists() or "latest" in file):
            with path.open("w", encoding="utf-8", newline="") as target:
                writer = csv.DictWriter(target, list(rows[0]), lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)


def what_if(capture: Path, change: list[str]) -> dict[str, Any] | str:
    """Return the answer of analysis/what_if.py, or the last line of what went wrong."""
    command = [sys.executable, "analysis/what_if.py", str(capture), *change, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["no answer"])[-1]
    return json.loads(done.stdout)


def replay_row(program: str, gpu: str, declaration: dict[str, Any], known: Truth, capture: Path) -> dict[str, str]:
    """Return the row of one pair."""
    row = {
        "program": program,
        "gpu": gpu,
        "framework": declaration["framework"],
        "change": " ".join(declaration["change"]),
        "wins_nothing": "yes" if declaration.get("nothing") and (known.saving or 0) < WINS else "",
        "counts": "yes" if known.counts else "",
        "bare_ms": shown(known.a_ms),
        "measured": shown(known.saving),
        "measured_low": shown(known.low),
        "measured_high": shown(known.high),
    }
    answer = what_if(capture, declaration["change"])
    fields = ["step_ms", "replay_error", "predicted_low", "predicted_high", "width", "inside", "refused"]
    row |= dict.fromkeys(fields, "")
    if isinstance(answer, str):
        return row | {"refused": answer}
    low, high = (answer["saves_frac"][end] for end in ("low", "high"))
    row["step_ms"] = shown(answer["step_ns"] / 1e6)
    row["replay_error"] = shown(answer["replayed_ns"] / answer["step_ns"] - 1)
    if low is not None and high is not None:
        row |= {"predicted_low": shown(low), "predicted_high": shown(high), "width": shown(high - low)}
        if known.saving is not None:
            row["inside"] = "yes" if low <= known.saving <= high and high - low <= REPLAY_WIDTH else "no"
    return row


def replay_figures(rows: list[dict[str, str]]) -> dict[str, Figure]:
    """Return what is counted of the replay."""
    near = [abs(float(row["replay_error"])) <= 0.02 for row in rows if row["replay_error"]]
    pairs = [row["inside"] == "yes" for row in rows if row["counts"] and row["inside"]]
    nothing = [row for row in rows if row["wins_nothing"] and row["predicted_low"]]
    wrong = [_middle(row["predicted_low"], row["predicted_high"]) > WINS for row in nothing]
    return {
        "unchanged replay within 2 %": Figure(sum(near), len(near), 0.9),
        "measured saving in an interval of at most ± 12 %": Figure(sum(pairs), len(pairs), 0.85),
        "changes that win nothing, predicted to win more than 3 %": Figure(sum(wrong), len(wrong), 0),
    }


def _middle(low: str, high: str) -> float:
    return (float(low) + float(high)) / 2


def screen_row(program: str, gpu: str, declaration: dict[str, Any], known: Truth, capture: Path) -> dict[str, str]:
    """Return the row of one program: its first finding against its cause."""
    report: Any = {}
    refused = ""
    try:
        loaded = api.load(capture)
        report = json.loads(dumped(document(pipeline.analyse(loaded, api.declared(loaded)).report)))
    except LedgerError as error:
        refused = str(error)
    findings = [one for one in report.get("findings", []) if one.get("scope", "step") != "start-up"]
    first: dict[str, Any] = findings[0] if findings else {"kind": "nothing"}
    kind, saves = first.get("kind") or "unknown", first.get("saves_frac") or {}
    low, high = saves.get("low"), saves.get("high")
    right = {declaration["cause"], *declaration.get("accept", [])}
    is_clean = declaration["cause"] == "nothing"
    advised = [
        one["kind"]
        for one in findings
        if (one.get("saves_frac") or {}).get("low") is not None
        and one["saves_frac"]["low"] >= WORTH
        and (one.get("kind") in declaration.get("tempting", []) or (is_clean and one.get("kind") not in right))
    ]
    row = {
        "program": program,
        "gpu": gpu,
        "framework": declaration["framework"],
        "cause": declaration["cause"],
        "trap": "yes" if declaration.get("nothing") else "",
        "first": kind,
        "right": "" if refused else ("yes" if kind in right else "no"),
        "counts": "yes" if known.counts else "",
        "bare_ms": shown(known.a_ms),
        "measured": "" if declaration.get("nothing") else shown(known.saving),
        "predicted_low": shown(low),
        "predicted_high": shown(high),
        "inside": "",
        "advised": " ".join(advised),
        "refused": refused,
    }
    if kind in right and known.counts and row["measured"] and known.saving is not None:
        fits = low is not None and high is not None and low <= known.saving <= high and high - low <= SCREEN_WIDTH
        row["inside"] = "yes" if fits else "no"
    return row


def screen_figures(rows: list[dict[str, str]]) -> dict[str, Figure]:
    """Return what is counted of the first screen."""
    judged = [row["inside"] == "yes" for row in rows if row["inside"]]
    silent = [bool(row["advised"]) for row in rows if row["trap"] or row["cause"] == "nothing"]
    return {
        "first finding names the cause": Figure(sum(row["right"] == "yes" for row in rows), len(rows), 0.9),
        "measured saving in an interval of at most ± 25 %": Figure(sum(judged), len(judged), 0.8),
        "clean programs and traps advised to do what wins nothing": Figure(sum(silent), len(silent), 0),
    }


FIGURES = {"screen": screen_figures, "replay": replay_figures}


def notes(rows: list[dict[str, str]]) -> list[str]:
    """Return what the figures leave out: the worst replay, what was refused or advised, and the confusion table."""
    worst = max((abs(float(row["replay_error"])) for row in rows if row.get("replay_error")), default=0)
    confusion = Counter((row["cause"], row["first"]) for row in rows if row.get("right") == "no")
    return [
        f"worst unchanged replay {worst:.1%}; refused: {sum(bool(row['refused']) for row in rows)} of {len(rows)}",
        f"advised to do what wins nothing: {' '.join(row['program'] for row in rows if row.get('advised'))}",
        *(f"  {cause} called {first}: {count}" for (cause, first), count in sorted(confusion.items())),
    ]


def tables() -> str:
    """Return the tables of the README: for the first screen and for the replay, a row for each set, and one for all."""
    said = []
    for what, figures in FIGURES.items():
        rows, blind = {}, ([], [])
        for name in (*SETS[1:], SETS[0]):  # the tuned set last
            if (HERE / name / f"{what}_latest.csv").exists():
                first, today = (read(HERE / name / f"{what}_{look}.csv") for look in ("first_look", "latest"))
                if name == SETS[0]:
                    rows["all blind sets"] = figures(blind[0]), figures(blind[1])
                rows[f"`{name}`, {first[0]['looked']}, {first[0]['gpu'].upper()}"] = figures(first), figures(today)
                blind = (blind[0] + first, blind[1] + today)
        said.append(looks("set, first look, GPU", rows))
    return "\n\n".join(said)


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def print_rows(rows: list[dict[str, str]]) -> None:
    """Print rows as aligned columns."""
    if rows:
        table = [list(rows[0]), *(list(row.values()) for row in rows)]
        widths = [min(max(len(line[at]) for line in table), 44) for at in range(len(table[0]))]
        for line in table:
            print("  ".join(f"{cell[:44]:{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("set", nargs="?", choices=[*SETS, PAPER], default="tuned")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--replay", action="store_true")
    what.add_argument("--screen", action="store_true")
    what.add_argument("--truth", action="store_true")
    what.add_argument("--unpack", type=Path, metavar="DIR")
    what.add_argument("--sets", action="store_true")
    parser.add_argument("--only", default="", help="programs whose name fits; writes no results")
    parser.add_argument("--gpu", default="", choices=["h100", "h200"])
    options = parser.parse_args(arguments)
    if options.sets:
        print(tables())
        return 0
    known, listed = truths(options.set), declared(options.set)
    if options.truth:
        for (program, gpu), one in sorted(known.items()):
            width = [] if one.low is None or one.high is None else [f"{one.low:.1%} to {one.high:.1%}"]
            print(f"{program:24} {gpu}  {one.a_ms:9.3f} ms", *width, "" if one.counts else "does not count")
        return 0
    places = captured(options.set, options.only, options.gpu)
    if options.unpack:
        for program, gpu in places:
            print(unpack(options.set, program, gpu, options.unpack))
        return 0
    rows = []
    for program, gpu in places:
        declaration, pair = listed[program], known.get((program, gpu))
        if pair is None or (options.replay and not declaration.get("change")):
            continue
        row = replay_row if options.replay else screen_row
        with tempfile.TemporaryDirectory() as folder:
            rows.append(row(program, gpu, declaration, pair, unpack(options.set, program, gpu, Path(folder))))
        print("  ".join(rows[-1].values()), flush=True)
    looked = datetime.now(UTC).date().isoformat()
    print()
    print_rows(rows)
    for name, one in FIGURES["replay" if options.replay else "screen"](rows).items():
        print(f"{name}: {one.many} of {one.all} (goal: {share(one.goal or 0)})")
    print(*notes(rows), sep="\n")
    if not options.only and not options.gpu:
        save([{"looked": looked} | row for row in rows], options.set, "replay" if options.replay else "screen")
    return 0


if __name__ == "__main__":
    sys.exit(main())
