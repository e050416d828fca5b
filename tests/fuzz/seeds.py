"""Make the files that the fuzzer damages: small and whole, one of every kind and era, from the fixtures of the tests.

Readers of text must also give no wrong number for a damaged file (`truth`). So the numbers in these files differ
wherever they can: a number in the wrong place then shows.
"""

import functools
import gzip
import json
import sqlite3
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.cpu import test_capture_ncu as ncu_raw
from tests.cpu import test_capture_ncu_console as ncu_console
from tests.cpu import test_capture_ncu_pages as ncu_pages
from tests.cpu import test_capture_nsys_sqlite as sqlite
from tests.cpu import test_capture_nsys_table as nsys
from tests.cpu import test_capture_nsys_variants as variants
from tests.cpu import test_capture_torch_trace as torch_trace
from tests.nsys_export import ERAS, Export

SELF = "selftest,copy,,selftest/copy,selftest,0,1048576,float32,0,8388608,,,read=4194304;write=4194304\n"


@dataclass(frozen=True)
class Seed:
    """A whole file. `form` says how it is built: nsys, ncu, csv (ours), json, sqlite, gzip or binary."""

    name: str
    form: str
    data: bytes
    truth: bool = True  # structural damage of it must never give a wrong number


def _small_pages(export: Export) -> bytes:
    """Return an export in pages of 512 bytes, so that a small file has inner pages and rows over several of them."""
    with tempfile.TemporaryDirectory() as folder:
        path = export.save(Path(folder) / "x")
        database = sqlite3.connect(path)
        database.execute("PRAGMA page_size=512")
        database.execute("VACUUM")
        database.close()
        return path.read_bytes()


def _crowd(era: int) -> Export:
    export = Export(era)
    export.gpu()
    export.push("step", 0, 100_000)
    for at in range(40):
        export.launch(f"k<{at % 3}>(float *)", (100 + 50 * at, 110 + 50 * at), (5000 + 90 * at, 5050 + 91 * at))
    return export


def _unified(era: int) -> Export:
    export = sqlite.two_layers(era)
    for at in range(12):
        export.memcpy(50_000 + 700 * at, 50_300 + 701 * at, 0, 4096 + at, kind=11 + at % 2)
    return export


def _nsys() -> dict[str, str]:
    new = variants.with_kernels
    rows = variants.ROWS[variants.NEW]
    calls = variants.NEW.format(count="Num Calls", last="Name") + rows.format(
        a="cudaLaunchKernel_v7000", b="cuMemAlloc"
    )
    found = dict(
        zip(
            ["trace", "copies", "ranges", "launches", "sums", "by_range", "calls", "sizes", "projected", "german"],
            nsys.ALL,
            strict=True,
        )
    )
    found |= {
        "several": new(f"Processing [x.sqlite] with [y.py]... \n\n{calls}\n{nsys.PER_RANGE}"),
        "framed": f"Generating SQLite file x.sqlite\nSKIPPED: x.sqlite does not contain OS data.\n\n{nsys.SUMS}\n",
        "2021": variants.Y2021.format(count="Instances", last="Name") + variants.ROWS[variants.Y2021].format(a='"k<1, 2>"', b="l"),
        "2020": variants.Y2020.format(count="Instances", last="Name") + variants.ROWS[variants.Y2020].format(a="k", b="l"),
        "console": " ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):\n\n"
        + variants.console(
            [["89.5", "1,346,714,824", "2", "673,357,412.0", "673,357,412.0", "673,357,412", "673,357,412", "0.0", "k(int)"],
             ["10.5", "157,998,386", "1", "157,998,386.0", "157,998,386.0", "157,998,386", "157,998,386", "0.0", variants.LONG]],
            variants.HEAD_2024, 8) + "\n",
        "semicolons": variants.KERNELS.replace(",", ";") + "75,0;900;3;300,0;300,0;200;400;100,0;k<1, 2>(int)\n25,0;300;1;300,0;300,0;300;300;0,0;l\n",
    }  # fmt: skip
    return found


