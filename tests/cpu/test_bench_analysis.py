"""The captures that benchmarks make: both exports hold the launches that were written."""

from pathlib import Path

import numpy as np

from analysis.capture.load import load
from analysis.tables.attribution import attribute
from tests.bench.make_captures import PIDS, make_program, place_of, write_csv, write_sqlite

SIZE = 5000


def test_exports_and_attribution_give_what_was_written(tmp_path: Path) -> None:
    program = make_program(SIZE)
    write_sqlite(program, tmp_path / "capture.sqlite")
    write_csv(program, tmp_path)
    capture, launches = load([tmp_path / "capture.sqlite"]), program.launches
    from_csv = load([tmp_path / "cuda_gpu_trace.csv", tmp_path / "cuda_kern_exec_trace.csv"]).gpu_ops
    ops = capture.gpu_ops
    wanted = {
        "start_ns": launches["start"], "duration_ns": launches["end"] - launches["start"],
        "api_start_ns": launches["api_start"], "pid": np.array(PIDS)[launches["process"]],
    }  # fmt: skip
    for name, values in wanted.items():
        assert (ops[name].to_numpy(np.int64) == values).all(), name
    one, other = (table.sort_values(["start_ns", "pid"], ignore_index=True) for table in (ops, from_csv))
    for column in ("start_ns", "duration_ns", "grid", "block", "pid", "tid", "registers"):
        assert one[column].astype(object).tolist() == other[column].astype(object).tolist(), column
    names, starts = place_of(program)
    rows = attribute(ops, capture.ranges).to_numpy(np.int64)
    assert (capture.ranges["path"].astype(object).to_numpy()[rows] == names).all()
    assert (capture.ranges["start_ns"].to_numpy(np.int64)[rows] == starts).all()
