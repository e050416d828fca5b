"""The least work of automatic ranges: bytes and FLOPs of a step, where they are unknown, and the payload that shows them."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from analysis.capture.load import load
from analysis.formats.ranges import DOMAIN, PARAMETERS, WORK, read_work
from analysis.formats.views import holds
from harness.dataflow import Recorder
from harness.instrument import dataflow_file, range_work
from harness.instrument.range_work import Work, WorkOfRanges
from harness.ranges import span
from tests.cpu.test_auto_ranges import FOLDER, PATCHED, Marks, Net, loaded
from tests.nsys_export import Export

UNKNOWN = Work(None, None)


def work_of(function: Callable[[Recorder, WorkOfRanges], Any], steps: int = 1) -> dict[str, Work]:
    """The work of each range of a step, in which `function` runs."""
    work = WorkOfRanges(holds)
    recorder = Recorder(work)
    for _ in range(steps):
        with recorder, span(recorder, "step"):
            function(recorder, work)
    return work.found()


def step(function: Callable[[], Any], steps: int = 1) -> Work:
    return work_of(lambda *_: function(), steps)["step"]


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.no_grad():
        yield


# --- what is counted ---


def test_a_product_moves_its_operands_once_and_what_stays_inside_not_at_all() -> None:
    x, layer, other = torch.ones(3, 4), nn.Linear(4, 5), nn.Linear(5, 2)

    def run(recorder: Recorder, _: Any) -> None:
        with span(recorder, "mlp"):
            with span(recorder, "fc"):
                hidden = layer(x)
            with span(recorder, "act"):
                hidden = hidden.relu()
            with span(recorder, "proj"):
                hidden = other(hidden)
        hidden.sum()

    weights, hidden = 4 * (4 * 5 + 5 + 5 * 2 + 2), 4 * 3 * 5
    assert work_of(run) == {
        "step/mlp/fc": Work(4 * (3 * 4 + 4 * 5 + 5) + hidden, 2 * 3 * 4 * 5),
        "step/mlp/act": Work(2 * hidden, 0),
        "step/mlp/proj": Work(hidden + 4 * (5 * 2 + 2 + 3 * 2), 2 * 3 * 5 * 2),
        "step/mlp": Work(4 * 3 * 4 + weights + 4 * 3 * 2, 2 * 3 * 4 * 5 + 2 * 3 * 5 * 2),
        "step": Work(4 * 3 * 4 + weights, 2 * 3 * 4 * 5 + 2 * 3 * 5 * 2),  # its result is gone when it closes
    }


def test_the_flops_of_a_training_step_are_those_of_torchs_own_counter() -> None:
    net = nn.Sequential(nn.Conv1d(4, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 5), nn.LayerNorm(5), nn.Softmax(-1))
    optimiser = torch.optim.AdamW(net.parameters())

    def train() -> None:
        with torch.enable_grad():
            nn.functional.cross_entropy(net(torch.ones(2, 4, 6)), torch.zeros(2, dtype=torch.long)).backward()
        optimiser.step()

    with FlopCounterMode(display=False) as counted:
        train()
    found = step(train, steps=2)
    assert found.flops == counted.get_total_flops() > 0
    parameters = sum(4 * one.numel() for one in net.parameters())
    assert (found.minimum_bytes or 0) > 7 * parameters  # gradient, two moments and parameter, read and written


def test_views_that_overlap_count_once_and_gathered_tables_as_far_as_they_are_read() -> None:
    x, table, cache = torch.ones(10), torch.ones(1000, 4), torch.zeros(100, 4)
    rows = torch.tensor([3, 7])
    assert step(lambda: x[1:] + x[:-1]).minimum_bytes == 40
    whole = torch.ones(4, 6)
    assert step(lambda: whole[:, :3] * whole[:, 3:]).minimum_bytes == 96
    assert step(lambda: torch.ones(5).expand(8, 5) + 1).minimum_bytes == 0
    kept = []
    assert step(lambda: kept.append(table[rows])) == Work(2 * 16 + 2 * 8 + 2 * 16, 0)
    assert step(lambda: cache.index_copy_(0, rows, table[:2])).minimum_bytes == 2 * 16 + 2 * 8 + 2 * 16


def test_a_view_with_holes_and_its_halves_count_once() -> None:
    """Rotary embedding of the heads in the result of one product for queries, keys and values."""
    together = torch.ones(6, 40)
    y, made = together[:, :16].view(6, 2, 8), []

    def rotary() -> None:
        made.append(y * 2.0 + torch.cat((-y[..., 4:], y[..., :4]), -1) * 3.0)

    assert step(rotary).minimum_bytes == 2 * y.numel() * 4


def test_a_view_holds_another_only_if_it_has_all_of_its_elements() -> None:
    storage, random = torch.arange(2 * 6 * 8), Random(7)
    held = 0
    for _ in range(2000):
        views = []
        for _ in range(2):
            one = storage.view(2, 6, 8)
            for axis in range(3):
                first = random.randrange(one.shape[axis])
                one = one.narrow(axis, first, random.randint(1, one.shape[axis] - first))
            views.append(one.transpose(0, random.randrange(3)))
        outer, inner = views
        contains = set(inner.flatten().tolist()) <= set(outer.flatten().tolist())
        says = holds(range_work.view_of(outer), range_work.view_of(inner))
        assert says == contains  # of slices of one tensor
        held += says
    assert held > 50


@pytest.mark.parametrize(
    ("views", "least"),
    [
        ([(0, 8, 8), (0, 8, 8)], 8),
        ([(0, 8, 8), (4, 12, 8)], 12),
        ([(0, 20, 8), (4, 24, 8)], 16),
        ([(0, 4, 4), (8, 12, 4)], 8),
        ([(4, 4, 0)], 0),
    ],
)
def test_the_least_bytes_of_views(views: list[tuple[int, int, int]], least: int) -> None:
    assert range_work.bytes_of((range_work.View(*view) for view in views), holds) == least


# --- what is unknown ---


@torch.library.custom_op("kernel_ledger_tests::mystery", mutates_args=())
def mystery(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


def test_operations_without_a_formula_make_the_ranges_around_them_unknown() -> None:
    x = torch.ones(4, 4)

    def run(recorder: Recorder, _: Any) -> None:
        with span(recorder, "known"):
            y = x @ x
        with span(recorder, "custom"):
            y = mystery(y)
        with span(recorder, "vector"):
            y @ x[0]

    found = work_of(run)
    assert found["step/known"] == Work(2 * 64, 128)
    assert found["step/custom"] == found["step/vector"] == found["step"] == UNKNOWN


def test_what_no_operation_wrote_was_written_by_something_unseen() -> None:
    """A Triton kernel writes into memory that an operation allocated."""
    x = torch.ones(4)

    def run(recorder: Recorder, _: Any) -> None:
        with span(recorder, "written"):
            torch.empty(4).copy_(x)
        with span(recorder, "before"):
            x + 1
        with span(recorder, "allocated"):
            y = torch.empty(4)
        with span(recorder, "read"):
            y + 1
        with span(recorder, "never"):
            torch.empty_like(x)
        with span(recorder, "behind"):
            x * 2

    found = work_of(run)
    assert [name for name, work in found.items() if work == UNKNOWN] == [
        "step/allocated", "step/read", "step/never", "step",
    ]  # fmt: skip


def test_something_compiled_makes_the_open_ranges_unknown() -> None:
    def run(recorder: Recorder, work: WorkOfRanges) -> None:
        with span(recorder, "before"):
            torch.ones(2) + 1
        with span(recorder, "around"):
            work.unseen()
        with span(recorder, "behind"):
            torch.ones(2) + 1

    found = work_of(run)
    assert found["step/around"] == found["step"] == UNKNOWN
    assert found["step/before"] == found["step/behind"] == Work(0, 0)


def test_calls_and_steps_that_differ_have_no_common_work() -> None:
    sizes = iter([9, 2, 2, 3])
    x, y = torch.ones(4, 4), torch.ones(4)

    def run(recorder: Recorder, _: Any) -> None:
        for one in (x, y):
            with span(recorder, "twice"):
                one + 1
        with span(recorder, "same"):
            x @ x
        with span(recorder, "grows"):
            torch.ones(next(sizes)) + 1

    found = work_of(run, steps=3)
    assert found["step/twice"] == Work(None, 0)
    assert found["step/same"] == Work(64, 128)
    assert found["step"].flops == 128


def test_the_last_two_steps_count_as_the_first_may_do_more() -> None:
    known: dict[str, torch.Tensor] = {}
    x = torch.ones(8)

    def run() -> None:
        if not known:
            known["cache"] = torch.stack([x, x])
        known["cache"].add_(1)

    assert step(run, steps=2).minimum_bytes is None
    known.clear()
    assert step(run, steps=3) == Work(128, 0)


def test_memory_that_no_operation_writes_is_not_looked_at_again() -> None:
    """Of 10,000 modules with parameters, each operation would look through 20,000 storages."""
    work, layers, x = WorkOfRanges(holds), nn.ModuleList(nn.Linear(2, 2) for _ in range(50)), torch.ones(1, 2)
    recorder = Recorder(work)
    with recorder, span(recorder, "step"):
        for layer in layers:
            x = layer(x)
        assert len(recorder._alive) <= 2
    weights = 50 * 4 * (2 * 2 + 2)
    assert work.found()["step"] == Work(weights + 2 * 8, 50 * 8)


# --- from the run of the dataflow to the ranges of the timeline ---


def test_processes_that_disagree_leave_a_number_out(tmp_path: Path) -> None:
    shared = [100, 7]
    for pid, work in enumerate([{"a": shared, "b": [5, 3], "c": [None, 4]}, {"a": shared, "b": [6, 3], "d": [8, 0]}]):
        (tmp_path / f"dataflow-{pid}.json").write_text(json.dumps({"rows": [], "compiled": True, "work": work}))
    file = tmp_path / "work.json"
    assert dataflow_file.main([str(tmp_path), "--out", str(tmp_path), "--work", str(file)]) == 0
    assert read_work(str(file)) == {
        "a": {"minimum_bytes": 100, "flops": 7}, "b": {"flops": 3}, "c": {"flops": 4}, "d": {"minimum_bytes": 8},
    }  # fmt: skip


@pytest.mark.parametrize("text", ["", "[1]", '{"a": 3}', '{"a": {"flops": "many"}}', "\xff"])
def test_a_damaged_file_shows_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "work.json").write_bytes(text.encode("latin-1"))
    assert read_work(str(tmp_path / "work.json")) == read_work(str(tmp_path / "none")) == read_work(None) == {}


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    return loaded(FOLDER / "module_ranges.py")


class Recursive(nn.Module):
    """Calls itself, and a module that two others share."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.act = nn.ReLU()
        self.again = self

    def forward(self, x: torch.Tensor, depth: int = 3) -> torch.Tensor:
        return self.again(self.act(self.fc(x)), depth - 1) if depth else x


