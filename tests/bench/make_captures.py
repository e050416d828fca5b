"""Make captures of any size for the benchmark of the readers: an nsys SQLite export, and the same data as CSV files.

Two processes train on a GPU each. Every step pushes a range, a range for each of 24 layers, and four ranges in a
layer, which launch the kernels, so there is a range for every ten kernels. Kernels of one stream run in the order of
their launches: each starts when it is launched and the one before has ended. Tables, columns and types follow schema
3.7 (nsys 2023.4).

The same size and seed give the same rows.
"""

import json
import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

SEED = 20240
PIDS = (4101, 4102)
_LAYERS = 24
_PARTS = ("ln_1", "attn", "ln_2", "mlp")
_LAUNCHES_OF_PART = 12
_FIRST_CORRELATION = 11
_LAUNCHES_OF_STEP = _LAYERS * len(_PARTS) * _LAUNCHES_OF_PART
_BATCH = 100_000
# Short and demangled names, the way PyTorch, cuBLAS and Triton name their kernels.
_NAMES = (
    (
        "vectorized_elementwise_kernel",
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_op{i}<{dtype}>, "
        "std::array<char *, 2>>(int, T2, T3)",
    ),
    ("cutlass_80_tensorop", "cutlass_80_tensorop_s1688gemm_{wide}x{high}_32x4_nn_align{i}"),
    (
        "reduce_kernel",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<{dtype}, at::native::func_wrapper_t<{dtype}, "
        "op{i}>, unsigned int, {dtype}, 4>>(T3)",
    ),
    ("triton_poi_fused_add", "triton_poi_fused_add_{i}"),
    (
        "layer_norm_kernel",
        "void (anonymous namespace)::layer_norm_kernel<{dtype}, {dtype}, {i}>(int, T2, const T1 *, const T1 *, T2 *, "
        "T2 *)",
    ),
)

_SCHEMA = """
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_GPU (id INTEGER NOT NULL, name TEXT, cuDevice INTEGER, pid INTEGER, smCount INTEGER,
  computeMajor INTEGER, computeMinor INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
  category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER,
  domainId INTEGER, uint64Value INTEGER, int64Value INTEGER, doubleValue REAL, uint32Value INTEGER,
  int32Value INTEGER, floatValue REAL, jsonTextId INTEGER, jsonText TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
  globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL,
  callchainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,
  globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER,
  launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL,
  gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL,
  blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL,
  localMemoryPerThread INTEGER NOT NULL, localMemoryTotal INTEGER NOT NULL, gridId INTEGER NOT NULL,
  sharedMemoryExecuted INTEGER, graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER);
"""


@dataclass(frozen=True)
class Program:
    """The two processes' launches and ranges as columns, launches sorted by kernel start.

    launches  start, end, api_start, api_end (ns), process (0, 1), correlation, kernel (row of `kernels`), stream
    ranges    start, end (ns), process, name (row of `names`), sorted by start within a process
    kernels   one of each: demangled and short name, grid, block, registers, shared memory
    """

    launches: dict[str, np.ndarray]
    ranges: dict[str, np.ndarray]
    names: list[str]
    kernels: list[dict[str, Any]]
    pids: tuple[int, ...] = PIDS


@dataclass(frozen=True)
class Mix:
    """What a program launches: how many kernel names, of which kinds, how long at least, and on which streams.

    `processes`: how many launch, each on a GPU of its own. `around`: ranges around each step.
    """

    names: int = 120
    kinds: tuple[tuple[str, str], ...] = _NAMES
    least_chars: int = 0
    streams: tuple[int, ...] = (7, 13)
    processes: int = len(PIDS)
    around: int = 0


def _kernels(random: np.random.Generator, mix: Mix) -> list[dict[str, Any]]:
    """Return the kernels of a mix with names, shapes and durations."""
    made = []
    dtypes = ("float", "c10::Half", "c10::BFloat16")
    for i in range(mix.names):
        dtype = dtypes[i % 3]
        short, arguments = mix.kinds[i % len(mix.kinds)]
        name = arguments.format(i=i, dtype=dtype, wide=64 << i % 3, high=64 << i % 2)
        name += f"<{'int, ' * ((mix.least_chars - len(name)) // 5)}{i}>" if len(name) < mix.least_chars else ""
        made.append(
            {
                "demangled": name,
                "short": short,
                "grid": (int(random.integers(1, 9000)), int(random.choice([1, 1, 12, 64])), 1),
                "block": (int(random.choice([32, 128, 256, 512])), 1, 1),
                "registers": int(random.integers(16, 255)),
                "shared": int(random.choice([0, 0, 16, 4224, 98304])),
                "median_ns": float(random.lognormal(7.9, 0.9)),
            }
        )
    return made


