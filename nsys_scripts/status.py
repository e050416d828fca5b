"""Write the outcome of a capture to nsys.json or ncu.json: ok, missing, denied or failed, with the reason and the fix.

The report reads these files: it names a tool that failed, with the fix, and lowers the evidence tier. Users commit the
files with the exports, so they hold no absolute path and nothing of the environment.
"""

import argparse
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from scrub import without_paths

NAMES = {"nsys": "Nsight Systems", "ncu": "Nsight Compute"}
MISSING_FIX = {
    "nsys": "Install Nsight Systems (the CUDA toolkit and Nsight Compute include it), or put nsys on PATH.",
    "ncu": "Install Nsight Compute (the CUDA toolkit includes it), or put ncu on PATH.",
}
DENIED_FIX = (
    "Run as root, or let every user read GPU counters: put 'options nvidia NVreg_RestrictProfilingToAdminUsers=0'"
    " into /etc/modprobe.d/nvidia-profiling.conf and reboot."
)
TIMED_OUT = 124  # exit code of `timeout`
APP_ERROR = re.compile(r"\s*(\w*(Error|Exception)\b|error:|FATAL)", re.IGNORECASE)
ALONE_FIX = "Run the program without the tool first."
WINDOW_FIX = "Call cudaProfilerStart and cudaProfilerStop in the program, or capture all of it with --window all."
RATIO = re.compile(r"\.ratio$|pct$|\.pct_of_peak\w*$|\.per_cycle\w*$")
# What the tools print and what it means: (pattern, status, reason, fix). The first pattern that matches counts.
MESSAGES = [
    (
        r"The timeline reached \d+ MB",
        "failed",
        "{0}, its limit, so the program was ended; the timeline holds everything until then.",
        "Put cudaProfilerStart and cudaProfilerStop around a few steps, or allow more with --timeline-mb.",
    ),
    (
        r"Failed to create directory|TMPDIR.{0,20} not writ",
        "failed",
        "The tool cannot write its temporary files.",
        "Set TMPDIR to a writable folder with at least 200 MB free, then capture again.",
    ),
    (
        r"ERR_NVGPUCTRPERM",
        "denied",
        "The driver lets only administrators read GPU counters (ERR_NVGPUCTRPERM).",
        DENIED_FIX,
    ),
    (
        r"driver resource was unavailable",
        "denied",
        "Another program holds the GPU counters (driver resource was unavailable).",
        "Stop the other profiler or monitor (often DCGM: 'dcgmi profile --pause'), then capture again.",
    ),
    (
        r"No kernels were profiled",
        "failed",
        "No kernel was launched inside the window and the requested NVTX ranges.",
        "Check --include against the program's range names, or use --window all.",
    ),
    (
        r"The importer of nsys lacks [^\n]*",
        "failed",
        "nsys left only a .qdstrm, because its importer lacks a library.",
        "{0} Then run nsys_scripts/export_csv.sh on the run folder.",
    ),
    (
        r"it has no QdstrmImporter",
        "failed",
        "nsys left only a .qdstrm, and this nsys has no importer.",
        "Install Nsight Systems, which has an importer, then run nsys_scripts/export_csv.sh on the run folder.",
    ),
    (
        r"error while loading shared libraries: ([^\s:]+)",
        "failed",
        "A program of the tool cannot start ({0}).",
        "Install the package that has this library, or set NSYS_IMPORTER_LIBS to a folder that has it.",
    ),
    (
        r"No space left on device",
        "failed",
        "The disk is full (No space left on device).",
        "Free some space, then capture again.",
    ),
    (
        r"\bEOFError\b|EOF when reading",
        "failed",
        "The program reads its standard input, which is empty here.",
        "Give each run a file as its input with --stdin FILE.",
    ),
    (
        r"(?i)\bout of memory\b",
        "failed",
        "There is not enough memory (out of memory); ncu needs additional memory to replay a kernel.",
        "Use a smaller input, close other programs on the GPU, or count with --replay application.",
    ),
    (r"==ERROR== [^\n]*", "failed", "{0}", "Run the command of this file by itself to see all of its output."),
    (r"No reports were generated", "failed", "The program never opened the capture window.", WINDOW_FIX),
]


