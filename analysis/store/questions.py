"""Ask a store: DuckDB answers from its Parquet files. `QUESTIONS` are those that have a name; `Store.sql` is for more.

A GPU hour is an hour of one GPU. A step counts as often as its capture saw it, on every GPU of the capture.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from analysis.comparison import verdict
from analysis.formats.errors import InputError, UsageError
from analysis.formats.report import PartKind
from analysis.formats.store import ROWS, VERSION
from analysis.store import parts

LEAST_ALIKE = 5  # captures of a step on a GPU: of fewer none is called unlike
FAR = 5.0  # standard errors by the median absolute deviation
LEAST_APART = 0.05  # of the median: a smaller distance is no news, however even the others are
SLOWER = 1.1  # times the time of the same kernel elsewhere
_HOURS = "3.6e12"
_PARTS = ", ".join(f"{part}_ns" for part in PartKind)


@dataclass(frozen=True)
class Question:
    """A question with its answer as SQL over the tables of the store."""

    title: str
    says: str
    sql: str


QUESTIONS: Mapping[str, Question] = {
    "limits": Question(
        "What limits the fleet?",
        "GPU hours of the steady steps by what they wait for, and of all captures outside them.",
        f"""
        WITH long AS (
          UNPIVOT (SELECT capture, gpus, count, wall_ns, {_PARTS} FROM steps WHERE rank IS NULL)
          ON {_PARTS} INTO NAME part VALUE ns),
        told AS (
          SELECT replace(part, '_ns', '') AS cause, sum(ns * count * coalesce(gpus, 1)) / {_HOURS} AS gpu_hours,
            count(DISTINCT capture) AS captures FROM long WHERE ns > 0 GROUP BY ALL),
        whole AS (
          SELECT sum(wall_ns * coalesce(gpus, 1)) / {_HOURS} AS gpu_hours, count(*) AS captures FROM captures
          WHERE status = 'read' AND wall_ns IS NOT NULL)
        SELECT cause, gpu_hours, gpu_hours / nullif((SELECT gpu_hours FROM whole), 0) AS share_frac, captures FROM (
          FROM told UNION ALL SELECT 'outside steady steps',
            gpu_hours - coalesce((SELECT sum(gpu_hours) FROM told), 0), captures FROM whole)
        ORDER BY gpu_hours DESC NULLS LAST, cause""",
    ),
    "savings": Question(
        "What would save most, over all captures?",
        "Savings of the findings in GPU hours, by cause: every step as often as it ran. Those of one step may overlap.",
        f"""
        SELECT kind, sum(if(low_ns < 0, 0, low_ns) * times * coalesce(gpus, 1)) / {_HOURS} AS low_gpu_hours,
          sum(high_ns * times * coalesce(gpus, 1)) / {_HOURS} AS high_gpu_hours, count(*) AS findings,
          count(DISTINCT capture) AS captures, arg_max(title, high_ns * times) AS largest
        FROM findings WHERE high_ns > 0 AND kind <> 'nothing' GROUP BY kind
        ORDER BY coalesce(low_gpu_hours, 0) + high_gpu_hours DESC, kind""",
    ),
    "unlike": Question(
        "Which captures are unlike their neighbours?",
        f"Steps whose length is more than {FAR:g} standard errors and {LEAST_APART:.0%} from the median of the same "
        f"step on the same GPU, of {LEAST_ALIKE} captures or more.",
        f"""
        WITH base AS (
          SELECT *, median(wall_ns) OVER w AS usual_ns, count(*) OVER w AS alike FROM steps WHERE rank IS NULL
          WINDOW w AS (PARTITION BY step, gpu)),
        far AS (
          SELECT *, 1.4826 * median(abs(wall_ns - usual_ns)) OVER (PARTITION BY step, gpu) AS spread_ns FROM base)
        SELECT step, gpu, capture, host_group, date, wall_ns, usual_ns, wall_ns / usual_ns AS ratio, alike
        FROM far WHERE alike >= {LEAST_ALIKE} AND abs(wall_ns - usual_ns) > {FAR} * spread_ns
          AND abs(wall_ns / usual_ns - 1) > {LEAST_APART}
        ORDER BY abs(ln(wall_ns / usual_ns)) DESC, capture""",
    ),
    "slow_kernels": Question(
        "Which kernel is slow on which GPU or driver?",
        f"Kernels whose time on a GPU and driver is {SLOWER:g} times that of the fastest, by the "
        "median capture.",
        f"""
        WITH one AS (
          SELECT kernel, gpu, driver, median(mean_ns) AS mean_ns, sum(time_ns) AS time_ns, count(*) AS captures
          FROM kernels GROUP BY ALL),
        best AS (
          SELECT *, min(mean_ns) OVER w AS least_ns, arg_min(concat_ws(', ', gpu, driver), mean_ns) OVER w AS fastest
          FROM one WINDOW w AS (PARTITION BY kernel))
        SELECT kernel, gpu, driver, mean_ns, mean_ns / least_ns AS ratio, fastest, time_ns, captures
        FROM best WHERE mean_ns >= {SLOWER} * least_ns
        ORDER BY time_ns * (1 - least_ns / mean_ns) DESC, kernel, gpu, driver""",
    ),
    "histogram": Question(
        "How long are the steps of each rank and node?",
        "Steady steps by their length, four bins to an octave. A step without a rank is that of a program with one.",
        """
        WITH one AS (
          SELECT step, host_group, rank, unnest(bin_ns) AS from_ns, unnest(bin_count) AS steps FROM steps s
          WHERE rank IS NOT NULL OR NOT EXISTS (
            SELECT 1 FROM steps o WHERE o.capture = s.capture AND o.rank IS NOT NULL))
        SELECT step, host_group, rank, from_ns, sum(steps)::BIGINT AS steps FROM one GROUP BY ALL
        ORDER BY step, host_group, rank NULLS FIRST, from_ns""",
    ),
    "unread": Question(
        "Which captures could not be read, and what do the others lack?",
        "Damaged, hung and killed captures with their sentence, then what is missing, by reason.",
        """
        SELECT status AS what, sentence AS why, count(*) AS captures, min(address) AS example FROM captures
        WHERE status <> 'read' GROUP BY ALL
        UNION ALL
        SELECT reason, min(what), count(DISTINCT capture), min(capture) FROM missing GROUP BY reason
        ORDER BY captures DESC, what, why""",
    ),
}  # fmt: skip


class Store:
    """A store of captures. Its tables are captures, steps, kernels, findings and missing."""

    def __init__(self, path: str | Path) -> None:
        """Open the store at `path`.

        Raises: InputError: there is none, or it is of a newer version.
        """
        self.path = Path(path)
        if not parts.parts(self.path):
            raise InputError(f"{self.path}: holds no store; make one with fleet.py DIR --out {self.path}.")

    @cached_property
    def _database(self) -> Any:
        import duckdb  # only who asks needs it

        counted = parts.live(self.path)
        today = [path for path in counted if path.parent.name == f"version={VERSION}" and path.suffix != parts.SINGLE]
        earlier = {path: counted[path] for path in counted if path not in today}
        database = duckdb.connect(config={"autoinstall_known_extensions": False})
        pairs = [(str(path / "captures.parquet"), one) for path in today for one in counted[path].to_pylist()]
        database.register("_live", pa.table({"file": [p for p, _ in pairs], "capture": [c for _, c in pairs]}))
        for table in ROWS:
            read = []
            if today:
                files = ", ".join("'" + str(path / f"{table}.parquet").replace("'", "''") + "'" for path in today)
                read.append(
                    f"SELECT t.* EXCLUDE (filename) FROM read_parquet([{files}], filename = true, hive_partitioning = "
                    f"false) t SEMI JOIN _live l ON t.capture = l.capture AND l.file = "
                    f"replace(t.filename, '{table}.parquet', 'captures.parquet')"
                )
            if earlier:
                database.register(f"_earlier_{table}", parts.table_of(self.path, table, earlier))
                read.append(f"SELECT * FROM _earlier_{table}")
            database.execute(f"CREATE VIEW {table} AS {' UNION ALL '.join(read)}")
        return database

    def sql(self, query: str) -> pd.DataFrame:
        """Return the answer to a query in the SQL of DuckDB.

        Raises: UsageError: DuckDB does not understand it.
        """
        import duckdb

        try:
            return self._database.sql(query).df()
        except (duckdb.Error, AttributeError) as error:
            said = str(error).splitlines()[0]
            raise UsageError(f"--sql: {said}; the tables are {', '.join(ROWS)}.") from None

    def ask(self, question: str) -> pd.DataFrame:
        """Return the answer to one of QUESTIONS.

        Raises: UsageError: there is no such question.
        """
        if question not in QUESTIONS:
            raise UsageError(f"there is no question {question!r}; there are {', '.join(QUESTIONS)} and --since DATE.")
        return self.sql(QUESTIONS[question].sql)

    def since(self, date: str) -> pd.DataFrame:
        """Return what changed in each step since a date: a verdict by the rules of compare.py, a capture being a run.

        Steps are compared on one GPU and driver family, before the date (A) and from it on (B); the chance of any false
        alarm is bounded over all of them together.

        Raises: UsageError: no date.
        """
        try:
            moment = pd.Timestamp(date)
        except ValueError:
            raise UsageError(f"--since {date}: is no date; write it as 2026-11-27.") from None
        steps = self.sql("SELECT step, gpu, host_group, date, wall_ns FROM steps WHERE rank IS NULL AND wall_ns > 0")
        when = pd.to_datetime(steps["date"], utc=True, errors="coerce", format="ISO8601")
        moment = moment.tz_localize("UTC") if moment.tzinfo is None else moment
        steps = steps.assign(later=when >= moment)[when.notna()]
        groups = [
            (names, rows) for names, rows in steps.groupby(["step", "gpu", "host_group"], dropna=False, sort=True)
            if rows["later"].nunique() == 2
        ]  # fmt: skip
        found = []
        for names, rows in groups:
            a, b = (rows.loc[rows["later"] == later, ["wall_ns"]].to_numpy(np.float64) for later in (False, True))
            (judged,) = verdict.judge(a, b, paired=False, error=verdict.ERROR / len(groups))
            found.append(
                dict(zip(("step", "gpu", "host_group"), names, strict=True))
                | {"verdict": str(judged.verdict), "ratio": judged.ratio, "low": judged.low, "high": judged.high}
                | {"before": len(a), "after": len(b), "why": judged.why}
            )
        return pd.DataFrame(found, columns=[
            "step", "gpu", "host_group", "verdict", "ratio", "low", "high", "before", "after", "why",
        ])  # fmt: skip
