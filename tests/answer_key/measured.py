"""Delay, in the running programs of the answer key, what their fixes change, and predict from that what these win.

    python tests/answer_key/measured.py run SET… --out FOLDER [--only REGEX] [--seconds N] [--each S]
    python tests/answer_key/measured.py score FOLDER --gpu h100     writes measured.json.xz (all of FOLDER) and measured.csv
    python tests/answer_key/measured.py sets                        prints the table of the README, from the committed results

SET/measured_first_look.csv has the first score of each pair of a set, and never changes a row. Column `gpu` names the GPU
of what was won and of the capture, `slopes_gpu` that of the slopes; where they differ, the slopes are older.

`run` needs a GPU: it runs form a of each pair under `measure-fix`; FOLDER/SET/NAME.json holds what that measured.

The prediction, second version, fixed after blind_measured and before blind_measured_2 ran:
- GPU: slope x the time that the change takes away in the capture, at most what a removal saved (and EMPTY_NS for each
  kernel that it left empty). A copy's slope counts for the host's time that goes with it, too.
- Host: of a range, slope of the virtual speed-up x the range's own time in the running program; of calls, slope x their
  own time, at most the time in which the GPU does nothing; of launches, slope x the time of the capture, scaled by the bare
  over the captured step, at most what the replay says where a graph replaces them.
- A slope surely below HIDDEN is 0. One whose interval is wider than WIDE is unknown: then the replay counts.
- Since the last ten pairs of blind_measured_2: the step is the capture's where its GPU is another one, and the line above
  holds for a delayed range, too, if its virtual speed-up is unknown.
- Since blind_measured_3: what is only made faster wins at most what its removal saved, without EMPTY_NS; so does the replay.
- Since blind_measured_4: a removal bounds from below, too, since a step is a longest path: half of it saves at least half.
  A slope surely above EXPOSED is 1. Merged parts win at most what the replay says; so do parts that are surely neither
  HIDDEN nor EXPOSED and have no removal. The host saves at most what the GPU's own path leaves, with its events and
  copies; dropped calls save at most the replay's highest end, too.
- Since blind_measured_5: what goes on the GPU takes the pause before it along, as far as the GPU's own path leaves it. A
  range's time is a share of the step in the same rounds. Its virtual speed-up takes 0.9 of it away: a smaller part saves
  at least its share, at most all of that, and at most what its delay says; the replay chooses between these.
- No delay asks what another stream wins, so such changes have no prediction.
"""

from __future__ import annotations

import argparse
import csv
import json
import lzma
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT)]

from harness.measure_fix.rounds import SPED_UP  # noqa: E402
from tests.answer_key.measure import Program, programs  # noqa: E402
from tests.answer_key.score import Figure, looks, read  # noqa: E402

ENDLESS, LIMIT_S, WORKERS = 100_000_000, 200, 4
NOTHING = 0.02  # of the step
EMPTY_NS = 2500.0  # a kernel that does nothing, between two others of a stream
HIDDEN, EXPOSED, WIDE = 0.05, 0.9, 0.2  # slopes surely below: 0; from here on: 1; intervals that say nothing
COLUMNS = ("predicted", "won", "replay", "sum", "share")
APART = 1.7  # quotient of two steps that are not the same step
CALLS = re.compile("cuda|Malloc|Free|Synchronize|HostAlloc")
LAUNCHES = "^cuLaunchKernel|^cuMemcpy.*Async|^cuMemset.*Async|^cuGraphLaunch"
FILE, TABLE = HERE / "measured.json.xz", HERE / "measured.csv"


def asked(change: list[str]) -> list[str]:
    """Return the options of measure-fix for a change in the words of what_if.py."""
    found = []
    for kind, text in zip(change[::2], change[1::2], strict=True):
        pattern = text.rpartition("=")[0] if "=" in text and kind in ("--scale", "--host", "--stream") else text
        parts = pattern.split("|")
        calls, others = [one for one in parts if CALLS.search(one)], [one for one in parts if not CALLS.search(one)]
        if kind == "--host" and pattern != ".*":
            found += ["--host", pattern, "--virtual-host", pattern]
        elif kind in ("--graph", "--host"):
            found += ["--host", LAUNCHES]
        elif kind == "--merge":
            found += ["--host", LAUNCHES, "--kernel", pattern]
        else:
            found += ["--host", "|".join(calls)] if calls else []
            if others:
                found += ["--kernel", "|".join(others)] + (["--host", LAUNCHES] if kind == "--drop" else [])
            if others and "nccl" not in pattern and kind != "--stream":
                found += ["--remove", "|".join(others)]
    return found


