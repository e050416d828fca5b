"""Add toys for `test_adding.py`: each function adds one thing to a copy of the checkout, as a contributor would."""

import re
from pathlib import Path
from textwrap import dedent, indent

GPU = "NVIDIA Imaginary 9000"


def write(root: Path, name: str, text: str) -> None:
    """Write a new file; make its folder if needed."""
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(dedent(text).lstrip("\n"), encoding="utf-8")


def append(root: Path, name: str, text: str) -> None:
    """Append text to a file."""
    with (root / name).open("a", encoding="utf-8") as stream:
        stream.write("\n" + dedent(text).strip("\n") + "\n")


def replace(root: Path, name: str, old: str, new: str) -> None:
    """Replace a text that a file has exactly once."""
    text = (root / name).read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{name} has {text.count(old)} times {old!r}"
    (root / name).write_text(text.replace(old, new), encoding="utf-8")


def metric(root: Path) -> None:
    append(
        root,
        "analysis/hardware/metrics.toml",
        """
        [column.toy_bytes]
        question = "dram"
        why = "bytes that came from DRAM, twice"
        source = "dram_read_bytes"
        from = [{ terms = { "dram__bytes_read.sum" = 2 }, not_cc = [87] }]
        """,
    )


def gpu(root: Path) -> None:
    append(
        root,
        "analysis/hardware/devices.toml",
        f"""
        ["{GPU}"]
        aliases = []
        cc = "9.0"
        sm_count = 10
        l2_bytes = 1048576
        dram_bytes_per_s = 1e12
        fp32_flop_per_s = 2e12
        source = "a toy's datasheet"
        """,
    )


def architecture(root: Path) -> None:
    """Add an architecture: the limits of its multiprocessors, for which kernels then compile, and a GPU that has it."""
    append(
        root,
        "kernels/sm_limits.toml",
        """
        [sm.99]
        warps = 64
        blocks = 32
        shared_bytes = 233472
        shared_unit = 128
        shared_reserved_bytes = 1024
        """,
    )
    append(
        root,
        "analysis/hardware/devices.toml",
        """
        ["NVIDIA Imaginary 9900"]
        aliases = []
        cc = "9.9"
        sm_count = 20
        l2_bytes = 1048576
        dram_bytes_per_s = 2e12
        fp32_flop_per_s = 4e12
        source = "a toy's datasheet"
        """,
    )


def own_file_kind(root: Path) -> None:
    write(
        root,
        "analysis/formats/toys.py",
        '''
        """A file of toys."""

        from __future__ import annotations

        from msgspec import Struct

        from analysis.formats.files import JsonFile


        class Toys(Struct):
            """Who plays with which toy."""

            toy: str


        TOYS = JsonFile("toys", "toys.json", Toys, again="play again with `python -m harness.toys`")
        ''',
    )
    write(
        root,
        "harness/toys.py",
        '''
        """Write toys.json into the folder of captures that is named."""

        from __future__ import annotations

        import json
        import sys
        from pathlib import Path

        from analysis.formats.toys import TOYS

        if __name__ == "__main__":
            text = json.dumps(TOYS.document({"toy": "yo-yo"}))
            (Path(sys.argv[1]) / TOYS.name).write_text(text, encoding="utf-8")
        ''',
    )


def table(root: Path) -> None:
    write(
        root,
        "analysis/tables/toy.py",
        '''
        """What a toy metric and a toy file say of each kernel."""

        import pandas as pd

        from analysis.tables.declare import Column, Facts, table


        @table(
            "toy",
            question="How many toy bytes does each kernel move?",
            title="Toys",
            columns=(
                Column("kernel", "kernel name", "key"),
                Column("toy_bytes", "bytes that came from DRAM, twice", "counters"),
                Column("toy", "the toy of toys.json", "static"),
            ),
        )
        def build_toy(facts: Facts) -> pd.DataFrame | None:
            """Return toy.csv: one row a kernel."""
            measured = facts.measured
            if measured.empty or "toy_bytes" not in measured:
                return None
            toy = (facts.capture.of("toys") or {}).get("toy", "")
            return measured[["kernel", "toy_bytes"]].assign(toy=toy, tier="counters")
        ''',
    )


def figure(root: Path) -> None:
    write(
        root,
        "analysis/page/toy.py",
        '''
        """The figure of the toy table."""

        from __future__ import annotations

        from matplotlib.figure import Figure

        from analysis.page.canvas import BLUE, new_canvas, place_axes, style_context
        from analysis.facts import Facts
        from analysis.tables.declare import picture
        from analysis.tables.toy import build_toy


        @picture("toy", of="toy")
        def plot_toy(facts: Facts, caption: str) -> Figure | None:
            """A bar a kernel."""
            toy = facts.once(build_toy)
            with style_context():
                canvas, foot = new_canvas("toy", 2.5, caption, title="Toys")
                axes = place_axes(canvas, 2.5, 0.3, 0.5, foot + 0.5)
                axes.barh(toy["kernel"], toy["toy_bytes"].astype("float64"), color=BLUE)
                axes.set_xlabel("toy bytes")
            return canvas
        ''',
    )


