"""alignment: products of operands that are not aligned to 16 bytes, as the names of their kernels tell."""

import re
from collections.abc import Iterator

import numpy as np

from analysis.diagnosis.step_rules.view import Proposal, View
from analysis.formats import symbols
from analysis.formats.words import count_of, duration
from analysis.replay import changes
from analysis.replay.graph import Graph

LEAST = 0.01  # of the step: shorter products cannot save more
# Part of its time that a product takes with aligned operands, at most and at least, if the library loads one element of
# 16 bits at a time, or two or four, or one or two of TF32. GPT-2's products of 64 tokens and more on an H200
# (tests/answer_key/alignment.csv) took 0.127 to 0.356, 0.296 to 0.629, and 0.329 to 0.767; the most by 64 tokens, where
# memory limits. BF16 products of 1,780 to 2,056 on H100 and H200 (lecture_waves.csv): 0.16 to 0.27, and 0.25 to 0.43.
# Changed after measuring: before, 0.5 and 0.16 of one element, also of TF32, and 0.8 and 0.25 of two or four.
ONE, FEW, TF32 = (0.4, 0.12), (0.65, 0.25), (0.8, 0.3)
PADDED = 64  # elements: 128 bytes of 16 bits, so that each row begins at a line of L2


def propose(view: View) -> Iterator[Proposal]:
    """Propose to pad the sizes of these products."""
    odd = view.kernels & view.named(symbols.ODD_OPERANDS)
    time, count = view.time(odd), view.of_step(np.count_nonzero(odd))
    if view.share(time) < LEAST:
        return

    least = view.each(lambda name: _parts(name)[0], float)
    most = view.each(lambda name: _parts(name)[1], float)

    def aligned(base: Graph, share: float) -> Graph:
        return changes.scale(base, odd, least + share * (most - least))

    _, multiple = symbols.odd_operands(view.most(odd)) or (0, 8)
    products, takes = count_of(count, "product a step takes", "products a step take"), duration(time)
    size = _size(view.placed[odd][view.graph.o_duration[odd].argmax()], multiple)
    what = f"{size:,} to {-size // PADDED * -PADDED:,} in" if size else "the sizes of"
    yield Proposal(
        kind="alignment", about=symbols.short(view.most(odd)),
        title=f"Pad {what} {count_of(count, 'product')}" + ("" if size else f" to multiples of {multiple}"),
        sentence=(
            f"{products} {takes} in library kernels for operands that are not aligned to 16 bytes: a size or leading "
            f"dimension is no multiple of {multiple}."
        ),
        change=aligned, count=count, time_ns=time,
        most_ns=view.of_step((view.graph.o_duration * (1 - most))[odd].sum()),
        wrong_if="all sizes are multiples already, and only a view begins at an odd element",
    )  # fmt: skip


def _parts(name: str) -> tuple[float, float]:
    """Return which part of the time of such a product an aligned one takes, at most and at least."""
    loads, multiple = symbols.odd_operands(name) or (0, 8)
    return TF32 if multiple == 4 else ONE if loads == 1 else FEW


def _size(place: str, multiple: int) -> int:
    """Return a size that is no multiple, by the range that PyTorch's emit_nvtx(record_shapes=True) writes.

    The rows of the first operand need be none, unless no other size is odd: then it is transposed. 0 without sizes.
    """
    told = re.search(r"sizes = (\[[\d\[\], ]*\])", place)
    sizes = [int(number) for number in re.findall(r"\d{1,15}", told[1] if told else "")]
    odd = [number for number in sizes if number % multiple]
    return max([number for number in sizes[1:] if number in odd] or odd, default=0)