def test_every_range_carries_the_work_of_its_path(hook: ModuleType) -> None:
    """What the run of the dataflow counted for a path is shown there, and nowhere else."""
    paths = {"step Net(3 x 4)/layers.0": {"minimum_bytes": 11, "flops": 12}, "step Net(3 x 4)/layers.0/fc": {"flops": 13},
             "step Net(3 x 4)": {"minimum_bytes": 14}, "step Recursive(1 x 4)/fc": {"flops": 15},
             "step Recursive(1 x 4)/again/fc": {"flops": 16}, "step backward": {"flops": 17}, "ReLU": {"flops": 18}}  # fmt: skip
    marks, x = Marks(), torch.ones(3, 4)
    ranges = hook.Ranges(torch, marks, paths)
    plain = nn.Module.__call__
    nn.Module.__call__ = ranges.wrapped_call(plain)  # type: ignore[method-assign]
    try:
        net, other = Net(), nn.Sequential()
        other.net = net.layers[0]
        net(x), net(x[:1]), other.append(net.layers[0])(x), Recursive()(x[:1]), nn.ReLU()(x)
    finally:
        nn.Module.__call__ = plain  # type: ignore[method-assign]
    ranges.wrapped(lambda: None, "backward", "backward")()
    shown = {path: {name: one for name, one in found.items() if name in WORK} for path, found in marks.payloads.items()}
    assert {path: work for path, work in shown.items() if work} == {
        path: work for path, work in paths.items() if path != "step Recursive(1 x 4)/again/fc"
    }
    assert "step Sequential(3 x 4)/net=1/fc" in shown
    assert max(path.count("/again") for path in shown) == 3  # calls of a module in itself say nothing of their work
    assert len(ranges._recursive) == 1


