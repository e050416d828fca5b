"""Find which of our packages uses which: by imports (also inside functions), names of modules, and shell scripts.

A package is a folder of `analysis` or `studies`, a module at the top of `analysis`, or `harness`, `kernels`,
`nsys_scripts`. The driver of `make profile` is in `nsys_scripts` and uses all of these, so it is a package of its own.
"""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OURS = ("analysis", "harness", "kernels", "nsys_scripts", "studies")
DIVIDED = ("analysis", "studies")
IMPORTERS = {"import_module", "find_spec", "__import__", "run_module"}
PROGRAM = r"analysis/\w+\.py"
SHELL = re.compile(
    rf"(?<=-m )(?:analysis|harness|kernels|studies|nsys_scripts)\.[\w.]+|\b{PROGRAM}\b|\bnsys_scripts/(?:profile)?"
)
SCRIPTS = {path.name: f"nsys_scripts.{path.stem}" for path in (ROOT / "nsys_scripts").glob("*.sh")}
DRIVER = "nsys_scripts.profile"  # profile.sh and the modules profile_*.py beside it

_STATEMENTS = (ast.stmt, ast.ExceptHandler, ast.match_case)
Edges = dict[str, dict[str, str]]  # package → package that it uses → the first file:line that uses it


def modules(folder: str) -> list[Path]:
    """Return the Python files of a folder of the project."""
    return sorted(path for path in (ROOT / folder).rglob("*.py") if "__pycache__" not in path.parts)


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file. Several rules read the same trees; `parsed.cache_clear` forgets them."""
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path, *, lazy: bool = True) -> list[tuple[int, str]]:
    """Yield (line, absolute module name) of every import of a file; lazy=False leaves out imports inside functions."""
    return [(line, module) for line, module, inside in _imports(path) if lazy or not inside]


@cache
def _imports(path: Path) -> list[tuple[int, str, bool]]:
    """(line, absolute module name, whether inside a function) of every import of a file."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1] if path.is_relative_to(ROOT) else ()
    return [(line, module, inside) for node, inside in statements(path) for line, module in _names(node, package)]


def statements(path: Path) -> Iterator[tuple[ast.AST, bool]]:
    """Yield (statement, whether inside a function) of a file, without a look into expressions: they hold none."""
    left: deque[tuple[ast.AST, bool]] = deque([(parsed(path), False)])
    while left:
        node, inside = left.popleft()
        yield node, inside
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        left += [(child, inside) for child in ast.iter_child_nodes(node) if isinstance(child, _STATEMENTS)]


def _names(node: ast.AST, package: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """(line, absolute module name) of what a statement of a module in `package` imports."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield node.lineno, alias.name
    elif isinstance(node, ast.ImportFrom):
        base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
        module = ".".join(part for part in (base, node.module or "") if part)
        for alias in node.names:
            yield node.lineno, f"{module}.{alias.name}"


def started(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, module name) of what a Python file uses without importing it.

    These are modules that it gives to importlib or names after `-m`, programs that it names as analysis/x.py, and
    scripts of nsys_scripts; the folder's name stands for all its scripts.
    """
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.List | ast.Tuple | ast.Call):
            words = node.args if isinstance(node, ast.Call) else node.elts
            values = [getattr(element, "value", None) for element in words]
            yield from _named([words[place + 1] for place, value in enumerate(values[:-1]) if value == "-m"])
            programs = [value for value in values if isinstance(value, str) and re.fullmatch(PROGRAM, value)]
            yield from ((node.lineno, value.removesuffix(".py").replace("/", ".")) for value in programs)
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            yield from _named(node.args[:1] if called in IMPORTERS else [])
        elif isinstance(node, ast.Constant) and node.value == "nsys_scripts":
            yield node.lineno, node.value
        elif isinstance(node, ast.Constant) and node.value in SCRIPTS:
            yield node.lineno, SCRIPTS[node.value]


def _named(nodes: list[ast.expr]) -> Iterator[tuple[int, str]]:
    """Yield the module that each string names; for one like f"studies.{name}", every package that begins so."""
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
            folder = ROOT.joinpath(*str(node.values[0].value).split("."))
            packages = sorted(path.parent for path in folder.glob("*/__init__.py"))
            yield from ((node.lineno, ".".join(path.relative_to(ROOT).parts)) for path in packages)


def called_by_script(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, module name) that a shell script runs: with `-m`, as analysis/x.py, or from nsys_scripts."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.lstrip().startswith("#"):
            for match in SHELL.finditer(line):
                yield number, match[0].rstrip("/").removesuffix(".py").replace("/", ".")


def package_of(module: str) -> str:
    """Return the package of a name: `analysis.tables` for `analysis.tables.join.prepare`; "" if it is not ours."""
    if module.startswith(DRIVER):
        return DRIVER
    first, *rest = module.split(".")
    if first not in OURS or (first in DIVIDED and not rest):
        return ""
    return f"{first}.{rest[0]}" if first in DIVIDED else first


def edges() -> Edges:
    """Return every use of one package by another."""
    found: Edges = {}
    for folder in OURS:
        scripts = sorted((ROOT / folder).rglob("*.sh"))
        for path in (*modules(folder), *scripts):
            name = path.relative_to(ROOT)
            package = package_of(".".join(name.with_suffix("").parts))
            uses = called_by_script(path) if path.suffix == ".sh" else (*imports(path), *started(path))
            for line, module in uses:
                used = package_of(module)
                if used and package and used != package:
                    found.setdefault(package, {}).setdefault(used, f"{name}:{line} {module}")
    return found


def cycles(graph: Edges) -> list[list[str]]:
    """Return the groups of packages that use each other, also indirectly."""
    reached = {package: _reached_from(package, graph) for package in graph}
    groups = {
        tuple(sorted(other for other in reached[package] if package in reached.get(other, ())))
        for package in graph
        if package in reached[package]
    }
    return [list(group) for group in sorted(groups)]


def _reached_from(package: str, graph: Edges) -> set[str]:
    found: set[str] = set()
    left = [*graph.get(package, ())]
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += graph.get(one, ())
    return found


@cache
def module_path(module: str) -> Path | None:
    """Return the file of a dotted name, or of the module that the name is in; None if it is not ours."""
    parts = module.split(".")
    for end in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:end])
        if path.with_suffix(".py").is_file():
            return path.with_suffix(".py")
        if (path / "__init__.py").is_file():
            return path / "__init__.py"
    return None


def reached_by(path: Path) -> dict[str, str]:
    """Return every module that a file imports, also through our other modules -> the file that imports it."""
    found: dict[str, str] = {}
    seen, left = {path}, [path]
    while left:
        one = left.pop()
        for line, module in imports(one):
            found.setdefault(module, f"{one.relative_to(ROOT)}:{line}")
            file = module_path(module)
            if file is not None and file not in seen:
                seen.add(file)
                left.append(file)
    return found


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield (file:line name, lines from `def` to the end) of every function of a file."""
    for node, _ in statements(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", node.end_lineno - node.lineno + 1
