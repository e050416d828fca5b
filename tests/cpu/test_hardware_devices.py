"""The device table: found by the name the driver gives, complete, and plausible."""

import pytest

from analysis.hardware.devices import devices, find_device


@pytest.mark.parametrize(
    ("name", "cc", "sm_count"),
    [
        ("NVIDIA H200", "9.0", 132),
        ("NVIDIA H200 (0)", None, 132),
        ("nvidia  h200", "9.0", 132),
        ("Tesla T4", "7.5", 40),
        ("NVIDIA A100-SXM4-80GB", "8.0", 108),
        ("NVIDIA A100 80GB PCIe", "8.0", 108),
        ("NVIDIA H100 80GB HBM3", "9.0", 132),
        ("NVIDIA H100 PCIe", "9.0", 114),
        ("NVIDIA GeForce RTX 4090", "8.9", 128),
        ("NVIDIA GeForce RTX 5090", "12.0", 170),
        ("NVIDIA B200", "10.0", 148),
    ],
)
def test_found_by_the_name_of_the_driver(name: str, cc: str | None, sm_count: int) -> None:
    device = find_device(name, cc)
    assert device is not None
    assert device.sm_count == sm_count


@pytest.mark.parametrize(("name", "cc"), [("NVIDIA H300", None), ("", None), ("H", None), ("NVIDIA H200", "8.0")])
def test_another_gpu_is_unknown(name: str, cc: str | None) -> None:
    assert find_device(name, cc) is None


def test_names_are_unique() -> None:
    names = [name.lower() for device in devices() for name in {device.name, *device.aliases}]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("device", devices(), ids=lambda device: device.name)
def test_figures_are_plausible(device) -> None:
    assert device.source
    assert 1e11 < device.dram_bytes_per_s < 2e13
    # FP32 peak = 2 FLOP x lanes x SMs x clock: the clock that it implies is one that GPUs have.
    lanes = 64 if device.cc in ("7.0", "7.5", "8.0") else 128
    clock = device.fp32_flop_per_s / (2 * lanes * device.sm_count)
    assert 1.1e9 < clock < 2.7e9
    if device.bf16_flop_per_s is not None:
        assert device.tf32_flop_per_s is not None
        assert device.fp16_flop_per_s == device.bf16_flop_per_s
        # dense TF32 is half of BF16 everywhere, give or take the rounding of a datasheet
        assert device.bf16_flop_per_s == pytest.approx(2 * device.tf32_flop_per_s, rel=0.03)
