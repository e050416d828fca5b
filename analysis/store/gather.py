"""Read captures from folders or any fsspec address, on Dask, into a store; a later run reads only what is new.

Each file that lies directly in an address is a capture, and each folder below that holds files; a folder with
`captures/` in it is a run, whose captures are one. A capture that cannot be read is a row with its sentence.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

import cloudpickle
import fsspec
from distributed import Client, LocalCluster, as_completed
from tqdm import tqdm

from analysis.formats.errors import InputError, UsageError
from analysis.formats.place import ROOT
from analysis.store import parts, rows, workers
from analysis.store.questions import Store

MEMORY_BYTES = 8 << 30
TIMEOUT_S = 600.0
_CONNECT_S = 10.0
_AHEAD = 4  # jobs that a worker has before it: a run that is stopped loses no more


@dataclass(frozen=True)
class Counts:
    """What a run did: captures that it read, that it could not read, that the store held already."""

    read: int
    failed: int
    known: int


def fleet(
    addresses: Sequence[str | Path], out: str | Path, *, scheduler: str | None = None, n_workers: int | None = None,
    timeout_s: float = TIMEOUT_S, memory_bytes: int = MEMORY_BYTES, key: str | None = None, again: bool = False,
    progress: bool = False,
) -> tuple[Store, Counts]:  # fmt: skip
    """Add the captures below `addresses` to the store `out`, and return the store and what was done.

    `scheduler`: the address of a Dask scheduler, by default a cluster of this machine with `n_workers`. `timeout_s` and
    `memory_bytes` limit one capture. `key`: hash names with it. `again`: read those that failed once more.

    Raises: LedgerError, one sentence: no captures, a store of another version, no scheduler, a full disk.
    """
    store = Path(out)
    if store.exists() and not store.is_dir():
        raise UsageError(f"{store} is a file; name a folder for the store.")
    done = parts.known(store)
    jobs = [job for address in addresses for job in _captures(str(address))]
    if not jobs:
        raise InputError(f"{', '.join(map(str, addresses))}: holds no captures; name folders of exports or traces.")
    shown = {job["address"]: _shown(job["address"], key) for job in jobs}
    new = [
        job for job in jobs
        if (status := done.get((shown[job["address"]], job["state"]))) is None or (again and status != "read")
    ]  # fmt: skip
    settings = workers.Settings(
        str(store.resolve()), str(ROOT), timeout_s, memory_bytes, "-" if key is None else f"={key}"
    )
    store.mkdir(parents=True, exist_ok=True)
    failed = 0
    if new:
        with ExitStack() as stack:
            client = stack.enter_context(_client(scheduler, min(n_workers or os.cpu_count() or 1, len(new)), stack))
            for answer in tqdm(
                _checked(_answers(client, new, settings)),
                "reading captures",
                len(new),
                disable=not progress,
                leave=False,
            ):
                failed += answer["status"] != "read"
                if answer["status"] in ("hung", "killed"):
                    _keep_failed(store, next(job for job in new if job["address"] == answer["address"]), answer, key)
        parts.merge(store)
    return Store(store), Counts(len(new) - failed, failed, len(jobs) - len(new))


def _shown(address: str, key: str | None) -> str:
    """Return the address as the store has it."""
    if key is None:
        return address
    row = rows.failed(rows.Source(address, "", []), "", "", "")
    return str(rows.anonymised(row, key)["captures"][0].address)  # type: ignore[attr-defined]


def _keep_failed(store: Path, job: dict[str, Any], answer: dict[str, Any], key: str | None) -> None:
    """Write the row of a capture whose process could not."""
    source = rows.Source(job["address"], job["state"], [], job["group"], job["date"], job["size_bytes"])
    found = rows.failed(source, answer.get("digest", job["state"]), answer["status"], answer["sentence"])
    parts.write(store, rows.anonymised(found, key) if key is not None else found)


def _client(scheduler: str | None, n_workers: int, stack: ExitStack) -> Any:
    """Return a client of the scheduler at that address, or of a cluster of threads here: each has a child process."""
    if scheduler is None:
        nowhere_else = {"dashboard_address": "127.0.0.1:0", "worker_dashboard_address": "127.0.0.1:0"}
        cluster = LocalCluster(
            n_workers=1, threads_per_worker=n_workers, processes=False, memory_limit=0, silence_logs=40, **nowhere_else
        )
        return Client(stack.enter_context(cluster))
    try:
        return Client(scheduler, timeout=_CONNECT_S)
    except (OSError, ValueError) as error:
        raise InputError(f"{scheduler}: is no Dask scheduler that answers ({error}); check the address, and that it "
                         "runs.") from None  # fmt: skip


def _answers(client: Any, jobs: list[dict[str, Any]], settings: workers.Settings) -> Iterator[dict[str, Any]]:
    """Yield what became of each capture, as they end; a capture that kills three workers is one that was killed."""
    cloudpickle.register_pickle_by_value(workers)
    waiting = iter(sorted(jobs, key=lambda job: -job["size_bytes"]))  # the largest first: none is alone at the end
    running = as_completed()
    of_future: dict[str, dict[str, Any]] = {}

    def start() -> None:
        for job in waiting:
            future = client.submit(workers.gather, job, settings, pure=False)
            of_future[future.key] = job
            running.add(future)
            return

    for _ in range(max(sum(client.nthreads().values()), 1) * _AHEAD):
        start()
    for future in running:
        job = of_future.pop(future.key)
        error = future.exception()
        answer = future.result() if error is None else _lost(job, error)
        start()
        yield answer


def _checked(answers: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the answers. Raises: InputError: the store cannot be written, so no other capture can be kept either."""
    for answer in answers:
        if "fatal" in answer:
            raise InputError(str(answer["fatal"]))
        yield answer


