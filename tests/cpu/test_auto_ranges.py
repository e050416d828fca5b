"""Automatic ranges: what each call of a module is called, what stays as it was, and whose ranges count."""

import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from analysis.capture.names import range_name
from analysis.capture.ncu_csv import push_pop_path
from analysis.capture.nsys_csv import strip_domain
from analysis.formats.ranges import CALIBRATION, DOMAIN, STEP, is_step
from harness.instrument import bare_ranges, dataflow_file
from tests.cpu.test_profile import profile
from tests.machine import ROOT, Machine

FOLDER = ROOT / "harness" / "instrument" / "auto_ranges"
PATCHED = (
    (nn.Module, "__call__"),
    (torch.autograd, "backward"),
    (torch.optim.Optimizer, "profile_hook_step"),
    (torch, "compile"),
    (torch.cuda.CUDAGraph, "replay"),
)


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    return loaded(FOLDER / "module_ranges.py")


class Marks:
    """Keeps what is opened: the stack of names at each push, payloads by it; `open` is empty once all are closed."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.kinds: dict[str, str] = {}
        self.payloads: dict[str, dict[str, int]] = {}
        self._local = threading.local()

    @property
    def open(self) -> list[str]:
        if not hasattr(self._local, "names"):
            self._local.names = []
        return self._local.names

    def mark(self, name: str, kind: str, payload: dict[str, int]) -> tuple[str, dict[str, int]]:
        self.kinds[name] = kind
        return name, payload

    def push(self, mark: tuple[str, dict[str, int]]) -> None:
        self.open.append(mark[0])
        self.paths.append("/".join(self.open))
        self.payloads[self.paths[-1]] = mark[1]

    def pop(self) -> None:
        self.open.pop()


@pytest.fixture
def marks(hook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[Marks]:
    found = Marks()
    for owner, name in PATCHED:
        monkeypatch.setattr(owner, name, getattr(owner, name))  # to be put back
    monkeypatch.setattr(hook, "marks", lambda _: found)
    hook.install(torch, "on")
    yield found
    assert found.open == []


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.act = nn.Linear(4, 4), nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.fc(x))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Mlp() for _ in range(2))
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def test_every_call_is_named_by_its_path_below_its_caller(marks: Marks) -> None:
    Net()(torch.zeros(3, 4))
    step = "step Net(3 x 4)"
    inner = [f"{step}/layers.{layer}{part}" for layer in (0, 1) for part in ("", "/fc", "/act")]
    assert marks.paths == [step, *inner, f"{step}/head"]
    assert (marks.kinds[step], marks.kinds["layers.0"], marks.kinds["head"]) == ("step", "mlp", "linear")
    assert marks.payloads[f"{step}/head"] == {"parameter_bytes": 4 * (4 * 2 + 2)}  # no run counted its work
    assert is_step(step)


def test_steps_of_other_shapes_are_other_steps_and_a_leaf_is_none(marks: Marks) -> None:
    net = Net()
    net(torch.zeros(3, 4))
    net(x=torch.zeros(1, 4))
    nn.ReLU()(torch.zeros(2))
    assert [path for path in marks.paths if "/" not in path] == ["step Net(3 x 4)", "step Net(1 x 4)", "ReLU"]


def test_backward_and_the_optimiser_are_steps(marks: Marks) -> None:
    net = Net()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    net(torch.zeros(1, 4)).sum().backward()
    optimiser.step()
    assert marks.paths[-2:] == [f"{STEP}backward", f"{STEP}SGD"]
    assert net.head.weight.grad is not None


def test_shared_recursive_foreign_and_late_modules(marks: Marks) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = self.head = nn.Linear(4, 4)
            self.add_module("a/b", nn.Linear(4, 4))
            self.depth = 0

        def forward(self, x: torch.Tensor, deeper: bool = True) -> torch.Tensor:
            if deeper:
                self.again = self  # a cycle of modules
                x = self.again(x, deeper=False)
                self.late = nn.Linear(4, 4)
                return foreign(self.late(self._modules["a/b"](self.head(x))))
            return x

    foreign = nn.Linear(4, 4)
    Odd()(torch.zeros(1, 4))
    assert [path.partition("/")[2] for path in marks.paths[1:]] == ["again", "embed=head", "a|b", "late", "Linear"]


def test_a_lazy_module_gets_its_name_before_its_size(marks: Marks) -> None:
    nn.Sequential(nn.LazyLinear(3))(torch.zeros(2, 4))
    assert marks.paths == ["step Sequential(2 x 4)", "step Sequential(2 x 4)/0"]
    assert marks.payloads[marks.paths[1]] == {}


def test_ten_thousand_modules_are_looked_through_once(
    hook: ModuleType, marks: Marks, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks = []
    walk = hook.names_below
    monkeypatch.setattr(hook, "names_below", lambda module: walks.append(module) or walk(module))
    many = nn.Sequential(*(nn.Identity() for _ in range(10_000)))
    many(torch.zeros(1))
    many(torch.zeros(1))
    assert len(marks.paths) == 2 * 10_001
    assert marks.paths[10_000].endswith("/9999")
    assert walks == [many]


def test_names_are_not_those_of_modules_that_are_gone(marks: Marks) -> None:
    for name in ("first", "second", "third"):
        net = nn.Sequential()
        net.add_module(name, nn.Identity())
        net(torch.zeros(1))
        del net  # the next one may lie at its address
    assert [path.rpartition("/")[2] for path in marks.paths[1::2]] == ["first", "second", "third"]


def test_an_error_closes_its_ranges_and_threads_have_stacks_of_their_own(marks: Marks) -> None:
    net = Net()
    with pytest.raises(RuntimeError):
        net(torch.zeros(1, 5))
    thread = threading.Thread(target=net, args=(torch.zeros(2, 4),))
    thread.start()
    thread.join()
    assert "step Net(2 x 4)/layers.0/fc" in marks.paths


def test_what_is_compiled_is_compiled_without_ranges(
    hook: ModuleType, marks: Marks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    hook.install(torch, "on")  # which takes the function once
    net = Net()
    net(torch.zeros(1, 4))
    assert all(path == "step Net(1 x 4)" or "/" in path for path in marks.paths)  # those of the first installation
    counted = Marks()
    ranges = hook.Ranges(torch, counted)
    ranges.wrapped_call(lambda module, x: x)(net, 1)
    ranges.wrapped(lambda: None, "x", "other")()
    assert counted.paths == []


def test_what_was_really_compiled_is_one_step_however_it_was_compiled(marks: Marks) -> None:
    """Modules, methods and functions through Dynamo itself; a module that is compiled late has its ranges until then."""
    net, x = Net(), torch.zeros(1, 4)

    @torch.compile(backend="eager")
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return net(x) * 2

    expected = net(x)
    marks.paths.clear()
    assert torch.equal(torch.compile(net, backend="eager")(x), expected)
    assert torch.equal(torch.compile(net.forward, backend="eager")(x), expected)
    assert torch.equal(doubled(x), expected * 2)
    assert marks.paths == ["step Net(1 x 4)", "step Net(1 x 4)", "step doubled(1 x 4)"]
    net.compile(backend="eager")  # in place, after it ran
    marks.paths.clear()
    assert torch.equal(net(x), expected)
    assert marks.paths == ["step Net(1 x 4)"]
    torch._dynamo.reset()


def test_a_replayed_graph_is_a_step_where_no_module_is_open(hook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    counted, seen = Marks(), []
    ranges = hook.Ranges(torch, counted)
    replay = ranges.outermost(seen.append, "CUDAGraph")
    compiled = ranges.outermost(replay, "decode", Net())
    replay(1)
    compiled(2)
    with pytest.raises(TypeError):
        replay()
    assert (counted.paths, seen) == (["step CUDAGraph", "step decode", "step CUDAGraph"], [1, 2])
    assert counted.open == []


def test_a_fork_keeps_its_ranges_and_writes_a_file_of_its_own(tmp_path: Path) -> None:
    """Both processes of a fork record what they run; each writes at its own end."""
    code = (
        "import os, torch\nnet = torch.nn.Sequential(torch.nn.Linear(2, 2))\nchild = os.fork()\n"
        "net(torch.zeros(1 if child else 3, 2))\n"
        "if child: os.waitpid(child, 0)\n"
        "else:\n    import atexit; atexit._run_exitfuncs(); os._exit(0)\n"
    )
    environment = {"KERNEL_LEDGER_RANGES_OUT": str(tmp_path), "OMP_NUM_THREADS": "1"}
    environment |= {"PYTHONPATH": str(FOLDER), "KERNEL_LEDGER_RANGES": "dataflow"}
    answer = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    found = [json.loads(path.read_text()) for path in tmp_path.iterdir()]
    steps = [{row[0].partition("/")[0] for row in one["rows"]} for one in found]
    assert sorted(map(sorted, steps)) == [["step Sequential(1 x 2)"], ["step Sequential(3 x 2)"]]
    flops = {path: work[1] for one in found for path, work in one["work"].items()}
    assert flops == {f"step Sequential({rows} x 2){part}": 8 * rows for rows in (1, 3) for part in ("", "/0")}


def test_a_range_has_its_cost_measured(
    hook: ModuleType, marks: Marks, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KERNEL_LEDGER_RANGES_OUT", str(tmp_path))
    hook.install(torch, "measure")
    Net()(torch.zeros(1, 4))
    (file,) = tmp_path.glob("cost-*.json")
    said = json.loads(file.read_text())
    assert said["cost_ns"] > 0
    assert said["with"] == "Marks"


def test_a_compiled_module_does_not_measure_the_cost_in_each_call(
    hook: ModuleType, marks: Marks, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """torch.compile keeps the module's `__call__` of that time, which is the one that measures."""
    monkeypatch.setenv("KERNEL_LEDGER_RANGES_OUT", str(tmp_path))
    written: list[str] = []
    monkeypatch.setattr(hook, "_write", lambda what, _: written.append(what))
    hook.install(torch, "measure")
    net, x = Net(), torch.zeros(1, 4)
    early = net.__call__
    compiled = torch.compile(Net(), backend="eager")
    net(x)
    for _ in range(3):
        early(x)
        compiled(x)
    assert written == ["cost"]
    assert marks.paths.count("step Net(1 x 4)") == 7


