"""Bindings, made of the declarations."""

import re
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from kernels import build, glue, objects
from kernels.registry import FOLDER, Launcher, ops

pytestmark = pytest.mark.studies

RUNGS = [(folder, variant) for folder, rungs in glue.folders().items() for _, variant in rungs]


@pytest.mark.parametrize("folder", glue.folders())
def test_a_binding_has_every_rung_by_the_name_that_python_calls(folder: str) -> None:
    text = glue.binding_text(folder)
    bound = dict(re.findall(r'module\.def\("(\w+)", \w+<(\w+)[,>]', text))
    wanted = [variant.launcher for name, variant in RUNGS if name == folder]
    assert bound == {launcher.function: launcher.name for launcher in wanted if launcher}
    assert text.count("module.def(") == len(bound) + len(glue.extras(folder))
    for launcher in wanted:
        assert launcher is not None
        assert text.count(f"cudaError_t {launcher.name}(const {glue.call_type(folder)}& call);") == 1


@pytest.mark.parametrize(("folder", "variant"), RUNGS, ids=[f"{folder}-{one.name}" for folder, one in RUNGS])
def test_a_source_has_the_launcher_that_its_variant_declares(folder, variant) -> None:
    text = (FOLDER / folder / variant.source).read_text("utf-8")
    named = [variant.launcher.name, *([variant.launcher.workspace] if variant.launcher.workspace else [])]
    for name in named:
        assert re.search(rf"^cudaError_t {name}\(const {glue.call_type(folder)}& call[^;]*\) {{", text, re.MULTILINE)


@pytest.mark.parametrize("folder", glue.folders())
def test_a_header_has_what_the_glue_names(folder: str) -> None:
    text = (FOLDER / folder / f"{folder}.h").read_text("utf-8")
    assert f"struct {glue.call_type(folder)} {{" in text
    for name, variant in RUNGS:  # launchers are declared by the glue, and by a rung that calls another
        assert name != folder or not re.search(rf"\b{variant.launcher.name}\(", text)
    # what is for hosts is no part of a fingerprint
    assert "torch" not in objects._code(FOLDER / folder / f"{folder}.h").lower()


def test_a_new_rung_needs_no_other_file(monkeypatch: pytest.MonkeyPatch) -> None:
    op = ops()["gelu"]
    new = replace(
        op.variants["v02_vector"], name="v04_new", source="v04_new.cu",
        launcher=Launcher("gelu_v04_new", "gelu_v04_new", "gelu<gelu_v04_new>"), dtypes=("float32",),
    )  # fmt: skip
    before = objects.fingerprint(FOLDER / "gelu" / "v02_vector.cu")
    monkeypatch.setitem(op.variants, "v04_new", new)  # type: ignore[arg-type]
    assert 'module.def("gelu_v04_new", gelu<gelu_v04_new>);' in glue.binding_text("gelu")
    assert objects.fingerprint(FOLDER / "gelu" / "v02_vector.cu") == before


def test_folders_that_were_never_built_are_built_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    together, asked = threading.Barrier(2, timeout=20), []

    def run(command: list[str], **settings: object) -> subprocess.CompletedProcess[str]:
        asked.append(command[-1])
        if command[-1] != "softmax":
            together.wait()  # breaks if the two do not run at the same time
        return subprocess.CompletedProcess(command, int(command[-1] == "softmax"), "", "softmax.cu: error")

    monkeypatch.setattr(build, "BUILD", tmp_path)
    monkeypatch.setattr(build, "extension_folder", lambda folder: tmp_path / folder)
    monkeypatch.setattr(build.os, "sched_getaffinity", lambda process: range(8))
    monkeypatch.setattr(build.subprocess, "run", run)
    (tmp_path / "gemv").mkdir()
    (tmp_path / "gemv" / "gemv.so").touch()
    build.prepare(["gemv", "gelu", "decode", "gelu"])
    assert sorted(asked) == ["decode", "gelu"]
    assert "compiling 2 folders of kernels/ (once), 2 at a time" in capsys.readouterr().err
    with pytest.raises(build.BuildError, match=r"softmax\.cu: error"):
        build.prepare(["softmax"])


@pytest.mark.xdist_group("compiler")
@pytest.mark.skipif(build.find_nvcc() is None, reason="nvcc is not installed: the micro-kernels are not compiled")
def test_the_micro_kernels_are_a_library_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernels import ceilings

    monkeypatch.setattr(
        build, "shared_library", lambda folder, source=None: build.compile_library(folder, "90", source)
    )
    library = ceilings._library.__wrapped__()
    assert (library.l1_bytes_per_block(), library.ffma_per_step()) == (32 << 10, 64)
    declared = (FOLDER / "ceilings" / "ceilings.h").read_text()
    assert set(re.findall(r"^cudaError_t (\w+)\(", declared, re.MULTILINE)) <= set(vars(library))


def test_a_library_that_does_not_compile_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\necho 'ceilings.cu(1): error: no' >&2; exit 2\n")
    nvcc.chmod(0o755)
    monkeypatch.setattr(build, "BUILD", tmp_path / "build")
    monkeypatch.setattr(build, "find_nvcc", lambda: str(nvcc))
    with pytest.raises(build.BuildError, match=r"did not compile: ceilings.cu\(1\): error: no$"):
        build.compile_library("ceilings", "90")
    monkeypatch.setattr(build, "find_nvcc", lambda: None)
    with pytest.raises(build.BuildError, match="nvcc was not found"):
        build.compile_library("ceilings", "90")
