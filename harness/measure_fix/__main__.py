"""measure in the running program what a fix would save: delay parts of it, and see how much its step grows.

    kernel-ledger measure-fix [--kernel REGEX] [--host REGEX] [--range REGEX] [--top N --report FILE] -- COMMAND

A slope of 1: the step grows by all that the part is delayed, so a faster part saves its whole time. 0: the part is
hidden behind others, and no faster part saves anything. Delays of length 0 alternate with the others in one run. The
program ends when the rounds do. Exit status 2: usage, 3: the program could not be measured, 127: no C compiler.
"""

import argparse
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from analysis.formats import place
from analysis.formats.console import run_program
from analysis.formats.errors import InputError
from analysis.formats.measured import MEASURED, Intervention, MeasuredTarget
from analysis.formats.report import REPORT, Report
from harness.measure_fix.rounds import EndedError, Experiment, Run
from harness.measure_fix.shared import SLOTS, Block, Mode
from harness.measure_fix.targets import Decider, Target, of_report
from harness.profile.scrub import without_paths
from harness.profile.status import scrub, scrub_command

SOURCES = [Path(__file__).resolve().parents[1] / "instrument" / name for name in ("delays.c", "nvtx.h")]
TEMPORARY = Path("/dev/shm")  # blocks of a disk would disturb the program


def _progress(text: str) -> None:
    print(f"measure-fix: {text}", file=sys.stderr, flush=True)


