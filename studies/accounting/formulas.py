"""Compare common formulas for the FLOPs of a training step, and refuse those that would misstate an MFU.

An MFU asks for the FLOPs that the model needs: with attention, without padding, without recomputation.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tabulate import tabulate

from analysis.formats.errors import UsageError
from studies.accounting.architecture import Architecture, Shape, find, parameter_count, parameters
from studies.accounting.budget import training_flops


@dataclass(frozen=True)
class Formula:
    """A formula: its FLOPs for a step, where it is from, and why an MFU must not use it; "" if it may."""

    flops: Callable[[Architecture, Shape], float]
    source: str
    refused: str = ""


def _attention(of: Architecture, shape: Shape) -> float:
    """Return 12 x layers x channels of the queries x tokens, for each token."""
    return 12.0 * of.layers * of.attended * shape.tokens * shape.rows


def _tables(of: Architecture) -> int:
    return sum(count for name, count in parameters(of).items() if "embedding" in name)


def _megatron(of: Architecture, shape: Shape) -> float:
    h, s = of.channels, shape.tokens
    return 72.0 * shape.batch * s * of.layers * h * h * (1 + s / (6 * h) + of.vocab / (12 * of.layers * h))


def _padded(of: Architecture, shape: Shape) -> float:
    return FORMULAS["6ND + attention"].flops(of, Shape(shape.batch, of.positions or shape.tokens, 0, shape.e))


SKIPS = "it skips the products of the attention"
FORMULAS = {
    "products": Formula(training_flops, "this study: every matrix product, counted once"),
    "6ND + attention": Formula(
        lambda of, shape: 6.0 * parameter_count(of) * shape.rows + _attention(of, shape), "PaLM, appendix B"
    ),
    "Megatron": Formula(_megatron, "Narayanan et al. 2021, without their recomputation"),
    "6ND": Formula(lambda of, shape: 6.0 * parameter_count(of) * shape.rows, "the common rule", SKIPS),
    "6ND, no embeddings": Formula(
        lambda of, shape: 6.0 * (parameter_count(of) - _tables(of)) * shape.rows, "Kaplan et al. 2020",
        f"{SKIPS} and those of the vocabulary",
    ),
    "96BsLh^2": Formula(
        lambda of, shape: _megatron(of, shape) * 96 / 72, "Narayanan et al. 2021",
        "it counts the forward pass that checkpoints repeat, so it is of the hardware and not of the model",
    ),
    "6ND + attention of padded rows": Formula(
        _padded, "batch x longest sequence", "it counts padding: give it the tokens that are there"
    ),
}  # fmt: skip


def model_flops(name: str, of: Architecture, shape: Shape) -> float:
    """Return the FLOPs of a training step for an MFU. Raises: UsageError for an unknown or a refused formula."""
    formula = FORMULAS.get(name)
    if formula is None:
        raise UsageError(f"There is no formula {name!r}: use {', '.join(FORMULAS)}.")
    if formula.refused:
        raise UsageError(f"The formula {name} gives no MFU: {formula.refused}. Use {', '.join(_allowed())}.")
    return formula.flops(of, shape)


def _allowed() -> list[str]:
    return [name for name, formula in FORMULAS.items() if not formula.refused]


def text() -> str:
    """Return the table of formulas at three shapes, as shares of the products."""
    shapes = {
        "GPT-2, T 1024": (find("gpt2"), Shape(4, 1024, 0, 2)),
        "GPT-2, T 128": (find("gpt2"), Shape(4, 128, 0, 2)),
        "Llama 3 8B, T 8192": (find("llama-3-8b"), Shape(1, 8192, 0, 2)),
    }
    rows = []
    for name, formula in FORMULAS.items():
        shares = [f"{formula.flops(*at) / training_flops(*at):.2f}" for at in shapes.values()]
        rows.append([f"`{name}`", *shares, formula.refused or "may be used", formula.source])
    return tabulate(rows, ["formula", *shapes, "for an MFU", "source"], tablefmt="github", disable_numparse=True)
