"""The study of the fused softmax: passes, benchmarks on a CPU, and the build for a T4."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from analysis.hardware.devices import find_device
from studies.softmax import turing

pytestmark = pytest.mark.studies


@pytest.fixture(scope="module")
def measure() -> Any:
    """The program; it imports transformers, for which only the worker that runs these tests pays."""
    pytest.importorskip("transformers")
    from studies.softmax import measure

    return measure


def test_both_counts_of_passes_come_from_the_same_operations(measure: Any) -> None:
    found = measure.count_passes()
    assert found.operations == ("aten::mul", "aten::copy_", "aten::masked_fill_", "aten::_softmax")
    assert (found.documented, found.counted, found.moved) == (4, 6, 8)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_both_benchmarks_run_on_a_cpu(measure: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure.dropin, "TOKENS", 2)
    monkeypatch.setattr(measure.dropin, "ROUNDS", 1)
    assert measure.main(["--out", str(tmp_path)]) == 0
    assert "pass" in (tmp_path / "correctness.txt").read_text(encoding="utf-8")
    found = json.loads((tmp_path / "dropin.json").read_text(encoding="utf-8"))
    assert {row["attention"] for row in found["settings"]} > {"eager", "kernel_ledger", "kernel_ledger_softmax"}


def ladder(**times: float) -> pd.DataFrame:
    made = [
        {"op": "softmax", "dtype": "fp32", "shape_name": turing.SHAPE, "variant": name, "predicted_bytes": 4.8e8,
         "isolated_time_p50_ns": times.get(name, 1.25e5)}
        for name in turing.RUNGS
    ]  # fmt: skip
    return pd.DataFrame(made)


def test_a_rung_at_the_roof_is_predicted_from_its_bytes_alone() -> None:
    on, target = find_device("NVIDIA H200"), find_device("Tesla T4")
    assert on is not None
    assert target is not None
    found = {one.rung: one for one in turing.predict(ladder(v06_block=2.5e5), on, target)}
    causal, block = found["v03_causal"], found["v06_block"]
    assert causal.low_ns == pytest.approx(causal.bytes / 320e9 * 1e9)
    assert causal.likely_ns == pytest.approx(causal.low_ns / 0.80)
    assert causal.high_ns == pytest.approx(causal.low_ns / 0.65)
    slower = (67e12 / 128) / (8.1e12 / 64)  # SMs times clock
    assert block.high_ns == pytest.approx(block.low_ns / 0.65 + 2.5e5 * slower, rel=1e-3)
    assert found["v08_half"].dtype == "float16"
    assert found["v08_half"].bytes < causal.bytes


def row(source: str, **more: Any) -> dict[str, str]:
    plain = {"source": source, "kernel": "k", "spill_bytes": "0", "local_instructions": "0", "tensor": "", "bulk": "",
             "async_copy": "", "shared_bytes": "0", "max_threads": "256", "registers": "32", "shared_load": "32:1",
             "shared_store": "32:1", "shuffles": "5"}  # fmt: skip
    return plain | {name: str(value) for name, value in more.items()}


def test_code_for_a_t4_is_inspected() -> None:
    every = [row(f"{rung}.cu") for rung in turing.RUNGS]
    assert turing.inspect(every) == []
    assert turing.inspect(every[1:]) == ["v01_separate.cu was not compiled for sm_75"]
    for more, words in (
        ({"local_instructions": 2}, "local memory"),
        ({"async_copy": "128:1"}, "that a T4 lacks"),
        ({"shared_bytes": 50000}, "more shared memory"),
        ({"registers": 255, "max_threads": 1024}, "does not fit"),
    ):
        assert words in " ".join(turing.inspect([*every, row("v03_causal.cu", **more)]))
    without = [one | {"shuffles": "0"} if one["source"] == "v07_warp.cu" else one for one in every]
    assert turing.inspect(without) == ["v07_warp.cu joins its rows by shuffles, and has none for sm_75"]
    dry = [one | {"shared_load": ""} if one["source"] == "v06_block.cu" else one for one in every]
    assert turing.inspect(dry) == ["v06_block.cu: k keeps no row in shared memory"]
