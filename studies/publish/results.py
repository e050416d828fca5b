"""Write the five results of README.md from committed data, each with its conditions, its baseline and its failures."""

import json
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from analysis.hardware.devices import find_device
from analysis.page.text import cell
from studies.bench.files import BENCH
from studies.publish.committed import looks, plain, read_table, yes
from studies.runs import Runs

WIDTH = 118
OFTEN = 0.4  # of the speed-ups below 1
WAYS = {"dp": "data parallel", "tp": "tensor parallel"}


def render(root: Path, gpus: Sequence[Runs]) -> str:
    """Return the list of results. A GPU without a run adds nothing to it."""
    said = [_advice(root), *_comparisons(gpus), *_fusions(gpus), *_tokens(gpus), *_with_gpus(gpus)]
    return "\n".join(textwrap.fill(one, WIDTH, initial_indent="- ", subsequent_indent="  ", break_long_words=False,
                                   break_on_hyphens=False) for one in said)  # fmt: skip


def _all(tables: Iterable[pd.Series]) -> str:
    return yes(pd.concat(list(tables)))


def _advice(root: Path) -> str:
    first, latest = ([*looks(root, f"blind*/screen_{one}.csv").values()] for one in ("first_look", "latest"))
    kernels = [*looks(root, "kernels*/first_look.csv").values()]
    slow = [one[(one["metrics"] == "full") & (one["kind"] == "defect")]["right"] for one in kernels]
    every = pd.concat(first)
    silent = every[(every["cause"] == "nothing") | every["trap"].notna()]
    return (
        "**Advice on programs that no rule had seen** (H100 and H200). The first finding named the cause in "
        f"{_all(one['right'] for one in first)} programs, and in {_all(slow)} slow kernels with all metrics. "
        "The goal is 90 %. Where the cause was right, the measured saving lay in the stated interval "
        f"(goal 80 %) for {_all(one['inside'] for one in first)}. Of {len(silent)} programs with nothing to save, "
        f"{silent['advised'].notna().sum()} got advice. Rules tuned on these programs now name "
        f"{_all(one['right'] for one in latest)}, which proves less ([scores](tests/answer_key/README.md))."
    )


def _comparisons(gpus: Sequence[Runs]) -> Iterable[str]:
    for runs in gpus:
        if (folder := runs.folder("comparison")) is None:
            continue
        table = read_table(folder, "error_summary").query("rule == 'ours'")
        turns, first = (table[table["data"].str.fullmatch(f"{name}-gpu\\d")] for name in ("turns-h100", "h100"))
        kernels, steps = (turns[turns["what"] == name]["slower_1"] for name in ("single kernels", "step of models"))
        before = first[first["what"] == "single kernels"]["slower_1"]
        yield (
            f"**Before and after**, on two {runs.gpu}, {turns['runs'].iloc[0]} runs a side in turns. Equal sides got a "
            f"false verdict in {_sum(turns['equal'])} cases. A slow-down of 1 % was found in {_sum(kernels)} kernels, "
            f"and in {_sum(steps)} whole steps. The first look missed its goal with {_sum(before)} kernels "
            "([error rates](analysis/comparison/README.md))."
        )


def _sum(counts: pd.Series) -> str:
    """Return the sum of counts such as `83 of 84`."""
    pairs = counts.str.split(",").str[0].str.split(" of ", expand=True).astype(int)
    return f"{pairs[0].sum()} of {pairs[1].sum()}"


def _fusions(gpus: Sequence[Runs]) -> Iterable[str]:
    for runs in gpus:
        if (folder := runs.folder("overview")) is None:
            continue
        checks = read_table(folder, "fusion_check")
        held, failed = ((checks["within"] == word).sum() for word in ("yes", "no"))
        inside = checks[checks["within"].isna()]
        off = " and ".join(cell(abs(one), "error_frac") for one in inside["bytes_error_frac"])
        yield (
            f"**Fusion, planned from a capture** (GPT-2, float32, {runs.gpu}). We built {len(checks)} fused kernels "
            f"for {checks['pattern'].nunique()} chains. {held} came within 5 % of the predicted bytes and 15 % of the "
            f"predicted time; {failed} did not. We do not judge {len(inside)} inside the model, since L2 holds "
            f"their data: their bytes are off by {off} ([each]({_at(folder, 'fusion_check')}))."
        )


def _at(folder: Path, name: str) -> str:
    return f"reports/{folder.name}/tables/{name}.csv"


