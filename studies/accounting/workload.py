"""Derive the shape of a step from its name in the harness."""

import re

from analysis.formats.errors import UsageError
from studies.accounting.architecture import Shape

_NAME = re.compile(r"(?:prefill|train)_b(\d+)_t(\d+)|decode_b(\d+)_ctx(\d+)")


def shape_of(workload: str, e: int) -> Shape:
    """Parse a workload: `train_b4_t1024` is 4 sequences of 1024 tokens, `decode_b1_ctx1023` one token after 1023.

    Raises: UsageError for another name.
    """
    found = _NAME.fullmatch(workload)
    if found is None:
        raise UsageError(f"{workload!r} is not a workload: use train_b4_t1024, prefill_b1_t1024 or decode_b1_ctx1023.")
    batch, tokens, decoded, context = (int(part) if part else 0 for part in found.groups())
    return Shape(decoded, 1, context, e) if decoded else Shape(batch, tokens, 0, e)
