"""Many captures: what the store holds after damage, kills, stops and repeats, and what it answers."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import LocalCluster

from analysis import fleet as command
from analysis.formats.errors import InputError, UsageError
from analysis.formats.store import ROWS, VERSION, CaptureRow, FindingRow, StepRow, columns, private
from analysis.store import child, gather, parts, rows, workers
from analysis.store.questions import QUESTIONS, Store
from tests.bench.make_captures import make_program, write_sqlite

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:distributed"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three captures in two folders, one of them twice, and a damaged one."""
    folder = tmp_path_factory.mktemp("captures")
    for place, seed in (("east/a", 1), ("east/b", 2), ("west/c", 3)):
        (folder / place).mkdir(parents=True)
        write_sqlite(make_program(1000, seed=seed), folder / place / "capture.sqlite")
    shutil.copytree(folder / "west/c", folder / "west/again")
    (folder / "damaged.sqlite").write_bytes(b"SQLite format 3\0" + b"x" * 500)
    return folder


@pytest.fixture(scope="module")
def gathered(captures: Path, tmp_path_factory: pytest.TempPathFactory) -> Store:
    store, counts = gather.fleet([captures], tmp_path_factory.mktemp("out") / "store", n_workers=2)
    assert counts == gather.Counts(read=4, failed=1, known=0)
    return store


def row(name: str, **values: object) -> CaptureRow:
    return CaptureRow(capture=name, **values)


def step(name: str, **values: object) -> StepRow:
    return StepRow(**{"capture": name, "step": "train", "gpu": "H100", "gpus": 1, "count": 100} | values)


def store_of(folder: Path, *tables: dict) -> Store:
    for one in tables:
        parts.write(folder, one)
    return Store(folder)


def test_the_same_capture_counts_once_and_a_damaged_one_is_a_row(gathered: Store) -> None:
    found = gathered.sql("SELECT status, count(*) AS n FROM captures GROUP BY status ORDER BY status")
    assert dict(found.to_numpy().tolist()) == {"read": 3, "unreadable": 1}
    (sentence,) = gathered.sql("SELECT sentence FROM captures WHERE status <> 'read'")["sentence"]
    assert "damaged.sqlite" in sentence
    assert sentence.endswith(".")
    assert set(gathered.sql("SELECT DISTINCT host_group FROM captures")["host_group"]) == {"", "east", "west"}