def _tokens(gpus: Sequence[Runs]) -> Iterable[str]:
    said = []
    for runs in gpus:
        if (folder := runs.folder("decode")) is None:
            continue
        rungs = read_table(folder, "decode").set_index("rung")
        ours, theirs = rungs.loc["persistent"], rungs.loc["hf_compile_graph"]
        floors = [(roof.split(",")[0], ours["bytes"] / rate * 1e9) for roof, rate in decode_roofs(runs, ours).items()]
        said.append(
            f"On {runs.gpu} the host sees a token every {_ns(ours['seen_ns'])}, theirs every {_ns(theirs['seen_ns'])}: "
            f"{theirs['seen_ns'] / ours['seen_ns']:.1f} times as fast. If it waits once at the end: "
            f"{_ns(ours['token_ns'])}, {theirs['token_ns'] / ours['token_ns']:.1f} times. "
            f"One read of weights and cache takes {', '.join(f'{_ns(floor)} ({roof})' for roof, floor in floors)}."
        )
    if said:
        yield (
            "**One token of GPT-2**: our persistent kernel and Hugging Face's compiled step in a CUDA graph "
            f"(bfloat16, batch 1, mean context 256). {' '.join(said)} ([rung by rung](kernels/decode/README.md), "
            "[today's kernels](kernels/decode/README.md#since-then))."
        )


def decode_roofs(runs: Runs, row: pd.Series) -> dict[str, float]:
    """Return {roof, and where it was measured: byte/s} for a row of decode.csv, the datasheet's last."""
    rates = {f"{row['floor_roof']}, measured in this run": row["bytes"] / row["floor_ns"] * 1e9}
    bench, device = runs.bench("gemv"), find_device(runs.gpu)
    if row["floor_roof"] != "read" and bench is not None:
        roofs = json.loads((bench / BENCH.name).read_text(encoding="utf-8"))["conditions"]["roofs"]
        rates[f"read, measured in {bench.name}, as this run lacks it"] = roofs["dram_read"]
    assert device is not None
    return rates | {"datasheet": device.dram_bytes_per_s}


def decode_floors(runs: Runs, folder: Path) -> str:
    """Return a table of the floors of a token at each roof, and how far engine `persistent` is from them."""
    row = read_table(folder, "decode").set_index("rung").loc["persistent"]
    body = []
    for roof, rate in decode_roofs(runs, row).items():
        floor_ns = row["bytes"] / rate * 1e9
        times = (f"{row[name] / floor_ns:.2f} × ({_ns(row[name])})" for name in ("busy_ns", "token_ns", "seen_ns"))
        body.append([roof, f"{rate / 1e12:.3f} TB/s", _ns(floor_ns), *times])
    return plain(["roof", "rate", "floor", "GPU busy", "wall time, host waits once", "host sees each token"], body)


def _ns(value: float) -> str:
    return cell(value, "time_ns")


def _with_gpus(gpus: Sequence[Runs]) -> Iterable[str]:
    for runs in gpus:
        if (folder := runs.folder("multi_gpu")) is None:
            continue
        rows = read_table(folder, "multi_gpu").query("measured_speedup.notna()")
        for count, own in rows.groupby("gpus"):
            yield _several_gpus(own, int(count), runs.gpu)


def _several_gpus(rows: pd.DataFrame, count: int, gpu: str) -> str:
    """Return what several GPUs won over one: the median before the best."""
    wall, busy = rows["measured_wall_speedup"], rows["measured_speedup"]
    best = rows.loc[wall.idxmax()]
    off, off_busy = (rows["wall_speedup"] / wall - 1).abs().median(), rows["error_frac"].abs().median()
    words = {2: "Two", 4: "Four"}.get(count, str(count))
    how = "often slower" if (wall < 1).mean() >= OFTEN else "sometimes slower" if (wall < 1).any() else "never slower"
    return (
        f"**{words} GPUs are {how} than one** (GPT-2, float32, {words.lower()} {gpu}). The median of {len(rows)} "
        f"measured speed-ups is {wall.median():.3g} by the wall clock, and {busy.median():.3g} by GPU time. "
        f"{(wall > 1).sum()} are above 1. The best is {wall.max():.3g}: {WAYS[best['mode']]} {best['step']}, "
        f"{best['batch']} x {best['tokens']} tokens. Predictions were committed first. Their median error is "
        f"{cell(off, 'error_frac')} of the wall time and {cell(off_busy, 'error_frac')} of the GPU time "
        "([study](studies/multi_gpu/README.md))."
    )
