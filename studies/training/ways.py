"""Name the ways in which the training study runs a step: arguments of harness.training.Trainer by way."""

WAYS: dict[str, dict[str, bool]] = {
    "float32": {},
    "autocast": {"autocast": True},
    "compiled": {"autocast": True, "compiled": True},
    "unfused": {"autocast": True, "fused": False},
    "float32_compiled": {"compiled": True},
    "float32_unfused": {"fused": False},
    "compiled_unfused": {"autocast": True, "compiled": True, "fused": False},
    "float32_compiled_unfused": {"compiled": True, "fused": False},
}
USUAL = tuple(WAYS)[:4]
