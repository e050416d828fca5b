"""Prove samples of counters on this GPU: run launches of known bytes under nsys, and hold the samples against them.

usage: python -m harness.known_bytes [--out DIR] [--cost ROUNDS]   needs nvcc, nsys and a GPU with 24 GiB of free memory

The report in DIR (default: runs/known-bytes) has the tables known_bytes and known_windows; harness/README.md shows two.
With --cost, DIR/known_cost.csv has the time of a step under nsys without samples (no), with those of its own set of
counters (yes), and with bytes of DRAM (bytes).
"""

import argparse
import csv
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.profile import sample_set
from harness.profile.argv import SAMPLE_HZ, nsys
from harness.profile.machine import HERE, ROOT, capability

SOURCE = Path(__file__).with_suffix(".cu")


def build(out: Path, arch: str) -> list[str]:
    """Return the command that compiles the program."""
    return ["nvcc", "-O3", "-std=c++17", f"-arch=sm_{arch}", "-o", str(out / "raw" / "known_bytes"), str(SOURCE)]


def commands(out: Path) -> list[list[str]]:
    """Return what is run: nsys with samples, the export, and the report."""
    program = out / "raw" / "known_bytes"
    capture = [str(HERE / "nsys_capture.sh"), "--sample-hz", str(SAMPLE_HZ), "--out", str(out), "--", str(program)]
    return [
        capture,
        [str(HERE / "export_csv.sh"), "--only", "nsys", str(out)],
        [sys.executable, str(ROOT / "analysis" / "report.py"), str(out / "captures"), "--out", str(out)],
    ]


def cost(out: Path, rounds: int, cc: str) -> int:
    """Time steps under nsys with each kind of samples, in random order in each round; write each row as it comes."""
    program, report = out / "raw" / "known_bytes", out / "raw" / "cost"
    kinds = {"no": nsys("all"), "yes": nsys("all", sample_hz=SAMPLE_HZ)}
    if ours := sample_set.option(Path(shutil.which("nsys") or "nsys"), out / "raw", cc, SAMPLE_HZ):
        kinds["bytes"] = [*kinds["yes"], ours]
    with (out / "known_cost.csv").open("w", encoding="utf-8", newline="") as stream:
        table = csv.writer(stream, lineterminator="\n")
        table.writerow(("program", "round", "samples", "step_us"))
        for number in range(1, rounds + 1):
            for kind in random.sample(list(kinds), len(kinds)):
                options = [*kinds[kind], "-o", str(report), "-f", "true"]
                found = subprocess.run(
                    ["nsys", "profile", *options, str(program), "timed"], capture_output=True, text=True, check=False
                )
                times = re.findall(r"^(\w+) step_us ([\d.]+)$", found.stdout, re.MULTILINE)
                if found.returncode or not times:
                    print(f"known_bytes: nsys failed in round {number}: {found.stderr[-300:]}", file=sys.stderr)
                    return 1
                table.writerows((name, number, kind, time) for name, time in times)
            stream.flush()
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Exit code: that of the first command that fails; 127: no GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "known-bytes", metavar="DIR")
    parser.add_argument("--cost", type=int, default=0, metavar="ROUNDS")
    options = parser.parse_args(arguments)
    cc, why = capability()
    if not cc:
        print(f"known_bytes: no GPU ({why}).", file=sys.stderr)
        return 127
    (options.out / "raw").mkdir(parents=True, exist_ok=True)
    for command in [build(options.out, cc.replace(".", "")), *([] if options.cost else commands(options.out))]:
        if code := subprocess.run(command, check=False).returncode:
            return code
    return cost(options.out, options.cost, cc) if options.cost else 0


if __name__ == "__main__":
    sys.exit(main())
