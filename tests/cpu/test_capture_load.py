"""Any path in, one Capture or one sentence out."""

import gc
import gzip
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.capture.load import load
from analysis.capture.model import COUNTERS_COLUMNS, GPU_OPS_COLUMNS, RANGES_COLUMNS
from analysis.formats.errors import InputError, LedgerError
from analysis.formats.files import every
from analysis.formats.run import OPS

KERNELS = (
    "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
    "100.0,500,1,500.0,500.0,500,500,0.0,k\n"
)


def sentence(error: pytest.ExceptionInfo[InputError]) -> str:
    """The message, once it is one sentence with an exit code."""
    text = str(error.value)
    assert error.value.exit_code == 3
    assert "\n" not in text
    assert text.endswith(".")
    return text


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist or cannot be read") as error:
        load([tmp_path / "nowhere"])
    sentence(error)


def test_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / ".hidden").write_text("x")
    with pytest.raises(InputError, match="empty folder") as error:
        load([tmp_path])
    sentence(error)


@pytest.mark.parametrize(
    "text", ["", "\n\n", "hello\n", "a,b,c\n1,2,3\n", "{broken", "[1, 2]", '{"kind": "tea"}', "\x00\x01\x02binary"]
)
def test_a_file_of_no_known_kind(tmp_path: Path, text: str) -> None:
    file = tmp_path / "f.csv"
    file.write_bytes(text.encode())
    for given_path in (file, tmp_path):
        with pytest.raises(InputError, match=r"f\.csv: is ") as error:
            load([given_path])
        sentence(error)


@pytest.mark.parametrize(
    ("head", "tool"),
    [
        (b"NVR\0abc", "ncu --import"),
        (
            b"NVIDIA Tegra Profiler Report 2025@6\0",
            "nsys export --type sqlite --force-overwrite true --output f.sqlite f",
        ),
        (b"SQLite format 3\0abc", "nsys export"),
        (b"\0\0QuadDaemon\0", "QdstrmImporter"),
    ],
)
def test_binary_reports_say_how_to_export(tmp_path: Path, head: bytes, tool: str) -> None:
    (tmp_path / "f").write_bytes(head)
    with pytest.raises(InputError, match=tool) as error:
        load([tmp_path / "f"])
    sentence(error)
    (tmp_path / "kernels").write_text(KERNELS)
    capture = load([tmp_path])
    assert [file.kind for file in capture.files] == ["ignored", "nsys cuda_gpu_kern_sum"]
    assert tool in capture.files[0].detail


def test_unknown_files_of_a_folder_are_listed_and_not_read(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# ==ERROR== is what ncu prints\n")
    (tmp_path / "z").write_text(KERNELS)
    capture = load([tmp_path])
    assert [(file.name, file.kind, file.rows) for file in capture.files] == [
        ("README.md", "ignored", 0),
        ("z", "nsys cuda_gpu_kern_sum", 1),
    ]
    assert not capture.missing
    with pytest.raises(InputError, match=r"README\.md"):
        load([tmp_path / "README.md", tmp_path / "z"])


def test_a_run_folder_is_read_at_its_captures(tmp_path: Path) -> None:
    (tmp_path / "captures" / "nsys").mkdir(parents=True)
    (tmp_path / "tables").mkdir()
    (tmp_path / "captures" / "nsys" / "k.csv").write_text(KERNELS)
    (tmp_path / "tables" / "kernels.csv").write_text("kernel,range\n")
    assert [file.name for file in load([tmp_path]).files] == ["nsys/k.csv"]


def test_the_same_file_given_twice_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "k.csv").write_text(KERNELS)
    assert len(load([tmp_path, tmp_path / "k.csv"]).nsys_kernel_sums) == 1


def test_tables_have_their_columns_even_when_empty(tmp_path: Path) -> None:
    (tmp_path / "k.csv").write_text(KERNELS)
    capture = load([tmp_path])
    assert dict(capture.gpu_ops.dtypes.astype(str)) == dict(GPU_OPS_COLUMNS)
    assert dict(capture.ranges.dtypes.astype(str)) == dict(RANGES_COLUMNS)
    assert dict(capture.counters.dtypes.astype(str)) == dict(COUNTERS_COLUMNS)