def _lost(job: dict[str, Any], error: BaseException) -> dict[str, Any]:
    sentence = f"its worker did not survive it ({type(error).__name__}); read it on a machine with more memory."
    return {"address": job["address"], "status": "killed", "sentence": sentence}


def _captures(address: str) -> Iterator[dict[str, Any]]:
    """Yield a job for each capture below an address.

    Raises: InputError: the address does not exist or does not answer, or its file system is not installed.
    """
    try:
        system, root = fsspec.core.url_to_fs(address)
        found = system.find(root, detail=True)
    except (OSError, ImportError, ValueError) as error:
        raise InputError(
            f"{address}: cannot be listed ({str(error) or type(error).__name__}); check the address."
        ) from None
    local = "file" in (system.protocol if isinstance(system.protocol, tuple) else (system.protocol,))
    root = root.rstrip("/")
    runs = {name.partition("/captures/")[0] for name in found if "/captures/" in name}
    groups: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for name, info in sorted(found.items()):
        inside = PurePosixPath(name[len(root) :].lstrip("/") if name != root else PurePosixPath(name).name)
        if any(part.startswith(".") for part in inside.parts):
            continue
        if "/captures/" not in name and not runs.isdisjoint(map(str, PurePosixPath(name).parents)):
            continue  # the report of a run, which lies beside its captures
        groups.setdefault(_unit(inside), []).append((name, info))
    for unit, files in groups.items():
        folder = (
            "" if len(files) == 1 and PurePosixPath(unit).name == PurePosixPath(files[0][0]).name else f"{root}/{unit}"
        )
        yield _job(address, system, unit, folder, files, local)


def _unit(inside: PurePosixPath) -> str:
    """Return the capture that a file belongs to: itself, its run, or its folder. `inside`: below the address."""
    if len(inside.parts) == 1:
        return str(inside)
    if "captures" in inside.parts[:-1]:
        run = inside.parts[: inside.parts.index("captures")]
        return str(PurePosixPath(*run)) if run else "."
    return str(inside.parent)


def _job(
    address: str, system: Any, unit: str, folder: str, files: list[tuple[str, dict[str, Any]]], local: bool
) -> dict[str, Any]:  # fmt: skip
    times = [info.get("mtime") or info.get("LastModified") or info.get("last_modified") or 0 for _, info in files]
    state = [
        (PurePosixPath(name).name, info.get("size") or 0, str(time))
        for (name, info), time in zip(files, times, strict=True)
    ]
    newest = max((time.timestamp() if isinstance(time, datetime) else float(time or 0) for time in times), default=0)
    parts_of = PurePosixPath(unit).parts
    return {
        "address": str(PurePosixPath(address, unit)) if local else system.unstrip_protocol(folder or files[0][0]),
        "url": address if "::" in address else system.unstrip_protocol(folder or files[0][0]),
        "folder": folder, "local": local, "files": [name for name, _ in files],
        "group": parts_of[0] if len(parts_of) > 1 else "",
        "date": datetime.fromtimestamp(newest, UTC).isoformat(timespec="seconds") if newest else "",
        "size_bytes": sum(int(size) for _, size, _ in state),
        "state": hashlib.blake2b(repr(state).encode(), digest_size=16).hexdigest(),
    }  # fmt: skip
