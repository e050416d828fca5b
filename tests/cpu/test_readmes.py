"""The generated parts of the README files: as the committed runs say, and of a second GPU beside the first."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import pytest

from analysis.formats.errors import InputError
from studies import runs as published
from studies.lectures.predict import STUDIES
from studies.publish import __main__ as readmes
from studies.publish.results import join_gpus
from tests.committed import needs_committed

ROOT = Path(__file__).parents[2]
# README.md holds a line of the scorecard, and studies.specimens.score keeps what it has read.
pytestmark = pytest.mark.xdist_group("specimens")
OPS = ("softmax", "gelu", "bias_gelu")  # of the ladder, in the copies: what takes time is drawing
NAME, GPU = "i9000", "NVIDIA Imaginary 9000"
GENERATED = re.compile(r"(<!-- begin: (\S+) -->\n).*?(<!-- end: \2 -->)", re.DOTALL)
KEPT = (
    "*.csv",
    "*.json",
    "tables/*.csv",
    "captures/n*.json",
    "captures/multi_gpu.json",
    "captures/ceilings.json",
)  # of a run, what README files are made of


def documents() -> list[Path]:
    return [*ROOT.glob("*.md"), *ROOT.glob("*/*.md"), *ROOT.glob("kernels/*/README.md"), *ROOT.glob("studies/**/*.md")]


def copy_run(run: Path, to: Path) -> None:
    """What README files are made of, of one run; ladders cut down to OPS."""
    for file in (file for pattern in KEPT for file in run.glob(pattern)):
        copy = to / file.relative_to(run)
        copy.parent.mkdir(parents=True, exist_ok=True)
        with file.open(encoding="utf-8", newline="") as stream:
            header, *rows = csv.reader(stream) if file.suffix == ".csv" else ([], [])
        if "op" in header and run.name.endswith("ladder"):
            with copy.open("w", encoding="utf-8", newline="") as stream:
                rows = [row for row in rows if row[header.index("op")] in OPS]
                csv.writer(stream, lineterminator="\n").writerows([header, *rows])
        else:
            shutil.copy(file, copy)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the checkout, of the files that README files are made of."""
    root = tmp_path / "checkout"
    for file in [*documents(), ROOT / "reports" / published.FILE, *ROOT.glob("kernels/*/v*.cu")]:
        copy = root / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    for run in (path for path in published.REPORTS.iterdir() if path.is_dir()):
        copy_run(run, root / "reports" / run.name)
    return root


def publish_another(root: Path) -> None:
    """The runs of the first GPU as those of another one, on which everything takes twice as long."""
    reports = root / "reports"
    first, *_ = published.read(reports)
    for run in [path for path in reports.iterdir() if path.name.startswith(f"{first.name}-")]:
        twin = reports / run.name.replace(first.name, NAME, 1)
        shutil.copytree(run, twin)
        for file in (path for path in twin.rglob("*") if path.is_file()):
            text = file.read_text(encoding="utf-8").replace(first.gpu, GPU).replace(f"{first.name}-", f"{NAME}-")
            file.write_text(text, encoding="utf-8")
            if file.suffix == ".csv":
                double_times(file)
    table = (reports / published.FILE).read_text(encoding="utf-8").partition(f"[{first.name}]")[2].partition("\n[")[0]
    table = table.replace(first.gpu, GPU).replace(f'"{first.name}-', f'"{NAME}-')
    with (reports / published.FILE).open("a", encoding="utf-8") as stream:
        stream.write(f"\n[{NAME}]{table}")


def publish_little(root: Path) -> None:
    """Of the first GPU alone, and of its runs those that README.md and the ladders show."""
    first = published.read(root / "reports")[0]
    shown = {"gpu": first.gpu, **{name: getattr(first.entry, name) for name in ("overview", "ladder", "benches")}}
    lines = (f"{name} = {json.dumps(value)}\n" for name, value in shown.items())
    (root / "reports" / published.FILE).write_text("".join([f"[{first.name}]\n", *lines]))


def double_times(file: Path) -> None:
    with file.open(encoding="utf-8", newline="") as stream:
        header, *rows = list(csv.reader(stream))
    places = [
        place for place, name in enumerate(header) if re.fullmatch(r"(bench|isolated|chained)_time_p\d+_ns", name)
    ]
    for row in rows:
        for place in places:
            row[place] = f"{2 * float(row[place]):.6g}" if row[place] else ""
    with file.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows([header, *rows])


def files_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.slow
@needs_committed
def test_the_readmes_say_what_the_committed_run_says() -> None:
    for name, text in readmes.render().items():
        assert (ROOT / name).read_text(encoding="utf-8") == text, f"{name} is out of date: run `make readme`"