def test_the_payload_names_its_numbers_for_nsys_alone(hook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[dict[str, Any]] = []

    class Domain:
        push_range = pop_range = None

        def get_event_attributes(self, **attributes: Any) -> None:
            opened.append(attributes)

    class Old(Domain):
        def get_event_attributes(self, *, message: str, color: str, category: str, payload: Any = None) -> None:
            if payload is not None:
                raise TypeError("an older package")
            opened.append({"message": message})

    def marks(domain: type[Domain]) -> Any:
        return hook.NvtxMarks(type("nvtx", (), {"get_domain": staticmethod(lambda _: domain())}))

    work = {"minimum_bytes": 11, "flops": 1 << 40, "parameter_bytes": 3}
    monkeypatch.delenv("NSYS_PROFILING_SESSION_ID", raising=False)
    marks(Domain).mark("fc", "linear", work)
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "1")
    for given in (work, {}, {"flops": 1 << 70}):
        marks(Domain).mark("fc", "linear", given)
    marks(Old).mark("fc", "linear", work)
    named = {"message": "fc", "color": "darkgreen", "category": "linear"}
    assert [one for one in opened if "payload" not in one] == [named, named, named, {"message": "fc"}]
    (shown,) = [one["payload"] for one in opened if "payload" in one]
    assert dict(zip(shown.dtype.names, shown.tolist(), strict=True)) == work