def test_a_torch_with_nvtx_and_no_package_has_our_name_in_its_ranges(hook: ModuleType) -> None:
    class Nvtx:
        rangePushA = rangePop = staticmethod(lambda *_: None)  # noqa: N815

    class Torch:
        _C = type("C", (), {"_nvtx": Nvtx})

    mark = hook.TorchMarks(Torch).mark("step Net(3 x 4)", "step", 0)
    assert strip_domain(f":{mark}") == "step Net(3 x 4)"
    assert isinstance(hook.marks(Torch), hook.NvtxMarks)  # the package is here


# --- dataflow ---


class Counting(TorchDispatchMode):
    """A dispatch mode of the program's own."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def test_the_dataflow_of_each_kind_of_step_is_recorded_once(
    hook: ModuleType, marks: Marks, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    recorded = hook._recorded()
    monkeypatch.setattr(hook, "_recorded", lambda: recorded)
    monkeypatch.setenv("KERNEL_LEDGER_RANGES_OUT", str(tmp_path))
    monkeypatch.setattr(nn.Module, "__call__", nn.Module._wrapped_call_impl)
    hook.install(torch, "dataflow")
    net, own = Net(), Counting()
    for rows in (3, 3, 1):
        with own:
            net(torch.zeros(rows, 4)).sum().backward()
    recorded.write()
    assert sum("addmm" in one for one in own.seen) == 9  # the program's own mode sees all it saw
    assert dataflow_file.main([str(tmp_path), "--out", str(tmp_path)]) == 0
    lines = (tmp_path / "dataflow.csv").read_text().splitlines()
    ranges = [line.split(",")[0] for line in lines[1:]]
    steps = dict.fromkeys(name.partition("/")[0] for name in ranges)
    assert list(steps) == ["step Net(3 x 4)", "step backward", "step Net(1 x 4)"]
    assert "step Net(3 x 4)/layers.1/act" in ranges
    relu = [line.split(",") for line in lines if ",aten.relu.default," in line]
    product = [line.split(",") for line in lines if ",aten.addmm.default,out0" in line]
    assert relu[0][5] == product[0][5]  # the storage that the product wrote is read by the activation


def test_what_is_compiled_is_compiled_while_the_rest_of_its_step_is_recorded(
    hook: ModuleType, marks: Marks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiled module and a compiled function inside a step: Dynamo compiles both, and the dataflow has neither."""
    recorded, compiled = hook._recorded(), []
    monkeypatch.setattr(hook, "_recorded", lambda: recorded)
    monkeypatch.setattr(nn.Module, "__call__", nn.Module._wrapped_call_impl)
    hook.install(torch, "dataflow")

    def backend(graph: Any, _: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = torch.compile(nn.Linear(4, 4), backend=backend), nn.Linear(4, 2)
            self.doubled = torch.compile(lambda x: x * 2 + 1, backend=backend)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.doubled(self.first(x)))

    mixed = Mixed().requires_grad_(False)
    for _ in range(2):
        mixed(torch.zeros(3, 4))
    torch._dynamo.reset()
    assert len(compiled) == 2
    assert {row[0] for row in recorded._recorder.rows()} == {"step Mixed(3 x 4)/last"}


