"""Change one operator, number or word of the analysis at a time: does a test notice, and which?

python -m tests.mutants --sample 20 --seed 1 [--only join roofline] [--table tests/fuzz/MUTANTS.csv]

Each area has the tests that name its facts; none of them compares a committed report. They are collected once. Each mutant
then is a fork in which a function has another code, and which runs the tests that call the function. mutmut and cosmic-ray
run a suite from its start; this takes about half a second a mutant. A seed chooses by the hash of a change and of the name
of its function, so that an edit of one function leaves the sample of all others as it is.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import contextlib
import csv
import gc
import hashlib
import itertools
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple, TextIO

import pytest
from _pytest.main import pytest_runtestloop as run_tests

from tests.checkout import ROOT

BY_HAND = "test_facts_by_hand"
# Area -> its modules, and the test files that name its facts.
TARGETS: dict[str, tuple[list[str], list[str]]] = {
    "join": (["tables/join"], [BY_HAND, "test_tables_join"]),
    "busy time": (["tables/gaps", "formats/intervals"], [BY_HAND, "test_tables_numbers"]),
    "steps": (
        ["tables/bare", "tables/periods"],
        [BY_HAND, "test_tables_bare", "test_tables_periods", "test_steps_edges"],
    ),
    "replay": (
        ["replay/*"],
        [f"test_{name}_by_hand" for name in ("waits", "graph", "simulate", "changes", "savings", "steady", "replay")]
        + ["test_replay"],
    ),
    "roofline": (["tables/roofline", "diagnosis/limits"], [BY_HAND, "test_tables_numbers"]),
    "traffic": (["tables/traffic"], [BY_HAND, "test_tables_numbers"]),
    "fusion": (["fusion/*"], ["test_fusion_by_hand", "test_tables_fusion"]),
    "diagnosis": (["diagnosis/step_rules/*"], ["test_step_rules_by_hand", "test_step_rules_edges"]),
    "diagnosis kernels": (
        [
            "diagnosis/kernel_rules/*",
            *(f"diagnosis/{name}" for name in ("each", "evidence", "hot", "reasons", "sampled_reasons")),
        ],
        [
            "test_kernel_rules_by_hand",
            "test_kernel_thresholds_by_hand",
            "test_kernel_evidence_by_hand",
            "test_reasons_by_hand",
        ],
    ),
    "diagnosis program": (
        [f"diagnosis/{name}" for name in ("copies", "findings", "host", "program", "ran", "rank_costs")],
        ["test_program_rules_by_hand", "test_tables_program"],
    ),
    "diagnosis verdicts": (["diagnosis/judge", "diagnosis/again"], ["test_judge_by_hand"]),
    "diagnosis steps": (
        [f"diagnosis/{name}" for name in ("savers", "step_findings", "step_tables", "steps")],
        ["test_savers_by_hand", "test_step_findings_by_hand"],
    ),
    "diagnosis shown": (
        [f"diagnosis/{name}" for name in ("claims", "clocks", "lines", "scenes", "spans")],
        ["test_shown_by_hand"],
    ),
    "units": (["capture/units", "tables/units"], [BY_HAND, "test_capture_text"]),
    "compare": (
        ["comparison/*"],
        ["test_runs_by_hand", "test_comparison_by_hand", "test_comparison_units", "test_comparison"],
    ),
}
_TOLD = "told_by_mutants"  # the builtin that hears which function is called
SWAPPED: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
WORDS = {
    "max": "min", "min": "max", "maximum": "minimum", "minimum": "maximum", "median": "mean", "any": "all", "all": "any",
    "left": "right", "right": "left", "first": "last", "sum": "max", "start_ns": "end_ns", "end_ns": "start_ns",
    "floor": "ceil", "ceil": "floor",
}  # fmt: skip


class Mutant(NamedTuple):
    """A change, and the test that noticed it; none for a survivor."""

    area: str
    module: str
    line: int
    change: str
    result: str
    test: str


class Place(NamedTuple):
    """A node that may change: its number in the order of `ast.walk`, the function around it, and the change."""

    number: int
    function: str
    change: str


def changed(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield what may stand in place of a node, with a description."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPPED:
        other = SWAPPED[type(node.ops[0])]()
        yield _told(node.ops[0], other), ast.Compare(node.left, [other, *node.ops[1:]], node.comparators)
    if isinstance(node, ast.BinOp) and type(node.op) in SWAPPED:
        other = SWAPPED[type(node.op)]()
        yield _told(node.op, other), ast.BinOp(node.left, other, node.right)
    if isinstance(node, ast.BoolOp):
        other = SWAPPED[type(node.op)]()
        yield _told(node.op, other), ast.BoolOp(other, node.values)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not left out", node.operand
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        value = node.value + 1 if isinstance(node.value, int) else node.value * 1.5 or 1.0
        yield f"{node.value} -> {value}", ast.Constant(value)
    if isinstance(node, ast.Attribute) and node.attr in WORDS:
        yield f"{node.attr} -> {WORDS[node.attr]}", ast.Attribute(node.value, WORDS[node.attr], node.ctx)
    if isinstance(node, ast.Name) and node.id in WORDS and isinstance(node.ctx, ast.Load):
        yield f"{node.id} -> {WORDS[node.id]}", ast.Name(WORDS[node.id], node.ctx)
    if isinstance(node, ast.Constant) and node.value in WORDS:
        yield f"'{node.value}' -> '{WORDS[node.value]}'", ast.Constant(WORDS[node.value])


def _told(one: ast.AST, other: ast.AST) -> str:
    return f"{type(one).__name__} -> {type(other).__name__}"


Function = ast.FunctionDef | ast.Lambda


def functions(
    tree: ast.AST, within: str = "", seen: itertools.count[int] | None = None
) -> Iterator[tuple[str, Function]]:
    """Yield the functions of a module and the methods of its classes with their full names; none inside of another.

    A lambda that stands in no function, such as the condition of a rule, has a number for a name.
    """
    seen = seen or itertools.count(1)
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield within + node.name, node
        elif isinstance(node, ast.Lambda):
            yield f"{within}lambda {next(seen)}", node
        else:
            yield from functions(node, f"{within}{node.name}." if isinstance(node, ast.ClassDef) else within, seen)


def places(tree: ast.Module) -> list[Place]:
    """Return the nodes that may change: those in the bodies of functions, without annotations."""
    numbers = {id(node): at for at, node in enumerate(ast.walk(tree))}
    notes = [getattr(node, name, None) for node in ast.walk(tree) for name in ("annotation", "returns")]
    skipped = {id(part) for note in notes if note for part in ast.walk(note)}
    return [
        Place(numbers[id(node)], name, told)
        for name, function in functions(tree)
        for statement in ([function.body] if isinstance(function, ast.Lambda) else function.body)
        for node in ast.walk(statement)
        if id(node) not in skipped
        for told, _ in changed(node)
    ]


def sampled(known: list[Place], seed: int, size: int) -> list[Place]:
    """Return some places, each chosen by what it changes and where, and not by what other functions hold."""
    seen: Counter[tuple[str, str]] = Counter()
    hashes: list[tuple[bytes, Place]] = []
    for place in known:
        seen[place[1:]] += 1
        text = f"{seed} {place.function} {place.change} {seen[place[1:]]}"
        hashes.append((hashlib.sha256(text.encode()).digest(), place))
    return [place for _, place in sorted(hashes)[:size]]


def mutated(source: str, place: Place, path: str) -> tuple[CodeType, int]:
    """Return the code of a module with one change, and its line."""
    tree = ast.parse(source)
    wanted = list(ast.walk(tree))[place.number]
    found = next(other for said, other in changed(wanted) if said == place.change)

    class Change(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return ast.copy_location(found, node) if node is wanted else self.generic_visit(node)

    line = getattr(wanted, "lineno", 0)
    return compile(ast.fix_missing_locations(Change().visit(tree)), path, "exec", dont_inherit=True), line


def telling(source: str, path: str) -> CodeType:
    """Return the code of a module whose functions first tell their names: a tracer would slow all code down."""
    tree = ast.parse(source)
    for name, function in functions(tree):
        call = ast.parse(f"__import__('builtins').{_TOLD}({f'{path} {name}'!r})", mode="eval").body
        if isinstance(function, ast.Lambda):
            function.body = ast.Subscript(ast.Tuple([call, function.body], ast.Load()), ast.Constant(1), ast.Load())
        else:
            function.body.insert(0, ast.Expr(call))
    return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


def codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code and all codes inside it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from codes(inner)


def exchange(living: list[FunctionType], code: CodeType) -> None:
    """Give each living function of a module its code in a changed module."""
    new = {(one.co_qualname, one.co_firstlineno): one for one in codes(code)}
    for function in living:
        old = function.__code__
        other = new.get((old.co_qualname, old.co_firstlineno)) if old.co_filename == code.co_filename else None
        if other and len(other.co_freevars) == len(old.co_freevars):
            function.__code__ = other


class Runs:
    """Runs tests that pytest has collected, with and without changes, each time in a fork."""

    def __init__(self, area: str, seed: int, size: int, seconds: int, said: TextIO) -> None:
        self.area, self.seed, self.size, self.seconds, self.said = area, seed, size, seconds, said
        self.found: list[Mutant] = []
        self.failed = self.broken = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            path, _, name = report.nodeid.partition("::")
            self.failed = f"{path.rpartition('/')[2]}::{name}"

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Let property tests try the same few examples each time."""
        from hypothesis import settings

        settings.register_profile("mutants", derandomize=True, database=None, deadline=None, max_examples=20)
        settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        gc.unfreeze()  # tests/conftest.py hides all objects from the collector
        self.living = [one for one in gc.get_objects() if isinstance(one, FunctionType)]
        gc.freeze()  # else each fork copies what a collection marks
        self.items = {item.nodeid: item for item in session.items}
        self.files = {name: at for at, name in enumerate(dict.fromkeys(item.path for item in session.items))}
        self.callers, self.took, self.broken = json.loads(
            forked(lambda: self.watched(session), 900) or '[{}, {}, "all"]'
        )
        for path in [] if self.broken else modules(self.area):
            source = path.read_text("utf-8")
            for place in sampled(places(ast.parse(source)), self.seed, self.size):
                self.attempt(session, path, source, place)
        return True

    def attempt(self, session: pytest.Session, path: Path, source: str, place: Place) -> None:
        """Run the tests that call the function of a change: the quick ones, as many as fit into `seconds`."""
        code, line = mutated(source, place, str(path))
        tests = sorted(self.callers.get(f"{path} {place.function}", []), key=self.took.__getitem__)
        total = list(itertools.accumulate(self.took[name] for name in tests))
        session.items = [self.items[name] for name, so_far in zip(tests, total, strict=True) if so_far < self.seconds]
        session.items.sort(key=lambda item: self.files[item.path])
        limit = 10 + 3 * self.seconds
        result, _, test = forked(lambda: self.changed(session, code), limit).partition(" ")
        module = path.relative_to(ROOT / "analysis").with_suffix("").as_posix()
        self.found.append(Mutant(self.area, module, line, place.change, result or "hangs", test))
        print(*self.found[-1], file=self.said, flush=True)

    def watched(self, session: pytest.Session) -> str:
        """Run all tests; return which of them call each function, how long each takes, and the first that fails."""
        callers: defaultdict[str, set[str]] = defaultdict(set)
        took: dict[str, float] = {}
        within: list[str] = [""]

        setattr(builtins, _TOLD, lambda name: callers[name].add(within[0]))
        for path in modules(self.area):
            exchange(self.living, telling(path.read_text("utf-8"), str(path)))

        class Watch:
            @pytest.hookimpl(wrapper=True)
            def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
                within[0] = item.nodeid
                start = time.process_time()
                result = yield
                took[item.nodeid] = time.process_time() - start
                return result

        session.config.pluginmanager.register(Watch())
        with contextlib.suppress(pytest.Session.Failed):
            run_tests(session)
        return json.dumps([{name: sorted(tests) for name, tests in callers.items()}, took, self.failed])

    def changed(self, session: pytest.Session, code: CodeType) -> str:
        """Run the tests of a session with a changed module; return what became of it, and the test that failed."""
        exchange(self.living, code)
        with contextlib.suppress(pytest.Session.Failed):
            run_tests(session)
        return f"killed {self.failed}" if self.failed else "survived"


