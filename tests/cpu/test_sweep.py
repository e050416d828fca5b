"""The configuration sweep without a GPU: the plan, the ledger, workers that die, the choice, tuned.toml, the figure."""

import json
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from analysis.capture.load import load
from kernels import build, combinations, tuned
from kernels.registry import ops
from studies.sweep import measure as sweep
from studies.sweep import measure_worker as sweep_gpu
from studies.sweep import rows as sweep_rows
from tests import sweep_examples as examples
from tests.declared import analyse

pytestmark = pytest.mark.studies

GPU = sweep.Gpu("NVIDIA H200", 90)
GELU = {"GELU_V02_THREADS": (256, 64, 128), "GELU_V02_AHEAD_MB": (3, 0)}


def rows_of(text: str) -> list[dict[str, str]]:
    import csv
    import io

    return list(csv.DictReader(io.StringIO(text)))


# --- declarations -------------------------------------------------------------------------------------------------


def test_every_tunable_is_a_guarded_macro_of_its_source_whose_default_comes_first() -> None:
    seen = 0
    for op in ops().values():
        for variant in op.variants.values():
            text = (build.FOLDER / op.folder / variant.source).read_text("utf-8") if variant.tunables else ""
            for macro, values in variant.tunables.items():
                assert f"#ifndef {macro}\n#define {macro} {values[0]}\n#endif\n" in text, (
                    f"{op.name} {variant.name} {macro}"
                )
                assert macro.startswith(f"{op.folder.upper()}_V{variant.name[1:3]}_")
                seen += 1
    assert seen > 20


def test_combinations_start_with_the_source_as_it_stands() -> None:
    gelu = ops()["gelu"]
    found = combinations.combinations(gelu, gelu.variants["v02_vector"])
    assert len(found) == len(set(found)) == 20
    assert found[0].is_default
    assert found[0].flags == ()
    assert [one.flags for one in found if one.text == "GELU_V02_THREADS=64 GELU_V02_AHEAD_MB=3"] == [
        ("-DGELU_V02_THREADS=64",)
    ]
    assert combinations.combinations(gelu, gelu.variants["torch"]) == []


# --- the ledger ---------------------------------------------------------------------------------------------------


def test_the_ledger_keeps_rows_one_by_one_and_drops_a_line_that_was_cut_off(tmp_path: Path) -> None:
    first, second = examples.grid("gelu", "v02_vector", GELU)[:2]
    ledger = sweep.Ledger(tmp_path / "sweep.csv")
    ledger.add(first)
    ledger.add(second)
    text = (tmp_path / "sweep.csv").read_text()
    assert text == examples.text([first, second])
    (tmp_path / "sweep.csv").write_text(text[:-20])
    again = sweep.Ledger(tmp_path / "sweep.csv")
    assert again.has(first)
    assert not again.has(second)
    again.add(second)
    assert (tmp_path / "sweep.csv").read_text() == text


# --- workers that die ---------------------------------------------------------------------------------------------

WORKER = """
    import json, os, sys, time
    jobs, script = json.load(sys.stdin), json.loads(sys.argv[1])
    def say(**line):
        print(json.dumps(line), flush=True)
    for job in jobs:
        for row in job["rows"]:
            say(start=[row["id"]])
            does = script.get(row["library"], "")
            if does == "crash":
                print("CUDA error: an illegal memory access was encountered", file=sys.stderr)
                os.abort()
            if does == "hang":
                time.sleep(60)
            if does == "fail":
                say(row=row["id"], fields={"verdict": "does not run", "reason": "CUDA error: too many resources"})
        left = [row for row in job["rows"] if script.get(row["library"], "") != "fail"]
        for at in range(0, len(left), job["group"]):
            group = left[at:at + job["group"]]
            say(start=[row["id"] for row in group])
            if any(script.get(row["library"], "") == "crash when timed" for row in group):
                os._exit(7)
            for row in group:
                say(row=row["id"], fields={"verdict": "timed", "bench_time_p50_ns": 1000})
"""