def _ncu() -> dict[str, str]:
    live = "==PROF== Connected to process 99\nstep 1, loss 2.5\n"
    raw = ncu_raw.page([ncu_raw.GOOD, ncu_raw.kernel(1, "0.300000", "7.250000", "CachePreferNone", "31,744")])
    nvtx = '7  "<default domain>:fwd:none:none:none:none:none:none"  "torch:h.0:none:none:RGB:0xff:REGISTERED:h.0" '
    row = [*ncu_raw.GOOD[:4], nvtx, "", *ncu_raw.GOOD[4:]]
    session = 'Session Info\n"Session Attribute","Value"\n"Host Name","secret-host"\n"CUDA Version","12.3"\n'
    instances = ncu_raw.page([ncu_raw.kernel(0, "7 (IMAD: 4; STG.E: 3)", "5.000000", "x", "26112 (20000; 6112)")])
    german = ncu_raw.page([ncu_raw.kernel(0, "0,200960", "2,880000", "CachePreferNone", "26.112")])
    return {
        **ncu_pages.WHOLE,
        "source by group": ncu_pages.by_group(),
        "raw live": live + raw + "done, 3 s\n==PROF== Disconnected from process 99\n",
        "raw nvtx": ncu_raw.page([row], head=ncu_raw.HEAD_NVTX),
        "raw instances": instances,
        "raw german": german,
        "pages": ncu_pages.WHOLE["raw"] + "\n" + session + "\n" + ncu_pages.WHOLE["source"],
        "console": ncu_console.NEW,
        "console 2022": ncu_console.OLD,
        "log": "==PROF== Connected to process 99\n==ERROR== ERR_NVGPUCTRPERM - no permission\n",
    }


def _nccl(era: int) -> Export:
    """Two ranks with a collective, whose payload says its bytes."""
    export = Export(era)
    for rank in (0, 1):
        place = {"pid": 7 + rank, "tid": 7 + rank}
        export.domain("NCCL", 3, **place)
        export.nccl("ncclCommInitRank", 1, 5, **place, comm=77, ranks=2, rank=rank)
        export.nccl("ncclAllReduce", 10, 40, **place, comm=77, bytes=4096)
        export.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", (20, 30), (50, 90), **place, device=rank)
    return export


def _ours() -> dict[str, str]:
    from analysis.formats.bare import BARE_RANGES
    from analysis.formats.counting import COUNT_PLAN
    from analysis.formats.decode import PHASES
    from analysis.formats.graphs import GRAPH_KERNELS
    from analysis.formats.inductor import INDUCTOR
    from analysis.formats.layers import LAYER_EVENTS
    from analysis.formats.ranks import NCCL_CALLS, PROCESS_RANKS
    from analysis.formats.run import CPU_RANGES, DATAFLOW, OPS
    from analysis.formats.sweep import SWEEP_ROWS

    return {
        "ops": f"{OPS.header}\n{SELF}softmax,chain,,gpt2/h.0/attn/softmax,prefill,3,1x12x8x8,float32,999,6144,12288,,\n",
        "cpu_ranges": f"{CPU_RANGES.header}\n0,900,a,7\n10,450,a/b,7\n500,870,a/c,7\n20,30,x,8\n",
        "bare_ranges": f"{BARE_RANGES.header}\n0,3,0,0,900,push,a\n0,3,0,10,450,push,b\n0,3,1,20,,push,x\n1,,0,500,870,start,c\n",
        "count_plan": f'{COUNT_PLAN.header}\nstep/h.*/mlp,"gemm<1, 2>",8x1x1,128x1x1,0,24,91500,3 17,0.684\n'
        "step/h.*,act,4x2x1,64x1x1,1,12,7250,,0\n",
        "sweep_rows": f"{SWEEP_ROWS.header}\ngelu,v02_vector,gelu/v02_vector.cu,GELU_V02_THREADS=256,1,bf16,large,8x4,sweep/gelu/256,NVIDIA H200,"
        "0123,timed,,k,32,0,64,256,0.75,registers,1188,6,1.5,0.5,,30,16,9900,10000,10100,131,0.99,1,1.01\n",
        "layer_events": f"{LAYER_EVENTS.header}\nprefill,0,attn,1500,900\nprefill,1,mlp,2700,1100\n",
        "nccl_calls": f"{NCCL_CALLS.header}\n7,8,100,900,ncclAllReduce,4096,abc,,\n7,8,20,90,ncclCommInitRank,,abc,1,2\n",
        "process_ranks": f"{PROCESS_RANKS.header}\n7,1,2,1\n6,0,2,0\n",
        "dataflow": f"{DATAFLOW.header}\na/b,1,0,mm,in0,11,0,4x8,8x1,float32,128,0,,\na/b,1,0,mm,out0,12,0,4x8,8x1,float32,256,0,0.5,3\n",
        "decode-phases": f"{PHASES.header}\nr6_graph,5,0,1,qkv,100,450\nr6_graph,5,1,1,attention,470,1900\nr7_ours,6,0,2,mlp,30,77\n",
        "graph_kernels": f"{GRAPH_KERNELS.header}\n5000,7,11,8,120,135\n7000,7,11,9,140,166\n",
        "inductor": f"{INDUCTOR.header}\n0,1,2,extern_kernels.mm,layers.0.up,aten.mm.default,\n"
        '3,0,4,"triton_poi_fused_add_0",;layers.0;layers.1.down,"aten.add.Tensor;aten.view.default",2\n',
    }