def command(program: Program) -> list[str]:
    """Return the command that runs form a without an end."""
    if program.path.suffix == ".cu":
        return [str(program.out / "program"), "a", str(ENDLESS)]
    ranks = ["--ranks", str(program.ranks)]
    return [
        sys.executable,
        str(HERE / "run.py"),
        str(program.path),
        "steps",
        *ranks,
        "--form",
        "a",
        "--steps",
        str(ENDLESS),
    ]


def build(program: Program) -> bool:
    """Compile a CUDA program."""
    program.out.mkdir(parents=True, exist_ok=True)
    if program.path.suffix != ".cu":
        return True
    words = [
        "nvcc",
        "-O3",
        "-std=c++17",
        "-arch=sm_90",
        str(program.path),
        f"-I{HERE}",
        "-o",
        str(program.out / "program"),
    ]
    return subprocess.run(words, check=False).returncode == 0


def measured(program: Program, each: float) -> str:
    """Run one program, and return what it said and the last line of its errors."""
    target = program.out.with_suffix(".json")
    words = [
        "timeout",
        str(LIMIT_S),
        sys.executable,
        "-m",
        "harness.measure_fix",
        *asked(program.declared["change"]),
        "--seconds",
        str(each),
    ]
    words += ["--out", str(target), "--log", str(program.out / "program.log"), "--", *command(program)]
    env = os.environ | {
        "KEY_LOCK": f"/tmp/answer_key{os.environ.get('CUDA_VISIBLE_DEVICES', '')}.lock",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
    }
    done = subprocess.run(words, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout + ("" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["failed"])[-1])


@dataclass(frozen=True)
class Gone:
    """What a change takes away in a capture, ns of a step: on the GPU, on the host; the step, bare, and what is left.

    `staged`: on the host, with what it does for a copy after that. `alone`: the changed step of a host that takes no
    time. `most`: the replay's highest saving, of the step. `simpler`: the predictions of rivals.py. `pauses`: before what
    is gone on the GPU.
    """

    gpu: float
    host: float
    staged: float
    step: float
    bare: float
    alone: float
    most: float
    simpler: dict[str, float] = field(default_factory=dict)
    pauses: float = 0.0


def gone(capture: Path, change: list[str]) -> Gone:
    """Return what a change takes away. Raises: InputError."""
    from analysis import what_if
    from analysis.capture.load import load
    from analysis.replay.graph import EVENT_NS
    from analysis.replay.simulate import simulate
    from tests.answer_key.rivals import simpler

    args = what_if.parsed([str(capture), *change])
    step, _, changed_by = what_if.replayed(load(args.capture), what_if.changes_of(args))
    graph, changed = step.graph, changed_by(step.graph, 1.0)
    host = float((graph.c_gap + graph.c_own - changed.c_gap - changed.c_own).sum())
    staged = host + float((graph.c_tail - changed.c_tail).sum())
    soon = np.minimum(changed.o_after, EVENT_NS)
    gpu = float((graph.o_duration - changed.o_duration).sum())
    pauses = float((np.minimum(graph.o_after, EVENT_NS) - soon).sum())
    ranks = max(len(np.unique(graph.stream_pid[graph.o_stream])), 1)
    bare = float(np.mean(step.bare_ns))
    each = graph.steps * ranks
    left = (gpu / each, host / each, staged / each)
    none, at_once = np.zeros(len(graph.c_gap)), np.zeros(len(graph.o_start))
    alone = simulate(replace(changed, c_gap=none, c_own=none, c_tail=none, o_lag=at_once, o_after=soon)).step_ns
    most = max(
        1 - simulate(changed_by(base, end)).step_ns / before for base, before in step.bases for end in (0.0, 1.0)
    )
    return Gone(*left, step.run.step_ns, bare, alone, most, simpler(step, changed_by), pauses / each)


def usable(row: dict[str, Any]) -> float | None:
    """Return the slope of a row, from 0 to 1; None if it is not known well enough."""
    if row["high"] - row["low"] > WIDE:
        return None
    return 0.0 if row["high"] < HIDDEN else 1.0 if row["low"] > EXPOSED else max(row["slope"], 0.0)


def at_least(removed: list[dict[str, Any]], change: list[str], bare: float) -> float:
    """Return what a change saves at least, as a part of what the removal saved of a step without any delay.

    A step is a longest path, so a part of a removal saves at least its share of it. So does less work beside others.
    """
    if not removed or not set(change[::2]) <= {"--drop", "--scale"}:
        return 0.0
    pairs = zip(change[::2], change[1::2], strict=True)
    left = max(float(text.rpartition("=")[2]) if kind == "--scale" else 0.0 for kind, text in pairs)
    saved = max(min(one["low"], 1 - (1 - one["low"]) * one["step_ns"] / min(bare, one["step_ns"])) for one in removed)
    return (1 - left) * max(saved, 0.0)


