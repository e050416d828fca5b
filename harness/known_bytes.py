"""Prove samples of counters on this GPU: run launches of known bytes under nsys, and hold the samples against them.

usage: python -m harness.known_bytes [--out DIR]      needs nvcc, nsys and a GPU with 24 GiB of free memory

The report in DIR (default: runs/known-bytes) has the table known_bytes. harness/README.md shows one of an H100.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.profile.argv import SAMPLE_HZ
from harness.profile.machine import HERE, ROOT, capability

SOURCE = Path(__file__).with_suffix(".cu")


def commands(out: Path, arch: str) -> list[list[str]]:
    """Return what is run: the compiler, nsys with samples, the export, and the report."""
    program = out / "raw" / "known_bytes"
    capture = [str(HERE / "nsys_capture.sh"), "--sample-hz", str(SAMPLE_HZ), "--out", str(out), "--", str(program)]
    return [
        ["nvcc", "-O3", "-std=c++17", f"-arch=sm_{arch}", "-o", str(program), str(SOURCE)],
        capture,
        [str(HERE / "export_csv.sh"), "--only", "nsys", str(out)],
        [sys.executable, str(ROOT / "analysis" / "report.py"), str(out / "captures"), "--out", str(out)],
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Exit code: that of the first command that fails; 127: no GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "known-bytes", metavar="DIR")
    options = parser.parse_args(arguments)
    cc, why = capability()
    if not cc:
        print(f"known_bytes: no GPU ({why}).", file=sys.stderr)
        return 127
    (options.out / "raw").mkdir(parents=True, exist_ok=True)
    for command in commands(options.out, cc.replace(".", "")):
        if code := subprocess.run(command, check=False).returncode:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