def judge(exit_code: int, log: str, report_written: bool) -> tuple[str, str, str]:
    """Return (status, reason, fix) from a tool's exit code, its output, and whether it wrote a report."""
    if exit_code == 0 and report_written and "ERR_NVGPUCTRPERM" not in log:
        return "ok", "", ""
    if exit_code == TIMED_OUT:
        return "failed", "The program took longer than its limit and was ended.", "Allow more with --limit."
    for pattern, status, reason, fix in MESSAGES:
        if found := re.search(pattern, log):
            return status, reason.format(found[0]), fix.format(found[0])
    if exit_code:
        errors = [line for line in log.splitlines() if APP_ERROR.match(line)]
        said = f": {errors[-1].strip()}" if errors else ""
        return "failed", f"The captured program ended with exit code {exit_code}{said}.", ALONE_FIX
    return "failed", "The tool wrote no report and gave no reason.", WINDOW_FIX


GENERIC = {"root", "user", "users", "home", "admin", "ubuntu", "runner", "nobody"}  # these identify nobody


def scrub(text: str) -> str:
    """Return a text without absolute paths and without the names of this machine and its user."""
    text = without_paths(text)
    host = os.uname().nodename
    names = {os.environ.get("USER", ""), os.environ.get("LOGNAME", ""), os.path.basename(os.path.expanduser("~"))}
    words = {name: "user" for name in names if len(name) > 2 and name.lower() not in GENERIC}
    words |= {host: "host"} if len(host) > 3 else {}
    for word, instead in words.items():
        text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", instead, text)
    return text


# An absolute path below any folder, as a word of a command, the value of an option or an entry of a list.
WHOLE_PATH = re.compile(r"(?:^|(?<=[=:,@]))/(?:[^/=:,]+/)+([^/=:,]+)/?")


def scrub_command(words: list[str]) -> list[str]:
    """Return a command whose paths are relative inside the working folder, and bare names elsewhere."""
    here = str(Path.cwd())
    inside = [re.sub(rf"(?<![\w./-]){re.escape(here)}/", "", word) for word in words]
    return [scrub(WHOLE_PATH.sub(r"\1", word)) for word in inside]


def version_of(text: str) -> str | None:
    """Return the version number in a tool's output for --version; None if there is none."""
    found = re.search(r"\d+(?:\.\d+){2,}", text)
    return found[0] if found else None


def write(path: Path, status: dict[str, Any]) -> None:
    """Write a status file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(status, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    partial.replace(path)


def record(options: argparse.Namespace) -> int:
    """Judge a finished capture and write its status file. Return 1 unless the status is `ok`."""
    if options.missing:
        verdict = ("missing", f"{NAMES[options.tool]} ({options.tool}) was not found.", MISSING_FIX[options.tool])
    else:
        log = options.log.read_text(encoding="utf-8", errors="replace") if options.log.is_file() else ""
        written = options.report.is_file() and options.report.stat().st_size > 0
        verdict = judge(options.exit_code, log, written)
    status: dict[str, Any] = {
        "kind": "tool-status",
        "schema_version": 1,
        "tool": options.tool,
        "version": version_of(options.version),
        "status": verdict[0],
        "reason": scrub(verdict[1]),
        # not scrubbed: a fix is our own sentence, and the reader needs its paths of the system
        "fix": verdict[2],
        "command": scrub_command(options.command),
        "seconds": options.seconds,
        "window": options.window,
        "clock_control": "none",
    }
    if options.tool == "ncu":
        status |= {
            "planned": options.planned,
            "nvtx_include": options.include,
            "cache_control": options.cache_control,
            "replay_mode": options.replay_mode,
            "metrics": [name for name in options.metrics.split(",") if name],
        }
    write(options.file, status)
    if verdict[0] != "ok":
        print(f"{options.tool} {verdict[0]}: {status['reason']} {verdict[2]}", file=sys.stderr)
    return 0 if verdict[0] == "ok" else 1


def amend(options: argparse.Namespace) -> int:
    """Change a status file after an export: to `failed` if that failed, to `ok` if it repaired a failed capture."""
    status = json.loads(options.file.read_text(encoding="utf-8")) if options.file.is_file() else None
    if options.action == "fail":
        status = status or {
            "kind": "tool-status",
            "schema_version": 1,
            "tool": options.tool,
            "version": None,
            "command": [],
        }
        status |= {
            "status": "failed",
            "reason": scrub(options.reason),
            "fix": "Solve this, then run nsys_scripts/export_csv.sh on the run folder.",
        }
    elif status is None or not re.search(r"\.qdstrm|nsys stats|cannot be exported", status["reason"]):
        return 0  # nothing to repair, or nothing that an export repairs
    else:
        status |= {"status": "ok", "reason": "", "fix": ""}
    write(options.file, status)
    return 0


def metrics(options: argparse.Namespace) -> int:
    """Print the metrics that the status file names, comma-separated: a line of counts, then a line of ratios."""
    status = json.loads(options.file.read_text(encoding="utf-8")) if options.file.is_file() else {}
    for ratios in (False, True):
        print(",".join(name for name in status.get("metrics", []) if bool(RATIO.search(name)) == ratios))
    return 0


def selection(options: argparse.Namespace) -> int:
    """Print ncu's options for the launches that a plan chose, an option with its argument on each line.

    Return 1 if the plan chose no launch.
    """
    found = json.loads(options.file.read_text(encoding="utf-8"))
    if found.get("kind") != "count-selection" or not found["replayed"]:
        return 1
    lines = [f"--nvtx-include {include}" for include in found["include"]]
    kernels = f"regex:{found['kernels']}" if found.get("kernels") else ""
    if found["invocations"]:
        named = f":{kernels}" if kernels else ":"
        lines += ["--kernel-name-base mangled", f"--kernel-id :{named}:{found['invocations']}"]
        lines.append(f"--launch-count {found['replayed']}")  # the launches after the last one cost nothing
    elif kernels:
        lines += ["--kernel-name-base mangled", f"--kernel-name {kernels}"]
    if "replay" in found:  # a program with collectives: one GPU, no memory restored
        lines += [f"--devices {found['device']}", f"--replay {found['replay']}", "--app-replay-mode relaxed"]
        lines.append(f"--columns {found['columns']}")
    print("\n".join(lines))
    return 0


def trusted(options: argparse.Namespace) -> int:
    """Print the report's verdict on the self-test. Return 1 unless it trusts the counters."""
    trust = json.loads(options.file.read_text(encoding="utf-8"))["trust"]
    print(f"Self-test: {trust['status']}. {trust['sentence']}")
    return 0 if trust["status"] == "trusted" else 1


