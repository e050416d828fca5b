"""The import rule: who may import whom, read from the syntax trees, and which modules may write files."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis import published
from tests.import_graph import (
    DRIVER,
    ROOT,
    cycles,
    edges,
    functions,
    imports,
    module_path,
    modules,
    parsed,
    reached_by,
    started,
    statements,
)

pytestmark = pytest.mark.xdist_group("architecture")  # the rules share the trees that one worker has parsed
OURS = {"analysis", "harness", "kernels", "nsys_scripts", "studies", "tests"}
# What analysis/ may import beside the standard library and itself: the base install of pyproject.toml.
HEAVY = {"torch", "triton", "transformers", "safetensors", "nvtx", "pynvml"}


@pytest.fixture(scope="module", autouse=True)
def _forget_trees() -> Iterator[None]:
    """Free the trees of all files after the last rule."""
    yield
    parsed.cache_clear()


def offenders(folder: str, forbidden: set[str], *, lazy: bool = True) -> list[str]:
    """file:line module of every import of a forbidden package (or of something in it)."""
    return [
        f"{path.relative_to(ROOT)}:{line} {module}"
        for path in modules(folder)
        for line, module in imports(path, lazy=lazy)
        if any(module == name or module.startswith(name + ".") for name in forbidden)
    ]


def names_one_of(entry: str, names: set[str]) -> bool:
    """Whether an entry of `offenders` is of one of these modules, or of something in it."""
    module = entry.rpartition(" ")[2]
    return any(module == name or module.startswith(name + ".") for name in names)


def test_the_folders_are_there() -> None:
    for folder in ("analysis", "harness", "kernels"):
        assert len(modules(folder)) > 2


def test_analysis_needs_no_gpu_and_none_of_the_programs_it_measures() -> None:
    assert offenders("analysis", HEAVY | {"kernels", "harness", "nsys_scripts"}) == []


def test_views_import_no_reader() -> None:
    readers = {f"analysis.capture.{path.stem}" for path in modules("analysis/capture")} | {"analysis.capture"}
    assert offenders("analysis/page", readers) == []


def test_tables_import_neither_views_nor_readers() -> None:
    types = {"model", "errors", "__init__"}  # what a capture is, not how it is read
    readers = {f"analysis.capture.{path.stem}" for path in modules("analysis/capture") if path.stem not in types}
    assert offenders("analysis/tables", {"analysis.page", "analysis.report"} | readers) == []


def test_kernels_import_nothing_of_ours() -> None:
    assert offenders("kernels", OURS - {"kernels"}) == []


def test_of_the_analysis_the_harness_imports_what_files_look_like_and_no_more() -> None:
    formats = {f"analysis.formats.{path.stem}" for path in modules("analysis/formats")}
    others = {entry for entry in offenders("harness", {"analysis", "tests"}) if not names_one_of(entry, formats)}
    assert others == set()


def test_formats_need_nothing_of_ours() -> None:
    own = {f"analysis.formats.{path.stem}" for path in modules("analysis/formats")}
    assert [entry for entry in offenders("analysis/formats", OURS) if not names_one_of(entry, own)] == []
    known = {*sys.stdlib_module_names, "msgspec", "analysis"}
    others = [
        f"{path.name}:{line} {module}"
        for path in modules("analysis/formats")
        for line, module in imports(path)
        if module.partition(".")[0] not in known
    ]
    assert others == []


def test_hardware_imports_what_files_look_like_and_itself() -> None:
    own = {f"analysis.{part}.{path.stem}" for part in ("formats", "hardware") for path in modules(f"analysis/{part}")}
    found = offenders("analysis/hardware", OURS)
    assert [entry for entry in found if not names_one_of(entry, own | {"analysis.hardware"})] == []


def test_transformers_is_imported_lazily_and_in_two_modules() -> None:
    # Hugging Face's own package `kernels` breaks transformers beside our folder of that name: both guard against it.
    everywhere = offenders("harness", {"transformers"}) + offenders("kernels", {"transformers"})
    assert {entry.split(":")[0] for entry in everywhere} <= {
        "harness/weights.py",
        "kernels/integrations/transformers.py",
    }
    assert offenders("harness", {"transformers"}, lazy=False) + offenders("kernels", {"transformers"}, lazy=False) == []


# --- studies ---

SHOWN = ("tables", "page", "figures", "read", "rows", "calls", "counters", "goals", "claims", "claims_page", "build")


def is_program(path: Path) -> bool:
    """Whether a module is a command line at the top of `analysis`."""
    return path.parent == ROOT / "analysis" and 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")


def test_only_what_measures_imports_torch() -> None:
    measures = [path for path in modules("studies") if path.name.startswith("measure")]
    assert len(measures) >= 4
    others = {str(path.relative_to(ROOT)) for path in set(modules("studies")) - set(measures)}
    assert [entry for entry in offenders("studies", HEAVY) if entry.split(":")[0] in others] == []
    assert offenders("nsys_scripts", HEAVY) == []


def test_what_a_study_shows_needs_nothing_that_measures() -> None:
    """Its tables, pages and figures are made where there is no torch, from files: not even through other modules."""
    shown = [path for path in modules("studies") if path.stem in SHOWN]
    assert len(shown) > 10
    found = [
        f"{path.relative_to(ROOT)}: {where} {module}"
        for path in shown
        for module, where in reached_by(path).items()
        if module.partition(".")[0] in HEAVY | {"harness", "kernels", "nsys_scripts"}
    ]
    assert found == []


def test_of_the_analysis_only_programs_use_studies() -> None:
    users = {entry.split(":")[0] for entry in offenders("analysis", {"studies"})}
    assert {name for name in users if not is_program(ROOT / name)} == set()


# --- cycles ---


def test_no_package_uses_one_that_uses_it() -> None:
    """Counting imports inside functions, modules by name, and shell scripts that run `python -m`."""
    graph = edges()
    assert graph["nsys_scripts"].keys() == {
        "analysis.counting",
        "analysis.formats",
        "analysis.graph_kernels",
        "analysis.hot_lines",
        "analysis.metrics",
        "analysis.nccl_calls",
    }  # the scripts are read
    assert "nsys_scripts" in graph["harness"]
    assert {"analysis.report", "harness", "nsys_scripts"} <= graph[DRIVER].keys()  # it is above all of them
    assert [package for package, used in graph.items() if DRIVER in used] == []
    assert "studies.sweep" in graph["analysis.report"]  # by f"studies.{name}"
    said = [
        [f"{one} → {two}: {graph[one][two]}" for one in group for two in group if two in graph[one]]
        for group in cycles(graph)
    ]
    assert said == []


@pytest.mark.parametrize(
    ("graph", "found"),
    [
        ({"a": {"b": ""}, "b": {"c": ""}}, []),
        ({"a": {"b": ""}, "b": {"a": ""}}, [["a", "b"]]),
        ({"a": {"b": ""}, "b": {"c": ""}, "c": {"a": ""}, "d": {"a": ""}}, [["a", "b", "c"]]),
    ],
)
def test_cycles_are_found(graph: dict[str, dict[str, str]], found: list[list[str]]) -> None:
    assert cycles(graph) == found


@pytest.mark.parametrize(
    ("source", "used"),
    [
        ('import_module("kernels.build")', "kernels.build"),
        ('[sys.executable, "-m", "harness.run"]', "harness.run"),
        ('ROOT / "nsys_scripts"', "nsys_scripts"),
        ('HERE / "common.sh"', "nsys_scripts.common"),
        ('HERE / "profile.sh"', "nsys_scripts.profile"),
        ('run(python, "-m", "harness.run")', "harness.run"),
        ('run(python, "analysis/report.py")', "analysis.report"),
        ('print("see nsys_scripts/common.sh")', None),
        ('TARGETS = {"harness.run": "profile"}', None),
    ],
)
def test_what_is_used_without_an_import_is_seen(source: str, used: str | None, tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(source)
    assert [module for _, module in started(path)] == ([used] if used else [])


def test_a_name_is_found_in_its_module() -> None:
    assert module_path("analysis.tables.join.prepare_counters") == ROOT / "analysis/tables/join.py"
    assert module_path("studies.ladder") == ROOT / "studies/ladder/__init__.py"
    assert module_path("pandas.DataFrame") is None


# --- GPUs ---


def test_no_program_names_a_published_gpu() -> None:
    """Which committed run is whose stands in reports/published.toml alone."""
    names = [runs.name for runs in published.read()]
    assert names
    programs = [ROOT / "Makefile", *(path for folder in OURS - {"tests"} for path in (ROOT / folder).rglob("*"))]
    found = [
        f"{path.relative_to(ROOT)}: {name}-"
        for path in programs
        if path.name == "Makefile" or path.suffix in {".py", ".sh"}
        for name in names
        if f"{name}-" in path.read_text(encoding="utf-8")
    ]
    assert found == []


# --- size ---

LONGEST = 60  # lines of a function
SHORT = ("studies", "nsys_scripts")


@pytest.mark.parametrize("folder", SHORT)
def test_no_function_is_long(folder: str) -> None:
    long = [f"{name}: {lines} lines" for path in modules(folder) for name, lines in functions(path) if lines > LONGEST]
    assert long == []


# --- writing ---

WRITING_METHODS = {
    "write_text", "write_bytes", "to_csv", "to_json", "to_parquet", "to_pickle", "to_excel", "savefig", "mkdir",
    "touch", "unlink", "rmdir",
}  # fmt: skip
WRITERS = {
    "analysis/report.py",
    "analysis/readmes.py",
    "analysis/counting.py",
    "studies/ladder/build.py",
    "studies/ladder/bounds.py",
    "studies/specimens/merge.py",
    "studies/specimens/scorecard.py",
    "tests/bench/readers.py",
    "tests/bench/make_captures.py",
}  # and the cache
MAY_WRITE_TO_A_STREAM = {"analysis/page/canvas.py"}  # a figure becomes bytes in memory


def writes(path: Path, name: str) -> Iterator[str]:
    """name:line call of everything in a file that writes, or could write, to the disk."""
    for node in ast.walk(parsed(path)):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if called == "open":
            mode = node.args[1 if isinstance(function, ast.Name) else 0 :][:1]
            mode += [keyword.value for keyword in node.keywords if keyword.arg == "mode"]
            modes = [value.value for value in mode if isinstance(value, ast.Constant) and isinstance(value.value, str)]
            if any(set(text) & set("wax+") for text in modes if set(text) <= set("rwaxbt+U")):
                yield f"{name}:{node.lineno} open"
        elif called in WRITING_METHODS and not (called == "savefig" and name in MAY_WRITE_TO_A_STREAM):
            yield f"{name}:{node.lineno} {called}"


def test_only_the_report_writes() -> None:
    found = [
        entry
        for path in (*modules("analysis"), *modules("studies"))
        if (name := str(path.relative_to(ROOT))) not in WRITERS
        and "cache" not in path.stem
        and not path.stem.startswith("measure")
        for entry in writes(path, name)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("open('x', 'w')", 1),
        ("open('x')", 0),
        ("path.open('ab')", 1),
        ("path.open(encoding='utf-8')", 0),
        ("open('x', mode='x')", 1),
        ("table.to_csv(path)", 1),
    ],
)
def test_the_writing_rule_sees_what_it_should(source: str, count: int, tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(source)
    assert len(list(writes(path, "module.py"))) == count


def test_no_test_folder_hides_a_package_of_ours() -> None:
    names = {path.name for path in (ROOT / "tests").rglob("*") if path.is_dir()}
    assert not names & (OURS - {"tests"})


# --- size ---

LINES = 60


@pytest.mark.parametrize("folder", ["analysis", "harness", "kernels", "studies"])
def test_no_function_is_longer_than_a_screen(folder: str) -> None:
    """How much branches is ruff's rule C901."""
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {lines} lines"
        for path in modules(folder)
        for node, _ in statements(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > LINES
    ]
    assert long == []
