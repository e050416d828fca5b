"""Compiles the specimens with nvcc alone, for sm_90 alone, and reads what the machine code shows of their defects.

    python -m kernels.specimens.build             compiles and links build/specimens/driver
    python -m kernels.specimens.build --update    writes static.csv too: registers, spills, opcodes of every kernel
Exit: 0 done; 1 a source does not compile, or its code does not show the defect; 127 a tool is missing.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from kernels import build, census, objects
from kernels.specimens.registry import BUILT, FOLDER, PAIRS, Pair, specimens

ARCH = "90"
MORE = ("--extended-lambda",)
OUT = objects.FOLDER.parent / "build" / "specimens"
TABLE = FOLDER / "static.csv"
COLUMNS = ("specimen", "kernel", "source", "code", "nvcc", "registers", "spill_bytes", "stack_bytes", "shared_bytes",
           "code_bytes", "opcodes")  # fmt: skip
BOUND = re.compile(r"(slow|fixed) ([\w.]+) (>=|<=) (\d+)")

Row = dict[str, str]


def sources() -> list[Path]:
    """Return the driver, then the .cu files of the sets that are built."""
    return [path for part in ("driver", *BUILT) for path in sorted((FOLDER / part).glob("*.cu"))]


def compile_source(nvcc: str, version: str, source: Path) -> Path:
    """Return the object of a source, compiled if it is not there; its log stands beside it. Raises BuildError."""
    mark = objects.object_fingerprint(version, source, ARCH, MORE)
    found = OUT / f"{source.parent.name}-{source.stem}-{mark}.o"
    if found.is_file():
        return found
    print(f"compiling {source.relative_to(FOLDER)} (a minute) ...", file=sys.stderr, flush=True)
    OUT.mkdir(parents=True, exist_ok=True)
    unfinished = found.with_suffix(".part.o")
    done = subprocess.run(
        objects.command(nvcc, source, ARCH, unfinished, MORE), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise build.BuildError(f"{source.relative_to(FOLDER)} does not compile: {done.stderr.strip()}")
    found.with_suffix(".log").write_text(done.stderr, encoding="utf-8")
    return unfinished.replace(found)


def link(nvcc: str) -> Path:
    """Return the driver. Raises BuildError."""
    version = objects.nvcc_version(nvcc)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        files = [str(path) for path in pool.map(partial(compile_source, nvcc, version), sources())]
    gencode = f"-gencode=arch=compute_{ARCH},code=sm_{ARCH}"
    done = subprocess.run(
        [nvcc, gencode, *files, "-o", str(OUT / "driver"), "-ldl"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise build.BuildError(f"the driver does not link: {done.stderr.strip()}")
    return OUT / "driver"


def static_rows(nvcc: str) -> list[Row]:
    """Return a row of static.csv for each kernel of ours, in the order of the specimens' names. Raises BuildError.

    Rows of the sets that are not built stay as they are.
    """
    version = objects.nvcc_version(nvcc)
    known: dict[str, Row] = {}
    for source in sources()[1:]:
        compiled = compile_source(nvcc, version, source)
        codes = census.read_sass(census.dump("-sass", compiled))
        usages = build.read_ptxas(compiled.with_suffix(".log").read_text("utf-8"))
        names = census.demangle([usage.symbol for usage in usages])
        for name, usage in zip(names, usages, strict=True):
            code = codes[usage.symbol]
            known[name] = {
                "kernel": name,
                "source": str(source.relative_to(FOLDER)),
                "code": objects.fingerprint(source),
                "nvcc": version,
                "registers": str(usage.registers),
                "spill_bytes": str(usage.spill_bytes),
                "stack_bytes": str(usage.stack_bytes),
                "shared_bytes": str(usage.shared_bytes),
                "code_bytes": str(code.code_bytes),
                "opcodes": " ".join(f"{opcode}:{count}" for opcode, count in sorted(code.opcodes.items())),
            }
    kept = {row["specimen"]: row for row in read_table() if row["source"].partition("/")[0] not in BUILT}
    return [kept.get(one.name) or {"specimen": one.name, **known[one.kernel]} for one in specimens() if one.kernel]


def read_table() -> list[Row]:
    """Return the committed static.csv."""
    with TABLE.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def opcodes(row: Row) -> Counter[str]:
    """Return the instructions by whole opcode ("LDG.E.128") and by its first part ("LDG")."""
    counts: Counter[str] = Counter()
    for entry in row["opcodes"].split():
        opcode, _, count = entry.rpartition(":")
        for name in {opcode, opcode.partition(".")[0]}:
            counts[name] += int(count)
    return counts


def refuted(pair: Pair, rows: dict[str, Row]) -> list[str]:
    """Return the parts of a pair's evidence that static.csv does not show; `rows` by the names of specimens."""
    found = []
    for text in pair.evidence:
        match = BOUND.fullmatch(text)
        if match is None:
            raise ValueError(f"{pair.half}/{pair.defect}: evidence {text!r} is not like 'slow LDL >= 1'")
        row = rows[f"{pair.half}/{pair.defect}/{match[1]}"]
        value = int(row[match[2]]) if match[2] in row else opcodes(row)[match[2]]
        if not (value >= int(match[4]) if match[3] == ">=" else value <= int(match[4])):
            found.append(f"{pair.half}/{pair.defect}: {text}, but it is {value}")
    return found


def main() -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m kernels.specimens.build",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--update", action="store_true", help="write static.csv")
    arguments = parser.parse_args()
    nvcc = build.find_nvcc()
    if nvcc is None or (arguments.update and census.tool("cuobjdump") is None):
        print(
            "nvcc was not found" if nvcc is None else "cuobjdump was not found: pip install -e '.[census]'",
            file=sys.stderr,
        )
        return 127
    try:
        print(link(nvcc))
        if not arguments.update:
            return 0
        rows = static_rows(nvcc)
    except build.BuildError as error:
        print(error, file=sys.stderr)
        return 1
    with TABLE.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    by_name = {row["specimen"]: row for row in rows}
    wrong = [text for pair in PAIRS for text in refuted(pair, by_name)]
    print(
        "\n".join([*wrong, f"{len(rows)} kernels in {TABLE.name}, {len(wrong)} of their defects not seen in the code"])
    )
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