def predicted(
    found: dict[str, Any], change: list[str], taken: Gone | None, replay: float | None, other_gpu: bool = False
) -> float | None:
    """Return what the change saves of the step; None if the slopes that this needs are missing.

    `other_gpu`: the capture is of another kind of GPU than the slopes, so the step is the capture's.
    """
    rows: dict[str, list[dict[str, Any]]] = {}
    for one in found["targets"]:
        if one["slope"] is not None:
            rows.setdefault(one["change"], []).append(one)
    delays, hosts = rows.get("delay", []), rows.get("host", [])
    if "--stream" in change or not found["idle_step_ns"] or not (delays or hosts):
        return None
    delayed = [value for one in hosts if (value := usable(one)) is not None]
    speeding = [value for one in rows.get("virtual-host", []) if (value := usable(one)) is not None]
    bare = min([found["idle_step_ns"], *(one["step_ns"] for one in [*delays, *hosts])])
    faster = all(kind == "--scale" for kind in change[::2])  # its launches stay
    left = 0.0 if faster else EMPTY_NS / bare
    removed = [max(one["slope"], 0.0) + one["per_step"] * left for one in rows.get("remove", [])]
    least = at_least(rows.get("remove", []), change, bare)
    if any(usable(one) is None for one in [*delays, *([] if speeding else hosts)]):
        return replay if replay is None else max(min([replay, *(removed if faster else [])]), least)
    if speeding:
        gone_part = 1 - float(change[change.index("--host") + 1].rpartition("=")[2])
        part = max(one["part_ns"] / one["step_ns"] for one in rows["virtual-host"])
        most = [speeding[0] * part * max(SPED_UP, gone_part), *(known * part * gone_part for known in delayed)]
        return min([max(speeding[0] * part * gone_part, replay or 0.0), *most])
    calls = [one for one in hosts if one["target"] != LAUNCHES and one.get("part_ns")]
    if taken is None:
        return min(sum((usable(one) or 0.0) * one["part_ns"] for one in calls) / bare, 1.0) if calls else replay
    units = taken.bare / bare  # the experiment may end a step twice in one of the capture
    units = max(round(units), 1) if units > APART else 1 / round(1 / units) if units < 1 / APART else 1
    bare = taken.bare if other_gpu else bare * units
    slope = max((usable(one) or 0.0 for one in delays), default=0.0)
    on_host, gone_host = max((usable(one) or 0.0 for one in hosts), default=0.0), taken.host
    if not hosts and "Host" in " ".join(change):
        on_host, gone_host = slope, taken.staged
    gone_gpu = max(taken.gpu, min(taken.gpu + taken.pauses, bare - taken.alone))
    on_gpu = min([slope * gone_gpu / bare, *removed])
    if slope or least > HIDDEN:
        on_gpu = max(on_gpu, min(least, taken.gpu / bare))
    host = on_host * gone_host * min(bare / taken.step, 1.0)
    if calls:
        host = sum((usable(one) or 0.0) * one["part_ns"] * units for one in calls)
    modelled = not set(change[::2]).isdisjoint(("--graph", "--merge"))
    if replay is not None and (modelled or (0 < slope < 1 and not removed)):
        return min(on_gpu + host / bare, max(replay, 0.0))
    saved = on_gpu + min(host, max(bare - taken.alone, 0.0)) / bare
    only_calls = calls and "--drop" in change and not taken.gpu
    return min(saved, max(taken.most, 0.0) if only_calls else 1.0)


def row_of(name: str, program: str, found: dict[str, Any], rival: dict[str, str]) -> dict[str, str]:
    """Return the row of one pair: its slopes, what was won, and what each prediction says."""
    from analysis.formats.errors import InputError, UsageError
    from tests.answer_key import score as scores

    gpu = next(on for one, on in scores.captured(name, program, "") if one == program)
    declaration, truth = scores.declared(name)[program], scores.truths(name)[program, gpu]
    change = declaration["change"]
    row = {"set": name, "program": program, "gpu": gpu, "slopes_gpu": found["gpu"]}
    row |= {"change": " ".join(change), "counts": "yes" if truth.counts else ""}
    row["slopes"] = " ".join(f"{one['change']}:{scores.shown(one['slope'], 2)}" for one in found["targets"])
    row["won"] = scores.shown(truth.saving)
    taken = None
    with tempfile.TemporaryDirectory() as where:
        try:
            capture = scores.unpack(name, program, gpu, Path(where)) / "captures"
            taken = gone(capture, change)
            if not rival:
                replayed = scores.replay_row(program, gpu, declaration, truth, capture.parent)
                ends = [float(replayed[end]) for end in ("predicted_low", "predicted_high") if replayed[end]]
                rival = {what: scores.shown(of) for what, of in taken.simpler.items()}
                rival |= {"replay": scores.shown(sum(ends) / 2)} if ends else {}
        except (InputError, UsageError, FileNotFoundError) as error:
            print(program, error, file=sys.stderr)
    replay = float(rival["replay"]) if rival.get("replay") else None
    row["predicted"] = scores.shown(predicted(found, change, taken, replay, gpu != found["gpu"]))
    return row | {what: rival.get(what, "") for what in ("replay", "sum", "share")}