def foreign_format(root: Path) -> None:
    """Add the timeline of another tool: its reader, the line that recognises its content, and a seed for the fuzzer."""
    write(
        root,
        "analysis/capture/toy_trace.py",
        '''
        """Reads the timelines of a toy: a line a kernel, `name start duration`, in nanoseconds."""

        from __future__ import annotations

        from analysis.capture.model import GPU_OPS_COLUMNS, RANGES_COLUMNS, Timeline, as_table, empty_table
        from analysis.formats.errors import InputError

        MARK = b"toy trace\\n"


        def read(raw: bytes, where: str) -> Timeline:
            """The timeline in a file. Raises: InputError for a line that is none."""
            rows = [line.rsplit(" ", 2) for line in raw.decode("utf-8", errors="replace").splitlines()[1:]]
            for row in rows:
                if len(row) != 3 or not all(cell.isdecimal() and len(cell) < 18 for cell in row[1:]):
                    raise InputError(f"{where}: has a line that is no kernel; let the toy write it again.")
            names, starts, durations = zip(*rows, strict=True) if rows else ((), (), ())
            columns = {
                "start_ns": [int(start) for start in starts],
                "duration_ns": [int(duration) for duration in durations],
                "kind": ["kernel"] * len(rows),
                "name": list(names),
                "device": [""] * len(rows),
            }
            return Timeline(as_table(columns, GPU_OPS_COLUMNS), empty_table(RANGES_COLUMNS), "toy")
        ''',
    )
    sniff = "analysis/capture/sniff.py"
    module = "from analysis.capture.model import"
    replace(root, sniff, module, f"from analysis.capture import toy_trace\n{module}")
    head = "    head = raw[start : start + _HEAD]\n"
    timeline = "lambda name: toy_trace.read(bytes(raw), name)"
    told = f'    if head.startswith(toy_trace.MARK):\n        return Sniffed("toy trace", raw, timeline={timeline})\n'
    replace(root, sniff, head, head + told)
    junk = '        Seed("junk",'
    replace(
        root,
        "tests/fuzz/seeds.py",
        junk,
        '        Seed("toy", "binary", b"toy trace\\nk 100 10\\n", truth=False),\n' + junk,
    )


def kernel_rule(root: Path) -> None:
    write(
        root,
        "analysis/diagnosis/kernel_rules/toys.py",
        '''
        """A rule on toys."""

        from __future__ import annotations

        from analysis.diagnosis.kernel_rules.quantities import SHAPE
        from analysis.diagnosis.kernel_rules.rule import Rule

        RULES = (
            Rule(
                "tail_effect", SHAPE, lambda e: e["waves"] > 4.9, lambda e: e.time * 0.9, 0.5, "waves",
                "Toys have five waves.", "The toy has a sixth wave.",
            ),
        )
        ''',
    )


def step_cause(root: Path) -> None:
    """Add a cause of a step: its rule, its words, and a small export that shows it."""
    write(
        root,
        "analysis/diagnosis/step_rules/toys.py",
        '''
        """toy_wait: the host plays."""

        from __future__ import annotations

        from collections.abc import Iterator

        from analysis.diagnosis.step_rules.view import Proposal, View
        from analysis.replay import changes


        def propose(view: View) -> Iterator[Proposal]:
            """Propose to put the toys away."""
            yield Proposal(
                kind="toy_wait", about="toys", title="Put the toys away", sentence="The host plays.",
                change=lambda base, share: changes.host(base, 0.5 - 0.5 * share), count=1.0, time_ns=1.0,
            )
        ''',
    )
    toy = 'toy_wait = { what = "The host plays.", cure = "Put the toys away." }\n'
    replace(root, "analysis/diagnosis/kinds.toml", "launch_bound = {", toy + "launch_bound = {")
    append(
        root,
        "tests/cpu/test_step_rules.py",
        """

        def test_a_toy_is_put_away() -> None:
            found = {one.kind: one.do for one in claims_on([*WARM_UP, *PROGRAMS["host_work"] * 14])}
            assert found["toy_wait"] == "Put the toys away."
        """,
    )


