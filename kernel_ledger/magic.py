"""The cell magic %%kernel_ledger: profile a cell of a notebook as a program of its own, and show its report."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kernel_ledger
from kernel_ledger import TREE

if TYPE_CHECKING:
    from analysis.api import Analysis

USAGE = """\
usage: %%kernel_ledger [--as NAME] [OPTIONS of kernel-ledger profile]

Profile this cell with nsys and ncu, and show the report; --as NAME keeps it as a variable. The cell runs several times,
each time as a program of its own: it must import what it uses, and sees no variable of the notebook."""


def profile_cell(line: str, cell: str, shell: Any) -> Analysis | None:
    """Return the analysis of a cell; None, with a sentence of what is missing, where it cannot be profiled."""
    try:
        options = shlex.split(line)
        name = _taken(options)
    except ValueError as error:
        print(f"%%kernel_ledger: {error}\n{USAGE}")
        return None
    if {"-h", "--help"} & set(options):
        print(USAGE)
        return None
    try:
        compile(cell, "<cell>", "exec")
    except SyntaxError as error:
        print(f"%%kernel_ledger: line {error.lineno} is not plain Python ({error.msg}); leave out % and ! commands")
        return None
    run, code = _profiled(cell, options)
    if code or not (run / "captures").is_dir():
        if "-n" not in options:
            print("The cell was not profiled. What a profile needs, and what this machine has:")
            _printed([sys.executable, "-m", "harness.doctor"], {"PYTHONPATH": str(TREE)})
        return None
    found: Analysis = kernel_ledger.analyse(kernel_ledger.load(run / "captures"))
    if name:
        shell.user_ns[name] = found
    return found


def _taken(options: list[str]) -> str:
    """Take --as NAME out of the options, and return the name.

    Raises: ValueError for what no option can be.
    """
    if "--" in options or "--run" in options:
        raise ValueError("the cell is the program, and its run has a folder: leave out -- and --run")
    if "--as" not in options:
        return ""
    at = options.index("--as")
    name = options[at + 1] if at + 1 < len(options) else ""
    if not name.isidentifier():
        raise ValueError("--as needs the name of a variable")
    del options[at : at + 2]
    return name


def _profiled(cell: str, options: list[str]) -> tuple[Path, int]:
    """Profile a cell with the driver of `kernel-ledger profile`, and return its run and the driver's exit code."""
    kernel_ledger.import_ours()
    from analysis.formats.place import runs

    run = runs(Path.cwd()) / f"cell-{hashlib.sha256(cell.encode()).hexdigest()[:12]}"
    script = run / "raw" / "cell.py"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(cell, encoding="utf-8")
    driver = ["bash", str(TREE / "nsys_scripts" / "profile.sh"), "--run", str(run), *options]
    path = os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH", "")]))
    code = _printed([*driver, "--", sys.executable, str(script)], {"PYTHON": sys.executable, "PYTHONPATH": path})
    return run, code


def _printed(command: list[str], more: dict[str, str]) -> int:
    """Run a command, print what it says as it says it, and return its exit code."""
    try:
        done = subprocess.Popen(
            command, env=os.environ | more, text=True, errors="replace", stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
    except OSError as error:
        print(f"{command[0]}: {error.strerror}")
        return 127
    assert done.stdout is not None
    try:
        for line in done.stdout:
            print(line, end="")
    except KeyboardInterrupt:
        done.terminate()  # the driver ends what it started
        done.wait()
        raise
    return done.wait()
