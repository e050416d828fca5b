"""Delays in a running program: the library under a fake CUDA, the driver, and what their blocks mean."""

import json
import lzma
import os
import shutil
import subprocess
import sys
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis import report
from analysis.capture.model import Capture
from analysis.diagnosis.claims import Claim
from analysis.diagnosis.measured import settle
from analysis.formats import symbols
from analysis.formats.measured import MEASURED, Intervention
from analysis.formats.report import Cell, Finding, KernelRow, Later, Saving
from harness.measure_fix import rounds
from harness.measure_fix.rounds import Experiment, Level, Plan
from harness.measure_fix.shared import SLOTS, Block, Kind, Mode, Name, demangled
from harness.measure_fix.slopes import Slope, bounded, of_round, slope
from harness.measure_fix.targets import Decider, Target, of_report
from tests.checkout import ROOT, loaded

COMPILER = shutil.which("cc") or ""
needs_compiler = pytest.mark.skipif(not COMPILER, reason="there is no C compiler")


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the library of delays for the fake clock, the fake CUDA and the program."""
    folder, source = tmp_path_factory.mktemp("fake"), ROOT / "tests/fake_cuda.c"
    library = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
    delays = [
        "-std=gnu11",
        "-shared",
        "-fPIC",
        "-fvisibility=hidden",
        "-pthread",
        "-DFAKE_CLOCK=fake_clock",
        "-Wall",
        "-Werror",
    ]
    for words in (
        [*library, "-o", "libcuda.so.1", source],
        ["-DPROGRAM", "-o", "program", source, "libcuda.so.1", "-ldl"],
        [*delays, "-o", "delays.so", ROOT / "harness/instrument/delays.c", "-ldl"],
    ):
        subprocess.run([COMPILER, "-O1", *map(str, words)], cwd=folder, check=True)
    return folder


# To load it takes a second of each process, and the ends of an interval are tested by test_rounds.
NO_SCIPY = (
    "from types import SimpleNamespace as Of; sys.modules['scipy.stats'] = Of(bootstrap=lambda values, *_, **__: "
    "Of(confidence_interval=Of(low=values[0].min(), high=values[0].max())))"
)


def run(
    fake: Path,
    *words: str,
    steps: int = 10**8,
    host_us: str = "",
    env: dict[str, str] | None = None,
    program: Path | None = None,
) -> tuple[int, str, dict[str, Any]]:
    """Run measure-fix on the fake program; return its exit status, its errors and its file."""
    out = fake / "measured.json"
    out.unlink(missing_ok=True)
    code = (
        "import functools, sys; from pathlib import Path; from harness.measure_fix import __main__ as m, rounds;"
        "m.Run = functools.partial(m.Run, look_s=0.01); rounds.WARM_S = rounds.END_S = 0.05;"  # its clock is fake
        f"{NO_SCIPY};"
        f"m.library = lambda: Path({str(fake / 'delays.so')!r}); sys.exit(m.run_program(m.main))"
    )
    command = [sys.executable, "-c", code, *words, "--seconds", "0.05", "--out", str(out)]
    place = {"LD_LIBRARY_PATH": str(fake), "KERNEL_LEDGER_CUPTI": str(fake / "libcuda.so.1"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "--", str(program or fake / "program"), str(steps), *host_us.split()],
        capture_output=True, text=True, env=os.environ | place | (env or {}), cwd=fake, timeout=100, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr, json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}


@needs_compiler
@pytest.mark.slow
def test_exposed_and_hidden(fake: Path) -> None:
    """A kernel on the critical path has slope 1, one beside it 0; a removal wins what is left; a wrong pattern says so."""
    parts = [
        "--kernel=^long",
        "--kernel=^short",
        "--virtual=^long",
        "--virtual=^short",
        "--remove=^long",
        "--remove=^none",
    ]
    code, said, found = run(fake, *parts)
    assert code == 0, said
    MEASURED.check(found, "measured.json")
    *slopes, unmatched = [one["slope"] for one in found["targets"]]
    assert slopes == pytest.approx([1, 0, 1, 0, 2 / 3], abs=0.02)
    assert (unmatched, [one["why"] for one in found["targets"]]) == (None, [*[""] * 5, "Nothing matches."])
    assert found["targets"][0]["per_step"] == 1
    assert found["targets"][0]["names"] == ["long_kernel"]
    assert found["idle_step_ns"] == pytest.approx(300_000, rel=0.01)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "slope", "why"),
    [("open", pytest.approx(2 / 3, abs=0.02), ""), ("fixed", None, "A graph cannot be changed.")],
)
def test_removal_in_a_graph(fake: Path, kind: str, slope: object, why: str) -> None:
    """Nodes of a graph are switched off; where the graph refuses that, nothing was removed, and the row says so."""
    code, said, found = run(fake, "--remove=^long", env={"FAKE_GRAPH": kind})
    assert code == 0, said
    assert [(one["slope"], one["why"]) for one in found["targets"]] == [(slope, why)]
    assert ("graphs could not be changed" in said) == (kind == "fixed")


@needs_compiler
@pytest.mark.slow
def test_copies_and_sets_of_memory_are_removed_in_a_graph(fake: Path) -> None:
    """Each takes 150 of 600 us."""
    code, said, found = run(fake, "--remove=memset", "--remove=Host-to-Device", env={"FAKE_GRAPH": "copies"})
    assert code == 0, said
    assert [one["slope"] for one in found["targets"]] == pytest.approx([0.25, 0.25], abs=0.02)


def test_a_longer_delay_bounds_the_slope_of_a_shorter_one() -> None:
    """It may be longer than what hides the part: then it says nothing of the lower end."""
    short, long = Slope(0.1, -0.4, 0.9), Slope(0.5, 0.4, 0.6)
    assert bounded([short, long]) == Slope(0.1, -0.4, 0.6)
    assert bounded([Slope(0.8, 0.7, 0.95), long]) == Slope(0.7, 0.7, 0.7)
    assert bounded([None]) is None


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(("host_us", "slope"), [("900", 1), ("100", 0)])
def test_host(fake: Path, host_us: str, slope: float) -> None:
    """A faster call saves all of its time if the GPU waits for it, and nothing beside kernels; both tell that time.

    Where the host is slower than the GPU, a delay of a call counts whole and one of a kernel not at all.
    """
    parts = ["--virtual-host", "MemGetInfo", "--host", "MemGetInfo", "--kernel", "^long"]
    code, said, found = run(fake, *parts, host_us=host_us)
    assert code == 0, said
    kernel, *found["targets"] = found["targets"]  # kernels come first
    assert kernel["slope"] == pytest.approx(1 - slope, abs=0.1)
    assert [one["slope"] for one in found["targets"]] == pytest.approx([slope, slope], abs=0.02)
    assert [one["part_ns"] for one in found["targets"]] == pytest.approx([int(host_us) * 1e3] * 2, rel=0.02)


@needs_compiler
@pytest.mark.slow
def test_two_ranks(fake: Path, tmp_path: Path) -> None:
    """Both processes run the same blocks, and the slower one counts."""
    program = tmp_path / "both"
    program.write_text(f"#!/bin/sh\nRANK=0 {fake / 'program'} $1 & RANK=1 {fake / 'program'} $1 & wait\n")
    program.chmod(0o755)
    code, said, found = run(fake, "--kernel", "^long", "--kernel", "^short", program=program)
    assert code == 0, said
    assert [one["slope"] for one in found["targets"]] == pytest.approx([1, 0], abs=0.05)
    assert found["targets"][0]["per_step"] == pytest.approx(1, abs=0.01)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "steps", "env", "status", "said"),
    [
        (["--kernel", "^long"], 2000, {}, 3, "The program ended (exit code 0) before the rounds did"),
        (["--kernel", "^long"], 10**8, {"FAKE_SUBSCRIBED": "1"}, 3, "Another profiler is attached"),
        (["--kernel", "^long"], 10**8, {"KERNEL_LEDGER_CUPTI": "/no/cupti.so"}, 3, "CUPTI is missing"),
        (["--kernel", "^long"], 10**8, {"CUDA_INJECTION64_PATH": "/other.so"}, 2, "another profiler is attached"),
        (["--kernel", "x", "--", "nsys"], 10, {}, 2, "nsys is another profiler"),
        (["--kernel", "("], 10, {}, 2, "is no regular expression"),
        ([], 10, {}, 2, "Nothing to delay"),
        (["--top", "3"], 10, {}, 2, "needs --report FILE"),
    ],
)  # fmt: skip
def test_bad_input(fake: Path, words: list[str], steps: int, env: dict[str, str], status: int, said: str) -> None:
    """Each reason not to measure is one sentence."""
    code, errors, _ = run(fake, *words, steps=steps, env=env)
    last = errors.strip().splitlines()[-1]
    assert (code, said in last) == (status, True), errors


def block(step_us: float, delay_us: float = 0, mode: Mode = Mode.DELAY, hits: int = 10, length: int = 0) -> Block:
    """Return a block of ten steps."""
    return Block(10, 0, mode, length, 1, 0, round(step_us * 1e4), hits, round(delay_us * 1e4), hits)


def test_rounds() -> None:
    """A round divides what the step grew by what it was delayed; a round without a delay says nothing."""
    assert of_round(block(100), block(105, 10)) == 0.5
    assert of_round(block(100), block(105)) is None
    assert of_round(block(100), block(75, mode=Mode.REMOVE)) == 0.25
    assert of_round(block(100), block(75, mode=Mode.REMOVE, hits=0)) is None
    assert of_round(block(100, mode=Mode.VIRTUAL), block(100, mode=Mode.VIRTUAL, length=5000)) == 1
    pairs = [(block(100), block(100 + grown, 10)) for grown in (9.8, 10, 10.1, 10.2, 30)]
    found = slope(pairs)
    assert found is not None
    assert found.value == pytest.approx(1.01)
    assert found.low <= found.value <= found.high
    assert slope(pairs[:3]) is None


def test_a_wide_interval_gets_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds are added to those of the first delay, and many narrow the interval."""
    clock = count()
    monkeypatch.setattr(rounds, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    noise = np.random.default_rng(3).normal(10, 6, 1000)

    def measure(settings: list[Block]) -> list[Block]:
        nonlocal noise
        told = [
            block(100 + noise[at] * (one.length_ns > 0), 10 * (one.length_ns > 0)) for at, one in enumerate(settings)
        ]
        noise = noise[len(settings) :]
        return told

    quiet = block(100)
    pairs = [(block(100), block(100 + grown, 10)) for grown in (2, 18, 8, 12, 10, 11)]
    one = Experiment(SimpleNamespace(measure=measure), 0, Target(Intervention.DELAY, "gemm"), 1e5)  # type: ignore[arg-type]
    assert not one.wide
    one.plan, one.levels = Plan(quiet, quiet, 1, 1e5, 0.0), [Level(1000, pairs, slope(pairs))]
    first = one.row()
    assert one.wide
    one.again(20)
    more = one.row()
    assert more.rounds > first.rounds
    assert (more.high or 0) - (more.low or 0) < (first.high or 0) - (first.low or 0)


def test_decisions() -> None:
    """A name belongs to each target that it matches; --range limits one to what runs inside ranges."""
    inside = Target(Intervention.DELAY, "gemm", within="layer")
    exact = Target(Intervention.DELAY, "void at::native::f<(int)4>(int)", exact=True)
    host = Target(Intervention.HOST, "^cudaMalloc$")
    decide = Decider([inside, exact, host], "^step")

    def bits(text: str, kind: Kind) -> int:
        return decide(Name(text, kind, 0, 0))

    assert bits("my_gemm", Kind.KERNEL) == 1 | 1 << 29
    assert bits("layer *", Kind.RANGE) == 1
    assert bits("step *", Kind.RANGE) == 1 << 30
    assert bits("f<4>(int)", Kind.KERNEL) == 2
    assert bits("cudaMalloc_v3020", Kind.CALL) == 4
    assert bits("cudaMalloc_v3020", Kind.KERNEL) == 0
    assert demangled("_Z3fooi") in ("foo(int)", "_Z3fooi")
    assert SLOTS < 29


ADDS = (
    "void at::native::elementwise_kernel<(int)128, (int)2, void at::native::gpu_kernel_impl_nocast"
    "<at::native::CUDAFunctor_add<float>>(at::TensorIteratorBase &, const T1 &)::[lambda(int) (instance {})]>(int, T3)"
)


@pytest.mark.parametrize("lambda_of", [1, 2])
def test_a_name_of_a_report_is_found_in_the_program(lambda_of: int) -> None:
    """libstdc++ writes the function around a lambda with its arguments' types; nsys with T1 and what it returns."""
    mangled = (
        "_ZN2at6native18elementwise_kernelILi128ELi2EZNS0_22gpu_kernel_impl_nocastINS0_15CUDAFunctor_addIfEEEEvRNS_18"
        f"TensorIteratorBaseERKT_EUliE{'' if lambda_of == 1 else '0'}_EEviT1_"
    )
    if demangled(mangled) == mangled:
        pytest.skip("libstdc++ is not here")
    target = Target(Intervention.DELAY, symbols.key(ADDS.format(1)), exact=True)
    assert target.has(Name(demangled(mangled), Kind.KERNEL, 0, 0)) == (lambda_of == 1)


def row(name: str, slope: float, change: str = "delay") -> dict[str, Any]:
    """Return a row of measured.json."""
    return {
        "change": change,
        "target": name,
        "names": [name],
        "slope": slope,
        "low": slope - 0.02,
        "high": slope + 0.02,
    }


def claim(kind: str, ops: list[int], later: Later | None = None) -> Claim:
    """Return a claim on operations that saves 10 to 20 % of a step."""
    of = Saving(0.1, 0.2)
    return Claim(kind=kind, title=kind, sentence="Said.", ops=np.array(ops, np.int64), saves_frac=of, later=later)


def test_findings_follow_what_was_measured() -> None:
    """A hidden finding leaves the list with what needs it; a measured one says so; the others stay as they are."""
    ops = pd.DataFrame({"name": ["void f<(int)4>(int)", "g", "h"], "duration_ns": [100, 100, 100]})
    rows = [row("f<4>(int)", 0.9), row("g", 0.0), row("cuLaunchKernel", 0.5, "host")]
    capture = Capture(gpu_ops=ops, ours={"measured": {"targets": rows}})
    hidden = claim("layout", [1])
    claims = [hidden, claim("fuse", [0]), claim("fuse", [2]), claim("launch_bound", [0, 1, 2])]
    settled = settle([*claims, claim("precision", [2], Later(Saving(), hidden.id))], capture)
    assert [one.measured and one.measured.slope for one in settled.claims] == [0.9, None, 0.5]
    assert "grows by 90% (88% to 92%) of a delay of it" in settled.claims[0].sentence
    assert list(settled.hidden.values()) == [
        "layout: hidden, since the step grows by 0% (-2% to 2.0%) of a delay of it."
    ]
    assert settle(claims, Capture(gpu_ops=ops)).claims == claims


@pytest.mark.slow
def test_a_report_says_what_was_measured(tmp_path: Path) -> None:
    """The slopes of a pair of the answer key, beside its capture: its first finding has them, and the replay's."""
    program, score = "weights_cast", loaded("tests/answer_key/score.py")
    folder = score.unpack("blind_measured", program, "h100", tmp_path)
    known = json.loads(lzma.decompress((ROOT / "tests/answer_key/measured.json.xz").read_bytes()))["blind_measured"][
        program
    ]
    (folder / "captures" / MEASURED.name).write_text(json.dumps(known))
    assert report.main([str(folder), "--out", str(tmp_path / "report"), "--quiet"]) == 0
    first = json.loads((tmp_path / "report" / "report.json").read_text(encoding="utf-8"))["findings"][0]
    assert first["measured"]["slope"] == known["targets"][0]["slope"] == pytest.approx(1.04, abs=0.01)
    assert "Measured: the step grows by 104% (98% to 110%) of a delay of it. The replay says 100%." in first["sentence"]


def test_top_of_a_report() -> None:
    """The parts that a report names: calls and copies of its findings, then its kernels."""
    kernels = [KernelRow("k", "k", "step", 1.0, 5.0, 0.1), KernelRow("l", "l", "step", 1.0, 9.0, 0.2)]
    finding = Finding("sync", 1, "sync", "Sync", "", "", cells=[Cell("changes", {"kernel": "k"}, "time_ns", 1)])
    found = of_report(SimpleNamespace(findings=[finding], kernels=kernels), 3)  # type: ignore[arg-type]
    assert [(one.change, one.text) for one in found] == [("host", "Synchronize"), ("delay", "k"), ("delay", "l")]


LAYOUTS = """
#include "delays.c"
#include <cuda.h>
#include <cupti.h>
#define SAME(ours, a, theirs, b) _Static_assert(offsetof(ours, a) == offsetof(theirs, b), #a)
SAME(call, parameters, CUpti_CallbackData, functionParams);
SAME(call, result, CUpti_CallbackData, functionReturnValue);
SAME(call, symbol, CUpti_CallbackData, symbolName);
SAME(call, context, CUpti_CallbackData, context);
SAME(launch, grid, cuLaunchKernel_params, gridDimX);
SAME(launch, shared_bytes, cuLaunchCooperativeKernel_params, sharedMemBytes);
SAME(launch, stream, cuLaunchCooperativeKernel_params, hStream);
SAME(launch, stream, cuLaunchKernel_params, hStream);
SAME(launch_ex, function, cuLaunchKernelEx_params, f);
SAME(launch_config, stream, CUlaunchConfig, hStream);
SAME(launch_config, attribute_count, CUlaunchConfig, numAttrs);
SAME(node_parameters, block, CUDA_KERNEL_NODE_PARAMS, blockDimX);
SAME(node_parameters, kernel, CUDA_KERNEL_NODE_PARAMS, kern);
_Static_assert(sizeof(node_parameters) == sizeof(CUDA_KERNEL_NODE_PARAMS), "of a node");
_Static_assert(offsetof(cuMemcpyHtoDAsync_v2_params, hStream) == 24, "of a copy");
_Static_assert(offsetof(cuMemcpyHtoDAsync_v2_params, ByteCount) == 16, "of a copy");
_Static_assert(offsetof(cuMemsetD32Async_params, N) == 16, "of a memset");
_Static_assert(offsetof(cuMemsetD8Async_params, hStream) == 24, "of a memset");
_Static_assert(offsetof(cuMemcpyPeerAsync_params, hStream) == 40, "of a peer copy");
_Static_assert(offsetof(cuMemsetD2D8Async_params, hStream) == 40, "of a memset in two dimensions");
_Static_assert(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED == 39, "of another profiler");
_Static_assert(CU_POINTER_ATTRIBUTE_MEMORY_TYPE == 2 && CU_MEMORYTYPE_DEVICE == 2, "of a pointer");
"""


@needs_compiler
def test_layouts_are_those_of_cupti(tmp_path: Path) -> None:
    """delays.c declares what it uses of CUPTI and the driver itself: the headers say the same."""
    home = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    headers = [path.parent for path in home.glob("**/cupti_callbacks.h")]
    if not headers:
        pytest.skip("CUPTI's headers are not here")
    source = tmp_path / "layouts.c"
    source.write_text(LAYOUTS)
    places = [f"-I{path}" for path in (ROOT / "harness/instrument", headers[0], home / "include")]
    subprocess.run([COMPILER, "-std=gnu11", "-fsyntax-only", *places, str(source)], check=True)