def measured(
    tmp_path: Path, libraries: Sequence[str], does: dict[str, str], limit_s: float = 20.0
) -> dict[str, dict[str, Any]]:
    worker = tmp_path / "worker.py"
    worker.write_text(textwrap.dedent(WORKER))
    rows = [{"id": at, "wanted": True, "default": at == 0, "library": name} for at, name in enumerate(libraries)]
    found: dict[str, dict[str, Any]] = {}

    def on_row(number: int, fields: dict[str, Any]) -> None:
        assert libraries[number] not in found
        found[libraries[number]] = fields

    def start(jobs: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        return sweep.events([sys.executable, str(worker), json.dumps(does)], jobs, limit_s)

    sweep.measure([{"rows": rows, "group": 8}], on_row, start, lambda message: None)
    return found


def test_a_crash_costs_one_row(tmp_path: Path) -> None:
    found = measured(tmp_path, "abcd", {"c": "crash", "b": "fail"})
    assert {name: fields["verdict"] for name, fields in found.items()} == {
        "a": "timed", "b": "does not run", "c": "crashed", "d": "timed",
    }  # fmt: skip
    assert found["c"]["reason"] == "signal 6: CUDA error: an illegal memory access was encountered"


# --- the whole sweep, with a fake compiler, linker and worker -----------------------------------------------------


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """`compiled`, `linked` and `timed` list what was done; `dies_after`: rows, then the program is interrupted; `gain` is
    how many times as fast as the default a combination is in a job, "" where it does not run.
    """
    done: dict[str, Any] = {"compiled": [], "timed": [], "dies_after": None}
    done["gain"] = lambda name, job: "" if "THREADS=512" in name else 1.05 if "THREADS=64" in name else 1.0

    def compile_all(nvcc: str, wanted: Any, arch: int, progress: Any) -> dict[Any, combinations.Built]:
        found = {}
        for one in dict.fromkeys(wanted):
            done["compiled"].append(one)
            bad = "THREADS=128" in one.text
            found[one] = combinations.Built(one, "f" * 16, tmp_path / f"{one.text}.o", (), "a reason" if bad else "")
        return found

    def start(jobs: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for job in jobs:
            for row in job["rows"]:
                if not row["wanted"]:
                    continue
                if done["dies_after"] is not None and len(done["timed"]) == done["dies_after"]:
                    raise KeyboardInterrupt
                name = Path(row["library"]).stem
                yield {"start": [row["id"]]}
                gain = done["gain"](name, job)
                if not gain:
                    yield {
                        "row": row["id"],
                        "fields": {"verdict": "does not run", "reason": "CUDA error: too many resources"},
                    }
                    continue
                launched = {
                    "registers": 32,
                    "shared_bytes": 0,
                    "grid_blocks": 3000,
                    "block_threads": 256,
                    "kernel": "k",
                    "sm_count": 132,
                }
                seconds = [1e-5 / gain * (1 + 0.001 * (at % 3)) for at in range(20)]
                default = [1e-5 * (1 + 0.001 * (at % 3)) for at in range(20)]
                yield {"row": row["id"], "fields": launched | sweep_gpu.times(seconds, default, 16)}
                done["timed"].append((job["op"], job["dtype"], *job["shape"], name))
        yield {"end": ""}

    monkeypatch.setattr(build, "find_nvcc", lambda: "nvcc")
    monkeypatch.setattr(combinations, "fingerprints", lambda nvcc, wanted, arch: dict.fromkeys(wanted, "f" * 16))
    monkeypatch.setattr(combinations, "compile_all", compile_all)
    monkeypatch.setattr(combinations, "link_all", lambda built, progress: {})
    monkeypatch.setattr(sweep, "_start_extensions", lambda cells: [])
    done["start"] = start
    return done


def run(machine: dict[str, Any], path: Path) -> sweep.Ledger:
    cells = sweep.plan([ops()["gelu"]], ["v02_vector"], ["bf16"], None)
    ledger = sweep.Ledger(path)
    sweep.sweep(cells, ledger, GPU, 90, 20, machine["start"])
    return ledger


def test_what_fails_is_a_row_with_its_reason_and_what_works_is_timed(machine: dict[str, Any], tmp_path: Path) -> None:
    ledger = run(machine, tmp_path / "sweep.csv")
    verdicts = {row["macros"].split()[0]: (row["verdict"], row["reason"]) for row in ledger.rows}
    assert len(ledger.rows) == 20
    assert verdicts["GELU_V02_THREADS=128"] == ("does not compile", "a reason")
    assert verdicts["GELU_V02_THREADS=512"] == ("does not run", "CUDA error: too many resources")
    assert verdicts["GELU_V02_THREADS=1024"] == ("timed", "")
    timed = next(row for row in ledger.rows if row["verdict"] == "timed")
    assert (timed["dtype"], timed["shape_name"], timed["gpu"]) == ("bf16", "large", "NVIDIA H200")
    assert timed["range"] == "sweep/gelu/v02_vector/bf16/large/256x3"
    # 3000 blocks, 8 on each of 132 multiprocessors: 2.84 waves
    assert (timed["blocks_per_sm"], timed["waves"], timed["tail_frac"]) == ("8", "2.841", "0.1591")
    assert (timed["occupancy_theoretical_frac"], timed["limiter"]) == ("1", "warps")
    assert rows_of((tmp_path / "sweep.csv").read_text()) == ledger.rows


def test_an_interrupted_sweep_goes_on_where_it_stopped(machine: dict[str, Any], tmp_path: Path) -> None:
    machine["dies_after"] = 5
    with pytest.raises(KeyboardInterrupt):
        run(machine, tmp_path / "sweep.csv")
    kept = rows_of((tmp_path / "sweep.csv").read_text())
    assert sum(row["verdict"] == "timed" for row in kept) == 5
    machine["dies_after"] = None
    ledger = run(machine, tmp_path / "sweep.csv")
    assert ledger.rows[: len(kept)] == kept
    assert len(ledger.rows) == 20
    assert len(machine["timed"]) == len(set(machine["timed"]))
    count = len(machine["compiled"])
    run(machine, tmp_path / "sweep.csv")  # nothing is left to do, nor to compile
    assert len(machine["compiled"]) == count


# --- the second stage ---------------------------------------------------------------------------------------------


def by_threads(name: str, job: dict[str, Any]) -> float | str:
    """At `large` the fewer threads the faster, with AHEAD_MB=3; at decode_b1 64 of them are slower."""
    gains = {"=64 ": 1.3, "=512 ": 1.2, "=1024 ": 1.1}
    gain = next((gain for threads, gain in gains.items() if f"THREADS{threads}" in name), 1.0)
    if "AHEAD_MB=3" not in name:
        return 1.0
    return 0.8 if gain == 1.3 and job["shape"][0] == 1 else gain if job["shape"][0] == 65536 else 1.0


@pytest.fixture
def swept(machine: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the program with the fakes: the rows and the choice of gelu v02 on bf16, by the arguments behind these."""
    monkeypatch.setattr(sweep, "gpu_at_hand", lambda: GPU)
    monkeypatch.setattr(sweep, "events", lambda command, jobs: machine["start"](jobs))
    machine["gain"] = by_threads

    def call(*more: str) -> tuple[list[dict[str, str]], dict[str, Any]]:
        command = ["gelu", "--variants", "v02_vector", "--dtype", "bf16", "--out", str(tmp_path), *more]
        machine["code"] = sweep.main(command)
        rows = rows_of((tmp_path / "captures" / "sweep.csv").read_text())
        (choice,) = json.loads((tmp_path / "captures" / "sweep.json").read_text())["choices"]
        return rows, choice

    return call


def test_the_best_are_timed_at_every_shape_of_all_that_is_compiled_from_the_source(swept: Any) -> None:
    rows, choice = swept()
    second = rows[20:]
    assert {row["macros"] for row in second} == {
        f"GELU_V02_THREADS={count} GELU_V02_AHEAD_MB=3" for count in (256, 64, 512, 1024)
    }
    cells = {sweep_rows.cell_of(row) for row in second}
    wanted = {
        (op, "v02_vector", dtype, shape)
        for op in ("gelu", "bias_gelu")
        for dtype in ("fp32", "bf16")
        for shape in ops()[op].shapes
    }
    assert cells == wanted - {("gelu", "v02_vector", "bf16", "large")}
    assert len(second) == 4 * len(cells)  # each once
    # 64 threads are slower at decode_b1, and the next best is taken
    assert (choice["macros"], choice["clear"]) == ("GELU_V02_THREADS=512 GELU_V02_AHEAD_MB=3", True)
    assert choice["gain"] == pytest.approx(1.2)
    assert len(choice["measured"]) == len(wanted)
    assert choice["not_measured"] == []
    assert choice["keeps_default"] == ""  # it runs unasked, and every shape was timed


# --- the choice ---------------------------------------------------------------------------------------------------


def choices(rows: Sequence[dict[str, object]]) -> list[dict[str, Any]]:
    return sweep_rows.choose([{name: str(value) for name, value in row.items()} for row in rows])


def versus(p5: float, p50: float, p95: float) -> dict[str, object]:
    return {"versus_default_p5": p5, "versus_default_p50": p50, "versus_default_p95": p95}


def two(gain: dict[str, object], **more: object) -> list[dict[str, object]]:
    default = examples.row("gelu", "v02_vector", {"GELU_V02_THREADS": 256}, default=1, **more)
    return [default, examples.row("gelu", "v02_vector", {"GELU_V02_THREADS": 64}, **(gain | more))]


@pytest.mark.parametrize(
    ("gain", "clear"),
    [
        (versus(1.015, 1.02, 1.03), True),
        (versus(0.999, 1.02, 1.03), False),  # not in 95 % of the rounds
        (versus(1.002, 1.009, 1.02), False),  # less than 1 %
        (versus(0.9, 0.95, 0.99), False),
    ],
)
def test_only_a_clear_gain_is_recommended(gain: dict[str, object], clear: bool) -> None:
    (choice,) = choices(two(gain))
    assert choice["clear"] is clear
    assert choice["macros"] == ("GELU_V02_THREADS=64" if clear else "GELU_V02_THREADS=256")


def test_a_source_is_chosen_by_all_that_was_measured_of_it() -> None:
    faster, slower = versus(1.09, 1.1, 1.11), versus(0.96, 0.97, 0.98)
    (choice,) = choices([*two(faster), *two(slower, dtype="fp32")])
    assert not choice["clear"]  # slower in fp32
    unsure = versus(0.97, 0.99, 1.01)
    (choice,) = choices([*two(faster), *two(unsure, dtype="fp32")])
    assert choice["clear"]
    assert choice["gain"] == pytest.approx((1.1 * 0.99) ** 0.5)
    assert [cell["gain_p50"] for cell in choice["measured"]] == [1.1, 0.99]
    (choice,) = choices([*two(faster), two(faster, dtype="fp32")[0]])
    assert not choice["clear"]  # it was not timed in fp32
    default, other = two(faster, dtype="fp32")
    (choice,) = choices([*two(faster), default, other | {"verdict": "does not run"}])
    assert not choice["clear"]  # it does not run there
    refused = {"verdict": "does not run", "versus_default_p50": ""}
    (choice,) = choices([*two(faster), default | refused, other | refused])
    assert choice["clear"]  # nor does the default: no shape of it
    assert [cell["dtype"] for cell in choice["measured"]] == ["bf16"]
    (choice,) = choices([*two(faster), default | refused, other | {"versus_default_p50": ""}])
    assert choice["clear"]


def at(gain: float) -> dict[str, object]:
    return versus(gain * 0.999, gain, gain * 1.001)


# --- tuned.toml ---------------------------------------------------------------------------------------------------


def test_tuned_toml_comes_back_as_it_was_written(tmp_path: Path) -> None:
    (choice,) = choices(two(versus(1.015, 1.02, 1.03)))
    entries = sweep_rows.entries_of([choice], "reports/h200-sweep")
    path = tmp_path / "tuned.toml"
    path.write_text(tuned.text(entries))
    (entry,) = tuned.read(path)
    assert entry["macros"] == {"GELU_V02_THREADS": 64}
    assert (entry["gpu"], entry["source"], entry["run"]) == ("NVIDIA H200", "gelu/v02_vector.cu", "reports/h200-sweep")
    assert entry["measured"] == choice["measured"]
    assert tuned.flags("gelu", "NVIDIA H200", path) == ["-DGELU_V02_THREADS=64"]
    assert tuned.flags("gelu", "NVIDIA A100", path) == []
    assert tuned.flags("layernorm", "NVIDIA H200", path) == []


def test_the_build_takes_the_flags_of_the_gpu_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    (choice,) = choices(two(versus(1.015, 1.02, 1.03)))
    path = tmp_path / "tuned.toml"
    path.write_text(tuned.text(sweep_rows.entries_of([choice], "run")))
    monkeypatch.delenv(tuned.SWITCH, raising=False)
    monkeypatch.setattr(tuned.flags, "__defaults__", ("", path))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    assert build._tuned_flags("gelu") == ["-DGELU_V02_THREADS=64"]
    with_flags = build.extension_folder("gelu")
    monkeypatch.setenv(tuned.SWITCH, "off")
    assert build._tuned_flags("gelu") == []
    assert with_flags.name.startswith(build.extension_folder("gelu").name + "-")


# --- the process on the GPU, as far as it needs none ---------------------------------------------------------------


def test_times_pair_the_rounds_with_the_defaults() -> None:
    fields = sweep_gpu.times([1e-5, 2e-5], [2e-5, 4e-5], 16)
    assert fields["bench_time_p50_ns"] == 15000
    assert fields["versus_default_p50"] == "2"
    assert "versus_default_p50" not in sweep_gpu.times([1e-5], [], 16)


# --- table, figure, report ----------------------------------------------------------------------------------------


def capture_of(tmp_path: Path, rows: Sequence[dict[str, object]]) -> Path:
    folder = tmp_path / "run" / "captures"
    folder.mkdir(parents=True)
    (folder / "sweep.csv").write_text(examples.text(rows))
    document = {"kind": "sweep", "schema_version": 1, "choices": choices(rows)}
    (folder / "sweep.json").write_text(json.dumps(document))
    return folder


def test_the_table_marks_the_default_the_fastest_and_the_recommended(tmp_path: Path) -> None:
    _, found = analyse(load([capture_of(tmp_path, examples.grid("gelu", "v02_vector", GELU))]))
    table, best = found["sweep"], found["sweep_best"]
    assert dict(zip(table["combination"], table["mark"], strict=True))["THREADS=256 AHEAD_MB=3"] == "default"
    first = table.iloc[0]
    assert (first["combination"], first["mark"]) == ("THREADS=64 AHEAD_MB=0", "fastest, recommended")
    row = best.iloc[0]
    assert (row["combinations"], row["timed"], row["clear"], row["recommended"]) == (
        6,
        6,
        "yes",
        "THREADS=64 AHEAD_MB=0",
    )
    assert row["evidence"].startswith(
        "Fastest is THREADS=64 AHEAD_MB=0, 1.061 (1.056 – 1.066) times the default's speed"
    )


# The committed run -----------------------------------------------------------------------------------------------
