"""Change one operator, number or word of the analysis at a time: does a test notice, and which?

python -m tests.mutants --sample 20 --seed 1 [--only join roofline] [--table tests/fuzz/MUTANTS.csv]

Each mutant runs in a fork of a process that has imported all libraries and nothing of ours, with the tests that name the
facts of its module. mutmut and cosmic-ray run a whole suite from its start; this takes about two seconds a mutant.
"""

from __future__ import annotations

import argparse
import ast
import csv
import importlib.abc
import importlib.util
import os
import random
import resource
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.checkout import ROOT

BY_HAND = "test_facts_by_hand"
# Module -> the test files that name its facts.
TARGETS = {
    "tables/join": ["test_tables_join", BY_HAND],
    "tables/gaps": ["test_tables_numbers", BY_HAND],  # busy time, and verdicts on steps
    "tables/intervals": ["test_tables_numbers", "test_replay", BY_HAND],
    "tables/bare": [BY_HAND, "test_tables_bare"],
    "tables/periods": ["test_tables_periods"],
    "tables/roofline": [BY_HAND, "test_tables_numbers"],
    "tables/traffic": ["test_tables_numbers"],
    "tables/collectives": [BY_HAND, "test_tables_ranks"],
    "replay/simulate": ["test_replay"],
    "replay/changes": ["test_replay"],
    "replay/steady": ["test_replay"],
    "fusion/plan": ["test_tables_fusion"],
    "diagnosis/findings": ["test_findings", BY_HAND],
    "diagnosis/reasons": ["test_diagnosis"],
    "capture/units": ["test_capture_text", "test_capture_ncu_pages"],
    "comparison/compare": ["test_comparison"],
    "comparison/verdict": ["test_comparison"],
}
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

    module: str
    line: int
    change: str
    result: str
    test: str


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


def places(tree: ast.Module) -> list[tuple[int, str]]:
    """Return the number of each node that may change, in the order of `ast.walk`, with what changes."""
    bodies = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)]
    skipped = {
        id(part)
        for one in bodies
        for outer in (*one.decorator_list, one.args, one.returns)
        if outer
        for part in ast.walk(outer)
    }
    inside = {id(part) for one in bodies for part in ast.walk(one)} - skipped
    return [(at, told) for at, node in enumerate(ast.walk(tree)) if id(node) in inside for told, _ in changed(node)]


def mutated(source: str, number: int, told: str) -> tuple[Any, int]:
    """Return the code of a module with one change, and its line."""
    tree = ast.parse(source)
    wanted = list(ast.walk(tree))[number]
    found = next(other for said, other in changed(wanted) if said == told)

    class Change(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return ast.copy_location(found, node) if node is wanted else self.generic_visit(node)

    line = wanted.lineno  # type: ignore[attr-defined]
    return compile(ast.fix_missing_locations(Change().visit(tree)), "mutant", "exec"), line


class Loader(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads one module from changed code."""

    def __init__(self, name: str, code: Any) -> None:
        self.name, self.code = name, code

    def find_spec(self, name: str, path: object, target: object = None) -> Any:
        spec = importlib.util.spec_from_file_location(name, ROOT / f"{name.replace('.', '/')}.py", loader=self)
        return spec if name == self.name else None

    def exec_module(self, module: Any) -> None:
        exec(self.code, module.__dict__)


class Named:
    """Notes the first test that fails."""

    failed = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid.rpartition("/")[2]


def attempt(module: str, code: Any, seconds: int) -> tuple[str, str]:
    """Run the tests of a module with changed code, in a fork; return what became of it, and the test."""
    heard, said = os.pipe()
    pid = os.fork()
    if not pid:
        result = "broken"
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
            for number in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            if code is not None:
                sys.meta_path.insert(0, Loader(f"analysis.{module.replace('/', '.')}", code))
            named = Named()
            tests = [f"{ROOT}/tests/cpu/{name}.py" for name in TARGETS[module]]
            options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow", "--no-header"]
            ended = pytest.main([*options, *tests], plugins=[named])
            result = "survived" if ended == 0 else "killed" if named.failed else "broken"
            os.write(said, f"{result} {named.failed}".encode())
        finally:
            os._exit(0)
    os.close(said)
    with os.fdopen(heard) as stream:
        text = stream.read()
    os.waitpid(pid, 0)
    result, _, test = text.partition(" ")
    return result or "hangs", test


def main() -> int:
    """Try a sample of mutants of each module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=1, help="mutants of each module")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", metavar="MODULE", help="modules by a part of their name")
    parser.add_argument("--seconds", type=int, default=60, help="processor time of a mutant")
    parser.add_argument("--least", type=float, default=0.0, help="fail if a smaller share is killed")
    parser.add_argument("--table", type=Path, help="CSV file to write")
    options = parser.parse_args()
    import scipy.stats  # noqa: F401 - so that no fork imports them anew

    found: list[Mutant] = []
    for module in TARGETS:
        if options.only and not any(part in module for part in options.only):
            continue
        source = (ROOT / "analysis" / f"{module}.py").read_text("utf-8")
        known = places(ast.parse(source))
        if attempt(module, None, options.seconds)[0] != "survived":
            raise SystemExit(f"{module}: its tests fail without a change")
        for number, told in random.Random(f"{options.seed} {module}").sample(known, min(options.sample, len(known))):
            code, line = mutated(source, number, told)
            found.append(Mutant(module, line, told, *attempt(module, code, options.seconds)))
            print(*found[-1], flush=True)
    counts = Counter(one.result for one in found)
    if options.table:
        with options.table.open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream, lineterminator="\n").writerows([Mutant._fields, *found])
    share = 1 - counts["survived"] / max(len(found), 1)
    print(f"{len(found)} mutants: {dict(counts)}; {share:.0%} noticed")
    return int(share < options.least)


if __name__ == "__main__":
    sys.exit(main())