def make_program(kernels: int, seed: int = SEED, mix: Mix = Mix()) -> Program:
    """Return a program of `kernels` launches and about a tenth as many ranges."""
    random = np.random.default_rng(seed)
    catalogue = _kernels(random, mix)
    # Every part of a layer launches its own kernels, in the same order at each step.
    pattern = random.zipf(1.3, _LAUNCHES_OF_STEP).clip(1, len(catalogue)) - 1
    if mix.names > _LAUNCHES_OF_STEP:  # more names than launches of a step: each step has its own
        pattern = np.arange(mix.names)
    names = ["step", *(f"h.{i}" for i in range(_LAYERS)), *_PARTS, *(f"around.{i}" for i in range(mix.around))]
    launches, ranges = [], []
    for process in range(mix.processes):
        count = kernels // mix.processes + (process < kernels % mix.processes)
        steps = -(-count // _LAUNCHES_OF_STEP)
        # Time between calls: 4 µs with a tail, and a wait at every 2,000th that lets the GPU run empty.
        call = 2_000 + random.integers(0, 1_500, steps * _LAUNCHES_OF_STEP)
        before = random.gamma(1.5, 1_500.0, len(call)).astype(np.int64) + 1
        before[::2_000] += 2_000_000
        api_end = 1_200_000_000 + process * 311 + np.cumsum(before + call)
        api_start = api_end - call
        first_of_part = np.arange(0, len(call), _LAUNCHES_OF_PART)
        start = [api_start[first_of_part] - 200]
        end = [api_end[first_of_part + _LAUNCHES_OF_PART - 1] + 200]
        name = [np.tile(np.arange(len(_PARTS)) + 1 + _LAYERS, steps * _LAYERS)]
        for of, spread, named in (
            (len(_PARTS), 250, np.tile(np.arange(_LAYERS) + 1, steps)),
            (_LAYERS, 300, np.zeros(steps, dtype=np.int64)),
        ):
            start.append(start[-1][::of] - spread + 200)
            end.append(end[-1][of - 1 :: of] + spread - 200)
            name.append(named)
        for i in range(mix.around):
            start.append(start[2] - 1 - i)
            end.append(end[2] + 1 + i)
            name.append(np.full(steps, len(names) - 1 - i))
        # The last step stops where the asked number of kernels is reached; its ranges stay.
        api_start, api_end = api_start[:count], api_end[:count]
        kernel = np.resize(pattern, count)
        median = np.array([entry["median_ns"] for entry in catalogue])[kernel]
        duration = (median * random.lognormal(0.0, 0.1, count)).astype(np.int64) + 800
        stream = _streams(random, mix, count)
        begin = np.empty(count, dtype=np.int64)
        for one in mix.streams:
            mine = np.flatnonzero(stream == one)
            busy = np.cumsum(duration[mine])
            ready = api_start[mine] + 2_600
            finish = busy + np.maximum.accumulate(ready - (busy - duration[mine]))
            begin[mine] = finish - duration[mine]
        launches.append(
            {
                "start": begin,
                "end": begin + duration,
                "api_start": api_start,
                "api_end": api_end,
                "process": np.full(count, process),
                "correlation": np.arange(count) * 2 + _FIRST_CORRELATION,
                "kernel": kernel,
                "stream": stream,
            }
        )
        whole = {
            "start": np.concatenate(start),
            "end": np.concatenate(end),
            "name": np.concatenate(name),
            "process": np.full(sum(map(len, start)), process),
        }
        order = np.lexsort((-whole["end"], whole["start"]))
        ranges.append({column: values[order] for column, values in whole.items()})
    joined = {column: np.concatenate([part[column] for part in launches]) for column in launches[0]}
    order = np.argsort(joined["start"], kind="stable")
    return Program(
        {column: values[order] for column, values in joined.items()},
        {column: np.concatenate([part[column] for part in ranges]) for column in ranges[0]},
        names,
        catalogue,
        tuple(PIDS[0] + process for process in range(mix.processes)),
    )


def _streams(random: np.random.Generator, mix: Mix, count: int) -> np.ndarray:
    """Return the stream of each launch: of two streams the first has nine in ten, of more each has as many."""
    if len(mix.streams) == 2:
        return np.where(random.random(count) < 0.9, *mix.streams)
    return np.array(mix.streams)[random.integers(0, len(mix.streams), count)]


def place_of(program: Program) -> tuple[np.ndarray, np.ndarray]:
    """Return the path of each launch's innermost range, and the start of that instance in ns."""
    launches, ranges = program.launches, program.ranges
    paths = np.empty(len(launches["start"]), dtype=object)
    begin = np.empty(len(paths), dtype=np.int64)
    for process in range(len(PIDS)):
        mine = np.flatnonzero(launches["process"] == process)
        part = (launches["correlation"][mine] - _FIRST_CORRELATION) // 2 // _LAUNCHES_OF_PART
        own = (ranges["process"] == process) & (ranges["name"] > _LAYERS)
        begin[mine] = np.sort(ranges["start"][own])[part]
        layer = part // len(_PARTS) % _LAYERS
        names = np.array([[f"step/h.{i}/{name}" for name in _PARTS] for i in range(_LAYERS)], dtype=object)
        paths[mine] = names[layer, part % len(_PARTS)]
    return paths, begin


def _insert(db: sqlite3.Connection, table: str, columns: list[Any], rows: int, bar: Any) -> None:
    """Insert `rows` rows; a column is an array, or one value for every row."""
    marks = ", ".join("?" if isinstance(column, np.ndarray) else _literal(column) for column in columns)
    arrays = [column for column in columns if isinstance(column, np.ndarray)]
    for first in range(0, rows, _BATCH):
        part = [array[first : first + _BATCH].tolist() for array in arrays]
        db.executemany(f"INSERT INTO {table} VALUES ({marks})", zip(*part, strict=True))
        bar.update(len(part[0]))


def _literal(value: int | None) -> str:
    return "NULL" if value is None else str(value)


def write_sqlite(program: Program, path: Path, progress: bool = False, with_ranges: bool = True) -> None:
    """Write the program in the form of `nsys export --type sqlite` to a new file at `path`."""
    launches = program.launches
    ranges = {name: column if with_ranges else column[:0] for name, column in program.ranges.items()}
    texts = [*program.names]
    for kernel in program.kernels:
        texts += [text for text in (kernel["demangled"], kernel["short"]) if text not in texts]
    texts += ["cudaLaunchKernel_v7000", "cudaStreamSynchronize_v3020"]
    id_of = {text: i for i, text in enumerate(texts, 1)}
    columns: dict[str, list[int]] = {
        "demangled": [id_of[kernel["demangled"]] for kernel in program.kernels],
        "short": [id_of[kernel["short"]] for kernel in program.kernels],
        "registers": [kernel["registers"] for kernel in program.kernels],
        "grid_x": [kernel["grid"][0] for kernel in program.kernels],
        "grid_y": [kernel["grid"][1] for kernel in program.kernels],
        "block_x": [kernel["block"][0] for kernel in program.kernels],
        "shared": [kernel["shared"] for kernel in program.kernels],
    }
    of_kernel = {name: np.array(values)[launches["kernel"]] for name, values in columns.items()}
    global_pid = np.array([(1 << 56) | pid << 24 for pid in program.pids])
    global_tid = global_pid + np.array(program.pids)
    count, spans = len(launches["start"]), len(ranges["start"])
    db = sqlite3.connect(path)
    bar = tqdm(total=2 * count + spans, unit="row", unit_scale=True, desc=path.name, disable=not progress, leave=False)
    try:
        db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + _SCHEMA)
        db.executemany(
            "INSERT INTO META_DATA_EXPORT VALUES (?, ?)",
            [("EXPORT_SCHEMA_VERSION", "3.7.2"), ("EXPORT_SCHEMA_VERSION_MAJOR", "3")],
        )
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", [(i, text) for text, i in id_of.items()])
        db.executemany(
            "INSERT INTO TARGET_INFO_GPU VALUES (?, 'NVIDIA H200', ?, ?, 132, 9, 0)",
            [(i, i, pid) for i, pid in enumerate(program.pids)],
        )
        # Steps and layers are registered names (an id), parts plain ones (a text).
        plain = np.isin(ranges["name"], [program.names.index(part) for part in _PARTS])
        names = np.array(program.names, dtype=object)[ranges["name"]]
        names[~plain] = None
        ids = (ranges["name"] + 1).astype(object)
        ids[plain] = None
        _insert(
            db, "NVTX_EVENTS",
            [ranges["start"], ranges["end"], 59, None, None, None, names, global_tid[ranges["process"]],
             global_tid[ranges["process"]], ids, 0, *[None] * 8], spans, bar,
        )  # fmt: skip
        order = np.argsort(launches["api_start"], kind="stable")
        _insert(
            db, "CUPTI_ACTIVITY_KIND_RUNTIME",
            [launches["api_start"][order], launches["api_end"][order], 0, global_tid[launches["process"]][order],
             launches["correlation"][order], id_of["cudaLaunchKernel_v7000"], 0, None], count, bar,
        )  # fmt: skip
        _insert(
            db, "CUPTI_ACTIVITY_KIND_KERNEL",
            [launches["start"], launches["end"], launches["process"], 1, None, launches["stream"],
             launches["correlation"], global_pid[launches["process"]], of_kernel["demangled"], of_kernel["short"],
             of_kernel["demangled"], 1, 0, of_kernel["registers"], of_kernel["grid_x"], of_kernel["grid_y"], 1,
             of_kernel["block_x"], 1, 1, 0, of_kernel["shared"], 0, 87_293_952, launches["correlation"] + 5,
             102_400, None, 1], count, bar,
        )  # fmt: skip
        db.commit()
    finally:
        bar.close()
        db.close()


