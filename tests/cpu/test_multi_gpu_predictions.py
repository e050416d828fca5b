"""What several GPUs are predicted to win, beside what a run measured; the page and the script of the study."""

import hashlib
from typing import Any

import pandas as pd
import pytest

from studies.multi_gpu import links, predict, tables, times
from tests.declared import facts_of

pytestmark = pytest.mark.studies

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


def test_a_step_of_one_gpu_takes_what_its_committed_run_took() -> None:
    for step, tokens in (("prefill", 1024), ("decode", 1023)):
        found = times.step_parts(step, 1, tokens)
        layers = times.overview("layers").set_index("range")["gpu_time_ns"]
        whole = layers.filter(regex=rf"^gpt2/{step}/h\.\d+$").sum()
        assert sum(found.values()) - found["lm_head"] - found["ln_f"] - found["embeddings"] == pytest.approx(
            whole, rel=0.01
        )
    assert found["lm_head"] == layers["gpt2/decode/lm_head"]


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
    made = tables.compare(run, CEILINGS).set_index(["gpus", *predict.KEY])
    row = made.loc[(2, "tp", "decode", 8, 1024)]
    assert row["measured_speedup"] == row["measured_wall_speedup"] == 0.75
    assert row["error_frac"] == pytest.approx(row["speedup"] / 0.75 - 1)
    assert made["measured_speedup"].notna().sum() == 2
    assert made.at[(4, "dp", "prefill", 8, 1024), "measured_speedup"] == 2.5
    assert set(tables.compare(run_of(times=run["times"][:2]), CEILINGS)["gpus"]) == {2}
    assert (
        row["linked_speedup"]
        == predict.row("tp", "decode", 8, 1024, links.links("NVIDIA H200", 2, CEILINGS))["speedup"]
    )


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
    assert pd.isna(made.at[("residual", "trap"), "allocating_ns"])
    assert made.at[("residual", "resident"), "verdict"] == ""  # nobody claimed anything
    assert made.at[("residual", "trap"), "claimed_speedup"] == pytest.approx(4.1 / 463)


def test_four_gpus_judge_a_claim_where_they_were_measured_and_the_trap_has_its_parts() -> None:
    entries = [trap_entry("attention", way, gpus, ns) for way, gpus, ns in (
        ("one", 1, 100), ("trap", 2, 90), ("resident", 2, 60), ("trap", 4, 1000), ("copies", 4, 300), ("resident", 4, 110),
    )]  # fmt: skip
    made = tables.judge(run_of(trap=entries)).set_index(["op", "way"])
    row = made.loc[("attention", "trap")]
    assert (row["allocating_ns"], row["copying_ns"], row["verdict"]) == (700, 190, "confirmed")
    assert made.at[("attention", "resident"), "verdict"] == "confirmed"  # on two GPUs it gains
    assert pd.isna(made.at[("attention", "resident"), "allocating_ns"])


def test_splits_stand_beside_their_predictions() -> None:
    entry = {"op": "attention", "split": "heads", "shape": "B 8, T 1024, C 768", "gpus": 4, "one_ns": 400, "found_ns": 125,
             "found_p5_ns": 120, "found_p95_ns": 130, "error": 0.0}  # fmt: skip
    ours = entry | {"op": "all_reduce", "split": "ours", "shape": "4096 byte"}
    made = tables.build_splits(facts_of(built={tables.run_of: run_of(splits=[entry, ours])}))
    assert made["found_speedup"].tolist() == [3.2, 3.2]
    assert made["efficiency_frac"].iloc[0] == 0.8
    assert pd.isna(made["efficiency_frac"].iloc[1])
    assert made["error_frac"].iloc[0] == pytest.approx(3.927 / 3.2 - 1)
    assert tables.build_splits(facts_of(built={tables.run_of: run_of()})).empty
