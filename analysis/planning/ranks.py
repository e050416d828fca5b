"""Choose launches that ncu can replay in a program with collectives without a deadlock.

The kernel of a collective waits for the same kernel on every other GPU. ncu replays one kernel at a time, for all
processes in turn, so a replayed collective never ends. Between passes, ncu also restores memory, even where another
GPU has written meanwhile. So ncu gets:

- only kernels on the GPU of one rank (`--devices`), so that the other ranks run freely;
- of these, only kernels that compute, selected by name;
- application replay: the program runs once for each pass, and ncu restores no memory. Few metrics need few passes.
"""

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.formats import symbols
from analysis.formats.collectives import communicates
from analysis.formats.errors import InputError

COLUMNS = "duration_ns,dram_read_bytes,dram_write_bytes"  # few enough for one or two passes
_PLAIN = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class OneRank:
    """The launches that ncu may replay: `rows` of the timeline's launches, and the number of their GPU, `device`."""

    rows: npt.NDArray[np.int64]
    device: int


def one_rank(launches: pd.DataFrame, process_ranks: dict[int, int]) -> OneRank | None:
    """Return the launches of the first rank that compute; None for a program without collectives.

    Shape: `launches` as join.prepare_launches returns them; `process_ranks` rank by process id.

    Raises:
        InputError: ncu cannot distinguish the GPU of that rank from another one.
    """
    names = {name: communicates(str(name)) for name in launches["name"].unique()}
    talks = launches["name"].map(names).astype(bool)
    if not talks.any():
        return None
    places = launches.assign(rank=launches["pid"].map(process_ranks)).sort_values(["rank", "device"], kind="stable")
    first = places.iloc[0]
    _, number = symbols.split_device(str(first["device"]))
    others = launches.loc[launches["pid"] != first["pid"], "device"].astype(str).unique()
    if number is None or number in (symbols.split_device(one)[1] for one in others):
        raise InputError(
            f"the ranks of this program all call their GPU {first['device']}, so ncu cannot replay one rank alone; "
            "give each rank a GPU of its own number, without CUDA_VISIBLE_DEVICES."
        )
    mine = (launches["device"].astype(str) == str(first["device"])) & ~talks
    mine &= launches["pid"].eq(first["pid"]) | pd.isna(first["pid"])
    words = {word for name, one in names.items() if one for word in _PLAIN.findall(str(name))}
    bases = {name: symbols.base(str(name)) for name in launches["name"].unique()}
    plain = {name: bool(_PLAIN.fullmatch(base)) and base not in words for name, base in bases.items()}
    mine &= launches["name"].map(plain).astype(bool)
    return OneRank(np.flatnonzero(mine.fillna(False).to_numpy(bool)), number)


def pattern_of(names: pd.Series) -> str:
    """Return a regular expression that matches the mangled names of these kernels, for functions of C++ and of C."""
    bases = sorted({symbols.base(str(name)) for name in names.unique()})
    mangled = "|".join(f"{len(base)}{base}" for base in bases)
    return f"(^|[^0-9])({mangled})|^({'|'.join(bases)})$"
