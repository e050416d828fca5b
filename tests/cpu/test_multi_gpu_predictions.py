"""What several GPUs are predicted to win, beside what a run measured; the page and the script of the study."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis import pipeline
from analysis.capture.load import load
from analysis.formats.collectives import bus_factor
from analysis.formats.errors import InputError
from analysis.report import declared
from studies.multi_gpu import figures, links, page, predict, tables, times
from studies.multi_gpu.claims import FORWARD, OPS
from studies.multi_gpu.links import ALL_REDUCE, Link

ROOT = Path(__file__).resolve().parents[2]
RANKS = ROOT / "reports" / "cpu-multi-gpu"
# Links of two ranks as harness.links writes them, each byte at 100 GB/s behind 10 µs.
CEILINGS = {
    "gpu": "NVIDIA H200",
    "roofs": [],
    "links": [
        {
            "name": name,
            "ranks": 2,
            "bytes": size,
            "time_ns": {"p50": 10_000 + size / 100},
            "byte_per_s": 1e11,
            "samples": 9,
        }
        for name in ("all_reduce", "all_gather", "peer_copy")
        for size in (1024, 1 << 20, 1 << 30)
    ],
}


# --- predictions ---


def test_the_committed_predictions_are_those_of_before_two_gpus_were_measured() -> None:
    """Nobody changes them, and the formula gives them still, up to what newer benchmarks of one GPU differ by."""
    frozen = {
        predict.TABLE: "6e5f5939c09af6c1169f82d75db556a26bb007acdc353b7872277bec6fbe427c",
        predict.TRAP_TABLE: "0a865de3ac7be5dd4ca9ebb56cdaf34d100c8771b8c6cc22670c0248f9de16b3",
    }
    assert {file: hashlib.sha256(file.read_bytes()).hexdigest() for file in frozen} == frozen
    for file, rows in ((predict.TABLE, predict.rows()), (predict.TRAP_TABLE, predict.trap_rows())):
        for then, now in zip(predict.frozen(file), rows, strict=True):
            for name in ("one_ns", "predicted_ns", "trap_ns", "speedup", "trap_speedup", "resident_speedup"):
                if name in now:
                    assert float(now[name]) == pytest.approx(float(then[name]), rel=0.02), (then, name)


def test_every_mode_step_batch_and_length_is_predicted_and_nothing_is_measured() -> None:
    rows = predict.frozen()
    assert len(rows) == len({tuple(row[name] for name in predict.KEY) for row in rows}) == 2 * 2 * 7 * 4
    assert {row[name] for row in rows for name in predict.MEASURED} == {""}
    assert {row[name] for row in predict.frozen(predict.TRAP_TABLE) for name in predict.TRAP_MEASURED} == {""}
    for row in rows:
        assert 0 < float(row["speedup"]) <= 2, row  # two GPUs
        assert int(row["predicted_ns"]) == pytest.approx(int(row["compute_ns"]) + int(row["exposed_ns"]), abs=1)


def test_a_step_of_one_gpu_takes_what_its_committed_run_took() -> None:
    for step, tokens in (("prefill", 1024), ("decode", 1023)):
        found = times.step_parts(step, 1, tokens)
        layers = times.overview("layers").set_index("range")["gpu_time_ns"]
        whole = layers.filter(regex=rf"^gpt2/{step}/h\.\d+$").sum()
        assert sum(found.values()) - found["lm_head"] - found["ln_f"] - found["embeddings"] == pytest.approx(
            whole, rel=0.01
        )
    assert found["lm_head"] == layers["gpt2/decode/lm_head"]


def test_a_share_of_the_work_never_takes_less_than_the_floor_or_more_than_the_whole() -> None:
    curve = times.Curve(((1.0, 4.0), (100.0, 40.0)), 3.0)
    assert [curve.time_ns(work) for work in (0.5, 1, 50.5, 100, 200)] == [4, 4, 22, 40, 80]
    assert curve.time_ns(100, 0.5) == 3 + 37 / 2
    assert curve.time_ns(100, 1e-9) == pytest.approx(3)
    assert curve.time_ns(0) == curve.time_ns(9, 0) == 0


def test_a_batch_smaller_than_the_gpus_gains_nothing() -> None:
    between = links.declared("NVIDIA H200", 2)
    for batch, speedup in ((1, 1), (2, 2)):
        row = predict.row("dp", "prefill", batch, 1024, between)
        assert row["compute_ns"] == round(times.step_ns("prefill", 1, 1024))
        assert row["speedup"] <= speedup


# --- links ---


def test_links_are_the_measured_ones_where_there_are_any() -> None:
    assert "assumed" in links.links("NVIDIA H200", 2)[ALL_REDUCE].source
    found = links.links("NVIDIA H200", 2, CEILINGS)
    assert {link.source for link in found.values()} == {"ceilings.json"}
    assert found[ALL_REDUCE].time_ns(1 << 20) == 10_000 + (1 << 20) / 100
    assert "assumed" in links.links("NVIDIA H200", 4, CEILINGS)[ALL_REDUCE].source  # of two ranks, not of four


def test_the_time_of_a_link_grows_with_the_size() -> None:
    link = Link(((1000.0, 20.0), (2000.0, 30.0)), "here")
    assert [link.time_ns(size) for size in (0, 1, 1000, 1500, 2000, 4000)] == [0, 20, 20, 25, 30, 60]


def test_an_all_reduce_of_declared_links_has_the_rate_of_its_bus() -> None:
    link, size = links.declared("NVIDIA H200", 4)[ALL_REDUCE], 1 << 30
    factor = bus_factor(ALL_REDUCE, 4)
    assert factor is not None
    assert size * factor / link.time_ns(size) * 1e9 == pytest.approx(0.73 * 450e9, rel=0.01)


def test_a_gpu_without_nvlink_is_one_sentence() -> None:
    with pytest.raises(InputError, match="has no nvlink_bytes_per_s of NVIDIA GeForce RTX 5070"):
        links.declared("NVIDIA GeForce RTX 5070", 2)


@pytest.mark.parametrize(("content", "sentence"), [("{}", "has no links"), ("no JSON", "cannot be read")])
def test_ceilings_without_links_are_refused(
    content: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ceilings.json").write_text(content)
    assert predict.main(["--ceilings", str(tmp_path / "ceilings.json")]) == 3
    assert sentence in capsys.readouterr().err


# --- what a run adds ---


def time_entry(mode: str, name: str, ranks: int, gpu_ns: float) -> dict[str, Any]:
    return {"mode": mode, "workload": name, "ranks": ranks, "dtype": "float32", "samples": 5,
            "wall_ns": {"p50": 2 * gpu_ns}, "gpu_ns": {"p50": gpu_ns}}  # fmt: skip


def run_of(**lists: Any) -> dict[str, Any]:
    return {"backend": "nccl", "gpu": "NVIDIA H200", "nccl": "2.28.9", "nccl_variables": {}, **lists}


def test_what_was_measured_stands_beside_its_prediction() -> None:
    run = run_of(times=[
        time_entry("one", "decode_b8_ctx1022", 1, 900_000), time_entry("tp", "decode_b8_ctx1022", 2, 1_200_000),
        time_entry("one", "prefill_b8_t1024", 1, 50_000_000), time_entry("dp", "prefill_b8_t1024", 4, 20_000_000),
    ])  # fmt: skip
    made = tables.compare(run, CEILINGS).set_index(list(predict.KEY))
    row = made.loc[("tp", "decode", 8, 1024)]
    assert row["measured_speedup"] == row["measured_wall_speedup"] == 0.75
    assert row["error_frac"] == pytest.approx(row["speedup"] / 0.75 - 1)
    assert made["measured_speedup"].notna().sum() == 1  # of four ranks nothing was predicted
    assert (
        row["linked_speedup"]
        == predict.row("tp", "decode", 8, 1024, links.links("NVIDIA H200", 2, CEILINGS))["speedup"]
    )
    assert "1 of 112 predictions are measured" in page.said_of_errors(made.reset_index())
    assert "Not measured yet" in page.said_of_errors(tables.compare({}, {}))


def test_times_of_cpu_processes_are_no_measurement() -> None:
    run = run_of(
        times=[time_entry("one", "decode_b8_ctx1022", 1, 9e5), time_entry("tp", "decode_b8_ctx1022", 2, 6e5)],
        trap=[trap_entry("residual", way, 1 if way == "one" else 2, 2e4) for way in ("one", "trap")],
    ) | {"backend": "gloo", "gpu": ""}
    assert tables.compare(run, {})["measured_wall_speedup"].isna().all()
    assert tables.judge(run)["found_speedup"].isna().all()


def trap_entry(op: str, way: str, gpus: int, ns: float) -> dict[str, Any]:
    return {"op": op, "way": way, "gpus": gpus, "shape": "", "samples": 5, "wall_ns": {"p50": ns}}


def test_claims_are_judged_by_whether_slicing_gains() -> None:
    entries = [trap_entry(op, way, 1 if way == "one" else 2, ns)
               for op in ("residual", "attention") for way, ns in (("one", 100), ("trap", 1000), ("resident", 60))]  # fmt: skip
    made = tables.judge(run_of(trap=entries)).set_index(["op", "way"])
    assert made.at[("residual", "trap"), "verdict"] == "confirmed"
    assert made.at[("attention", "resident"), "verdict"] == "refuted"  # claimed to gain nothing
    assert made.at[("attention", "resident"), "found_speedup"] == pytest.approx(100 / 60)
    assert made.at[("matmul", "trap"), "verdict"] == "not measured"
    assert made.at[("residual", "resident"), "verdict"] == ""  # nobody claimed anything
    assert made.at[("residual", "trap"), "claimed_speedup"] == pytest.approx(4.1 / 463)


def test_what_pays_is_told_from_the_largest_batch_down() -> None:
    rows = pd.DataFrame({"batch": [1, 2, 4, 8], "speedup": [1.2, 1.0, 1.1, 1.3], "wall_speedup": [1.0] * 4})
    assert page.pays_from(rows, "speedup") == "4"
    assert page.pays_from(rows, "wall_speedup") == "never"


def test_the_committed_run_of_cpu_ranks_has_a_report() -> None:
    capture = load([RANKS / "captures"])
    report = pipeline.analyse(capture, declared(capture))
    assert report.report.title == "GPT-2 on several GPUs, CPU ranks"
    assert {"multi_gpu", "multi_gpu_claims", "multi_gpu_checks"} <= report.tables.keys()
    checks = report.tables["multi_gpu_checks"]
    assert set(checks["ranks"]) == {2, 3}
    assert checks["tokens_equal"].all()
    assert checks["error"].max() <= 1e-4
    assert report.tables["multi_gpu"]["measured_speedup"].isna().all()


def test_the_figures_show_what_was_measured() -> None:
    run = run_of(
        times=[time_entry("one", "decode_b8_ctx1022", 1, 9e5), time_entry("tp", "decode_b8_ctx1022", 2, 6e5)],
        trap=[trap_entry("residual", way, 1 if way == "one" else 2, 2e4) for way in ("one", "trap")],
    )
    speedups = figures.plot_speedups(tables.compare(run, {}), "")
    assert [len(axes.get_lines()) for axes in speedups.axes] == [9] * 4  # two for each length, and 1
    points = [line for axes in speedups.axes for line in axes.get_lines() if line.get_linestyle() == "None"]
    assert [tuple(line.get_xydata()[0]) for line in points if len(line.get_xdata())] == [(8.0, 1.5)]
    trap = figures.plot_trap(tables.judge(run), "")
    assert [axes.get_title(loc="left") for axes in trap.axes] == [*OPS, FORWARD]
    drawn = [axes.get_lines()[0].get_xdata() for axes in trap.axes]
    assert drawn[0].tolist()[:2] == [0.02, 0.02]  # ms of one GPU and of the trap
    assert [int(np.isfinite(values).sum()) for values in drawn] == [2, 0, 0, 0, 0]


def test_the_timeline_shows_the_trap_beside_its_cure() -> None:
    ops = pd.DataFrame(
        [
            {"path": f"{FORWARD} {way}/compute", "device": device, "kind": kind, "start_ns": start, "duration_ns": 500}
            for way, start in (("trap", 1_000), ("resident", 9_000))
            for device in ("H200 (0)", "H200 (1)")
            for kind in ("memcpy", "kernel")
        ]
    )
    calls = [(f"{FORWARD} {way}", start) for way, start in (("trap", 500), ("resident", 8_500))]
    ranges = pd.DataFrame(
        [
            {"path": path, "name": path.split("/")[-1], "start_ns": start, "end_ns": end}
            for call, begin in calls
            for path, start, end in (
                (call, begin, begin + 2_000),
                (f"{call}/allocate and copy", begin, begin + 400),
                (f"{call}/compute", begin + 400, begin + 1_000),
                (f"{call}/compute/wte", begin + 400, begin + 500),
            )
        ]
    )
    figure = figures.plot_timeline.build(ops, ranges, "")
    assert figure is not None
    assert [len(axes.patches) for axes in figure.axes] == [6, 6]
    lanes = ["trap, host", "trap, GPU 0", "trap, GPU 1"]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == lanes
    host = [patch.get_bbox() for patch in figure.axes[0].patches[:2]]
    assert [(box.x0, box.x1) for box in host] == [
        (0.0, pytest.approx(4e-4)),
        (pytest.approx(4e-4), pytest.approx(1e-3)),
    ]
    assert figures.plot_timeline.build(ops[ops["path"].str.contains("trap")], ranges, "") is None


# --- the script ---


def script(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "studies/multi_gpu/multi_gpu.sh"), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


def test_a_dry_run_prints_every_command_and_predicts_before_it_measures() -> None:
    answer = script("-n", "--out", "runs/x", "--gpus", "2")
    assert answer.returncode == 0, answer.stderr
    lines = answer.stdout.splitlines()
    said = ["harness.links", "multi_gpu.predict", "multi_gpu.predict --trap", "measure check", "--modes one --processes 1",
            "--modes dp tp", "measure trap", "capture --mode trap", "capture --mode dp", "capture --mode tp", "xz -9e", "3000000"]  # fmt: skip
    places = [next(place for place, line in enumerate(lines) if words in line) for words in said]
    assert places == sorted(places)
    assert sum("nsys profile" in line or "profile -t cuda" in line for line in lines) == 3


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--gpus", "none"), "--gpus takes a whole number"),
        (("--steps", "links,dance"), "Unknown step 'dance'"),
        (("--out",), "--out needs a value"),
    ],
)
def test_a_wrong_argument_of_the_script_is_one_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    answer = script(*arguments)
    assert answer.returncode == 2
    assert sentence in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


def test_the_page_names_what_was_not_measured() -> None:
    checked = json.loads((RANKS / "captures" / "multi_gpu.json").read_text())
    text = page.render_multi_gpu({}, {}, checked)
    assert "**Not measured yet:**" in text
    assert "72 checks with gloo (2 and 3 ranks)" in text
    assert text.count("| residual, trap") == 1