def forked(run: Callable[[], str], seconds: int) -> str:
    """Return what a function returns in a fork of this process; an empty text if it takes more processor time."""
    heard, said = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
            with os.fdopen(said, "w") as stream:
                stream.write(run())
        finally:
            os._exit(0)
    os.close(said)
    with os.fdopen(heard) as stream:
        text = stream.read()
    os.waitpid(pid, 0)
    return text


def modules(area: str) -> list[Path]:
    """Return the files of an area."""
    return sorted(path for name in TARGETS[area][0] for path in (ROOT / "analysis").glob(f"{name}.py"))


def try_area(given: tuple[str, int, int, int]) -> list[Mutant]:
    """Return what became of a sample of mutants of each module of an area."""
    area, *numbers = given
    tests = [f"{ROOT}/tests/cpu/{name}.py" for name in TARGETS[area][1]]
    options = ["-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-m", "not slow"]
    with tempfile.TemporaryDirectory() as folder, open(os.dup(1), "w") as said, open(os.devnull, "w") as nowhere:
        runs = Runs(area, *numbers, said)
        with contextlib.redirect_stdout(nowhere):
            pytest.main([*options, f"--basetemp={folder}/t", *tests], plugins=[runs])
    if runs.broken or not runs.found:
        raise RuntimeError(f"{area}: a test fails without a change: {runs.broken or 'none was collected'}")
    return runs.found