def put_ours(folder: Path, **extra: object) -> None:
    """One of each of our files, kinds told from content only."""
    documents: dict[str, dict[str, object]] = {
        "1": {"kind": "manifest", "schema_version": 1, "gpu": {"name": "NVIDIA H200"}},
        "2": {"kind": "timing", "schema_version": 1, "steps": [{"range": "gpt2/prefill", "wall_ns": {"p50": 9}}]},
        "3": {"kind": "ceilings", "schema_version": 1, "roofs": []},
        "4": {
            "kind": "tool-status",
            "schema_version": 1,
            "tool": "ncu",
            "status": "denied",
            "reason": "no permission",
            "fix": "sudo",
        },
    }
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document | extra))
    (folder / "5").write_text(
        OPS.header + '\nsoftmax,eager,,gpt2/softmax,w,0,(1),fp32,10,20,,,\ncopy,x,a;b,s,w,1,"(1, 2)",fp32,,,,,read=1\n'
    )


def test_our_own_files(tmp_path: Path) -> None:
    put_ours(tmp_path)
    (tmp_path / "k.csv").write_text(KERNELS)
    capture = load([tmp_path])
    assert capture.manifest is not None
    assert capture.manifest["gpu"] == {"name": "NVIDIA H200"}
    assert capture.timing is not None
    assert capture.ceilings is not None
    assert capture.ops is not None
    assert capture.ops["minimum_bytes"].isna().tolist() == [False, True]
    assert capture.ops["ordinal"].tolist() == [0, 1]
    assert capture.ops["shape"].tolist() == ["(1)", "(1, 2)"]
    assert [tool["status"] for tool in capture.tools] == ["denied"]
    assert any(gap.why == "no permission" and gap.do == "sudo" for gap in capture.missing)


def test_another_schema_version_is_refused(tmp_path: Path) -> None:
    put_ours(tmp_path, schema_version=2)
    with pytest.raises(InputError, match="schema_version 2") as error:
        load([tmp_path])
    sentence(error)


STEP = {"range": "gpt2/prefill", "wall_ns": {"p5": 1, "p50": 2.5, "p95": 3}, "gpu_ns": None}
RATE = {"p5": 1.0, "p50": 2.0, "p95": 3.0}
ROOF = {"name": "fp32", "value": 1e12}
TOOL = {"tool": "ncu", "status": "ok"}
MALFORMED = [
    ("timing", {}, "has nothing at steps where a list"),
    ("timing", {"steps": {}}, "has {} at steps where a list"),
    ("timing", {"steps": [STEP, 7]}, r"has 7 at steps\[1\] where an object"),
    ("timing", {"steps": [{"range": "r"}]}, r"has nothing at steps\[0\]\.wall_ns where an object"),
    ("timing", {"steps": [STEP | {"range": None}]}, r"has null at steps\[0\]\.range where text"),
    ("timing", {"steps": [STEP | {"wall_ns": {"p5": 1}}]}, r"has nothing at steps\[0\]\.wall_ns\.p50"),
    *(
        ("timing", {"steps": [STEP | {"wall_ns": {"p50": bad}}]}, r"steps\[0\]\.wall_ns\.p50 where a number above 0")
        for bad in (None, 0, -1, "9", True, math.nan, math.inf, 10**400)
    ),
    ("timing", {"steps": [STEP | {"gpu_ns": 5}]}, r"has 5 at steps\[0\]\.gpu_ns where an object"),
    ("timing", {"steps": [], "tokens_per_s": [1]}, r"has \[1\] at tokens_per_s where an object"),
    ("timing", {"steps": [], "tokens_per_s": {"gpt2": {"p50": 1, "p5": 1}}}, r"tokens_per_s\.gpt2\.p95"),
    ("timing", {"steps": [], "tokens_per_s": {"gpt2": RATE | {"p5": "1"}}}, r'has "1" at tokens_per_s\.gpt2\.p5'),
    ("ceilings", {}, "has nothing at roofs"),
    ("ceilings", {"roofs": [{"value": 1}]}, r"has nothing at roofs\[0\]\.name where text"),
    *(
        ("ceilings", {"roofs": [ROOF, ROOF | {"value": bad}]}, r"at roofs\[1\]\.value where a number above 0")
        for bad in (None, 0, -2.0, "1e12", [])
    ),
    ("manifest", {"gpu": "H200"}, 'has "H200" at gpu where an object'),
    ("manifest", {"gpu": {"compute_capability": 9.0}}, r"has 9\.0 at gpu\.compute_capability where text"),
    ("manifest", {"clocks": {"sm_mhz": 1980}}, r"has 1980 at clocks\.sm_mhz where an object"),
    ("manifest", {"clocks": {"sm_mhz": {"min": 1, "max": 2}}}, r"has nothing at clocks\.sm_mhz\.median"),
    ("manifest", {"clocks": {"throttle_reasons": "power"}}, r"clocks\.throttle_reasons where a list"),
    ("manifest", {"workloads": ["prefill"]}, r'has "prefill" at workloads\[0\] where an object'),
    ("manifest", {"workloads": {"name": "x"}}, "at workloads where a list"),
    ("manifest", {"weights": "random"}, "at weights where an object"),
    ("manifest", {"driver": ["a" * 99]}, "…? at driver where text"),
    ("tool-status", {}, "has nothing at tool where text"),
    ("tool-status", TOOL | {"nvtx_include": 3}, "has 3 at nvtx_include where a list"),
    ("tool-status", TOOL | {"nvtx_include": "gpt2/"}, 'has "gpt2/" at nvtx_include where a list'),
    ("tool-status", TOOL | {"metrics": [1]}, r"has 1 at metrics\[0\] where text"),
    ("tool-status", TOOL | {"metrics": {}}, "at metrics where a list"),
]