def write(path: Path, lines: list[dict[str, str]]) -> None:
    """Write rows of one kind."""
    with path.open("w", encoding="utf-8", newline="") as target:
        writer = csv.DictWriter(target, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def score(folder: Path, gpu: str) -> None:
    """Write the table of all pairs that were measured, and the first look of each set that had none."""
    known = json.loads(lzma.decompress(FILE.read_bytes())) if FILE.exists() else {}
    for path in sorted(folder.glob("*/*.json")):
        found = json.loads(path.read_text(encoding="utf-8")) | {"gpu": gpu}
        known.setdefault(path.parent.name, {}).setdefault(path.stem, found)
    text = json.dumps(known, indent=1, sort_keys=True) + "\n"
    FILE.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    with (HERE / "rivals.csv").open(encoding="utf-8", newline="") as file:
        rivals = {(row["set"], row["program"]): row for row in csv.DictReader(file)}
    lines = []
    for name, of in known.items():
        rows = [row_of(name, program, found, rivals.get((name, program), {})) for program, found in of.items()]
        lines += rows
        if name.startswith("blind_measured"):
            first = HERE / name / "measured_first_look.csv"
            seen = list(csv.DictReader(first.read_text(encoding="utf-8").splitlines())) if first.exists() else []
            known_rows = {(one["set"], one["program"]) for one in seen}
            write(first, seen + [one for one in rows if (one["set"], one["program"]) not in known_rows])
    write(TABLE, lines)
    print(table())


def figures(rows: list[dict[str, str]]) -> dict[str, Figure]:
    """Return how many predictions are near, also those of rivals, and how many of fixes that win nothing say more."""
    found = {}
    judged = [one for one in rows if one["counts"] and one["predicted"]]
    for what in ("predicted", *COLUMNS[2:]):
        pairs = [(float(one["won"]), float(one[what])) for one in judged if one[what]]
        near = sum(abs(said - won) <= max(0.2 * abs(won), 0.01) for won, said in pairs)
        found[what] = Figure(near, len(pairs), 0.9 if what == "predicted" else None)
    nothing = [float(one["predicted"]) > NOTHING for one in judged if float(one["won"]) < NOTHING]
    near = found.pop("predicted")
    wrong = Figure(sum(nothing), len(nothing), 0)
    return {"slopes: near": near, "slopes: over 2 %, and nothing won": wrong} | {
        f"{name}: near": one for name, one in found.items()
    }


def table() -> str:
    """Return the table of the README: for each set its first look and today's score."""
    today = read(TABLE)
    rows = {path.parent.name: read(path) for path in sorted(HERE.glob("blind_measured*/measured_first_look.csv"))}
    found = {
        f"`{name}`": [[one for one in of if one["set"] == name] for of in (first, today)]
        for name, first in rows.items()
    }
    found["all pairs of measured.csv"] = [[one for first in rows.values() for one in first], today]
    return looks("set", {name: [figures(one) for one in of] for name, of in found.items()})


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["run", "score", "sets"])
    parser.add_argument("sets", nargs="*")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--gpu", default="h100", choices=["h100", "h200"], help="of the slopes in FOLDER")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3600, help="start no further program after so many seconds")
    parser.add_argument("--each", type=float, default=2.5, help="seconds for each part")
    options = parser.parse_args(arguments)
    if options.what == "score":
        score(Path(options.sets[0]), options.gpu)
        return 0
    if options.what == "sets":
        print(table())
        return 0
    started = time.monotonic()
    found = [one for one in programs(options.sets, options.out.resolve(), options.only) if one.declared.get("change")]
    found = [one for one in found if one.ranks == options.ranks]
    with ThreadPoolExecutor(8) as pool:
        found = [one for one, fine in zip(found, pool.map(build, found), strict=True) if fine]

    def one(program: Program) -> None:
        if time.monotonic() - started > options.seconds:
            print("no time left:", program.path.stem, flush=True)
            return
        said = measured(program, options.each)
        change = " ".join(program.declared["change"])
        print(f"== {time.monotonic() - started:.1f} s {program.path.stem}: {change}\n{said}", flush=True)

    with ThreadPoolExecutor(WORKERS) as pool:  # they start while another one has the GPU
        list(pool.map(one, found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
