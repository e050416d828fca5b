"""The study of decoding on a CPU with a tiny model: fresh processes, correctness, the window, and its tables."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis import report
from analysis.capture.model import GPU_OPS_COLUMNS, Capture, as_table, nest_ranges
from analysis.facts import Facts
from analysis.formats.decode import DECODE
from analysis.tables.tokens import build_token_parts
from kernels.decode.rungs import RUNGS
from studies.decode import measure, tables
from studies.decode.figures import plot_phases
from studies.decode.tables import build_bounds, build_decode, build_phases, build_prefill
from tests.declared import notes_of

pytestmark = pytest.mark.studies

TINY = "n_layer=2,n_embd=128,n_head=2,vocab_size=97,n_positions=48"
ARGUMENTS = [
    "--config",
    TINY,
    "--device",
    "cpu",
    "--dtype",
    "float32",
    "--context",
    "8",
    "--tokens",
    "4",
    "--rounds",
    "2",
]
FEW_RUNGS = "hf_eager,hf_compile_graph,eager,graph,persistent,hf_prefill,prefill"


def options(out: Path, *more: str, mode: str = "fair") -> Any:
    return measure.parse([mode, *ARGUMENTS, "--out", str(out), *more])


def here(chosen: Any) -> Callable[[int], dict[str, Any]]:
    """A worker in this process, as the command line of a fresh one has it."""

    def worker(process: int) -> dict[str, Any]:
        command = measure.worker_command(chosen, process)
        own = measure.parse([word for word in command[3:] if word != "--turn"])
        return json.loads(json.dumps(measure.run_worker(own)))

    return worker


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with three processes, checks and a window."""
    out = tmp_path_factory.mktemp("decode")
    chosen = options(out, "--rungs", FEW_RUNGS, "--processes", "3")
    measure.run_fair(chosen, here(chosen))
    measure.run_check(options(out, "--rungs", FEW_RUNGS, mode="check"))
    measure.run_capture(options(out, "--rungs", "eager,graph,hf_eager,prefill", mode="capture"))
    return out


def content(out: Path) -> dict[str, Any]:
    return json.loads((out / "captures" / "decode.json").read_text(encoding="utf-8"))


def test_a_run_has_each_rung_in_each_process_in_alternating_order(measured: Path) -> None:
    found = DECODE.check(content(measured), "decode.json")
    ran = [name for name in FEW_RUNGS.split(",") if name != "persistent"]
    for process in (1, 2, 3):
        own = [sample for sample in found["samples"] if sample["process"] == process]
        assert [sample["rung"] for sample in own] == ran[:: -1 if process % 2 else 1]
        assert all(sample["rounds"] == 2 and sample["token_time_ns"] > 0 for sample in own)
    assert {sample["process"] for sample in found["samples"]} == {1, 2, 3}  # the one that warms caches does not count
    persistent = next(rung for rung in found["rungs"] if rung["rung"] == "persistent")
    assert persistent["reason"] == "Engine persistent needs an NVIDIA GPU, and torch sees none."
    assert found["context_tokens"] == 10
    assert found["prefill_tokens"] == 48


def test_a_run_goes_on_where_it_ended(tmp_path: Path) -> None:
    chosen = options(tmp_path, "--rungs", "graph", "--processes", "2")
    calls: list[int] = []

    def worker(process: int) -> dict[str, Any]:
        calls.append(process)
        if process == 1:  # until then the process that warms caches counts
            assert {sample["process"] for sample in content(tmp_path)["samples"]} == {0}
        if calls.count(2) == 1 and process == 2:
            raise RuntimeError("the power failed")
        return here(chosen)(process)

    with pytest.raises(RuntimeError, match="power"):
        measure.run_fair(chosen, worker)
    measure.run_fair(chosen, worker)
    assert calls == [0, 1, 2, 2]
    assert [sample["process"] for sample in content(tmp_path)["samples"]] == [1, 2]
    measure.run_fair(chosen, worker)
    assert calls == [0, 1, 2, 2]


