"""Tabulate the compiled code of every kernel: registers, local memory, access widths, tensor instructions. No GPU.

    python -m kernels.census [FILE] [--op OP ...]  compiles every kernels/*/*.cu (or those of the named ops) for every
                                                 architecture, reads ptxas and the disassembly, and writes FILE
                                                 (build/census.csv)

It needs nvcc, c++filt, cuobjdump and nvdisasm (`pip install -e '.[census]'`).
Exit: 0 written; 1 a source does not compile; 2 usage; 127 a tool is missing.
"""

import argparse
import csv
import functools
import io
import lzma
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernels import build, objects

FOLDER = Path(__file__).resolve().parent
TABLE = FOLDER.parent / "build" / "census.csv"
TOOLS = ("cuobjdump", "nvdisasm", "c++filt")
BLOCKS = (32, 64, 128, 256, 512, 1024)
# accesses by memory space; a cell lists "bits per thread:number of instructions", such as "16:2 128:8"
ACCESSES = {
    "global_load": "LDG",
    "global_store": "STG",
    "shared_load": "LDS",
    "shared_store": "STS",
    "local_load": "LDL",
    "local_store": "STL",
    "generic_load": "LD",
    "generic_store": "ST",
    "async_copy": "LDGSTS",
}
TENSOR = ("HMMA", "IMMA", "DMMA", "BMMA", "HGMMA", "IGMMA", "QGMMA", "BGMMA")
BULK = ("UBLKCP", "UBLKPF", "UBLKRED", "UTMALDG", "UTMASTG", "UTMAPF", "UTMAREDG")
COLUMNS = (
    "op,source,kernel,sm,nvcc,registers,stack_bytes,spill_bytes,shared_bytes,max_threads,"
    + "".join(f"occupancy_{threads}_frac,limiter_{threads}," for threads in BLOCKS)
    + ",".join(ACCESSES)
    + ",bulk,tensor,shuffles,local_instructions,instructions,code_bytes"
).split(",")

Row = dict[str, str]


# Occupancy ---------------------------------------------------------------------------------------------------


