"""Write a folder of the kernel ladder as `studies.ladder.measure` and ncu write it, from a few numbers a launch."""

import csv
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis.hardware.metrics import column_metrics
from studies.ladder.tables import wanted_columns

IDENTITY = (
    "ID", "Process ID", "Process Name", "Host Name", "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg",
    "Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg", "Kernel Name", "Context", "Stream",
    "Block Size", "Grid Size", "Device", "CC",
)  # fmt: skip
METRICS = column_metrics("9.0", wanted_columns())
UNITS = {"gpu__time_duration.sum": "ns", "dram__bytes_read.sum": "byte", "dram__bytes_write.sum": "byte"}
# The default metrics of a launch.
PLAIN = {
    "gpu__time_duration.sum": 1000.0, "dram__bytes_read.sum": 600.0, "dram__bytes_write.sum": 400.0,
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": 40.0, "l1tex__t_sector_hit_rate.pct": 50.0,
    "smsp__inst_executed.sum": 1000.0, "smsp__inst_issued.sum": 1000.0,
    "smsp__sass_inst_executed_op_global_ld.sum": 100.0, "launch__grid_size": 12.0, "launch__registers_per_thread": 32.0,
    "launch__waves_per_multiprocessor": 0.5, "launch__occupancy_limit_blocks": 32.0,
    "launch__occupancy_limit_registers": 8.0, "launch__occupancy_limit_shared_mem": 16.0,
    "launch__occupancy_limit_warps": 8.0, "launch__shared_mem_per_block": 1024.0,
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 850.0, "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": 100.0,
    "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum": 0.0, "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum": 0.0,
    "smsp__sass_branch_targets.sum": 100.0, "smsp__sass_branch_targets_threads_uniform.sum": 90.0,
    "memory_l2_theoretical_sectors_global": 1000.0, "memory_l2_theoretical_sectors_global_ideal": 250.0,
    "sm__maximum_warps_per_active_cycle_pct": 100.0, "sm__warps_active.avg.pct_of_peak_sustained_active": 80.0,
    "smsp__average_warp_latency_per_inst_issued.ratio": 20.0,
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": 12.0,
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio": 4.0,
    "smsp__average_warps_issue_stalled_selected_per_issue_active.ratio": 1.0,
}  # fmt: skip


LINES = "kernel,ordinal,source_file,line,text,samples,launch_samples,stall,stall_samples\n"


@dataclass
class Launch:
    """One kernel inside ladder/<op>/<variant>/<dtype>/<shape_name>; `metrics` over PLAIN, None: no value."""

    key: tuple[str, str, str, str]
    kernel: str = "kernel(float *)"
    metrics: dict[str, float | None] = field(default_factory=dict)


def ncu_page(launches: list[Launch]) -> str:
    """Return a raw page of ncu 2025.3 with base units."""
    lines = [",".join(f'"{name}"' for name in (*IDENTITY, *METRICS))]
    units = [UNITS.get(name, "%" if ".pct" in name else "") for name in METRICS]
    lines.append(",".join(f'"{cell}"' for cell in (*[""] * len(IDENTITY), *units)))
    for at, launch in enumerate(launches):
        names = ("ladder", *launch.key)
        stack = "  ".join(f'""<default domain>:{name}:none:none:RGB:0xff:REGISTERED:{name}""' for name in names)
        who = (
            at,
            17,
            "python3.12",
            "host",
            f"17  {stack} ",
            "",
            launch.kernel,
            1,
            7,
            "(256, 1, 1)",
            "(12, 1, 1)",
            0,
            "9.0",
        )
        values = PLAIN | launch.metrics
        numbers = ["nan" if values.get(name) is None else f"{values[name]:.6f}" for name in METRICS]
        lines.append(",".join(f'"{cell}"' for cell in (*who, *numbers)))
    return "\n".join(lines) + "\n"


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def checked(
    key: tuple[str, str, str, str], shape: str, fingerprint: str, passed: str = "yes", note: str = ""
) -> dict[str, Any]:
    """Return a row of points.csv."""
    names = ("op", "variant", "dtype", "shape_name", "shape", "fingerprint", "checks", "passed", "note")
    return dict(zip(names, (*key, shape, fingerprint, 5, passed, note), strict=True))


def timed(key: tuple[str, str, str, str], shape: str, p50_ns: int, floor_ns: int = 500) -> dict[str, Any]:
    """Return a row of bench.csv."""
    op, variant, dtype, shape_name = key
    return {
        "op": op, "variant": variant, "dtype": dtype, "shape_name": shape_name, "shape": shape, "convention": "cold",
        "samples": 20, "bench_time_p5_ns": p50_ns - 10, "bench_time_p50_ns": p50_ns, "bench_time_p95_ns": p50_ns + 10,
        "achieved_byte_per_s": 10**12, "floor_time_ns": floor_ns, "floor_frac": floor_ns / p50_ns,
        "versus_torch_p5": "", "versus_torch_p50": "", "versus_torch_p95": "", "achieved_flop_per_s": "",
    }  # fmt: skip


def write_run(
    folder: Path,
    points: list[dict[str, Any]],
    launches: list[Launch],
    times: list[dict[str, Any]] | None = None,
    lines: str | None = None,
) -> None:
    """Write the captures/ of a run; `lines` are the rows of ncu_lines.csv, by default one for every launch."""
    if lines is None:
        kernels = [launch.kernel for launch in launches]
        ordinals = [kernels[:at].count(name) for at, name in enumerate(kernels)]
        lines = LINES + "".join(f'"{name}",{at},a.cu,1,x,1,1,,\n' for name, at in zip(kernels, ordinals, strict=True))
    captures = folder / "captures"
    write_csv(captures / "points.csv", points)
    if times:
        write_csv(captures / "bench.csv", times)
    if launches:
        (captures / "ncu_raw.csv").write_text(ncu_page(launches), encoding="utf-8")
        (captures / "ncu_lines.csv").write_text(lines, encoding="utf-8")
    manifest = {
        "kind": "manifest",
        "schema_version": 1,
        "gpu": {"name": "NVIDIA H200"},
        "driver": "580.1",
        "cuda": "13.0",
        "torch": "2.11",
    }
    (captures / "manifest.json").write_text(
        json.dumps(manifest | {"triton": None, "git_sha": "a" * 40}), encoding="utf-8"
    )
    status = {
        "kind": "tool-status",
        "schema_version": 1,
        "tool": "ncu",
        "status": "ok",
        "version": "2025.3.1.0",
        "seconds": 9,
    }
    (captures / "ncu.json").write_text(json.dumps(status), encoding="utf-8")