@pytest.mark.parametrize(("kind", "fields", "said"), MALFORMED)
def test_a_malformed_field_is_named_with_what_it_holds(
    tmp_path: Path, kind: str, fields: dict[str, object], said: str
) -> None:
    (tmp_path / "f").write_text(json.dumps({"kind": kind, "schema_version": 1} | fields))
    with pytest.raises(InputError, match=f"f: {kind} has .*{said.removeprefix('has ')}") as error:
        load([tmp_path])
    assert "again with" in sentence(error)


def test_what_may_be_absent_or_null_is_no_error() -> None:
    for kind, fields in (
        ("manifest", {}),
        ("manifest", {"gpu": None, "clocks": None, "nsys": None, "weights": {"source": "random"}}),
        ("timing", {"steps": [STEP], "tokens_per_s": {"gpt2": RATE | {"samples": 15}}}),
        ("ceilings", {"roofs": [ROOF | {"p5": 1}]}),
        ("tool-status", TOOL | {"nvtx_include": [], "metrics": ["a"]}),
    ):
        data = {"kind": kind, "schema_version": 1} | fields
        assert every()[kind].check(data, "f") is data


def test_two_manifests_are_refused(tmp_path: Path) -> None:
    for seed, name in enumerate("ab"):
        (tmp_path / name).write_text(json.dumps({"kind": "manifest", "schema_version": 1, "seed": seed}))
    with pytest.raises(InputError, match="a and b are two different manifest files"):
        load([tmp_path])


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ("0,s,d,1,many,,,", 'column minimum_bytes has "many" in row 2 where a whole number of 0 or more'),
        ("0,s,d,-1,2,,,", "column flops has"),
        ("0,s,d,1,inf,,,", "column minimum_bytes has"),
        ("0,s,d,1,2,nan,,", "column predicted_unfused_bytes has"),
        ("0.5,s,d,1,2,,,", "column ordinal has .* where a whole number"),
        ("1e30,s,d,1,2,,,", "column ordinal has"),
    ],
)
def test_what_is_no_number_in_ops_csv_is_shown(tmp_path: Path, cells: str, said: str) -> None:
    (tmp_path / "f").write_text(f"{OPS.header}\nop,v,,r,w,,s,d,,,,,\nop,v,,r,w,{cells}\n")
    with pytest.raises(InputError, match=f"f: {said}") as error:
        load([tmp_path])
    sentence(error)


@pytest.mark.parametrize("row", ["x,2,p,0", "1.5,2,p,0", ",2,p,0", "1,-2,p,0", "1,inf,p,0"])
def test_what_is_no_time_in_cpu_ranges_is_shown(tmp_path: Path, row: str) -> None:
    (tmp_path / "f").write_text(f"start_ns,end_ns,path,thread\n{row}\n")
    with pytest.raises(InputError, match=r"f: column .* in row 1 where a whole number") as error:
        load([tmp_path])
    sentence(error)


