"""Write the outcome of a capture to nsys.json or ncu.json: ok, missing, denied or failed, with the reason and the fix.

The report reads these files: it names a tool that failed, with the fix, and lowers the evidence tier. Users commit the
files with the exports, so they hold no absolute path and nothing of the environment.
"""

import argparse
import os
import re
import sys
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from analysis.formats.writing import read_json, write_json
from harness.profile.machine import version_of
from harness.profile.scrub import without_paths

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


REFUSED = re.compile(r"(Illegal|unrecogni[sz]ed|[Uu]nknown)[^\n]*--gpu-metrics|Insufficient privilege")
# Why nsys refuses to sample: (pattern, reason). The first pattern that matches counts.
UNSAMPLED = [
    (r"Already under profiling", "another program samples the counters of this GPU"),
    (r"ERR_NVGPUCTRPERM|[Pp]rivilege", "the driver lets only administrators read GPU counters (ERR_NVGPUCTRPERM)"),
    (r"\bMIG\b", "nsys cannot sample a part of a GPU (MIG)"),
    (r"not supported|are supported|No such GPU", "nsys cannot sample the GPUs of this machine"),
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


def asked(command: list[str]) -> dict[str, Any]:
    """Return what the options of a tool's command say of its capture."""
    options = command[: command.index("-o")] if "-o" in command else []
    pairs = list(pairwise(options))
    given = dict(pairs)
    window = "profiler" if {"--profile-from-start", "-c"} & set(options) else "all"
    if "--metrics" not in given:
        return {"window": window, "clock_control": "none"}
    include = [word for before, word in pairs if before == "--nvtx-include"]
    for domain in {word.partition("@")[0] for word in include if "@" in word}:  # forms of others (argv.py)
        include = [word for word in include if f"{domain}@" not in word and f"{domain}:" not in word]
    return {
        "window": window,
        "clock_control": "none",
        "planned": "--kernel-name-base" in options,
        "nvtx_include": include,
        "cache_control": given["--cache-control"],
        "replay_mode": given["--replay-mode"],
        "metrics": [name for name in given["--metrics"].split(",") if not name.startswith("group:")],
    }


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
        "date": datetime.now(UTC).date().isoformat(),
        **asked(options.command),
    }
    write_json(options.file, status)
    if verdict[0] != "ok":
        print(f"{options.tool} {verdict[0]}: {status['reason']} {verdict[2]}", file=sys.stderr)
    return 0 if verdict[0] == "ok" else 1


def why_unsampled(log: str) -> str:
    """Return why nsys refused to sample counters, from its output; '' if it did not."""
    if not REFUSED.search(log):
        return ""
    return next(
        (why for pattern, why in UNSAMPLED if re.search(pattern, log)), "this nsys rejects its options for that"
    )


def note(path: Path, **more: Any) -> None:
    """Add fields to a status file."""
    write_json(path, read_json(path) | more)


EXPORT_FIX = "Solve this, then run nsys_scripts/export_csv.sh on the run folder."


def fail(path: Path, tool: str, reason: str, fix: str = EXPORT_FIX) -> None:
    """Write into a status file that the export, or another part of the capture, failed."""
    empty = {"kind": "tool-status", "schema_version": 1, "tool": tool, "version": None, "command": []}
    write_json(path, (read_json(path) or empty) | {"status": "failed", "reason": scrub(reason), "fix": fix})


def mend(path: Path) -> None:
    """Set a status file to `ok` if it says that an export failed, which has gone well since."""
    status = read_json(path)
    if status and re.search(r"\.qdstrm|nsys stats|cannot be exported", status["reason"]):
        write_json(path, status | {"status": "ok", "reason": "", "fix": ""})


def main(arguments: list[str] | None = None) -> int:
    """Run the command line, for the capture scripts: record the outcome of a capture."""
    parser = argparse.ArgumentParser(
        prog="python -m harness.profile.status", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--tool", choices=sorted(NAMES), required=True)
    parser.add_argument("--missing", action="store_true", help="the tool was not found")
    parser.add_argument("--lost", metavar="REASON", default="", help="why nothing was captured")
    parser.add_argument("--exit-code", type=int, default=0)
    parser.add_argument("--log", type=Path, default=Path("-"))
    parser.add_argument("--report", type=Path, default=Path("-"))
    parser.add_argument("--version", default="", help="what the tool prints for --version")
    parser.add_argument("--seconds", type=int, default=None, help="how long the capture took")
    parser.add_argument("command", nargs="+", help="the command that was run, after --")
    options = parser.parse_args(arguments)
    try:
        if options.lost:
            fail(options.file, options.tool, options.lost, "Run it again, or read the report without it.")
            return 0
        return record(options)
    except OSError as error:
        print(f"{options.file} could not be written or read: {error.strerror}.", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
