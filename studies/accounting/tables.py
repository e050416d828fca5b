"""Build the accounting's tables: predictions beside measurements, and the use of the GPU."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from analysis.facts import Facts
from analysis.formats.accounting import ACCOUNTING
from analysis.hardware.devices import find_device
from analysis.tables.declare import Column, part, table
from studies.accounting import tiles
from studies.accounting.architecture import Shape, flops, forward_products
from studies.accounting.budget import ITEM_BYTES, forward_bytes, mfu, peak, training_bytes, training_flops
from studies.accounting.predictions import (
    CASES,
    CPU_CASES,
    DECODE,
    TRAIN,
    Case,
    architecture_of,
    frozen,
    predicted_times,
)
from studies.accounting.workload import shape_of

_KEY = ("model", "workload", "dtype", "checkpointed")
_ROOTS = {TRAIN: "gpt2_train", DECODE: "gpt2/decode", "prefill": "gpt2/prefill"}
_COUNTS = ("predicted", "measured")
_PADDING = "FLOPs of padding and sums"


def steps_of(facts: Facts) -> list[dict[str, Any]]:
    return (facts.capture.of(ACCOUNTING.kind) or {}).get("steps") or []


def gpu_of(facts: Facts) -> str:
    return str((facts.capture.of(ACCOUNTING.kind) or {}).get("gpu") or "")


@part("title")
def _title(facts: Facts) -> str | None:
    return f"The accounting against {facts.gpu or 'a CPU'}" if facts.once(steps_of) else None


@table(
    "accounting",
    question="Does the accounting say what a GPU does?",
    title="The accounting against the GPU",
    columns=(
        Column("model", "model", "key"),
        Column("workload", "step of the harness", "key"),
        Column("dtype", "type of weights and arithmetic", "key"),
        Column("quantity", "what was predicted before it was measured", "key"),
        Column("checkpointed", "yes: blocks keep their inputs only", "key"),
        Column("unit", "unit of both values", "key"),
        Column("predicted", "from the sizes of the model alone", "static"),
        Column("measured", "by PyTorch's allocator, or by ncu; FLOPs without padding and sums", "row"),
        Column("error_frac", "predicted over measured, less 1", "row", "1"),
        Column("within_frac", "how large the error may be, without sign", "static", "1"),
        Column("verdict", "holds, misses, or the reason why it was not measured", "row"),
        Column("of", "what the prediction was calculated from", "static", style="prose"),
    ),
)
def build_accounting(facts: Facts) -> pd.DataFrame | None:
    """Return accounting.csv: each prediction beside its measurement, padding of tiles in rows of its own."""
    by_key = {_key(step): step for step in facts.once(steps_of)}
    rows: list[dict[str, Any]] = []
    for row in frozen():
        step = by_key.get(tuple(row[name] for name in _KEY))
        if step is None:
            continue
        predicted, within = float(row["predicted"]), float(row["within_frac"])
        for extra, value in _measured(row["quantity"], step, facts.all_measured):
            if extra:
                rows.append({**row, "quantity": extra, "predicted": value, "measured": None, "error_frac": None,
                             "within_frac": None, "verdict": "", "of": "tiles in the kernels' names, and grids",
                             "tier": "counters"})  # fmt: skip
                continue
            error = predicted / value - 1 if value else None
            verdict = "not measured" if error is None else "holds" if abs(error) <= within else "misses"
            rows.append({**row, "predicted": predicted, "measured": value, "error_frac": error,
                         "within_frac": within, "verdict": verdict, "tier": _tier(row["quantity"])})  # fmt: skip
    if not rows:
        return None
    made = pd.DataFrame(rows)  # integers keep all their digits
    return made.assign(**{name: made[name].astype("Float64").round().astype("Int64") for name in _COUNTS})


def _key(step: dict[str, Any]) -> tuple[str, ...]:
    return step["model"], step["workload"], step["dtype"], "yes" if step["checkpointed"] else ""


def _tier(quantity: str) -> str:
    return "counters" if quantity.startswith(("FLOPs", "DRAM")) else "timing"


def _measured(quantity: str, step: dict[str, Any], measured: pd.DataFrame | None) -> Iterator[tuple[str, float | None]]:
    """Yield ("", the measured value), and (name, value) of each part that is subtracted."""
    memory = step.get("memory") or {}
    if quantity == "parameters":
        yield "", step["parameters"]
    elif quantity == "activations":
        yield "", memory.get("held_bytes")
    elif quantity == "peak of the step":
        yield "", memory.get("peak_bytes")
    else:
        launches = launches_of(step, measured)
        if quantity.startswith("DRAM"):
            whole = len(launches) and launches["path"].iloc[-1].endswith("/lm_head")  # a capture may end early
            yield "", float(launches["dram_read_bytes"].sum()) if whole else None
            return
        counted = count(launches, [tuple(product) for product in step["products"]])
        if counted is None:
            yield "", None
            return
        yield _PADDING, counted[1]
        yield "", counted[0] - counted[1]


def launches_of(step: dict[str, Any], measured: pd.DataFrame | None) -> pd.DataFrame:
    """Return the launches of a step that ncu counted, in their order."""
    if measured is None or measured.empty or "dram_read_bytes" not in measured:
        return pd.DataFrame()
    root = _ROOTS[step["workload"].partition("_")[0]]
    inside = (measured["path"].astype("str") + "/").str.startswith(root + "/")
    return measured[inside & measured["dram_read_bytes"].notna()]


def count(launches: pd.DataFrame, products: list[tuple[int, ...]]) -> tuple[float, float] | None:
    """Return (counted FLOPs of the products, the part of them that is padding or sums); None if launches are missing.

    The n-th kernel that multiplies is the n-th product. If it uses tensor cores, only their FLOPs count, else FP32's.
    """
    if launches.empty or "flops_fp32" not in launches:
        return None
    kernels = launches[launches["kernel"].map(tiles.is_product)]
    if len(kernels) != len(products):
        return None
    total = extra = 0.0
    tensor = [name for name in kernels if name.startswith("flops_tensor_")]
    for (_, row), product in zip(kernels.iterrows(), products, strict=True):
        batch, m, n, k = product
        grid, block = _sizes(row["grid"]), _sizes(row["block"])
        on_tensor = sum(float(row[name]) for name in tensor if pd.notna(row[name]))
        total += on_tensor or float(row["flops_fp32"])
        extra += tiles.padded(row["kernel"], grid, (batch, m, n, k)) - 2 * batch * m * n * k
        extra += 0 if on_tensor else tiles.beside(row["kernel"], grid, block, (batch, m, n, k))
    return total, extra


def _sizes(value: Any) -> tuple[int, ...]:
    return tuple(int(part) for part in str(value).strip("()").replace("x", ",").split(","))


@table(
    "accounting_use",
    question="How much of the GPU does each step use?",
    title="MFU and bandwidth",
    columns=(
        Column("model", "model", "key"),
        Column("workload", "step of the harness", "key"),
        Column("dtype", "type of weights and arithmetic", "key"),
        Column("checkpointed", "yes: blocks keep their inputs only", "key"),
        Column("time_ns", "GPU time of the step, median; on a CPU wall time", "timing"),
        Column("model_flops", "matrix products of the step, each counted once", "static", "FLOP"),
        Column("model_bytes", "least bytes that the step must move", "static"),
        Column("compute_ns", "model_flops at the datasheet's rate", "static"),
        Column("memory_ns", "model_bytes at the datasheet's rate", "static"),
        Column("mfu_frac", "model FLOPs utilisation: compute_ns over time_ns", "timing"),
        Column("predicted_ns", "from shapes and rates of other runs (studies/accounting/times.csv)", "static"),
        Column("predicted_mfu_frac", "compute_ns over predicted_ns", "static"),
        Column("bandwidth_frac", "memory_ns over time_ns", "timing"),
        Column("bound", "which takes longer: compute_ns or memory_ns", "static"),
    ),
)
def build_use(facts: Facts) -> pd.DataFrame | None:
    """Return accounting_use.csv: one row a measured step; without rates if devices.toml lacks the GPU."""
    gpu = find_device(facts.once(gpu_of))
    rows = []
    for step in facts.once(steps_of):
        case = next((one for one in (*CASES, *CPU_CASES) if _key(vars(one)) == _key(step)), None)
        if case is None:
            continue
        of, shape = architecture_of(case), shape_of(step["workload"], ITEM_BYTES[step["dtype"]])
        needed, moved = _needs(of, shape, case)
        time_ns = float((step.get("gpu_ns") or step["wall_ns"])["p50"])
        row: dict[str, Any] = {name: step[name] for name in ("model", "workload", "dtype")}
        row |= {"checkpointed": "yes" if step["checkpointed"] else "", "time_ns": time_ns, "model_flops": needed,
                "model_bytes": moved, "tier": "timing"}  # fmt: skip
        predicted = predicted_times().get(_key(step)) if gpu is not None and gpu.name == "NVIDIA H200" else None
        row |= dict.fromkeys(("compute_ns", "memory_ns", "mfu_frac"))
        row |= {"predicted_ns": predicted, "predicted_mfu_frac": None, "bandwidth_frac": None, "bound": None}
        if gpu is not None:
            compute, memory = needed / peak(gpu, step["dtype"]) * 1e9, moved / gpu.dram_bytes_per_s * 1e9
            row |= {"compute_ns": compute, "memory_ns": memory,
                    "mfu_frac": mfu(needed, time_ns / 1e9, gpu, step["dtype"]),
                    "predicted_mfu_frac": compute / predicted if predicted else None,
                    "bandwidth_frac": memory / time_ns,
                    "bound": "compute" if compute > memory else "memory"}  # fmt: skip
        rows.append(row)
    return pd.DataFrame(rows) if rows else None


def _needs(of: Any, shape: Shape, case: Case) -> tuple[int, int]:
    """Return FLOPs and least bytes of a step, without the second forward pass of checkpoints."""
    if case.workload.startswith(TRAIN):
        return training_flops(of, shape), training_bytes(of, shape, checkpointed=case.checkpointed)
    return flops(forward_products(of, shape)), forward_bytes(of, shape)
