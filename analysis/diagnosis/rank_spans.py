"""Find where on the timeline a rank loses time: exposed communication, a late start, allocations, copies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from analysis.capture.model import IntArray
from analysis.diagnosis.rank_costs import ALLOCATION, Cost, find_costs
from analysis.formats.words import count_of
from analysis.tables.gaps import gpu_label

if TYPE_CHECKING:
    from analysis.facts import Facts

EXPOSED, WAITED_FOR = "exposed", "waited_for"  # what a rank loses, beside the causes in rank_costs.csv


class Loss(NamedTuple):
    """A stretch that shows what a rank loses, in ns, and a phrase about it. `ops`: the operations of the loss."""

    start_ns: int
    end_ns: int
    shows: str
    ops: IntArray


@dataclass(frozen=True)
class Losses:
    """Where the ranks of a program lose time.

    places  rows of rank_places; `place_of_op` (operations,) says which of them ran an operation
    talks   kernels of collectives and copies between GPUs, as in `Matched`, with exposed_ns and exposed_waiting_ns
    """

    places: pd.DataFrame
    place_of_op: IntArray
    talks: pd.DataFrame
    costs: list[Cost]

    def place(self, rank: str) -> int | None:
        """Return the number of the place with this label; None for all GPUs of a process."""
        at = np.flatnonzero(self.places["label"] == rank)
        return int(at[0]) if len(at) else None

    def process(self, rank: str) -> int | None:
        """Return the id of the process of a rank, None if unknown."""
        place = self.place(rank)
        pid = pd.NA if place is None else self.places["pid"].iloc[place]
        return None if pd.isna(pid) else int(pid)

    def words(self, place: int) -> list[str]:
        """Return the words that tell a place from others: its rank, else its GPU and process id where these differ."""
        row: Any = self.places.iloc[place]
        if str(row["label"]).startswith("rank "):
            return [str(row["label"])]
        gpus, processes = (self.places[name].nunique() > 1 for name in ("device", "pid"))
        return [gpu_label(str(row["device"]))] * gpus + [f"process {row['pid']}"] * processes

    def find(self, rank: str, lost: str) -> Loss | None:
        """Return the stretch that shows what a rank loses to `lost`; None if it loses nothing."""
        if lost in (EXPOSED, WAITED_FOR):
            place = self.place(rank)
            if place is None or self.talks.empty:
                return None
            return self._exposed(place) if lost == EXPOSED else self._waited_for(place)
        own = [one for one in self.costs if one.cause == lost and ("" if pd.isna(one.rank) else one.rank) == rank]
        return self._cost(own[0]) if own else None

    def _exposed(self, place: int) -> Loss | None:
        """Return the longest exposed transfer of a place, from the end of its waiting on."""
        own = self.talks[self.talks["place"] == place]
        transfer = own["exposed_ns"] - own["exposed_waiting_ns"].fillna(0)
        if not (transfer > 0).any():
            return None
        row = own.loc[transfer.astype("int64").idxmax()]
        waited = 0 if pd.isna(row["waiting_ns"]) else int(row["waiting_ns"])
        told = f"the longest of {count_of(int((transfer > 0).sum()), 'exposed transfer')} of {self._named(place)}"
        return Loss(int(row["start_ns"]) + waited, int(row["end_ns"]), told, own["op"].to_numpy(np.int64))

    def _waited_for(self, place: int) -> Loss | None:
        """Return the longest wait of other places for this one: a collective on all of them."""
        known = self.talks[self.talks["waiting_ns"].notna()]
        last = known.loc[known.groupby("collective")["aligned_start_ns"].idxmax()]
        own = known[known["collective"].isin(last.loc[last["place"] == place, "collective"])]
        if own.empty:
            return None
        waits = own.groupby("collective")["waiting_ns"].sum().astype("int64")
        rows = own[own["collective"] == waits.idxmax()]
        told = f"the longest of {count_of(len(waits), 'wait')} for {self._named(place)}"
        return Loss(int(rows["start_ns"].min()), int(rows["end_ns"].max()), told, own["op"].to_numpy(np.int64))

    def _cost(self, cost: Cost) -> Loss:
        """Return the longest of the calls that allocate, or the copy of median length."""
        of_calls = cost.cause == ALLOCATION
        order = (cost.rows["end_ns"] - cost.rows["start_ns"]).astype("int64").argsort(kind="stable").to_numpy()
        row = cost.rows.iloc[order[-1 if of_calls else (len(order) - 1) // 2]]
        place = None if pd.isna(cost.rank) else self.place(str(cost.rank))
        whose = "" if place is None else f" of {self._named(place)}"
        first, what = ("the longest", "call") if of_calls else ("a typical one", "copy")
        many = count_of(len(order), what, "copies" if what == "copy" else "calls")
        ops = np.zeros(0, dtype=np.int64) if of_calls else cost.rows["op"].to_numpy(np.int64)
        return Loss(int(row["start_ns"]), int(row["end_ns"]), f"{first} of {many}{whose}", ops)

    def _named(self, place: int) -> str:
        """Return how a sentence names a place, with the process id and the GPU that Nsight Systems shows."""
        row: Any = self.places.iloc[place]
        told = [] if pd.isna(row["pid"]) else [f"process id {int(row['pid'])}"]
        told += [gpu_label(str(row["device"]))] if str(row["label"]).startswith("rank ") else []
        return f"{row['label']} ({', '.join(told)})" if told else str(row["label"])


def find_losses(facts: Facts) -> Losses:
    """Return where the ranks lose time. Shape: `exposed` as of tables.ranks.exposed."""
    return Losses(
        facts.rank_places,
        facts.place_of_op,
        pd.concat([facts.matched.rows, facts.exposed], axis=1),
        facts.once(find_costs),
    )
