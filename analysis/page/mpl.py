"""Give the names of matplotlib that figures use, each when it is first asked for.

The import takes half a second, which a report does not pay if it has no figure or if another process draws them.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib import rc_context as rc_context
    from matplotlib import rcParams as rcParams
    from matplotlib.axes import Axes as Axes
    from matplotlib.colors import to_rgb as to_rgb
    from matplotlib.figure import Figure as Figure
    from matplotlib.font_manager import findfont as findfont
    from matplotlib.font_manager import get_font as get_font
    from matplotlib.lines import Line2D as Line2D
    from matplotlib.patches import Patch as Patch
    from matplotlib.patches import PathPatch as PathPatch
    from matplotlib.patches import Rectangle as Rectangle
    from matplotlib.path import Path as Path
    from matplotlib.ticker import FuncFormatter as FuncFormatter
    from matplotlib.ticker import LogLocator as LogLocator
    from matplotlib.ticker import MaxNLocator as MaxNLocator
    from matplotlib.ticker import NullFormatter as NullFormatter

_PLACES = {
    "matplotlib": ("rcParams", "rc_context"),
    "matplotlib.colors": ("to_rgb",),
    "matplotlib.figure": ("Figure",),
    "matplotlib.font_manager": ("findfont", "get_font"),
    "matplotlib.lines": ("Line2D",),
    "matplotlib.patches": ("Patch", "PathPatch", "Rectangle"),
    "matplotlib.path": ("Path",),
    "matplotlib.ticker": ("FuncFormatter", "LogLocator", "MaxNLocator", "NullFormatter"),
}


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    _load()
    return globals()[name]


def _load() -> None:
    from matplotlib import artist

    described, artist.kwdoc = artist.kwdoc, lambda artist: ""  # a fifth of the import writes docstrings of 120 classes
    try:
        for module, names in _PLACES.items():
            found = importlib.import_module(module)
            globals().update({name: getattr(found, name) for name in names})
    finally:
        artist.kwdoc = described