def main(arguments: list[str] | None = None) -> int:
    """Run the command line, for the scripts of this folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    actions = parser.add_subparsers(dest="action", required=True)
    recorder = actions.add_parser("record", help="after a capture")
    recorder.add_argument("file", type=Path)
    recorder.add_argument("--tool", choices=sorted(NAMES), required=True)
    recorder.add_argument("--missing", action="store_true", help="the tool was not found")
    recorder.add_argument("--exit-code", type=int, default=0)
    recorder.add_argument("--log", type=Path, default=Path("-"))
    recorder.add_argument("--report", type=Path, default=Path("-"))
    recorder.add_argument("--version", default="", help="what the tool prints for --version")
    recorder.add_argument("--seconds", type=int, default=None, help="how long the capture took")
    recorder.add_argument("--window", default="profiler")
    recorder.add_argument("--include", action="append", default=[])
    recorder.add_argument("--planned", action="store_true", help="a plan chose the launches")
    recorder.add_argument("--cache-control", default="all")
    recorder.add_argument("--replay-mode", default="kernel")
    recorder.add_argument("--metrics", default="")
    recorder.add_argument("command", nargs="+", help="the command that was run, after --")
    recorder.set_defaults(run=record)
    failer = actions.add_parser("fail", help="after an export that failed")
    failer.add_argument("file", type=Path)
    failer.add_argument("--tool", choices=sorted(NAMES), required=True)
    failer.add_argument("--reason", required=True)
    failer.set_defaults(run=amend)
    exported = actions.add_parser("exported", help="after an export that went well")
    exported.add_argument("file", type=Path)
    exported.set_defaults(run=amend)
    lister = actions.add_parser("metrics", help="what a capture holds")
    lister.add_argument("file", type=Path)
    lister.set_defaults(run=metrics)
    selector = actions.add_parser("selection", help="ncu's options for what a plan chose")
    selector.add_argument("file", type=Path)
    selector.set_defaults(run=selection)
    truster = actions.add_parser("trusted", help="after a report: does it trust its counters?")
    truster.add_argument("file", type=Path)
    truster.set_defaults(run=trusted)
    options = parser.parse_args(arguments)
    try:
        code: int = options.run(options)
    except OSError as error:
        print(f"{options.file} could not be written or read: {error.strerror}.", file=sys.stderr)
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