@pytest.mark.slow
@needs_committed
def test_a_second_gpu_publishes_by_one_file(tree: Path) -> None:
    publish_another(tree)
    before = files_of(tree)
    assert readmes.main(["--root", str(tree)]) == 0
    after = files_of(tree)

    first = published.read()[0]
    sections: dict[tuple[str, str], str] = {}
    for name, content in after.items():
        if name.endswith(".md"):
            for match in GENERATED.finditer(content.decode()):
                sections[name, match[2]] = match[0]
    both = [key for key, text in sections.items() if f"### {GPU}\n" in text]
    assert set(both) == {
        ("README.md", "results"), ("kernels/decode/README.md", "decode"), ("reports/README.md", "dropin"), ("kernels/README.md", "ladder"), ("reports/README.md", "results"),
        ("reports/README.md", "layers"), ("reports/README.md", "otherwise"), ("kernels/CLAIMS.md", "claims"), ("kernels/softmax/README.md", "ladder"),
        ("kernels/gelu/README.md", "ladder"), ("studies/accounting/README.md", "accounting"),
        ("studies/lectures/README.md", "studies"), *((f"studies/lectures/pages/{name}.md", "study") for name in STUDIES),
    }  # fmt: skip
    for key in both:
        of_first, of_second = sections[key].split(f"### {GPU}\n")
        assert of_first.count(f"### {first.gpu}\n") == 1
        assert f"{NAME}-" not in of_first
        assert f"{first.name}-" not in of_second
        assert of_first.partition(f"### {first.gpu}\n")[2].strip() != of_second.strip()
    assert f"[{NAME}-gpt2-layers]({NAME}-gpt2-layers/report.md)" in sections["reports/README.md", "runs"]
    softmax = [
        float(found[1]) for found in re.finditer(r"kernel `v05_early` ([\d.]+) µs", sections["README.md", "results"])
    ]
    assert softmax[1] == pytest.approx(2 * softmax[0], rel=1e-3)

    by_hand = {name for name, content in after.items() if is_by_hand(name, content)}
    assert by_hand == {f"reports/{published.FILE}"}
    assert {name for name in after if name not in before} == {
        f"kernels/{name}{suffix}.svg"
        for name in ("softmax/softmax", "gelu/gelu", "gelu/bias_gelu")
        for suffix in ("", f"_{NAME}")
    } | {"studies/multi_gpu/speedup.svg", "studies/multi_gpu/trap.svg"}
    for op in ("softmax", "gelu"):  # every figure that a README names is there
        figures = re.findall(r"\]\((\w+\.svg)\)", sections[f"kernels/{op}/README.md", "ladder"])
        assert len(figures) == 2 * len([one for one in OPS if one.endswith(op)])
        assert all((tree / "kernels" / op / figure).is_file() for figure in figures)


def is_by_hand(name: str, content: bytes) -> bool:
    """Whether somebody had to write this file, or this change of it: it is no run, no figure and not generated."""
    if name.endswith(".md"):
        old = (ROOT / name).read_text(encoding="utf-8") if (ROOT / name).is_file() else ""
        return GENERATED.sub(r"\1\3", content.decode()) != GENERATED.sub(r"\1\3", old)
    of_a_run = name.startswith("reports/") and name.count("/") > 1
    return not of_a_run and not name.endswith(".svg") and content != (ROOT / name).read_bytes()


def test_the_runs_of_each_gpu_are_named_in_order(tmp_path: Path) -> None:
    (tmp_path / published.FILE).write_text(
        '[a]\ngpu = "A"\nladder = "a-ladder"\nbenches = "a-{op}-bench"\n[b]\ngpu = "B"\noverview = "b"\nladder = "b-l"\n'
    )
    first, second = published.read(tmp_path)
    assert (first.name, first.gpu, first.folder("overview")) == ("a", "A", None)
    assert first.bench("gelu") == tmp_path / "a-gelu-bench"
    assert second.bench("gelu") is None
    assert published.folders("ladder", tmp_path) == [tmp_path / "a-ladder", tmp_path / "b-l"]
    assert published.folders("overview", tmp_path) == [tmp_path / "b"]


def test_a_published_folder_knows_its_gpu(tmp_path: Path) -> None:
    assert published.gpu_of(published.folders("ladder")[0], "ladder") == published.read()[0].gpu
    assert published.gpu_of(tmp_path, "ladder") is None
    assert published.gpu_of(tmp_path, "ladder", tmp_path) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        ("[a\n", "Expected"),
        ('[a]\nladder = "l"\n', "missing required field `gpu`"),
        ('[a]\ngpu = "A"\nladders = "l"\n', "unknown field `ladders`"),
        ('[a]\ngpu = "A"\nladder = 5\n', "`str`, got `int`"),
    ],
)
def test_a_published_toml_that_says_something_else_is_one_sentence(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / published.FILE).write_text(text)
    with pytest.raises(InputError, match=re.escape(said)) as error:
        published.read(tmp_path)
    assert str(error.value).startswith(f"{tmp_path.name}/{published.FILE}: ")
    assert "\n" not in str(error.value)


def test_the_shell_asks_for_folders(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["ladder"], ["overview", "--first"]):
        assert published.main(arguments) == 0
        (line,) = capsys.readouterr().out.splitlines()
        assert (ROOT / line).is_dir()


def test_one_gpu_has_no_heading_and_several_have_theirs() -> None:
    assert join_gpus({"A": "### Goals\n\ntext\n"}) == "### Goals\n\ntext\n"
    assert join_gpus({"A": "### Goals\n\none\n", "B": "two"}) == "### A\n\n#### Goals\n\none\n\n### B\n\ntwo"


@needs_committed
def test_a_readme_without_its_markers_is_one_sentence(tree: Path) -> None:
    publish_little(tree)
    readme = tree / "README.md"
    readme.write_text(readme.read_text(encoding="utf-8").replace("<!-- begin: results -->", ""), encoding="utf-8")
    with pytest.raises(InputError, match=r"README\.md: the markers of the part `results` occur 0 times"):
        readmes.render(tree)


@needs_committed
def test_a_readme_that_is_not_there_is_one_sentence_before_anything_is_written(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish_little(tree)
    (tree / "kernels/gelu/README.md").unlink()
    before = files_of(tree)
    assert readmes.main(["--root", str(tree)]) == 3
    error = capsys.readouterr().err
    assert "kernels/gelu/README.md is missing; write it, with `<!-- begin: ladder -->`" in error
    assert error.count("\n") == 1
    assert files_of(tree) == before