@pytest.mark.parametrize("row", ["softmax,eager,,r,w,zero,s,d,1,2,,,", "softmax,eager\ngelu,x,,r,w,0,s,d,1,2,,,"])
def test_a_damaged_ops_file_is_refused(tmp_path: Path, row: str) -> None:
    (tmp_path / "f").write_text(f"{OPS.header}\n{row}\n")
    with pytest.raises(InputError, match="f: ") as error:
        load([tmp_path])
    sentence(error)


def test_a_cut_ops_file_loses_its_last_row(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(f"{OPS.header}\nsoftmax,eager,,r,w,0,s,d,1,2,,,\nsoftmax,ea")
    (tmp_path / "k.csv").write_text(KERNELS)
    capture = load([tmp_path])
    assert capture.ops is not None
    assert len(capture.ops) == 1
    assert any("cut off after 1 complete rows" in gap.what for gap in capture.missing)


def test_ranges_of_a_cpu_run(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(
        "start_ns,end_ns,path,thread\n200,300,gpt2/prefill,1\n100,900,gpt2,1\n300,400,gpt2/prefill,1\n"
    )
    capture = load([tmp_path])
    assert capture.clock == "cpu"
    assert capture.ranges[["path", "name", "level"]].to_numpy().tolist() == [
        ["gpt2", "gpt2", 0],
        ["gpt2/prefill", "prefill", 1],
        ["gpt2/prefill", "prefill", 1],
    ]
    assert capture.ranges["parent_id"].isna().tolist() == [True, False, False]


def test_only_our_json_is_no_capture(tmp_path: Path) -> None:
    put_ours(tmp_path)
    with pytest.raises(InputError, match="no timeline and no counters") as error:
        load([tmp_path])
    sentence(error)


def test_files_of_one_name_in_two_folders_keep_two_names(tmp_path: Path) -> None:
    for folder in ("one", "two", "three"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "notes").write_text(folder)
    (tmp_path / "one" / "k").write_text(KERNELS)
    names = [file.name for file in load([tmp_path / name for name in ("one", "two", "three")]).files]
    assert names == ["k", "notes", "two/notes", "three/notes"]


def test_names_are_relative(tmp_path: Path) -> None:
    (tmp_path / "k.csv").write_text(KERNELS)
    capture = load([tmp_path])
    assert not any(str(tmp_path) in file.name for file in capture.files)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300))
def test_no_bytes_make_a_traceback(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    folder = tmp_path_factory.mktemp("f")
    (folder / "f").write_bytes(raw)
    with pytest.raises(LedgerError):
        load([folder / "f"])


@pytest.mark.slow
def test_importing_the_reader_is_cheap() -> None:
    code = (
        "import sys, analysis.capture.load; print([m for m in ('matplotlib', 'jinja2', 'torch') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"==2350== NVPROF is profiling process 2350, command: ./a\n", "output of nvprof"),
        (b"compiling\n==7== Profiling result:\n", "output of nvprof"),
        (b"# How to\n\n```bash\nncu ./a\n```\n==PROF== Profiling \"k\" - 1\n", "a Markdown page"),
        (b"\0" * 257 + b"ustar\0" + b"\0" * 300, "a tar archive; unpack it with `tar xf f`"),
        (gzip.compress(b'"traceEvents"'.ljust(257, b"\0") + b"ustar\0", mtime=0), "a tar archive"),
        (b"Device G\n" + b"-" * 40 + b" " + b"-" * 40 + b"\nMetric Name   Metric Description\n==PROF== Note\n", "the list of"),
        (b"[1, 2", "broken JSON"),
        (b"[3/8] Executing 'x' stats report\n==PROF== Connected to process 1 (a)\n", "ncu profiled no kernel"),
    ],
)  # fmt: skip
def test_files_of_other_tools_are_named(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(InputError) as error:
        load([tmp_path / "f"])
    assert said in str(error.value)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_works_after_a_refusal_as_before(tmp_path: Path, enabled: bool) -> None:
    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(InputError):
            load([tmp_path])
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if was else gc.disable)()