def _json() -> dict[str, object]:
    spread = {"p5": 1.5e6, "p50": 1.75e6, "p95": 2.25e6}
    return {
        "manifest": {"gpu": {"name": "NVIDIA H200", "compute_capability": "9.0", "sm_count": 132, "card": "1b2c3d4e"}, "driver": "575.57",
                     "workloads": [{"name": "gpt2", "dtype": "float32", "range": "gpt2/prefill"}],
                     "clocks": {"sm_mhz": {"min": 1500, "median": 1900, "max": 1980}, "throttle_reasons": ["none"]}},
        "timing": {"steps": [{"range": "gpt2/prefill", "wall_ns": spread}], "tokens_per_s": {"gpt2": spread}},
        "ceilings": {"roofs": [{"name": "dram_copy", "unit": "byte/s", "value": 4.28e12}], "links": [
            {"name": "all_reduce", "ranks": 2, "bytes": 1024, "time_ns": spread, "byte_per_s": 5.5e7, "samples": 15}]},
        "selftest": {"gpu": "NVIDIA H200", "driver": "580.159", "ncu": "2025.3.1", "measured": "2026-11-23T09:46Z", "checks": [
            {"name": "copy: DRAM bytes read", "unit": "byte", "expected": 536870912, "measured": 536885248}]},
        "tool-status": {"tool": "ncu", "status": "denied", "reason": "no permission", "metrics": ["a__b.sum"]},
        "layer-profile": {"profiles": [{"name": "gpt2", "dtype": "float32", "clock": "cuda", "levels": [
            {"name": "module", "title": "Modules", "components": [{"component": "attn", "path": "h.*.attn", "count": 12, "total_ns": 77}]}],
            "instrument": [{"variant": "bare", "events": 0, "forward_ns": spread, "launch_ns": spread, "count": 3}],
            "tokens": {"forward_avg_ns": 5, "wall_ns": spread, "tokens_per_s": spread}, "own_ns": 2}]},
        "kernels-of-layers": {"profiles": [{"name": "gpt2", "dtype": "float32", "calls": 3, "components": [
            {"component": "attn", "share_frac": 0.5, "cpu_ns": 9, "kernels": [{"name": "k", "count": 2, "self_ns": 8}]}]}]},
        "baseline": {"settings": [{"setting": "eager", "dtype": "float32", "tokens": 8, "tokens_per_s": spread,
                                   "operators": [{"name": "aten::mm", "kind": "matmul", "self_cpu_ns": 4, "calls": 2}]}]},
        "measured": {"command": "python train.py", "step": "^step \\*$", "idle_step_ns": 3e6, "rank": None, "targets": [
            {"change": "delay", "target": "gemm", "within": "", "names": ["gemm"], "per_step": 4.0, "length_ns": 9e4,
             "step_ns": 3.1e6, "rounds": 8, "slope": 0.97, "low": 0.93, "high": 1.01, "why": ""}]},
        "sweep": {"choices": [{"gpu": "NVIDIA H200", "source": "gelu/v02_vector.cu", "macros": "GELU_V02_THREADS=256", "why": "faster",
                               "gain": 1.25, "measured": [{"op": "gelu", "variant": "v02_vector", "dtype": "bf16", "shape": "large"}]}]},
        **_studies(spread),
    }  # fmt: skip