def test_an_engine_that_decodes_wrongly_is_not_timed() -> None:
    made = document()
    entry = {"engine": "graph", "wrong": 0, "greedy_wrong": 0, "worse": []}
    names = ["hf_eager", "eager", "graph", "persistent"]
    assert measure.trusted(made, names) == names
    made["checks"] = [entry]
    assert measure.trusted(made, names) == ["hf_eager", "eager", "graph"]
    made["checks"] = [entry, entry | {"engine": "persistent"}, entry | {"wrong": 1}]
    assert measure.trusted(made, names) == ["hf_eager", "persistent"]
    reasons = {rung["rung"]: rung["reason"] for rung in made["rungs"]}
    assert reasons["eager"] == reasons["graph"] == "It is not timed: it does not decode like the reference."


# --- tables ---


def document(**samples: list[float]) -> dict[str, Any]:
    """decode.json of made-up times in µs by rung, one a process; the floor is 60 µs."""
    return DECODE.document(
        {
            "weights": "random", "dtype": "bfloat16", "batch": 1, "context_tokens": 256.0, "tokens": 64,
            "weight_bytes": 247.3e6, "cache_bytes": 9.4e6, "copy_bytes_per_s": 256.7e6 / 60e-6, "flop_per_s": 1e15,
            "prefill_tokens": 1024, "prefill_flops": 2e11,
            "rungs": [measure.rung_entry(rung) for rung in RUNGS],
            "samples": [
                {"process": at, "place": 0, "rung": rung, "rounds": 3, "token_time_ns": 1e3 * value, "seen_time_ns": None}
                for rung, values in samples.items()
                for at, value in enumerate(values)
            ],
            "checks": [], "captured": [{"rung": "graph", "tokens": 1}, {"rung": "persistent", "tokens": 16}],
        }
    )  # fmt: skip


TIMES = {
    "hf_eager": [11000.0 + at for at in range(10)],
    "hf_compile_graph": [517.0 + at for at in range(10)],
    "graph": [300.0 + at for at in range(10)],
    "persistent": [90.0 + at for at in range(10)],
    "prefill": [500.0 + at for at in range(10)],
}


def world(made: dict[str, Any], **more: Any) -> Facts:
    capture = Capture(ours={"decode": made} | more)
    return Facts(capture)


def test_the_interval_of_a_median_needs_six_values() -> None:
    assert tables.interval([5.0] * 5) is None
    assert tables.interval([6, 5, 4, 3, 2, 1]) == (1, 6)
    assert tables.interval(list(range(1, 11))) == (2, 9)
    # of ten coins more than 95 % fall so that the median lies between the 2nd and the 9th value
    assert 1 - 2 * (1 + 10) / 2**10 > 0.95 > 1 - 2 * (1 + 10 + 45) / 2**10


def test_times_and_bounds_go_by_the_worse_end_of_the_interval() -> None:
    built = world(document(**TIMES))
    rows = built.once(build_decode).set_index("rung")
    assert rows.loc["graph", ["token_ns", "token_low_ns", "token_high_ns"]].tolist() == [304_500, 301_000, 308_000]
    assert rows.loc["persistent", "floor_frac"] == pytest.approx(60 / 94.5)
    assert rows.loc["few", "token_ns"] != rows.loc["few", "token_ns"]
    bounds = built.once(build_bounds)
    own = bounds[bounds["rung"] == "persistent"].set_index("bound")
    assert own["verdict"].tolist() == ["confirmed", "confirmed", "confirmed"]
    assert own["ratio_high"].iloc[0] == pytest.approx(98 / 60)
    assert bounds[bounds["rung"] == "few"]["verdict"].tolist() == ["", ""]
    slower = world(document(**TIMES | {"persistent": [95.0 + at for at in range(10)]})).once(build_bounds)
    assert slower[slower["rung"] == "persistent"]["verdict"].iloc[0] == "open"  # 103 µs of 100 at the worse end
    slow = world(document(**TIMES | {"persistent": [120.0 + at for at in range(10)]})).once(build_bounds)
    assert slow[slow["rung"] == "persistent"]["verdict"].iloc[0] == "refuted"
    prefill = built.once(build_prefill).set_index("rung")
    assert prefill.loc["prefill", "mfu_frac"] == pytest.approx(2e11 / 504.5e-6 / 1e15)


