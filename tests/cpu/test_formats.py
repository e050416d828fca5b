"""Files that one part writes and another reads: the committed ones are what is declared, and a new kind is one module."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from analysis.formats import files, packed, run, sweep, tools
from analysis.formats.errors import InputError
from harness.profile import argv, status
from studies.bench import files as bench
from studies.ladder import files as ladder
from studies.runs import benches

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = sorted(
    path
    for folder in (ROOT / "reports", *benches().values())
    for path in folder.rglob("*.*")
    if {".json", ".csv"} & set(path.suffixes)
)
# Of a user's program, which has no harness that would write a whole manifest: only files that no run of ours has.
PROFILED = sorted(path for one in ("profile", "counting") for path in (ROOT / "tests/cpu/data" / one).rglob("*.*"))
ONLY_PROFILED = {"bare_ranges", "count-plan", "count-selection", "selftest", "capture-costs"}


EVERY = {**files.every(), **{one.kind: one for one in (bench.BENCH, bench.BENCH_ROWS, ladder.LADDER, ladder.POINTS)}}


def test_every_kind_is_found() -> None:
    assert {run.OPS, run.MANIFEST, sweep.SWEEP_ROWS} <= set(files.every().values())
    assert ladder.LADDER.kind not in files.captured()
    assert run.OPS.kind in files.captured()
    headers = [one.header for one in EVERY.values() if isinstance(one, files.CsvFile)]
    assert len(headers) == len(set(headers))


@pytest.mark.parametrize("kind", [kind for kind, one in EVERY.items() if isinstance(one, files.JsonFile)])
def test_committed_json_is_what_its_writer_declares(kind: str) -> None:
    file = EVERY[kind]
    found = []
    for path in PROFILED if kind in ONLY_PROFILED else COMMITTED:
        document = json.loads(packed.read_bytes(path)) if ".json" in path.suffixes else None
        if isinstance(document, dict) and document.get("kind") == kind:
            found.append(path)
            file.check(document, path.name)
            # A report leaves out what has its default, as does the manifest of somebody's own program, whose Python
            # nobody saw; a run of several GPUs may be older than the splits.
            own = kind == run.MANIFEST.kind and "python" not in document
            written = kind not in ("report", "multi_gpu") and not own
            assert [misfit.said() for misfit in files.misfits(document, file.content, written=written)] == [], path
            assert list(files.undeclared(document, file.content)) == [], path
    # of the first no run is committed yet, the others are printed
    assert found or kind in ("accounting", "comparison", "kernel", "measured")


@pytest.mark.parametrize("kind", [kind for kind, one in EVERY.items() if isinstance(one, files.CsvFile)])
def test_committed_csv_has_the_columns_that_are_declared(kind: str) -> None:
    file = EVERY[kind]
    paths = PROFILED if kind in ONLY_PROFILED else COMMITTED
    named = [path for path in paths if path.name.removesuffix(".xz") == file.name and path.parent.name != "tables"]
    for path in named:
        assert file.has_header(packed.read_bytes(path).decode("utf-8").partition("\n")[0]), path
    # of a machine without a GPU; of runs that are not committed yet
    uncommitted = (
        "cpu_ranges",
        "ncu_lines",
        "points",
        "decode-phases",
        "graph_kernels",
        "inductor",
        "nccl-calls",
        "process-ranks",
        "rounds",
    )
    assert named or kind in uncommitted


def test_a_row_goes_by_name_or_by_place() -> None:
    cells = ["a/b", 0, "attn", 9, 1]
    row = dict(zip(("range", "ordinal", "component", "event_ns", "own_ns"), cells, strict=True))
    file = files.every()["layer_events"]
    assert isinstance(file, files.CsvFile)
    assert file.text([row, cells]) == f"{file.header}\na/b,0,attn,9,1\na/b,0,attn,9,1\n"
    assert file.text([{"range": "x"}]) == f"{file.header}\nx,,,,\n"
    with pytest.raises(ValueError, match=r"layer_events\.csv has no column rnage"):
        file.text([{"rnage": "x"}])
    with pytest.raises(ValueError, match="has 5 columns, not 2"):
        file.text([["x", 1]])


def test_older_files_lack_later_columns_and_nothing_else() -> None:
    names = list(bench.BENCH_ROWS.names)
    assert bench.BENCH_ROWS.has_header(",".join(names))
    assert bench.BENCH_ROWS.has_header(",".join(name for name in names if not name.startswith("versus_triton")))
    assert not bench.BENCH_ROWS.has_header(",".join(names[1:]))
    assert not bench.BENCH_ROWS.has_header(",".join([*names, "more"]))
    assert not bench.BENCH_ROWS.has_header(",".join(reversed(names)))


def test_a_writer_is_told_what_no_reader_would_take() -> None:
    assert tools.TOOL_STATUS.document({"tool": "ncu", "status": "ok"})["kind"] == "tool-status"
    with pytest.raises(InputError, match=r"timing\.json was not written: it has 3 at steps where a list belongs"):
        run.TIMING.document({"steps": 3})


@pytest.mark.parametrize(
    ("version", "said"), [(0, "0"), (3, "3"), (None, "null"), ("2", '"2"'), (True, "true"), (1.0, "1.0")]
)
def test_versions_from_the_oldest_on_are_read(version: object, said: str) -> None:
    file = files.JsonFile("x", "x.json", run.Ceilings, "write it again", version=2)
    for known in (1, 2):
        assert file.check({"kind": "x", "schema_version": known, "roofs": []}, "f")
    with pytest.raises(InputError, match=f"f: has schema_version {said} of x where 1 to 2 is read; write it again."):
        file.check({"kind": "x", "schema_version": version, "roofs": []}, "f")


def test_a_status_file_is_what_its_writer_declares(tmp_path: Path) -> None:
    """status.py runs with the Python of a system, so it imports no declaration."""
    counted = ["ncu", *argv.ncu("b", include=["a/"], domain="d"), "-f", "-o", "x", "prog"]
    for number, work in enumerate(
        (
            lambda path: status.main([path, "--tool", "ncu", "--exit-code", "1", "--", *counted]),
            lambda path: status.main([path, "--tool", "nsys", "--missing", "--seconds", "3", "--", "prog"]),
            lambda path: status.fail(Path(path), "nsys", "no space"),
        )
    ):
        path = tmp_path / f"{number}.json"
        work(str(path))
        document = json.loads(path.read_text())
        assert tools.TOOL_STATUS.check(document, "f") is document
        assert list(files.misfits(document, tools.ToolStatus, written=True)) == []
        assert list(files.undeclared(document, tools.ToolStatus)) == []


NEW_KIND = """
    from msgspec import Struct
    from analysis.formats.files import CsvFile, JsonFile, Whole

    class Weather(Struct):
        place: str
        degrees: Whole | None = None

    WEATHER = JsonFile("weather-report", "weather.json", Weather, "look out of the window", alone=True)
    RAIN = CsvFile("rain", "rain.csv", Weather, "look out of the window")