def test_a_program_that_recorded_nothing_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dataflow_file.main([str(tmp_path), "--out", str(tmp_path)]) == 1
    assert "no process recorded" in capsys.readouterr().err
    (tmp_path / "dataflow-1.json").write_text('{"rows": [], "compiled": true}')
    assert dataflow_file.main([str(tmp_path), "--out", str(tmp_path)]) == 0
    assert "compiled" in capsys.readouterr().out


# --- the program's Python ---

TORCH = """
import types
class Module:
    def __call__(self): return type(self).__name__
nn = types.SimpleNamespace(Module=Module)
"""


def python(folder: Path, code: str, mode: str = "on") -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": f"{FOLDER}:{folder}", "KERNEL_LEDGER_RANGES": mode}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


def test_the_programs_own_sitecustomize_runs_and_a_strange_torch_goes_on_without_ranges(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.own = __file__\n")
    (tmp_path / "torch.py").write_text(TORCH)
    answer = python(
        tmp_path, "import sys, torch; print(sys.own, sys.modules['sitecustomize'].__file__, torch.nn.Module()())"
    )
    assert answer.returncode == 0, answer.stderr
    own = str(tmp_path / "sitecustomize.py")
    assert answer.stdout.split() == [own, own, "Module"]
    assert answer.stderr.startswith("kernel-ledger: no automatic ranges with this torch:")
    assert len(answer.stderr.splitlines()) == 1


def test_without_torch_nothing_happens_and_an_error_of_sitecustomize_is_its_own(tmp_path: Path) -> None:
    answer = python(
        tmp_path, "import sys; print('module_ranges' in str(sys.meta_path)); import json, os; os.fork() or os._exit(0)"
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    (tmp_path / "sitecustomize.py").write_text("raise ValueError('mine')\n")
    assert "ValueError: mine" in python(tmp_path, "print(1)").stderr


# --- readers, and whose ranges count ---


def test_readers_take_our_ranges_with_and_without_the_domain() -> None:
    name = "step Net(3 x 4)"
    assert (
        range_name(f"{DOMAIN}:{name}") == strip_domain(f":{DOMAIN}:{name}") == strip_domain(f"{DOMAIN}:{name}") == name
    )
    assert strip_domain("NCCL:ncclAllReduce") == "NCCL:ncclAllReduce"
    tail = "PAYLOAD_TYPE_INT64:1024:ARGB:0xff0000ff:REGISTERED"
    cell = f'17  "{DOMAIN}:{name}:{tail}:{name}"  "<default domain>:{DOMAIN}:fc:none:none:none:none:none:none"'
    assert push_pop_path(cell) == f"{name}/fc"


def row(name: str, start: int, end: int | str) -> tuple[Any, ...]:
    return (0, "", 0, start, end, "push", name)


def test_what_automatic_ranges_cost_is_taken_off() -> None:
    ours = f"{DOMAIN}:"
    rows = [row(f"{ours}{CALIBRATION}", 0, 10), row(f"{ours}step N", 1000, 9000), row(f"{ours}a", 2000, 3000),
            row(f"{ours}b", 4000, ""), row("CCCL:cub::Sort", 5000, 6000)]  # fmt: skip
    found, how = bare_ranges.automatic(rows, 200.0)
    assert how == "on"
    assert [one[6] for one in found] == ["step N", "a", "b", "CCCL:cub::Sort"]
    # a has two events of its own, of which one lies inside; the step has those, and one of b
    assert [(one[3], one[4]) for one in found] == [(1000, 8600), (1900, 2800), (3700, ""), (4600, 5600)]


def test_the_programs_own_ranges_count_alone(tmp_path: Path) -> None:
    rows = [row(f"{DOMAIN}:step N", 0, 9), row("decode", 1, 8)]
    assert bare_ranges.automatic(rows, 1.0) == (rows[1:], "own")
    assert bare_ranges.automatic(rows[1:], 1.0) == (rows[1:], "")
    assert bare_ranges.cost_of(tmp_path) is None


# --- the driver ---

RANGED = '#!/usr/bin/env bash\necho "program ${KERNEL_LEDGER_RANGES:-none}" >> "$CALLS"\n'


def runs_of(machine: Machine, *options: str, **environment: str) -> list[str]:
    machine.put("checkout/app", RANGED)
    answer = profile(machine, *options, "--", "./app", **environment)
    assert answer.returncode == 0, answer.stderr
    return [line.split()[1] for line in machine.calls.read_text().splitlines() if line.startswith("program")]


def test_a_program_with_ranges_of_its_own_or_without_torch_has_no_others(gpu_machine: Machine) -> None:
    assert runs_of(gpu_machine, BARE_AUTO="") == ["measure", "ranks", "none"]


def test_no_automatic_ranges(gpu_machine: Machine) -> None:
    assert runs_of(gpu_machine, "--no-auto-ranges", BARE_AUTO="on") == ["none", "none", "none"]


def test_filters_of_ncu_with_and_without_the_domain(gpu_machine: Machine) -> None:
    options = [
        "-n",
        "--metrics",
        "m",
        "--domain",
        DOMAIN,
        "--include",
        "[step N(1 x 2)/layers.0/fc]",
        "--include",
        "head/",
    ]
    command = gpu_machine.run("ncu_capture.sh", *options, "--", "./app").stdout
    assert command.split("/ncu ", 1)[1].startswith(
        "--nvtx --nvtx-include '[step N(1 x 2)/layers.0/fc]' --nvtx-include 'kernel_ledger@[step N(1 x 2)/layers.0/fc]'"
        " --nvtx-include '[kernel_ledger:step N(1 x 2)/kernel_ledger:layers.0/kernel_ledger:fc]'"
        " --nvtx-include head/ --nvtx-include kernel_ledger@head/ --nvtx-include kernel_ledger:head/ "
    )


def test_a_rank_notes_its_rank_and_any_other_process_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL_LEDGER_RANGES_OUT", str(tmp_path))
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert python(tmp_path, "").returncode == 0
    assert not list(tmp_path.iterdir())
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert python(tmp_path, "").returncode == 0
    (noted,) = tmp_path.glob("rank-*.json")
    said = json.loads(noted.read_text())
    assert {name: said[name] for name in ("process_rank", "ranks", "local_rank")} == {
        "process_rank": 3, "ranks": 4, "local_rank": None,
    }  # fmt: skip
    assert noted.name == f"rank-{said['pid']}.json"


def test_a_program_with_ranges_of_its_own_only_notes_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL_LEDGER_RANGES_OUT", str(tmp_path / "noted"))
    monkeypatch.setenv("RANK", "1")
    (tmp_path / "noted").mkdir()
    (tmp_path / "torch.py").write_text(TORCH)
    answer = python(tmp_path, "import torch; print(torch.nn.Module())", "ranks")
    assert (answer.returncode, answer.stderr) == (0, "")  # this torch is too strange for ranges
    assert [path.name.partition("-")[0] for path in (tmp_path / "noted").iterdir()] == ["rank"]