@functools.cache
def limits(arch: int) -> Mapping[str, int]:
    """Return limits of a multiprocessor of sm_<arch> by name; sm_limits.toml has them with their sources."""
    data = tomllib.loads((FOLDER / "sm_limits.toml").read_text("utf-8"))
    return data["common"] | data["sm"][str(arch)]


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def occupancy(arch: int, threads: int, registers: int, shared_bytes: int) -> tuple[float, str] | None:
    """Return (theoretical occupancy, its limiter) of blocks of `threads`: resident warps over the SM's maximum.

    The limiter is "warps" if the SM is full, else the tightest of blocks, registers and shared, joined by "+"; None if
    no block fits. Dynamic shared memory is unknown before the launch and does not count.
    """
    most = limits(arch)
    warps = -(-threads // most["warp_threads"])
    registers_a_warp = _up(max(registers, 1) * most["warp_threads"], most["register_unit"])
    warps_a_partition = most["registers"] // most["partitions"] // registers_a_warp
    shared = _up(shared_bytes + most["shared_reserved_bytes"], most["shared_unit"])
    fits = {
        "warps": most["warps"] // warps,
        "blocks": most["blocks"],
        "registers": warps_a_partition * most["partitions"] // warps,
    }
    if shared:
        fits["shared"] = most["shared_bytes"] // shared
    # the SM allocates registers by partition: a block of 3 warps takes the registers of 4
    if _up(warps, most["partitions"]) * registers_a_warp > most["registers"]:
        fits["registers"] = 0
    blocks = min(fits.values())
    if threads > most["block_threads"] or not blocks:
        return None
    tightest = [name for name, count in fits.items() if count == blocks]
    return blocks * warps / most["warps"], "warps" if "warps" in tightest else "+".join(tightest)


# Disassembly -------------------------------------------------------------------------------------------------


@dataclass
class Code:
    """The instructions of one kernel: their number by opcode with modifiers ("LDG.E.128"), and their bytes."""

    opcodes: Counter[str] = field(default_factory=Counter)
    code_bytes: int = 0


_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:\{\s*)?(?:(@!?U?P[0-9T]+)\s+)?([A-Z][A-Za-z0-9_.]*)")


def read_sass(text: str) -> dict[str, Code]:
    """Return the code of every function in the output of `cuobjdump -sass`, by mangled name.

    Instructions without effect (NOP, and those predicated off by @!PT) add bytes and no instructions.
    """
    found: dict[str, Code] = {}
    current: Code | None = None
    for line in text.splitlines():
        if "Function : " in line:
            current = found.setdefault(line.split("Function : ")[1].strip(), Code())
        elif current is not None and (match := _INSTRUCTION.match(line)):
            current.code_bytes = int(match[1], 16) + 16
            if match[3] != "NOP" and match[2] != "@!PT":
                current.opcodes[match[3]] += 1
    return found


def read_max_threads(text: str) -> dict[str, int]:
    """Return mangled name -> threads by __launch_bounds__, from `cuobjdump -elf`; kernels without bounds are absent."""
    found: dict[str, int] = {}
    symbol, wanted = "", False
    for line in text.splitlines():
        if line.startswith(".nv.info"):
            symbol = line.strip().removeprefix(".nv.info").removeprefix(".")
        elif "EIATTR_MAX_THREADS" in line or "EIATTR_REQNTID" in line:
            wanted = True
        elif wanted and symbol and (match := re.search(r"Value:\s+0x([0-9a-f]+) 0x([0-9a-f]+) 0x([0-9a-f]+)", line)):
            x, y, z = (int(value, 16) for value in match.groups())
            found[symbol], wanted = x * y * z, False
    return found


def access_bits(opcode: str) -> int:
    """Return the bits that a thread moves in a load or store: 8 to 128 (256 on sm_100); 32 if the opcode has none."""
    parts = opcode.split(".")
    for part in parts:
        if part in ("U8", "S8"):
            return 8
        if part in ("U16", "S16"):
            return 16
    return next((int(part) for part in parts if part in ("64", "128", "256")), 32)


def _matrix_bits(opcode: str) -> int:
    """Return the bits per thread of LDSM and STSM: 32 for each 8x8 matrix of 16-bit elements."""
    last = opcode.split(".")[-1]
    return 32 * (int(last) if last in ("2", "4") else 1)


def _cell(counts: Mapping[Any, int]) -> str:
    return " ".join(f"{name}:{count}" for name, count in sorted(counts.items()))


def accesses(opcodes: Mapping[str, int], root: str) -> dict[int, int]:
    """Return a map of bits -> number of instructions, of the loads or stores with that opcode; LDSM counts as LDS."""
    counts: Counter[int] = Counter()
    for opcode, count in opcodes.items():
        first = opcode.split(".")[0]
        if first == root:
            counts[access_bits(opcode)] += count
        elif first == {"LDS": "LDSM", "STS": "STSM"}.get(root):
            counts[_matrix_bits(opcode)] += count
    return dict(counts)


def named(opcodes: Mapping[str, int], roots: Sequence[str]) -> dict[str, int]:
    """Return instructions with these roots, by their first three parts: "HMMA.16816.F32"."""
    counts: Counter[str] = Counter()
    for opcode, count in opcodes.items():
        parts = opcode.split(".")
        if parts[0] in roots:
            counts[".".join(parts[:3])] += count
    return dict(counts)


# Names -------------------------------------------------------------------------------------------------------


def readable(demangled: str) -> str:
    """Shorten the output of c++filt to `softmax_v03_causal<float, 4, 2, 128, 1>`.

    Dropped are the return type, parameters, casts, and anonymous namespaces."""
    name = re.sub(r"\(anonymous namespace\)::|_GLOBAL__N_\w*::|_INTERNAL_\w+::", "", demangled)
    name = re.sub(r"\((?:int|bool|unsigned int)\)", "", name).replace("__nv_bfloat16", "bf16")
    depth = 0
    for place, letter in enumerate(name):
        depth += (letter in "<") - (letter in ">")
        if letter == "(" and not depth and place:
            name = name[:place]
            break
    return name.removeprefix("void ").strip()


def demangle(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    done = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
    return [readable(line) for line in done.stdout.splitlines()]


# Rows --------------------------------------------------------------------------------------------------------


def row_of(usage: build.Usage, code: Code, max_threads: int, arch: int) -> Row:
    """Return the table's cells of one kernel on one architecture, without op, source, kernel and nvcc."""
    row: dict[str, Any] = {
        "sm": arch,
        "registers": usage.registers,
        "stack_bytes": usage.stack_bytes,
        "spill_bytes": usage.spill_bytes,
        "shared_bytes": usage.shared_bytes,
        "max_threads": max_threads,
    }
    for threads in BLOCKS:
        fits = occupancy(arch, threads, usage.registers, usage.shared_bytes) if threads <= max_threads else None
        row[f"occupancy_{threads}_frac"] = f"{fits[0]:.4g}" if fits else ""
        row[f"limiter_{threads}"] = fits[1] if fits else ""
    for column, root in ACCESSES.items():
        row[column] = _cell(accesses(code.opcodes, root))
    row["bulk"] = _cell(named(code.opcodes, BULK))
    row["tensor"] = _cell(named(code.opcodes, TENSOR))
    row["shuffles"] = sum(named(code.opcodes, ("SHFL",)).values())
    row["local_instructions"] = sum(sum(accesses(code.opcodes, root).values()) for root in ("LDL", "STL"))
    row["instructions"] = code.opcodes.total()
    row["code_bytes"] = code.code_bytes
    return {name: str(value) for name, value in row.items()}


def dump(what: str, path: Path) -> str:
    """Return the output of `cuobjdump <what>` for an object, cached until its next compilation. Raises BuildError."""
    kept = path.with_suffix(f"{what.replace('-', '.')}.xz")
    if kept.is_file() and kept.stat().st_mtime_ns >= path.stat().st_mtime_ns:
        return lzma.decompress(kept.read_bytes()).decode("utf-8")
    text = _cuobjdump(what, path)
    partial = kept.with_suffix(f".{os.getpid()}.part.o")
    partial.write_bytes(lzma.compress(text.encode("utf-8"), preset=0))
    partial.replace(kept)
    return text


def _cuobjdump(what: str, path: Path) -> str:
    environment = os.environ | {"PATH": _tool_path()}
    done = subprocess.run(
        [tool("cuobjdump") or "cuobjdump", what, str(path)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    if done.returncode:
        raise build.BuildError(f"cuobjdump cannot read {path.name}: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout


def rows_of(compiled: objects.Compiled, nvcc: str) -> list[Row]:
    """Return a row for every kernel of one object. Raises BuildError, one sentence, if its source does not compile."""
    if compiled.errors:
        raise build.BuildError(
            f"kernels/{compiled.source.parent.name}/{compiled.source.name} does not compile for sm_{compiled.arch}: "
            f"{compiled.errors.strip().splitlines()[0]}"
        )
    usages = sorted(build.read_ptxas(compiled.log))
    codes = read_sass(dump("-sass", compiled.object))
    threads = read_max_threads(dump("-elf", compiled.object))
    rows = []
    for usage, kernel in zip(usages, demangle([usage.symbol for usage in usages]), strict=True):
        most = threads.get(usage.symbol, limits(compiled.arch)["block_threads"])
        identity = {"op": compiled.source.parent.name, "source": compiled.source.name, "kernel": kernel, "nvcc": nvcc}
        rows.append(identity | row_of(usage, codes[usage.symbol], most, compiled.arch))
    return rows


def _tool_path() -> str:
    packaged = Path(sysconfig.get_path("purelib")) / "nvidia"
    folders = [str(path) for path in sorted(packaged.glob("cu*/bin"))]
    nvcc = build.find_nvcc()
    return os.pathsep.join([*folders, os.environ.get("PATH", ""), *([str(Path(nvcc).parent)] if nvcc else [])])


def tool(name: str) -> str | None:
    """Return the path of a tool of the CUDA toolkit or of NVIDIA's packages; None if it is not installed."""
    return shutil.which(name, path=_tool_path())


def take(nvcc: str, progress: bool = True, ops: Sequence[str] = ()) -> list[Row]:
    """Return the census of every source, or of those of some ops.

    Raises: BuildError, one sentence, if a source does not compile, or no op has one.
    """
    version = objects.nvcc_version(nvcc)
    files = [one for one in objects.sources() if not ops or one.parent.name in ops]
    if not files:
        raise build.BuildError(f"no op is named {', '.join(ops)}: kernels/ has one folder for each.")
    if progress:
        print(
            f"compiling and disassembling {len(files)} sources for {len(build.ARCHITECTURES)} architectures, "
            "some minutes the first time",
            file=sys.stderr,
            flush=True,
        )
    jobs = objects.compile_all(nvcc, files, build.ARCHITECTURES, lambda compiled: rows_of(compiled, version))
    if progress:
        jobs = _told(jobs, files)
    rows = [row for group in jobs for row in group]
    return sorted(rows, key=_sort_key)


def _told(jobs: Iterator[list[Row]], files: Sequence[Path]) -> Iterator[list[Row]]:
    """Yield the jobs and show progress on stderr: a bar on a terminal, else a line for each source."""
    if sys.stderr.isatty():
        from tqdm import tqdm

        yield from tqdm(jobs, desc="census", total=len(files) * len(build.ARCHITECTURES))
        return
    for done, job in enumerate(jobs, 1):
        yield job
        sources, rest = divmod(done, len(build.ARCHITECTURES))
        if not rest:
            source = files[sources - 1]
            print(f"{sources} of {len(files)}: {source.parent.name}/{source.name}", file=sys.stderr, flush=True)


def _sort_key(row: Row) -> tuple[str, str, str, int]:
    return row["op"], row["source"], row["kernel"], int(row["sm"])


# Table and page ----------------------------------------------------------------------------------------------


def csv_text(rows: Iterable[Row]) -> str:
    """census.csv."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def run(to: Path, ops: Sequence[str] = ()) -> int:
    """See the module's docstring."""
    nvcc = build.find_nvcc()
    missing = [name for name in TOOLS if tool(name) is None]
    if nvcc is None or missing:
        lacks = "nvcc was not found: install the CUDA toolkit." if nvcc is None else f"{', '.join(missing)} not found."
        print(f"{lacks} The extra `census` has cuobjdump and nvdisasm, binutils has c++filt.", file=sys.stderr)
        return 127
    fresh = take(nvcc, ops=ops)
    to.parent.mkdir(parents=True, exist_ok=True)
    temporary = to.with_name(f".{to.name}.part")
    temporary.write_text(csv_text(fresh), encoding="utf-8")
    temporary.replace(to)
    spills = sum(any(int(row[name]) for name in ("stack_bytes", "spill_bytes", "local_instructions")) for row in fresh)
    print(f"{to} holds {len(fresh)} kernels and architectures (nvcc {fresh[0]['nvcc']}); {spills} use local memory")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m kernels.census", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", nargs="?", type=Path, default=TABLE, help="the table to write (build/census.csv)")
    parser.add_argument("--op", nargs="+", default=[], metavar="OP", help="only the sources of these ops")
    options = parser.parse_args(arguments)
    try:
        return run(options.file, options.op)
    except (build.BuildError, OSError) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    import signal

    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end quietly if `| head` has closed the pipe
    raise SystemExit(main())
