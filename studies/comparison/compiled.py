"""Write a census of a few sources: what nvcc makes of them here, with any flags, for a bisection.

    python studies/comparison/compiled.py SOURCE…    write $OUT/census.csv; $NVCC_FLAGS are more flags of nvcc

A source is relative to the current folder, which may be another checkout.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kernels import build, census, objects

ARCH = 90


def main() -> int:
    """Compile the sources that the command line names."""
    if {"-h", "--help"} & set(sys.argv):
        print("usage: python -m studies.comparison.compiled")
        return 0
    out, nvcc = Path(os.environ["OUT"]), build.find_nvcc() or "nvcc"
    rows = []
    for name in sys.argv[1:]:
        source, made = Path(name), out / f"{Path(name).stem}.o"
        flags = [f"-I{source.parents[1] / 'include'}", *shlex.split(os.environ.get("NVCC_FLAGS", ""))]
        words = objects.command(nvcc, source, "90a", made, flags, kind="-cubin")
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            return 1
        compiled = objects.Compiled(source.resolve(), ARCH, made, done.stderr, "")
        rows += census.rows_of(compiled, objects.nvcc_version(nvcc))
    (out / "census.csv").write_text(census.csv_text(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