def stamps() -> pd.DataFrame:
    """Two blocks, two tokens, three phases."""
    rows = [
        ("persistent", token, block, layer, phase, start, end)
        for token in range(2)
        for block in range(2)
        for layer, (phase, start, end) in enumerate(
            [("qkv", 0, 30), ("wait for heads", 30, 40 + 10 * block), ("lm_head", 40 + 10 * block, 100)]
        )
    ]
    return pd.DataFrame(rows, columns=["rung", "token", "block", "layer", "phase", "start_ns", "end_ns"])


def test_phases_of_a_token_add_up_to_all_of_it() -> None:
    built = world(document(**TIMES), decode_phases=stamps())
    phases = built.once(build_phases)
    assert phases[["phase", "kind", "time_ns"]].to_numpy().tolist() == [
        ["qkv", "work", 30],
        ["wait for heads", "tail", 0],
        ["wait for heads", "exchange", 15],
        ["lm_head", "work", 55],
    ]
    assert phases["share_frac"].sum() == pytest.approx(1)
    assert phases.loc[2, ["longest_ns", "shortest_ns"]].tolist() == [20, 10]
    assert plot_phases(built, "caption") is not None
    cost = {"rung": "persistent", "token_time_ns": 100.0, "stamped_time_ns": 100.8}
    both = [cost | {"rung": "few"}, cost]  # the first has no stamps
    notes = notes_of(world(document(**TIMES) | {"stamped": both}, decode_phases=stamps()))
    assert "Stamps of the phases change the time of a token: persistent +0.8%." in notes


def timeline(kind: str = "kernel") -> Capture:
    """Two steps of 100 µs under nsys: kernels of 20 and 30 µs, 10 µs apart, launched by one graph; 70 µs bare."""
    ops, ranges = [], []
    for step in range(2):
        begin = 1_000_000 * step
        ranges += [(begin, begin + 100_000, "graph"), (begin, begin + 100_000, "decode")]
        ops += [(begin + 30_000, 20_000, begin + 1_000), (begin + 60_000, 30_000, begin + 1_000)]
    nested = pd.DataFrame(ranges, columns=["start_ns", "end_ns", "name"])
    nested = nested.assign(range_id=range(1, len(nested) + 1), pid=1, tid=1)
    columns = {
        "start_ns": [op[0] for op in ops], "duration_ns": [op[1] for op in ops], "api_start_ns": [op[2] for op in ops],
        "api_end_ns": [op[2] + 500 for op in ops], "kind": kind, "name": "step", "pid": 1, "tid": 1,
        "device": "GPU 0", "grid": "1x1x1", "block": "32x1x1",
    }  # fmt: skip
    made = pd.DataFrame(columns)
    for name, dtype in GPU_OPS_COLUMNS.items():
        if name not in made:
            made[name] = pd.Series([pd.NA] * len(made), dtype="str" if dtype == "str" else "object")
    timing = {"steps": [{"range": "graph/decode", "wall_ns": {"p50": 70_000.0}, "gpu_ns": None, "samples": 10}]}
    return Capture(
        gpu_ops=as_table(dict(made.items()), GPU_OPS_COLUMNS),
        ranges=nest_ranges(nested),
        timing=timing,
        ours={"decode": document(**TIMES) | {"weight_bytes": 100e6, "cache_bytes": 0.0, "copy_bytes_per_s": 4e12}},
    )


def test_parts_of_a_step_add_up_to_its_bare_time() -> None:
    built = Facts(timeline())
    parts = built.once(build_token_parts).set_index("part")
    assert parts["time_ns"].to_dict() == {
        "bytes": 25_000, "kernels beyond the bytes": 25_000, "gaps between kernels": 10_000, "waiting for the host": 10_000,
    }  # fmt: skip
    assert parts["share_frac"].sum() == pytest.approx(1)
    row = built.once(build_decode).set_index("rung").loc["graph"]
    assert row[["launches", "kernels", "busy_ns"]].tolist() == [1, 2, 50_000]


def test_the_report_of_a_run_has_all_of_it(measured: Path, tmp_path: Path, drawn: None) -> None:
    assert report.main([str(measured / "captures"), "--out", str(tmp_path), "--quiet", "--text"]) == 0
    names = [entry["name"] for entry in json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["tables"]]
    assert {"decode", "decode_bounds", "decode_checks", "decode_prefill"} <= set(names)
    assert "needs an NVIDIA GPU" in (tmp_path / "report.md").read_text(encoding="utf-8")
    assert (tmp_path / "figures" / "decode.svg").is_file()