def test_a_program_is_counted_in_one_run_and_shows_it_in_the_next(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    work, recorded, marks = tmp_path / "work.json", hook._recorded(), Marks()
    for owner, name in PATCHED:
        monkeypatch.setattr(owner, name, getattr(owner, name))  # to be put back
    monkeypatch.setattr(hook, "_recorded", lambda: recorded)
    monkeypatch.setattr(hook, "marks", lambda _: marks)
    monkeypatch.setenv("KERNEL_LEDGER_RANGES_OUT", str(tmp_path))
    monkeypatch.setenv("KERNEL_LEDGER_RANGES_WORK", str(work))
    plain, net, x = nn.Module.__call__, Net(), torch.ones(3, 4)
    for mode in ("dataflow", "on"):
        monkeypatch.setattr(nn.Module, "__call__", plain)
        hook.install(torch, mode)
        for _ in range(4):
            net(x)
        if mode == "dataflow":
            assert len({row[:2] for row in recorded._recorder.rows()}) == 5  # each range of one step
            recorded.write()
            assert dataflow_file.main([str(tmp_path), "--out", str(tmp_path), "--work", str(work)]) == 0
    weights, hidden = 4 * (4 * 4 + 4), 4 * 3 * 4
    step, head = "step Net(3 x 4)", {"minimum_bytes": 40 + hidden + 24, "flops": 48, "parameter_bytes": 40}
    layer = {"minimum_bytes": weights + 2 * hidden, "flops": 96, "parameter_bytes": weights}
    whole = {"minimum_bytes": 2 * weights + 40 + hidden + 24, "flops": 240, "parameter_bytes": 2 * weights + 40}
    parts = {f"layers.{at}{part}": layer for at in (0, 1) for part in ("", "/fc")}
    parts |= {f"layers.{at}/act": {"minimum_bytes": 2 * hidden} for at in (0, 1)} | {"head": head}
    assert marks.payloads == {step: whole} | {f"{step}/{part}": shown for part, shown in parts.items()}


# --- readers ---


@pytest.mark.parametrize("era", [2025, 2026])
def test_readers_take_ranges_with_these_payloads(era: int, tmp_path: Path) -> None:
    """The same capture with payloads and without, beside NCCL's, which the reader does look into."""
    captures = []
    for shows in (True, False):
        export = Export(era)
        export.gpu()
        export.domain("NCCL", 3)
        export.domain(DOMAIN, 4)
        export.nccl("ncclAllReduce", 10, 40, comm=77, bytes=4096)
        for name, start, end in (("step Net(2 x 4)", 50, 400), ("fc", 60, 200)):
            export.push(name, start, end, domain=4, registered=True)
            if shows:
                export.payload(4, 1 << 24, [(one, 18, "<q", 64 + start) for one in (*WORK, PARAMETERS)])
        export.launch("gemm", (70, 80), (100, 150))
        captures.append(load([export.save(tmp_path / "timeline.sqlite")]))
    shown, plain = captures
    assert shown.ranges["name"].tolist() == ["NCCL:ncclAllReduce", "step Net(2 x 4)", "fc"]
    assert shown.ranges.equals(plain.ranges)
    assert shown.nccl_calls["bytes"].tolist() == plain.nccl_calls["bytes"].tolist() == [4096]
    assert [str(gap) for gap in shown.missing] == [str(gap) for gap in plain.missing]