def main() -> int:
    """Try a sample of mutants of each module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=1, help="mutants of each module")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--seconds", type=int, default=2, help="processor time of the tests of a mutant without a change"
    )
    parser.add_argument("--only", nargs="+", choices=TARGETS, default=list(TARGETS), help="areas")
    parser.add_argument("--jobs", type=int, default=2, help="areas at a time")
    parser.add_argument("--least", type=float, default=0.0, help="fail if a smaller share is noticed")
    parser.add_argument("--table", type=Path, help="CSV file to write")
    options = parser.parse_args()
    import scipy.stats  # noqa: F401 - so that no area imports them anew

    found: list[Mutant] = []
    with multiprocessing.get_context("fork").Pool(options.jobs, maxtasksperchild=1) as pool:
        for part in pool.imap_unordered(
            try_area, [(area, options.seed, options.sample, options.seconds) for area in options.only], 1
        ):
            found += part
    found.sort(key=lambda one: list(TARGETS).index(one.area))
    if options.table:
        with options.table.open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream, lineterminator="\n").writerows([Mutant._fields, *found])
    for area in [*options.only, ""]:
        counts = Counter(one.result for one in found if area in ("", one.area))
        share = 1 - counts["survived"] / counts.total()
        print(f"{area or 'all'}: {counts.total()} mutants, {dict(counts)}, {share:.1%} noticed")
    return int(share < options.least)


if __name__ == "__main__":
    sys.exit(main())
