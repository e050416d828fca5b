"""The command `kernel-ledger`: it runs a program of this project, from the checkout or from the tree in this package.

The folders `analysis` and `harness` are on the path of this process alone: nothing of that name is installed.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version

from kernel_ledger import TREE

# Command -> the module whose `main` it is, and what it does.
COMMANDS = {
    "report": ("analysis.report", "tables, figures and a report from exports of nsys and ncu"),
    "compare": ("analysis.compare", "where the time went between two sides, A -- B, with verdicts and a gate"),
    "ab": ("harness.ab", "run two commands in turns, in fresh processes under nsys, and compare them"),
    "measure-fix": ("harness.measure_fix.__main__", "delay parts of a running program, and see what its step grows"),
    "bisect": ("harness.bisect", "which commit, package, flag or variable made a command slower"),
    "history": ("analysis.history", "a metric over runs or commits, where it changes, and what changed with it"),
    "what-if": ("analysis.what_if", "replay the steady step with changes, and say what they save"),
    "fleet": ("analysis.fleet", "read many captures into a store, and ask what limits, differs and would save"),
    "mcp": ("analysis.serve.server", "serve captures to a language model, read-only (needs the extra mcp)"),
    "doctor": ("harness.doctor", "what this machine has for profiling, and how to get what it lacks"),
    "metrics": ("analysis.metrics", "the metrics for `ncu --metrics`; or, with files, which questions these answer"),
}
# Command -> the script of nsys_scripts that it is, and what it does.
SCRIPTS = {
    "profile": ("profile.sh", "profile a CUDA program with nsys and ncu, and write its report"),
    "export": ("export_csv.sh", "write the tables of .nsys-rep and .ncu-rep files as CSV"),
}


def usage() -> str:
    """The list of commands."""
    listed = "\n".join(f"  {name:<11} {said}" for name, (_, said) in (COMMANDS | SCRIPTS).items())
    return f"usage: kernel-ledger COMMAND …\n\n{listed}\n\n`kernel-ledger COMMAND --help` lists the options of each."


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code of the command; 2 for a command that does not exist."""
    given = list(sys.argv[1:] if arguments is None else arguments) or [""]
    sys.path.insert(0, str(TREE))
    console = import_module("analysis.formats.console")
    console.name_lacking_packages()
    return int(console.run_program(lambda: _run(*given)))


def _run(name: str, *rest: str) -> int:
    if name in ("-h", "--help"):
        print(usage())
        return 0
    if name == "--version":
        print(version("kernel-ledger"))
        return 0
    if name in SCRIPTS and os.name == "nt":
        print(f"kernel-ledger {name}: it runs Bash, nsys and ncu, so it needs Linux; report runs here", file=sys.stderr)
        return 2
    if name in SCRIPTS:
        script = str(TREE / "nsys_scripts" / SCRIPTS[name][0])
        sys.stdout.flush()
        os.execvpe("bash", ["bash", script, *rest], os.environ | {"PYTHON": sys.executable})
    if name not in COMMANDS:
        print(f"kernel-ledger: there is no command {name!r}\n{usage()}" if name else usage(), file=sys.stderr)
        return 2
    return int(import_module(COMMANDS[name][0]).main(list(rest)))
