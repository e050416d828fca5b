"""The manifest's schema, its clocks, and that it names neither a person nor a machine."""

import getpass
import json
import os
import re
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from analysis.formats.errors import InputError
from harness.manifest import (
    ClockSampler,
    build_manifest,
    find_leaks,
    gpu_facts,
    scrub,
    validate_manifest,
    write_manifest,
)

WORKLOAD = {
    "name": "prefill_b1_t8",
    "batch": 1,
    "tokens": 8,
    "context": 0,
    "dtype": "float32",
    "softmax": "torch",
    "range": "gpt2/prefill",
}


def build(arguments: list[str], sampler: ClockSampler | None = None) -> dict[str, Any]:
    return build_manifest(arguments, [WORKLOAD], 3, {"source": "random", "sha256": None}, sampler)


def test_a_manifest_is_valid_and_survives_json() -> None:
    manifest = json.loads(json.dumps(build(["--mode", "bare"])))
    assert validate_manifest(manifest) == []
    assert (manifest["kind"], manifest["schema_version"], manifest["seed"]) == ("manifest", 1, 3)
    assert manifest["matmul_precision"]["tf32"] is False
    assert manifest["weights"] == {"source": "random"}


def test_a_card_is_told_by_a_short_hash_of_its_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    def facts(**uuid: str) -> dict[str, Any]:
        sizes = {"multi_processor_count": 132, "L2_cache_size": 50, "total_memory": 80}
        properties = SimpleNamespace(name="NVIDIA H200", major=9, minor=0, **sizes, **uuid)
        monkeypatch.setattr("torch.cuda.get_device_properties", lambda _: properties)
        found = gpu_facts()
        assert found is not None
        return found

    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.current_device", lambda: 0)
    first = facts(uuid="3f0b57a1-2c7d-4d52-9d49-000000000001")
    assert re.fullmatch("[0-9a-f]{8}", first["card"])
    assert "3f0b57a1" not in json.dumps(first)
    assert facts(uuid="3f0b57a1-2c7d-4d52-9d49-000000000001") == first
    assert facts(uuid="3f0b57a1-2c7d-4d52-9d49-000000000002")["card"] != first["card"]
    assert "card" not in facts()


def test_nothing_names_the_user_the_machine_or_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "correct-horse-battery")
    monkeypatch.setattr(socket, "gethostname", lambda: "gpu-box-17.lab.example")
    monkeypatch.setattr(getpass, "getuser", lambda: "mallory")
    home = str(Path.home())
    arguments = ["--out", f"{home}/runs/x", f"--weights={os.getcwd()}/w.safetensors", "~/w", "mallory/gpu-box-17/out"]
    manifest = build(arguments)
    text = json.dumps(manifest)
    for word in ("correct-horse", "A_SECRET", "mallory", "gpu-box-17", os.getcwd(), "w.safetensors"):
        assert word not in text
    assert home == "/" or f"{home}/" not in text
    assert find_leaks(manifest) == []
    assert manifest["arguments"][-1] == "<name>/<name>/out"


@pytest.mark.parametrize(
    ("argument", "clean"),
    [
        ("--out", "--out"),
        ("runs/new", "runs/new"),
        ("prefill_b1_t1024,decode_b1_ctx1023", "prefill_b1_t1024,decode_b1_ctx1023"),
        ("openai-community/gpt2", "openai-community/gpt2"),
        ("/data/x/y", "<path>"),
        ("--out=/data/x", "--out=<path>"),
        ("a,/data/x", "a,<path>"),
        ("byte/s", "byte/s"),
        ("https://example.org/x", "https://example.org/x"),
        ("a//b", "a//b"),
        ("file:///home/bob/x", "<path>"),
        ("--weights=file:///home/bob/x,y", "--weights=<path>,y"),
        ("//server/share/x", "<path>"),
        (r"\\server\share\x", "<path>"),
        (r"C:\Users\bob\x", "<path>"),
        ("--out=C:/Users/bob/x", "--out=<path>"),
        ("~bob/x", "<path>"),
    ],
)
def test_scrub_takes_absolute_paths_only(argument: str, clean: str) -> None:
    assert scrub(argument) == clean
    assert find_leaks({"reason": argument}) == ([] if argument == clean else [argument])
    assert find_leaks({"reason": clean}) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"torch": None}, "torch is a NoneType"),
        ({"seed": True}, "seed is a bool"),
        ({"kind": "ops"}, "kind and schema_version"),
        ({"schema_version": 2}, "kind and schema_version"),
        ({"gpu": {"name": "x"}}, "gpu.sm_count is missing"),
        ({"workloads": [{"name": "x"}]}, "workloads[0]"),
        ({"nsys": "/opt/nvidia/nsys"}, "holds a path"),
    ],
)
def test_validation_names_what_is_wrong(change: dict[str, Any], words: str) -> None:
    problems = validate_manifest(build([]) | change)
    assert any(words in problem for problem in problems)


def test_a_leaking_manifest_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not written"):
        write_manifest(tmp_path / "manifest.json", build([]) | {"ncu": "/opt/x/ncu"})
    assert not list(tmp_path.iterdir())


class FakeSource:
    reads = 0

    def read(self) -> tuple[dict[str, float], int]:
        FakeSource.reads += 1
        value = float(FakeSource.reads)
        return {"sm_mhz": 1000 + value, "memory_mhz": 2000.0, "power_w": 100.0, "temperature_c": 40.0}, 0x4 | 0x1


def fail() -> Any:
    raise OSError("no library")


def test_clocks_are_sampled_while_the_block_runs() -> None:
    FakeSource.reads = 0
    with ClockSampler(seconds=0.01, readers=(fail, FakeSource)) as sampler:
        time.sleep(0.1)
    clocks = sampler.clocks
    assert clocks is not None
    assert clocks["samples"] >= 2
    assert clocks["sm_mhz"]["min"] < clocks["sm_mhz"]["max"]
    assert clocks["memory_mhz"] == {"min": 2000.0, "median": 2000.0, "max": 2000.0}
    assert clocks["throttle_reasons"] == ["sw_power_cap"]


def test_without_a_source_the_clocks_are_null_with_a_reason() -> None:
    with ClockSampler(readers=(fail,)) as sampler:
        pass
    manifest = build([], sampler)
    assert manifest["clocks"] is None
    assert "OSError" in manifest["clocks_reason"]
