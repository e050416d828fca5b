"""Run a model once with a tracer attached."""

from typing import Any

import torch

from harness.ranges import attach, detach


def traced(model: Any, tracer: Any, *inputs: Any) -> None:
    """Run `model` on the inputs without gradients. Its components open their ranges on the tracer."""
    attach(model, tracer)
    try:
        with torch.inference_mode():
            model(*inputs)
    finally:
        detach(model)
