"""Let nsys sample DRAM traffic in bytes: its own sets of counters print whole percents of the peak.

usage: python -m harness.profile.sample_set NSYS FOLDER CAPABILITY RATE

Writes FOLDER/NAME-bytes.config, nsys' set for GPUs of this compute capability with two metrics more, and prints the
option that selects it. If it cannot, it prints why to standard error; nsys then takes its own set. RATE is in Hz.
"""

import re
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from analysis.formats.console import documented

SETS = {
    "7.5": "tu10x",
    "8.0": "ga100",
    "8.6": "ga10x",
    "8.9": "ad10x",
    "9.0": "gh100",
    "10.0": "gb10x",
    "12.0": "gb20x",
}
FORMAT = "version: 5"  # older ones know no suffix of a metric
LEAST_HZ = 5_000  # nsys stores 32 bits with a sign: at this rate, 10 TB/s fit
OURS = "-bytes"  # ends the name of our set; nsys wants the name of the file as its alias
_METRIC = """\
  - name: DRAM {0} Bytes
    id: dram__bytes_{1}
    schedulingRule: optional
    subMetrics:
    - name: Bytes
      suffix: .sum
"""


def of_nsys(nsys: Path, capability: str) -> tuple[str, str]:
    """Return nsys' name for the set of a compute capability, and the set's text.

    Raises: LookupError with the reason if there is none of FORMAT.
    """
    name, home = SETS.get(capability, ""), nsys.resolve().parent
    if not name:
        raise LookupError(f"GPUs of compute capability {', '.join(capability.split()) or 'unknown'} have no known set")
    folders = (home, *sorted(home.parent.glob("target-linux-*")))
    path = next((file for one in folders if (file := one / "GpuMetrics" / f"{name}.config").is_file()), None)
    if not path:
        raise LookupError(f"nsys has no file of its set {name}")
    text = path.read_text(encoding="utf-8", errors="replace").rstrip("\n") + "\n"
    if not re.search(rf"^{FORMAT}$", text, re.MULTILINE):
        raise LookupError(f"the file of nsys' set {name} has another format than {FORMAT}")
    if len(re.findall(r"^- alias:", text, re.MULTILINE)) != 1 or f"\n- alias: {name}\n" not in text:
        raise LookupError(f"the file of nsys' set {name} does not hold this set alone")
    if not re.search(r"^  metrics:\n(  [ -].*\n)+\Z", text, re.MULTILINE):
        raise LookupError(f"the file of nsys' set {name} does not end with its metrics")
    return name, text


def with_bytes(name: str, text: str) -> str:
    """Return the text of a set with its new alias and DRAM traffic in bytes."""
    more = "".join(_METRIC.format(word, word.lower()) for word in ("Read", "Write"))
    return text.replace(f"- alias: {name}\n", f"- alias: {name}{OURS}\n") + more


def lost(run: Path) -> str:
    """Return the name of nsys' own set if nsys silently sampled nothing with ours, else ""."""
    database, ours = run / "raw" / "timeline.sqlite", next((run / "raw").glob(f"*{OURS}.config"), None)
    if not ours or not database.is_file():
        return ""
    try:
        with closing(sqlite3.connect(f"file:{database.absolute()}?mode=ro", uri=True)) as db:
            sampled = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'GPU_METRICS'").fetchall()
            return "" if sampled else ours.stem.removesuffix(OURS)
    except sqlite3.Error:
        return ""


def option(nsys: Path, folder: Path, capability: str, rate: int) -> str:
    """Write our set into a folder, and return the option that selects it; print why, and return "", if it cannot be."""
    try:
        if rate < LEAST_HZ:
            raise LookupError(f"bytes of one sample can pass 32 bits below {LEAST_HZ:,} Hz")
        name, text = of_nsys(nsys, capability)
        path = folder.absolute() / f"{name}{OURS}.config"
        path.write_text(with_bytes(name, text), encoding="utf-8")
    except (LookupError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        print(f"The samples show DRAM traffic in whole percents: {why}.", file=sys.stderr)
        return ""
    return f"--gpu-metrics-set=file:{path}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Exit code 1: nsys has to take its own set."""
    parser = documented("python -m harness.profile.sample_set", __doc__)
    for name, kind in (("nsys", Path), ("folder", Path), ("capability", str), ("rate", int)):
        parser.add_argument(name, type=kind, metavar=name.upper())
    found = option(**vars(parser.parse_args(arguments)))
    print(found, end="\n" if found else "")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
