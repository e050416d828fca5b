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
# Time of a product with aligned operands, at least and at most, if the library now loads one element at a time, or two
# or four. In lecture_waves.csv of H100 and H200, BF16 products of 1,780 to 2,056 took 0.16 to 0.27 (36 pairs) and 0.25
# to 0.43 (28 pairs) of the time that those with the next odd sizes below took. Products that memory limits win less.
ONE, FEW = (0.5, 0.16), (0.8, 0.25)
PADDED = 64  # elements: 128 bytes of 16 bits, so that each row begins at a line of L2


def propose(view: View) -> Iterator[Proposal]:
    """Propose to pad the sizes of these products."""
    elements = view.each(symbols.elements_of_odd_operands, int)
    odd = view.kernels & (elements > 0)
    time, count = view.time(odd), round(view.of_step(np.count_nonzero(odd)))
    if view.share(time) < LEAST:
        return

    least, most = (np.where(elements == 1, *pair) for pair in zip(ONE, FEW, strict=True))

    def aligned(base: Graph, share: float) -> Graph:
        return changes.scale(base, odd, least + share * (most - least))

    multiple = symbols.multiple_of_operands(view.most(odd))
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


def _size(place: str, multiple: int) -> int:
    """Return a size that is no multiple, by the range that PyTorch's emit_nvtx(record_shapes=True) writes.

    The rows of the first operand need be none, unless no other size is odd: then it is transposed. 0 without sizes.
    """
    told = re.search(r"sizes = (\[[\d\[\], ]*\])", place)
    sizes = [int(number) for number in re.findall(r"\d{1,15}", told[1] if told else "")]
    odd = [number for number in sizes if number % multiple]
    return max([number for number in sizes[1:] if number in odd] or odd, default=0)
