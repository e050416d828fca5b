"""The registry against the sources, the byte models against enumeration, the compile check."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kernels import build, objects, registry
from kernels.registry import ops

pytestmark = pytest.mark.studies

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "kernels"
VARIANTS = [(op, variant) for op in ops().values() for variant in op.variants.values()]
VARIANT_IDS = [f"{op.name}-{variant.name}" for op, variant in VARIANTS]
HELPERS = {"_by_heads", "_kept"}  # jit functions that other kernels call
DEFINITION = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\s*\(|^def (\w+)\(", re.MULTILINE)


def defined_kernels(path):
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        return set(re.findall(r"@triton\.jit\ndef (\w+)\(", text))
    return {match[0] for match in DEFINITION.findall(text) if match[0]}


@pytest.mark.parametrize(("op", "variant"), VARIANTS, ids=VARIANT_IDS)
def test_symbols_are_the_kernels_of_the_source(op, variant):
    if variant.kind in registry.LIBRARY_KINDS:
        assert variant.symbols == ()
        return
    source = KERNELS / op.folder / variant.source
    assert variant.symbols
    assert set(variant.symbols) <= defined_kernels(source)
    assert source.stem.startswith("v")
    for symbol in variant.symbols:
        assert symbol.startswith(f"{op.folder}_{source.stem[:3]}_")


@pytest.mark.parametrize("folder", sorted({op.folder for op in ops().values()}))
def test_every_kernel_is_registered(folder):
    declared = {}
    for op in ops().values():
        for variant in op.variants.values():
            if op.folder == folder and variant.source:
                declared.setdefault(variant.source, set()).update(variant.symbols)
    files = {path for pattern in ("v*.cu", "v*_triton.py") for path in (KERNELS / folder).glob(pattern)}
    assert {path.name: defined_kernels(path) - HELPERS for path in files} == declared


def test_every_cuda_source_of_an_op_has_a_variant_or_is_an_extra():
    of_ops = {path for path in KERNELS.glob("*/*.cu") if (path.parent / "op.py").is_file()}
    extras = {
        KERNELS / op.folder / f"{launcher.name.removeprefix(f'{op.folder}_')}.cu"
        for op in ops().values()
        for launcher in op.extras
    }
    sources = {KERNELS / op.folder / variant.source for op, variant in VARIANTS if variant.source.endswith(".cu")}
    assert sources | extras == of_ops
    assert not extras & sources
    for path in extras:
        assert defined_kernels(path) == {f"{path.parent.name}_{path.stem}"}


@pytest.mark.parametrize("path", sorted(KERNELS.glob("*/*.cu")), ids=lambda path: path.name)
def test_every_launch_is_checked_and_torch_stays_out(path):
    text = path.read_text("utf-8")
    overlapped = re.findall(r"launch_overlapped\((.*?)\);", text, flags=re.DOTALL)
    checks = ("RETURN_IF_LAUNCH_FAILED();", "return launch_overlapped(", "return cudaGetLastError();")
    assert text.count("<<<") + len(overlapped) == sum(map(text.count, checks))
    assert not re.search(r"#include\s*[<\"](torch|ATen|c10|pybind11)", text)
    # every launch names the caller's stream
    for launch in re.findall(r"<<<(.*?)>>>", text, flags=re.DOTALL):
        assert launch.rstrip().endswith("stream")
    for launch in overlapped:
        assert "call.stream" in launch
    # what overlaps waits before it touches memory, once or in each of its parts, here or in a header beside it
    files = [file for file in objects.with_headers(path).values() if file.parent == path.parent]
    code = "\n".join(file.read_text("utf-8") for file in files)
    assert not overlapped or 1 <= code.count("let_next_start();") <= code.count("wait_for_previous();")
    for part in code.split("let_next_start();")[1:]:
        assert not re.search(r"(?<!prefetch_)(load|store)\(|\w\[", part.split("wait_for_previous();")[0])


def test_importing_the_registry_loads_no_torch():
    code = "import sys, kernels, kernels.registry, kernels.build, kernels.ceilings; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_an_op_is_known_to_torch_without_a_word_in_its_init(tmp_path, monkeypatch):
    import torch

    import kernels

    (tmp_path / "twice").mkdir()
    (tmp_path / "twice" / "custom_op.py").write_text(
        "import torch\n"
        'library = torch.library.Library("kernel_ledger", "FRAGMENT")\n'
        'library.define("twice_in_a_test(Tensor x, str variant) -> Tensor")\n'
        'library.impl("twice_in_a_test", lambda x, variant: 2 * x, "CPU")\n'
    )
    monkeypatch.setattr(kernels, "__path__", [*kernels.__path__, str(tmp_path)])
    op = replace(ops()["residual"], folder="twice", torch_op="twice_in_a_test")
    assert op.call("torch")(torch.ones(1)).item() == 2.0


def test_unknown_names():
    with pytest.raises(KeyError, match="no variant 'v99'"):
        ops()["softmax"].variant("v99")
    with pytest.raises(ValueError, match="unknown dtype"):
        registry.item_bytes("complex64")
    with pytest.raises(ValueError, match="none of"):
        registry.Variant("v", "cobol", "", len, lambda shape, dtype: 0)


# --- byte models ---------------------------------------------------------------------------------------------
SHAPES = [(1, 1, 1, 1), (2, 3, 4, 4), (1, 2, 7, 7), (1, 2, 5, 33), (1, 2, 33, 5), (1, 1, 1, 19), (1, 3, 16, 16)]


def visible(shape):
    """Bool array of the shape: which scores are read, written out element by element."""
    tq, tk = shape[-2:]
    mask = np.zeros(shape, dtype=bool)
    for i in range(tq):
        for j in range(tk):
            mask[..., i, j] = j <= i + tk - tq
    return mask


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("dtype", "size"), [("fp32", 4), ("bf16", 2)])
def test_byte_models_against_enumeration(shape, dtype, size):
    op = ops()["softmax"]
    mask = visible(shape)
    elements = mask.size
    assert op.minimum_bytes(shape, dtype) == size * (int(mask.sum()) + elements)
    assert op.flops(shape) == 5 * int(mask.sum())
    flat = np.flatnonzero(mask.reshape(-1))
    sectors = {(int(at) * size + byte) // 32 for at in flat for byte in (0, size - 1)}
    assert op.fused_bytes(shape, dtype) == 32 * len(sectors) + size * elements
    assert op.fused_bytes(shape, dtype, "v02_fused") == 2 * size * elements
    tq, tk = shape[-2:]
    assert op.unfused_bytes(shape, dtype) == 6 * size * elements + tq * tk
    rows = elements // tk
    work = (size + 4) + 4 + 8 + 4 + (4 + size)
    assert op.fused_bytes(shape, dtype, "v01_separate") == work * elements + 16 * rows


# --- build ---------------------------------------------------------------------------------------------------


def test_no_compiler_is_a_counted_skip(monkeypatch, capsys):
    monkeypatch.setattr(build, "find_nvcc", lambda: None)
    assert build.check_arch() == 0
    count = len(list(KERNELS.glob("*/*.cu"))) * len(build.ARCHITECTURES)
    assert f"skipped {count} compilations: nvcc was not found" in capsys.readouterr().out


def test_no_gpu_is_one_sentence(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    build.extension.cache_clear()
    with pytest.raises(build.BuildError, match=r"^kernels/softmax needs an NVIDIA GPU .*\.$"):
        build.extension("softmax")