def _csv_tables(program: Program) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (report, columns) of cuda_gpu_trace and cuda_kern_exec_trace in the form of nsys 2023.4 and later."""
    import pyarrow as pa

    launches = program.launches
    kernel = pa.array(launches["kernel"].astype(np.int32))

    def coded(values: list[Any]) -> Any:
        return pa.DictionaryArray.from_arrays(kernel, pa.array(values)).dictionary_decode()

    empty = pa.nulls(len(kernel), pa.string())
    name = coded([entry["demangled"] for entry in program.kernels])
    device = np.char.add("NVIDIA H200 (", np.char.add(np.arange(len(PIDS)).astype(str), ")"))
    duration = launches["end"] - launches["start"]
    yield (
        "cuda_gpu_trace",
        {
            "Start (ns)": launches["start"],
            "Duration (ns)": duration,
            "CorrId": launches["correlation"],
            **{f"Grd{axis}": coded([entry["grid"][i] for entry in program.kernels]) for i, axis in enumerate("XYZ")},
            **{f"Blk{axis}": coded([entry["block"][i] for entry in program.kernels]) for i, axis in enumerate("XYZ")},
            "Reg/Trd": coded([entry["registers"] for entry in program.kernels]),
            "StcSMem (MB)": coded(["0.000"] * len(program.kernels)),
            "DymSMem (MB)": coded([f"{entry['shared'] / 1e6:.3f}" for entry in program.kernels]),
            **dict.fromkeys(("Bytes (MB)", "Throughput (MB/s)", "SrcMemKd", "DstMemKd"), empty),
            "Device": device[launches["process"]],
            "Ctx": np.ones(len(kernel), dtype=np.int64),
            "GreenCtx": empty,
            "Strm": launches["stream"],
            "Name": name,
        },
    )
    # nsys prints the launches in the order of the calls, and no queue time for what started before its call returned.
    queued = launches["start"] >= launches["api_end"]
    pid = np.array(PIDS)[launches["process"]]
    table = {
        "API Start (ns)": launches["api_start"],
        "API Dur (ns)": launches["api_end"] - launches["api_start"],
        "Queue Start (ns)": pa.array(launches["api_end"], mask=~queued),
        "Queue Dur (ns)": pa.array(launches["start"] - launches["api_end"], mask=~queued),
        "Kernel Start (ns)": launches["start"],
        "Kernel Dur (ns)": duration,
        "Total Dur (ns)": np.maximum(launches["api_end"], launches["end"]) - launches["api_start"],
        "PID": pid,
        "TID": pid,
        "DevId": launches["process"],
        "API Function": pa.array(np.full(len(kernel), "cudaLaunchKernel")),
        "GridXYZ": coded(["{:4d} {:4d} {:4d}".format(*entry["grid"]) for entry in program.kernels]),
        "BlockXYZ": coded(["{:4d} {:4d} {:4d}".format(*entry["block"]) for entry in program.kernels]),
        "Kernel Name": name,
    }
    order = pa.array(np.argsort(launches["api_start"], kind="stable"))
    yield "cuda_kern_exec_trace", {key: pa.array(column).take(order) for key, column in table.items()}


def _lines(columns: dict[str, Any]) -> Iterator[Any]:
    """Yield the rows as lines of text, in buffers. As Python's csv module, it quotes only cells with a comma."""
    import pyarrow as pa
    import pyarrow.compute as pc

    table = pa.table(columns)
    for first in range(0, len(table), _BATCH):
        cells = []
        for column in table.slice(first, _BATCH).columns:
            text = pc.fill_null(column.cast(pa.string()).combine_chunks(), "")
            quoted = pc.binary_join_element_wise('"', text, '"', "")
            cells.append(pc.if_else(pc.match_substring(text, ","), quoted, text))
        last = pc.binary_join_element_wise(cells.pop(), "\n", "")
        lines = pc.binary_join_element_wise(*cells, last, ",").cast(pa.large_string())
        yield lines.buffers()[2]  # the texts of an array stand one after another