"""


def test_a_new_kind_of_file_is_one_module(tmp_path: Path) -> None:
    """What `load` hands on of it needs no other file: the declaration is found, told by content, checked and read."""
    module = tmp_path / "weather.py"
    module.write_text(textwrap.dedent(NEW_KIND))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text('{"kind": "weather-report", "schema_version": 1, "place": "here"}')
    (tmp_path / "in" / "b").write_text("place,degrees\nhere,\nthere,7\n")
    (tmp_path / "bad").write_text('{"kind": "weather-report", "schema_version": 1, "place": 4}')
    program = f"""
        import importlib.util, sys
        import analysis.formats
        from pathlib import Path
        spec = importlib.util.spec_from_file_location("analysis.formats.weather", {str(module)!r})
        sys.modules[spec.name] = found = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found)
        from analysis.formats import files
        iterate = files.iter_modules
        files.iter_modules = lambda path: [*iterate(path), type("Found", (), {{"name": "weather"}})]
        from analysis.capture.load import load
        from analysis.formats.errors import InputError
        capture = load([Path({str(tmp_path / "in")!r})])
        print(capture.of("weather-report")["place"], capture.of("rain")["degrees"].tolist())
        try:
            load([Path({str(tmp_path / "bad")!r})])
        except InputError as error:
            print(error)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "here [<NA>, 7]",
        "bad: weather-report has 4 at place where text belongs; look out of the window.",
    ]