def capture_tool(root: Path) -> None:
    """Add a tool that runs the program in each profile, as a stage of it."""
    stages = "return [*first, *self._of_times(), *self._of_counters(), self._report_stage()]"
    stage = """
        def play() -> int:
            out = self.folder.captures / "toy.txt"
            return self.run("toy-tracer", "-o", out, *self.program.words, program=True)

        toy = Stage(name="toy", title="the trace of a toy", work=play, seconds=1, runs=1)
        """
    new = stages.replace(" self._report_stage()", " toy, self._report_stage()")
    replace(root, "harness/profile/gpu.py", f"        {stages}\n", indent(dedent(stage), " " * 8) + f"        {new}\n")


def report_form(root: Path) -> None:
    """Add a form in which the report is exported: what writes it, and its name among the others."""
    write(
        root,
        "analysis/page/toy_form.py",
        '''
        """The report as a list of toys."""

        from __future__ import annotations

        from analysis.formats.report import Report


        def render_toys(report: Report) -> str:
            """Return a line for each finding."""
            return "".join(f"toy: {finding.title}\\n" for finding in report.findings) or "no toys\\n"
        ''',
    )
    last = '            "report.html": '
    replace(root, "analysis/api.py", last, '            "report.toys": render_toys(self.report),\n' + last)
    module = "from analysis.page.markdown import"
    replace(root, "analysis/api.py", module, f"from analysis.page.toy_form import render_toys\n{module}")


def report_field(root: Path) -> None:
    """Add a field of the report: its declaration, and what fills it."""
    field = '    command: Annotated[str | None, Meta(title="its command line")] = None\n'
    toy = '    toy: Annotated[str, Meta(title="its toy")] = ""\n'
    replace(root, "analysis/formats/report.py", field, field + toy)
    replace(root, "analysis/diagnosis/ran.py", "    return Program(\n", '    return Program(\n        toy="yo-yo",\n')


def rung(root: Path) -> None:
    """Add a rung: a copy of the op's first rung, under another name."""
    source = (root / "kernels/residual/v01_element.cu").read_text(encoding="utf-8")
    source = source.replace("v01_element", "v04_toy").replace("_V01_", "_V04_")
    (root / "kernels/residual/v04_toy.cu").write_text(source, encoding="utf-8")
    variant = """
        cuda_variant(
            "residual",
            "v04_toy",
            "a toy",
            minimum_bytes,
            tunables={"RESIDUAL_V04_THREADS": (256, 64)},
        ),
    """
    replace(root, "kernels/residual/op.py", "VARIANTS = (\n", "VARIANTS = (\n" + indent(dedent(variant), "    "))


THRICE = """
VARIANTS = (
    torch_variant("one launch, 3 element passes", residual_chain, minimum_bytes),
    compile_variant("one launch, 3 element passes", residual_chain, minimum_bytes),
    cuda_variant(
        "residual",
        "v01_element",
        "one element a thread",
        minimum_bytes,
        tunables={"RESIDUAL_V01_THREADS": (256, 64)},
    ),
)
"""


def op(root: Path) -> None:
    """Add an op: a copy of the shortest op, under another name, with only its first rung."""
    (root / "kernels/thrice").mkdir()
    for name in ("op.py", "custom_op.py", "residual.h", "v01_element.cu", "README.md"):
        text = (root / "kernels/residual" / name).read_text(encoding="utf-8")
        if name == "op.py":
            text = re.sub(r"\nVARIANTS = \(\n.*?\n\)\n", THRICE, text, flags=re.DOTALL)
            text = text.replace("    triton_variant,\n", "")
            text = text.replace('best="v02_vector"', 'best="v01_element"')
        if name == "README.md":
            text = "# residual\n\n<!-- begin: ladder -->\n<!-- end: ladder -->\n"
        text = text.replace("residual", "thrice").replace("RESIDUAL", "THRICE").replace("Residual", "Thrice")
        (root / "kernels/thrice" / name.replace("residual", "thrice")).write_text(text, encoding="utf-8")


def triton_rung(root: Path) -> None:
    """Add a Triton rung to the new op: every op that memory bounds needs one to compare with."""
    source = (root / "kernels/residual/v03_triton.py").read_text(encoding="utf-8")
    (root / "kernels/thrice/v03_triton.py").write_text(source.replace("residual", "thrice"), encoding="utf-8")
    variant = """
        triton_variant(
            "thrice",
            "v03_triton",
            "thrice",
            "as wide accesses as PyTorch's",
            minimum_bytes,
        ),
    """
    replace(root, "kernels/thrice/op.py", "VARIANTS = (\n", "VARIANTS = (\n" + indent(dedent(variant), "    "))
    replace(root, "kernels/thrice/op.py", "    torch_variant,\n", "    torch_variant,\n    triton_variant,\n")