def write_csv(program: Program, folder: Path) -> dict[str, Path]:
    """Write the reports that hold every launch into `folder`; return report -> file."""
    written = {}
    for report, columns in _csv_tables(program):
        path = folder / f"{report}.csv"
        with path.open("wb") as stream:
            stream.write((",".join(columns) + "\n").encode())
            for lines in _lines(columns):
                stream.write(lines)
        written[report] = path
    return written


def _event(
    category: str, rows: int, pid: np.ndarray, tid: Any, start: np.ndarray, end: np.ndarray, **columns: Any
) -> Any:
    """Return the events of one category as lines of JSON. Columns: the name, and what stands in `args`, each as JSON."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def text(column: Any) -> Any:
        return pc.cast(pa.array(column) if isinstance(column, np.ndarray) else column, pa.string())

    def microseconds(ns: np.ndarray) -> Any:
        return pc.binary_join_element_wise(text(ns // 1000), pc.utf8_lpad(text(ns % 1000), 3, "0"), ".")

    name = columns.pop("name")
    parts: list[Any] = [
        f'{{"ph": "X", "cat": "{category}", "name": "',
        text(name),
        '", "pid": ',
        text(pid),
        ', "tid": ',
        text(tid),
    ]
    parts += [', "ts": ', microseconds(start), ', "dur": ', microseconds(end - start), ', "args": {']
    for i, (key, column) in enumerate(columns.items()):
        parts += [f'{", " * bool(i)}"{key.replace("_", " ")}": ', text(column)]
    whole = [part if not isinstance(part, str) else pa.repeat(part, rows) for part in [*parts, "}},\n"]]
    return pc.binary_join_element_wise(*whole, "")


def write_torch_trace(program: Program, path: Path) -> None:
    """Write the program as torch.profiler's Chrome trace, with a process for each GPU."""
    import pyarrow as pa

    launches, ranges = program.launches, program.ranges
    code = pa.array(launches["kernel"].astype(np.int32))

    def coded(values: list[Any]) -> Any:
        return pa.DictionaryArray.from_arrays(code, pa.array(values)).dictionary_decode()

    count, pid = len(launches["start"]), np.array(PIDS)
    number = launches["correlation"] + launches["process"]  # those of a process are odd, of the other one even
    kernels, process = program.kernels, launches["process"]
    names = pa.array([f"{name}" for name in program.names]).take(pa.array(ranges["name"]))
    shape = {key: coded([f"[{', '.join(map(str, one[key]))}]" for one in kernels]) for key in ("grid", "block")}
    lines = [
        _event("user_annotation", len(names), pid[ranges["process"]], pid[ranges["process"]], ranges["start"],
               ranges["end"], name=names, External_id=np.arange(len(names))),
        _event("cuda_runtime", count, pid[process], pid[process], launches["api_start"], launches["api_end"],
               name=pa.repeat("cudaLaunchKernel", count), correlation=number),
        _event("kernel", count, process, launches["stream"], launches["start"], launches["end"],
               name=coded([one["demangled"] for one in kernels]), correlation=number, device=process,
               stream=launches["stream"], registers_per_thread=coded([one["registers"] for one in kernels]), **shape),
    ]  # fmt: skip
    devices = [{"id": i, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "numSms": 132} for i in range(2)]
    with path.open("wb") as stream:
        stream.write(
            b'{"schemaVersion": 1, "deviceProperties": ' + json.dumps(devices).encode() + b', "traceEvents": [\n'
        )
        for events in lines:
            for first in range(0, len(events), _BATCH):
                stream.write("".join(events.slice(first, _BATCH).to_pylist()).encode())
        stream.write(b'{"ph": "M", "name": "process_name", "pid": 0, "args": {}}]}\n')


def main() -> int:
    """Write one capture; the arguments are its size and its folder."""
    if len(sys.argv) != 3 or not sys.argv[1].isdigit():
        print("usage: python -m tests.bench.make_captures KERNELS FOLDER", file=sys.stderr)
        return 2
    folder = Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    program = make_program(int(sys.argv[1]))
    write_sqlite(program, folder / "capture.sqlite", progress=sys.stderr.isatty())
    write_csv(program, folder)
    return 0


if __name__ == "__main__":
    from analysis.formats.console import run_program

    sys.exit(run_program(main))