def library() -> Path:
    """Return the library of delays, which the first use builds.

    Raises:
        InputError: there is no C compiler, or it fails.
    """
    text = b"".join(path.read_bytes() for path in SOURCES) + platform.machine().encode()
    folder = place.cache() or Path(tempfile.gettempdir())
    built = folder / f"delays-{hashlib.sha256(text).hexdigest()[:16]}.so"
    if built.exists():
        return built
    compiler = os.environ.get("CC", "cc")
    if not shutil.which(compiler):
        raise InputError(f"There is no C compiler ({compiler}) to build the library of delays with; name one with CC.")
    folder.mkdir(parents=True, exist_ok=True)
    partial = built.with_suffix(f".{os.getpid()}")
    words = ["-std=gnu11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread", "-o", str(partial)]
    done = subprocess.run([compiler, *words, str(SOURCES[0]), "-ldl"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError(f"The C compiler could not build the library of delays: {done.stderr.strip().splitlines()[0]}")
    partial.replace(built)
    return built


def cupti() -> str:
    """Return the path of a CUPTI that the loader may not find by itself; "" for none."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    found = [path for part in ("lib64", "extras/CUPTI/lib64") for path in Path(home, part).glob("libcupti.so*")]
    for folder in sys.path:
        found += Path(folder, "nvidia").glob("*/lib/libcupti.so*") if folder else []
    return str(found[0]) if found else ""


PARTS = {
    "kernel": (Intervention.DELAY, "delay kernels, copies, collectives"),
    "host": (Intervention.HOST, "delay CUDA calls, or NVTX ranges at their end"),
    "virtual": (Intervention.VIRTUAL, "delay all other streams and the host instead (not in graphs)"),
    "virtual-host": (Intervention.VIRTUAL_HOST, "delay the GPU in CUDA calls or NVTX ranges, as if they were faster"),
    "remove": (Intervention.REMOVE, "let kernels and copies do nothing: the results of the program are WRONG"),
}
OPTIONS: dict[str, tuple[str, type, object, str]] = {
    "range": ("REGEX", str, "", "only what is inside matching NVTX ranges; * stands for a number"),
    "top": ("N", int, 0, f"the first N parts that --report names, at most {SLOTS}"),
    "report": ("FILE", Path, None, "report.json of a report on this program"),
    "step": ("REGEX", str, "", "the range, kernel or copy that comes once a step (default: found)"),
    "rank": ("N", int, None, "delay only this rank"),
    "seconds": ("S", float, 3.5, "for each part (default: 3.5)"),
    "out": ("FILE", Path, Path(MEASURED.name), f"default: {MEASURED.name}"),
    "log": ("FILE", Path, None, "where the program's output goes"),
}


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="measure-fix", description=__doc__, formatter_class=form)
    for name, (_, text) in PARTS.items():
        parser.add_argument(f"--{name}", metavar="REGEX", action="append", default=[], help=text)
    for name, (metavar, kind, default, text) in OPTIONS.items():
        parser.add_argument(f"--{name}", metavar=metavar, type=kind, default=default, help=text)
    return parser


def _targets(options: argparse.Namespace) -> list[Target]:
    given = [(what, getattr(options, name.replace("-", "_"))) for name, (what, _) in PARTS.items()]
    found = [Target(what, text, options.range) for what, texts in given for text in texts]
    if options.top:
        found += of_report(_report(options.report), options.top)
    if not found:
        raise InputError("Nothing to delay: name it with --kernel or --host, or ask for --top 10 of a report.")
    if len(found) > SLOTS:
        raise InputError(f"{len(found)} parts are too many for one run; at most {SLOTS} fit.")
    return found


def _report(path: Path | None) -> Report:
    if path is None or not path.is_file():
        raise InputError("--top: needs --report FILE, the report.json of a report on this program.")
    try:
        return msgspec.convert(REPORT.check(msgspec.json.decode(path.read_bytes()), path.name), Report)
    except msgspec.MsgspecError:
        raise InputError(f"{path.name}: is no report.json; {REPORT.again}.") from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    at = given.index("--") if "--" in given else len(given)
    options, command = _parser().parse_args(given[:at]), given[at + 1 :]
    try:
        targets = _targets(options)
        if command and Path(command[0]).name in ("nsys", "ncu"):
            raise InputError(f"{command[0]} is another profiler; start the program itself.")
        if not command or not shutil.which(command[0]):
            raise InputError(f"{command[0]}: was not found." if command else "No command to run after --.")
        if os.environ.get("CUDA_INJECTION64_PATH"):
            raise InputError("CUDA_INJECTION64_PATH is set, so another profiler is attached; run this without it.")
    except InputError as error:
        print(f"measure-fix: {error}", file=sys.stderr)
        return 2
    try:
        built = library()
    except InputError as error:
        print(f"measure-fix: {error}", file=sys.stderr)
        return 127
    os.environ.setdefault("KERNEL_LEDGER_CUPTI", cupti())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the program must not outlive this one
    kept = TEMPORARY if TEMPORARY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=kept) as folder:
        return _measure(options, Run(command, Path(folder), built, Decider(targets, options.step), options.rank))


def _measure(options: argparse.Namespace, run: Run) -> int:
    rows: list[MeasuredTarget] = []
    experiments: list[Experiment] = []
    targets = run.decider.targets
    why, idle = "", None
    run.start(options.log)
    try:
        step = run.wait_for_steps()
        _progress(f"A step ends with {step}")
        quiet = Block(25, SLOTS, Mode.CONTROL, 0)
        idle = run.measure([quiet])[0].step_ns
        idle = run.measure([replace(quiet, steps=max(25, round(0.2e9 / idle)))])[0].step_ns
        begun = time.monotonic()
        for slot, target in enumerate(targets):
            _progress(f"{slot + 1} of {len(targets)}: {target.text[:80]}")
            experiments.append(Experiment(run, slot, target, idle))
            experiments[slot].measure(options.seconds)
            rows.append(experiments[slot].row())
            print(_line(rows[-1]))
        end = begun + options.seconds * (len(targets) + 1)
        wide = [slot for slot, found in enumerate(experiments) if found.wide]
        for at, slot in enumerate(wide):
            _progress(f"{targets[slot].text[:80]} again: its interval is wide")
            experiments[slot].again(max(0.0, end - time.monotonic()) / (len(wide) - at))
            rows[slot] = experiments[slot].row()
            print(_line(rows[slot]))
    except EndedError:
        code = run.process.returncode
        why = f"The program ended (exit code {code}) before the rounds did; let it make more steps, or lower --seconds."
    except InputError as error:
        why = str(error)
    finally:
        run.end()
    for one in run.files.values():
        if one.head.failed or one.head.unchanged:
            counts = f"{one.head.failed} calls failed, {one.head.unchanged} graphs could not be changed"
            _progress(f"process {one.head.pid}: {counts}")
    if any(one.change is Intervention.REMOVE for one in targets):
        print("Launches were left out, so the results of this run are wrong.")
    if rows:
        values = {
            "command": " ".join(scrub_command(list(run.command))),
            "step": scrub(without_paths(run.decider.step)),
            "idle_step_ns": idle,
            "rank": options.rank,
            "targets": msgspec.to_builtins(rows),
        }
        options.out.write_text(json.dumps(MEASURED.document(values), indent=1) + "\n", encoding="utf-8")
        _progress(f"Wrote {options.out}")
    if why:
        print(f"measure-fix: {why}", file=sys.stderr)
    return 3 if why else 0


def _line(row: MeasuredTarget) -> str:
    """Return one line about one part."""
    text = row.target if len(row.target) <= 48 else f"{row.target[:47]}…"
    if row.slope is None or row.low is None or row.high is None or row.step_ns is None:
        return f"{row.change:12} {text:48} {row.why}"
    said = f"{row.slope:6.2f}  [{row.low:.2f}, {row.high:.2f}]"
    rest = f"{row.rounds} rounds, {row.per_step:.3g} delayed a step, step {row.step_ns / 1e3:,.1f} µs"
    return f"{row.change:12} {text:48} {said}  {rest}"


if __name__ == "__main__":
    sys.exit(run_program(main))