def _studies(spread: dict[str, float]) -> dict[str, object]:
    """The files of the studies; their numbers all differ, too."""
    kl = {"kl_mean": 0.5e-6, "kl_most": 3e-5, "plain_kl_mean": 7e-6, "plain_kl_most": 4e-5}
    texts = {"greedy_texts": 9, "greedy_same": 8, "greedy_ties": 1, "greedy_wrong": 0, "first_wrong": 71}
    memory = ("before_bytes", "held_bytes", "peak_bytes", "held_requested_bytes", "peak_requested_bytes")
    operator = {"name": "aten::mm", "self_cpu_ns": 4, "cpu_ns": 5, "self_cuda_ns": 6, "cuda_ns": 7, "calls": 2}
    return {
        "accounting": {"gpu": "NVIDIA H200", "steps": [
            {"model": "mlp", "workload": "b4_t16", "dtype": "float32", "checkpointed": False, "parameters": 1234, "products": [[1, 64, 32, 16]],
             "wall_ns": spread, "gpu_ns": spread, "memory": {name: 512 + at for at, name in enumerate(memory)}}]},
        "decode": {"weights": "random", "dtype": "bf16", "batch": 1, "context_tokens": 512.5, "tokens": 64, "weight_bytes": 248e6, "cache_bytes": 37e6,
                   "rungs": [{"rung": "r1", "idea": "a graph", "ours": True, "prefill": False, "bounds": [{"than": "r0", "said": "< 0.7", "low": 0.25, "high": 0.75}]}],
                   "samples": [{"process": 2, "place": 3, "rung": "r1", "rounds": 11, "token_time_ns": 91e3, "seen_time_ns": 95e3}],
                   "checks": [{"engine": "r1", "dtype": "bf16", "weights": "random", "positions": 128, "same": 120, "ties": 6, "wrong": 2, "worse": ["0-63"], **kl, **texts}],
                   "captured": [{"rung": "r1", "tokens": 13}], "stamped": [{"rung": "r1", "token_time_ns": 92e3, "stamped_time_ns": 93e3}],
                   "prefill_tokens": 1024, "prefill_flops": 2.5e11, "copy_bytes_per_s": 4.25e12, "flop_per_s": 5.5e14},
        "lectures": {"gpu": "NVIDIA H200", "seconds": {"overlap": 1.25}, "points": [
            {"study": "overlap", "case": "two streams", "quantity": "time", "unit": "ns", "value": 1500, "p5": 1400, "p95": 1600}],
            "profiles": [{"case": "mlp", "operators": [operator], "stacks": {"main": 31.5}, "kernels": [
                {"name": "k", "grid": [8, 3, 1], "block": [128, 1, 1], "calls": 17, "total_ns": 771, "operator": "aten::mm"}]}]},
        "multi_gpu": {"backend": "nccl", "gpu": "NVIDIA H200", "nccl": "2.27.3", "nccl_variables": {"NCCL_DEBUG": "WARN"},
                      "checks": [{"mode": "tensor", "step": "prefill", "ranks": 2, "model": "small", "batch": 4, "tokens": 16, "error": 1e-5, "logit": 9.5, "tokens_equal": True}],
                      "times": [{"mode": "tensor", "workload": "prefill", "ranks": 2, "dtype": "bf16", "samples": 15, "wall_ns": spread, "gpu_ns": spread, "late": 1}],
                      "trap": [{"op": "softmax", "way": "trap", "gpus": 2, "shape": "4x8", "samples": 7, "wall_ns": spread}]},
    }  # fmt: skip


@functools.cache
def seeds() -> tuple[Seed, ...]:
    """Return every seed; they are the same in every run."""
    found = [Seed(f"nsys {name}", "nsys", text.encode()) for name, text in _nsys().items()]
    found += [Seed(f"ncu {name}", "ncu", text.encode(), name != "log") for name, text in _ncu().items()]
    found += [Seed(name, "csv", text.encode()) for name, text in _ours().items()]
    found += [
        Seed(kind, "json", json.dumps({"kind": kind, "schema_version": 1} | value).encode())  # type: ignore[operator]
        for kind, value in _json().items()
    ]
    trace = torch_trace.two_layers()
    listed = b"[" + trace.split(b'"traceEvents": [')[1].split(b'], "traceName"')[0] + b"]"
    found += [
        Seed("torch", "json", trace),
        Seed("torch rocm", "json", torch_trace.rocm()),
        Seed("torch list", "json", listed, truth=False),
        Seed("torch gzip", "gzip", gzip.compress(trace, mtime=0)),
    ]
    makers: list[tuple[str, Callable[[int], Export], tuple[int, ...]]] = [
        ("layers", sqlite.two_layers, ERAS),
        ("graphs", sqlite.graph_export, (2022, 2025)),
        ("crowd", _crowd, (2023,)),
        ("host", lambda era: sqlite.host_only(), (2023,)),
        ("unified", _unified, (2024,)),
        ("nccl", _nccl, (2025,)),
    ]
    found += [
        Seed(f"sqlite {name} {era}", "sqlite", _small_pages(make(era))) for name, make, eras in makers for era in eras
    ]
    found += [
        Seed("nsys-rep", "binary", b"NVIDIA Tegra Profiler Report 2025@6@1\0" + bytes(range(64)), truth=False),
        Seed("junk", "binary", b"a,b,c\n1,2,3\nhello\n", truth=False),
    ]
    return tuple(found)
