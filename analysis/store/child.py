"""Read captures in a process of its own, which may hang, crash or fill its memory without harm to others.

usage: python -m analysis.store.child STORE MEMORY_BYTES KEY     KEY: `-`, or `=` and the key of --anonymise

A line of JSON on stdin names a capture; two lines on stdout answer it: its digest, then what became of it. It ends
when stdin does.
"""

import gc
import json
import os
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis.formats import system


def main() -> int:
    """Answer each line of stdin."""
    store, memory, key = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    from analysis.store import rows  # before the limit: what is imported is not the capture's

    gc.freeze()
    gc.set_threshold(100_000, 50, 50)
    system.use_one_core()
    if memory:
        system.limit_memory(memory)
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        job = json.loads(line)
        for answer in _answer(rows, store, job, key):
            print(json.dumps(answer), file=answers, flush=True)
    return 0


def _answer(rows: Any, store: Path, job: dict[str, Any], key: str) -> Any:
    from analysis.formats.errors import LedgerError
    from analysis.store import parts

    with ExitStack() as stack:
        status, sentence = "read", ""
        number = job["state"]
        source = rows.Source(job["address"], job["state"], [], job["group"], job["date"], job["size_bytes"])
        try:
            paths = _here(job, stack)
            number = rows.digest([path for path in paths if path.is_file()])
            yield {"digest": number}
            found = rows.read(replace(source, paths=_given(paths, job)), number)
        except LedgerError as error:
            status, sentence = "unreadable", str(error)
        except MemoryError:
            status, sentence = "too large", "it needs more memory than --memory allows; raise it, or add it alone."
        except OSError as error:
            status, sentence = "unreadable", f"{error.strerror or error}; check the file and its permissions."
        except Exception as error:
            status, sentence = "unreadable", f"reading it failed ({type(error).__name__}: {error}); please report this."
        if status != "read":
            found = rows.failed(source, number, status, sentence)
        try:
            parts.write(store, rows.anonymised(found, key[1:]) if key != "-" else found)
        except OSError as error:
            yield {"fatal": f"{store}: cannot be written ({error.strerror}); nothing that it held is lost."}
            return
        yield {"status": status, "sentence": sentence}


def _here(job: dict[str, Any], stack: ExitStack) -> list[Path]:
    """Return the files of a capture on this machine: those of another file system are copied first."""
    if job["local"]:
        return [Path(name) for name in job["files"]]
    import fsspec

    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kernel-ledger-")))
    system, _ = fsspec.core.url_to_fs(job["url"])
    copied = []
    for name in job["files"]:
        to = folder / name.removeprefix(job["folder"] or job["url"].rpartition("/")[0]).lstrip("/")
        to.parent.mkdir(parents=True, exist_ok=True)
        system.get_file(name, str(to))
        copied.append(to)
    return copied


def _given(paths: list[Path], job: dict[str, Any]) -> list[Path]:
    """Return what `load` gets: the folder of a run, as it says which of its files belong to it; else the file."""
    if not job["folder"]:
        return paths
    return [Path(job["folder"]) if job["local"] else Path(os.path.commonpath([path.parent for path in paths]))]


if __name__ == "__main__":
    sys.exit(main())
