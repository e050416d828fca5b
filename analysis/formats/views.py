"""Compare views of one storage.

The hook of automatic ranges loads this file in the program's own Python: it needs the standard library alone.
"""

from typing import Protocol


class View(Protocol):
    """The part of a storage that a tensor covers. Units: bytes.

    `begin`: where it begins; `axes`: (stride, size) of each axis, longest stride first, None if it does not touch all
    elements there.
    """

    @property
    def begin(self) -> int: ...

    @property
    def axes(self) -> tuple[tuple[int, int], ...] | None: ...


def holds(view: View, other: View) -> bool:
    """Return whether a view has all elements of another view of its storage: a part along its own axes."""
    if view.axes is None or other.axes is None:
        return False
    away, lengths = other.begin - view.begin, dict(other.axes)
    if away < 0 or not lengths.keys() <= {stride for stride, _ in view.axes}:
        return False
    for stride, size in view.axes:
        skipped, away = divmod(away, stride)
        if skipped + lengths.get(stride, 1) > size:
            return False
    return away == 0