def test_a_later_run_reads_only_what_is_new(captures: Path, gathered: Store, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(gathered.path, store)
    _, counts = gather.fleet([captures], store, n_workers=1)
    assert (counts.read, counts.failed) == (1, 0)  # the second copy has no row of its own, so it is looked at again
    more = tmp_path / "more"
    more.mkdir()
    write_sqlite(make_program(2000, seed=9), more / "new.sqlite")
    _, counts = gather.fleet([captures, more], store, n_workers=1)
    assert counts.read == 2
    assert Store(store).sql("SELECT count(*) AS n FROM captures")["n"][0] == 5


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_question_has_an_answer(gathered: Store, question: str) -> None:
    answer = gathered.ask(question)
    assert len(answer) or question in ("unlike", "slow_kernels")


def test_hours_add_up_to_those_of_the_captures(gathered: Store) -> None:
    limits = gathered.ask("limits")
    assert gathered.sql("SELECT max(gpus) AS most FROM captures")["most"][0] == 2
    whole = gathered.sql("SELECT sum(wall_ns * gpus) / 3.6e12 AS hours FROM captures")["hours"][0]
    assert limits["gpu_hours"].sum() == pytest.approx(whole)
    assert limits["share_frac"].sum() == pytest.approx(1)


def test_the_command_prints_answers_and_writes_a_page(
    gathered: Store, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    page = tmp_path / "page.html"
    assert command.main(["--out", str(gathered.path), "--page", str(page), "--since", "2026-01-01"]) == 0
    assert QUESTIONS["limits"].title in capsys.readouterr().out
    assert all(f'id="{name}"' in page.read_text() for name in (*QUESTIONS, "since"))
    assert command.main(["--out", str(gathered.path), "--sql", "SELECT 1 AS one", "--csv"]) == 0
    assert capsys.readouterr().out.split() == ["one", "1"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["{empty}", "--out", "{out}"], 3, "holds no captures"),
        (["{empty}/none", "--out", "{out}"], 3, "none"),
        (["--out", "{empty}"], 3, "holds no store"),
        (["--out", "{store}", "--sql", "SELECT x FROM nothing"], 2, "the tables are captures"),
        (["--out", "{store}", "--ask", "why"], 2, "there are limits"),
        (["--out", "{store}", "--since", "soon"], 2, "no date"),
        (["{store}", "--out", "{newer}"], 3, "version=99"),
        (["{captures}", "--out", "{out}", "--scheduler", "tcp://127.0.0.1:9"], 3, "no Dask scheduler"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(
    arguments: list[str], code: int, said: str, captures: Path, gathered: Store, tmp_path: Path,
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(gather, "_CONNECT_S", 0.5)
    (tmp_path / "empty").mkdir()
    (tmp_path / "newer/version=99").mkdir(parents=True)
    places = {name: tmp_path / name for name in ("empty", "out", "newer")} | {
        "store": gathered.path,
        "captures": captures,
    }
    assert command.main([one.format(**places) for one in arguments]) == code
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_names_can_be_hashed(captures: Path, tmp_path: Path) -> None:
    store, _ = gather.fleet([captures / "east"], tmp_path / "store", n_workers=1, key="secret")
    kernels = pc_values(store, "kernels", "kernel")
    assert kernels
    assert all(len(name) == 16 and int(name, 16) >= 0 for name in kernels)
    whole = b"".join(path.read_bytes() for path in store.path.rglob("*.parquet"))
    assert not any(word in whole for word in (b"layer_norm", str(captures).encode(), b"east"))
    _, counts = gather.fleet([captures / "east"], tmp_path / "store", n_workers=1, key="secret")
    assert counts.known == 2


def pc_values(store: Store, table: str, column: str) -> set[str]:
    return set(store.sql(f"SELECT {column} FROM {table}")[column])


def test_only_declared_columns_are_kept_and_private_ones_are_marked(gathered: Store) -> None:
    for table in ROWS:
        assert list(gathered.sql(f"SELECT * FROM {table} LIMIT 0").columns) == list(columns(table))
    assert private("kernels") == {"kernel": "name", "host_group": "name"}


# --- dying and stopping ---


@pytest.mark.parametrize(
    ("body", "timeout_s", "status", "said"),
    [
        ("import time; input(); print('{}', flush=True); time.sleep(60)", 1.0, "hung", "more than 1 s"),
        ("import os; input(); os.kill(os.getpid(), 9)", 60.0, "killed", "signal 9"),
        ("import sys; sys.exit(7)", 60.0, "killed", "exit code 7"),
    ],
)
def test_a_capture_that_hangs_or_kills_is_told(
    body: str, timeout_s: float, status: str, said: str, tmp_path: Path
) -> None:  # fmt: skip
    package = tmp_path / "analysis" / "store"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    (package / "child.py").write_text(body, encoding="utf-8")
    answer = workers.gather({"address": "x"}, workers.Settings(str(tmp_path), str(tmp_path), timeout_s, 0, "-"))
    assert answer["status"] == status
    assert said in answer["sentence"]
    assert workers._HELD.child.process.stdout.closed


def test_too_little_memory_is_a_row(captures: Path, tmp_path: Path) -> None:
    store, counts = gather.fleet([captures / "east/a"], tmp_path / "store", n_workers=1, memory_bytes=20 << 20)
    assert counts.failed == 1
    assert store.sql("SELECT status FROM captures")["status"][0] in ("too large", "killed", "unreadable")


def kill_once(chosen: Callable[[psutil.Process], bool]) -> threading.Event:
    """Kill the first process below this one that is chosen; the event tells when."""
    killed = threading.Event()

    def kill() -> None:
        while not killed.wait(0.02):
            for one in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    if chosen(one):
                        one.send_signal(signal.SIGKILL)
                        killed.set()
                        return

    threading.Thread(target=kill, daemon=True).start()
    return killed


def is_child(process: psutil.Process) -> bool:
    return "analysis.store.child" in process.cmdline()


def test_a_killed_process_loses_nothing_and_counts_nothing_twice(captures: Path, tmp_path: Path) -> None:
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster:
        killed = kill_once(lambda one: any(map(is_child, one.children())))
        given, out = [captures / "east", captures / "damaged.sqlite"], tmp_path / "store"
        store, counts = gather.fleet(given, out, scheduler=cluster.scheduler_address, n_workers=1)
    assert killed.is_set()
    assert (counts.read, counts.failed) == (2, 1)
    assert store.sql("SELECT count(*) AS n, count(DISTINCT capture) AS m FROM captures").to_numpy().tolist() == [[3, 3]]


def test_a_driver_that_is_killed_goes_on(captures: Path, tmp_path: Path) -> None:
    out = tmp_path / "store"
    run = [sys.executable, "analysis/fleet.py", str(captures), "--out", str(out), "--workers", "1"]
    first = subprocess.Popen(run, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while not list(out.glob("version=*/part-*")) and time.monotonic() < end:
        time.sleep(0.02)
    first.kill()
    first.wait()
    held = len(parts.live(out))
    assert held
    _, counts = gather.fleet([captures], out, n_workers=1)
    assert counts.known >= 1
    assert Store(out).sql("SELECT count(*) AS n FROM captures")["n"][0] == 4


def test_a_full_disk_stops_the_run_with_a_sentence(
    captures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"fatal": "store: cannot be written (No space left on device)", "address": "x"}
    monkeypatch.setattr(gather, "_answers", lambda *_: gather._checked(iter([told])))
    with pytest.raises(InputError, match="No space left"):
        gather.fleet([captures], tmp_path / "store", n_workers=1)


def test_the_child_tells_a_full_disk(captures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(parts, "write", full)
    (job,) = [one for one in gather._captures(str(captures)) if one["address"].endswith("damaged.sqlite")]
    answers = list(child._answer(rows, tmp_path, job, "-"))
    assert "No space left" in answers[-1]["fatal"]


# --- the files ---


def test_a_merge_that_was_stopped_counts_nothing_twice(tmp_path: Path) -> None:
    for name in "abc":
        parts.write(tmp_path, {"captures": [row(name)], "steps": [step(name, wall_ns=1.0)]})
    singles = {path: path.read_bytes() for path in parts.parts(tmp_path)}
    assert parts.merge(tmp_path) == 3
    for path, content in singles.items():  # as if the process had died before it removed them
        path.write_bytes(content)
    assert len(parts.parts(tmp_path)) == 4
    assert Store(tmp_path).sql("SELECT count(*) AS n FROM steps")["n"][0] == 3
    parts.merge(tmp_path)
    assert len(parts.parts(tmp_path)) == 1
    assert parts.merge(tmp_path) == 0


def test_an_earlier_version_is_read_and_migrated(tmp_path: Path) -> None:
    parts.write(tmp_path, {"captures": [row("old", launches=3)]})
    assert parts.merge(tmp_path) == 1
    (old,) = parts.parts(tmp_path)
    parts.write(tmp_path, {"captures": [row("new", launches=4)]})
    earlier = tmp_path / f"version={VERSION - 1}" / old.name
    shutil.move(old, earlier)
    table = pq.read_table(earlier / "captures.parquet").drop_columns(["state", "start_up_ns"])
    pq.write_table(table, earlier / "captures.parquet")
    query = "SELECT capture, launches, state FROM captures ORDER BY capture"
    expected = [["new", 4, ""], ["old", 3, None]]
    assert Store(tmp_path).sql(query).astype(object).where(lambda f: f.notna(), None).to_numpy().tolist() == expected
    assert parts.merge(tmp_path) == 2
    assert [path.parent.name for path in parts.parts(tmp_path)] == [f"version={VERSION}"]
    assert Store(tmp_path).sql("SELECT count(*) AS n FROM captures")["n"][0] == 2


def test_a_part_that_is_not_finished_is_not_read(tmp_path: Path) -> None:
    parts.write(tmp_path, {"captures": [row("a")]})
    beside = tmp_path / f"version={VERSION}" / ".part-x"
    beside.mkdir()
    (beside / "captures.parquet").write_bytes(b"half")
    assert len(parts.parts(tmp_path)) == 1
    os.utime(beside, (0, 0))
    parts.merge(tmp_path)
    assert not beside.exists()


def test_a_damaged_part_is_named_with_what_to_do(tmp_path: Path) -> None:
    parts.write(tmp_path, {"captures": [row("a")]})
    (path,) = parts.parts(tmp_path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match=f"{path.name}: cannot be read .*; delete {path.name}"):
        parts.live(tmp_path)


# --- the answers ---


def test_a_slow_capture_is_unlike_its_neighbours(tmp_path: Path) -> None:
    walls = {f"c{i}": 1e6 * (1 + 0.002 * (i % 5)) for i in range(10)} | {"odd": 1.5e6}
    table = {"captures": [row(name) for name in walls], "steps": [step(name, wall_ns=ns) for name, ns in walls.items()]}
    found = store_of(tmp_path, table).ask("unlike")
    assert found["capture"].tolist() == ["odd"]
    assert found["ratio"][0] == pytest.approx(1.5, rel=0.01)


@pytest.mark.parametrize(("factor", "verdict"), [(1.2, "SLOWER"), (0.8, "FASTER"), (1.0, "SAME")])
def test_what_changed_since_a_date_gets_a_verdict(tmp_path: Path, factor: float, verdict: str) -> None:
    random = np.random.default_rng(0)
    steps = [
        step(f"{later}{i}", date=f"2026-0{1 + later}-01", wall_ns=1e6 * (factor if later else 1) * random.normal(1, 0.002))
        for later in (0, 1) for i in range(12)
    ]  # fmt: skip
    found = store_of(tmp_path, {"captures": [row(one.capture) for one in steps], "steps": steps}).since("2026-01-15")
    assert found["verdict"].tolist() == [verdict]
    with pytest.raises(UsageError):
        Store(tmp_path).since("then")


def test_a_kernel_is_slow_on_one_gpu(tmp_path: Path) -> None:
    from analysis.formats.store import KernelRow

    kernels = [
        KernelRow(capture=gpu, kernel="gemm", gpu=gpu, driver="580", launches=10, time_ns=10 * ns, mean_ns=ns)
        for gpu, ns in (("H100", 100.0), ("A100", 250.0))
    ]
    found = store_of(tmp_path, {"captures": [row("H100"), row("A100")], "kernels": kernels}).ask("slow_kernels")
    assert found[["gpu", "ratio", "fastest"]].to_numpy().tolist() == [["A100", 2.5, "H100, 580"]]


def test_nothing_is_no_saving_and_none_is_below_zero(tmp_path: Path) -> None:
    saved = [("sync", -3.6e12, 7.2e12), ("sync", 3.6e12, 3.6e12), ("nothing", 0.0, 9e12), ("fuse", None, 3.6e12)]
    findings = [FindingRow(capture="a", finding=kind, kind=kind, low_ns=low, high_ns=ns) for kind, low, ns in saved]
    found = store_of(tmp_path, {"captures": [row("a")], "findings": findings}).ask("savings")
    assert found["kind"].tolist() == ["sync", "fuse"]
    assert found["low_gpu_hours"].fillna(-1).tolist() == [1, -1]  # blank: unknown
    assert found["high_gpu_hours"].tolist() == [3, 1]


def test_files_of_another_file_system_are_read(captures: Path, tmp_path: Path) -> None:
    packed = shutil.make_archive(str(tmp_path / "all"), "zip", captures / "east")
    store, counts = gather.fleet([f"zip://::{packed}"], tmp_path / "store", n_workers=1)
    assert counts.read == 2
    assert store.sql("SELECT count(*) AS n FROM steps")["n"][0] >= 2


def test_the_schema_is_that_of_the_structs() -> None:
    assert parts.schema("steps").field("bin_ns").type == pa.list_(pa.int64())
    assert json.loads(json.dumps(list(columns("captures"))))[0] == "capture"
