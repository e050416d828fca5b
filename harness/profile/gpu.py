"""Run the stages of a profile on a GPU: roofs, bare times, timeline, counting plan, counters, report."""

import argparse
import os
import re
import shlex
import shutil
import sys
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.formats import place
from analysis.formats.errors import LedgerError
from analysis.formats.writing import read_json, write_json
from harness.profile import argv, sample_set, status
from harness.profile.folder import Folder
from harness.profile.machine import HERE, ROOT, Machine, shown
from harness.profile.program import ProfileError, with_ranges
from harness.profile.roofs import CEILINGS, MANIFEST, Roofs, scratch_folder
from harness.profile.stages import Runner, Stage
from harness.profile.status import TIMED_OUT, scrub_command

KERNEL_SUMS = ("cuda_gpu_kern_sum.csv", "gpukernsum.csv")
_LAUNCHES_RANKS = re.compile(
    r"\b(torchrun|torch\.distributed\.(run|launch)|mpirun|mpiexec|srun|deepspeed|accelerate)\b"
)
GPU_TRACES = ("cuda_gpu_trace.csv", "cuda_kern_exec_trace.csv", "gputrace.csv", "kernexectrace.csv")
PROCESS_RANKS = "process_ranks.csv"
RANGES_DOMAIN = "kernel_ledger"  # the NVTX domain of automatic ranges
BLIND_LAUNCHES = 200  # launches to count if there is no timeline
PYTHON = os.environ.get("PYTHON", sys.executable)
VIEWERS = (("Timeline", "nsys-ui", "timeline.nsys-rep"), ("Counters", "ncu-ui", "counters.ncu-rep"))


def planned(work: Callable[[], str]) -> int:
    """Print what a step of the planning says, and return an exit code: a failure is a sentence, and the run goes on."""
    try:
        print(work(), flush=True)
    except LedgerError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except Exception:
        traceback.print_exc()
        return 1
    return 0


@dataclass(kw_only=True)
class Measuring(Runner):
    """Measure the roofs of the GPU and test its counters, for this run and later ones."""

    options: argparse.Namespace
    machine: Machine

    def __post_init__(self) -> None:
        self.dry = bool(self.options.dry)
        self.roofs = Roofs(self.machine)
        self.scratch = self.folder.raw / "measuring"

    def stages(self) -> list[Stage]:
        return [self.roofs_stage()]

    def roofs_stage(self) -> Stage:
        """Return the stage of the roofs. It has no key: its result is stored in the folder of roofs, not in the run."""
        return Stage(
            name="roofs",
            title="roofs of this GPU, once, and the self-test of its counters",
            work=self._measure,
            seconds=30,
            lowers="measured roofs",
        )

    def _measure(self) -> int:
        """Test the counters while kernels compile in the background; then time the roofs and the links between GPUs."""
        scratch = Folder(self.scratch) if self.dry else scratch_folder(self.scratch)
        with self.compiled_beside(scratch.raw / "build.log") as wait:
            arch = self.machine.capability.replace(".", "")
            self.run(PYTHON, "-m", "kernels.build", "ceilings", *(["--arch", arch] if arch else []), where=ROOT)
            denied = self._test_counters(scratch)
            wait()
        failed = self.run(PYTHON, "-m", "harness.roofs", "--out", scratch.captures, where=ROOT)
        if self.machine.gpus > 1:
            failed = self.run(PYTHON, "-m", "harness.links", "--out", scratch.captures, where=ROOT) or failed
        if not self.dry:
            self.roofs.keep(scratch)
            if CEILINGS not in self.hand_roofs():
                print("The roofs cannot be measured here: the report uses the datasheet's and marks them.", flush=True)
        return failed or denied

    def _test_counters(self, scratch: Folder) -> int:
        """Count known bytes and FLOPs with ncu, and write a report on them; return the exit code of ncu_capture.sh."""
        out = scratch.captures
        program = [PYTHON, "-m", "harness.run", "--mode", "capture", "--only", "selftest", "--out", str(out)]
        options = argv.ncu(self.metrics(), include=["selftest/"])
        denied = self.run_tool("ncu", options, scratch.path, program, where=ROOT)
        if self.dry or not denied:
            self.run(HERE / "export_csv.sh", "--only", "ncu", scratch.path, where=ROOT)
            self.run(PYTHON, "analysis/report.py", out, "--out", scratch.path, "--quiet", where=ROOT)
        return denied

    def compiled_beside(self, log: Path) -> AbstractContextManager[Callable[[], int]]:
        """Compile the program's kernels beside the block; here, for roofs only, there are none."""
        return nullcontext(lambda: 0)

    def hand_roofs(self) -> list[str]:
        """Copy the stored roofs into the run, and write a manifest unless the harness does; return the copied names."""
        given = self.roofs.hand_to(self.folder.captures)
        if not self.program.is_harness:
            gpu = self.roofs.read(MANIFEST).get("gpu") or {}
            gpu |= {"name": self.machine.gpu, "compute_capability": self.machine.capability}
            gpu.pop("card", None)  # it identifies the card of the roof measurement
            manifest = {"kind": "manifest", "schema_version": 1, "gpu": gpu, "driver": self.machine.driver or None}
            manifest |= {"nsys": self.machine.nsys or None, "ncu": self.machine.ncu or None}
            manifest["arguments"] = scrub_command(self.program.words)
            write_json(self.folder.captures / MANIFEST, manifest)
        return given

    def run_tool(
        self, tool: str, options: list[str], out: Path, program: list[str], *, where: Path | None = None
    ) -> int:
        """Run a capture script with the complete list of the tool's options, and return its exit code."""
        script = HERE / f"{tool}_capture.sh"
        of_user = where is None
        return self.run(script, "--exactly", *options, "--out", out, "--", *program, where=where, program=of_user)

    def metrics(self, **chosen: Any) -> str:
        """Return the metrics that ncu counts, from the catalogue. Raises: ProfileError if it has none for this GPU."""
        try:
            return argv.metrics_for(self.machine.capability, dry=self.dry, **chosen)
        except argv.ArgumentError as error:
            raise ProfileError(error.code, f"{error}") from None

    def end(self) -> int:
        if self.lowered:
            return 1
        trust = read_json(self.scratch / "report.json").get("trust") or {}
        print(f"Self-test: {trust.get('status')}. {trust.get('sentence')}")
        return 0 if trust.get("status") == "trusted" else 1


@dataclass(kw_only=True)
class Profile(Measuring):
    """Profile a program: roofs, bare times, dataflow, timeline, plan, counters, report."""

    program_code: int = 0
    report_code: int = 0

    def stages(self) -> list[Stage]:
        if not place.IN_CHECKOUT and not self.roofs.are_kept():  # its kernels stand in the repository
            print("No roofs were measured on this GPU: the report uses the datasheet's and marks them.", flush=True)
            if not self.dry:
                self.hand_roofs()
            first = []
        elif self.dry or self.options.remeasure or not self.roofs.are_kept():
            first = [self.roofs_stage()]
        else:
            when = self.roofs.read(CEILINGS)["measured"]
            print(f"Roofs of {self.machine.gpu}, driver {self.machine.driver}: stored, measured {when}.", flush=True)
            self.hand_roofs()
            first = []
        return [*first, *self._of_times(), *self._of_counters(), self._report_stage()]

    def _of_times(self) -> list[Stage]:
        what = [self.program.digest(), *self.machine.identity, self.options.limit, self._asks_for_ranges]
        bare = Stage(
            name="bare",
            title="bare times: the program without a profiler",
            work=self._bare,
            seconds=1,
            runs=1,
            key=lambda: what,
            outputs=(self.folder.captures / "bare.json",),
            lowers="bare times",
        )
        dataflow = Stage(
            name="dataflow",
            title="dataflow: which tensors the operations of each step share",
            work=self._dataflow,
            seconds=0,
            runs=int(self._has_ranges),
            key=lambda: what,
            skip=lambda: "" if self._has_ranges else "as there are no automatic ranges",
            lowers="the dataflow",
        )
        timeline = Stage(
            name="timeline",
            title="timeline under nsys",
            work=self._timeline,
            seconds=15,
            runs=1,
            key=lambda: [
                *what,
                self.machine.nsys,
                self.options.window,
                self.options.timeline_mb,
                self.options.sample_hz,
                self._has_ranges,
                self.folder.stamp("dataflow"),
            ],
            outputs=(self.folder.captures / "nsys",),
            lowers="a timeline",
        )
        return [bare, dataflow, timeline]

    def _of_counters(self) -> list[Stage]:
        what = [self.program.digest(), *self.machine.identity, self.options.limit, self.options.deep, self._has_ranges]
        folder = self.folder
        plan = Stage(
            name="plan",
            title="plan of what to count",
            work=self._plan,
            seconds=3,
            key=lambda: [folder.stamp("timeline"), self.options.budget, self.options.steps],
            outputs=(folder.raw / "count_plan.json",),
            skip=self._no_plan,
        )
        counters = Stage(
            name="counters",
            title="counters under ncu",
            work=self._counters,
            seconds=self.options.budget,  # including start-up
            runs=0,
            key=lambda: [*what, self.machine.ncu, self._window(), self.options.source, read_json(self._plan_file)],
            outputs=(folder.raw / "ncu.log",),
            skip=self._no_counters,
            lowers="counters",
        )
        export = Stage(
            name="export",
            title="export of the counters",
            work=lambda: self.run(HERE / "export_csv.sh", "--only", "ncu", folder.path),
            seconds=4,
            key=lambda: [folder.stamp("counters")],
            skip=lambda: "" if any(folder.raw.glob("counters*.ncu-rep")) else "as nothing was counted",
            lowers="counters",
        )
        return [plan, counters, export]

    def _report_stage(self) -> Stage:
        return Stage(name="report", title="report", work=self._report, seconds=5)

    def compiled_beside(self, log: Path) -> AbstractContextManager[Callable[[], int]]:
        command = [PYTHON, "-m", "kernels.build", *self.program.kernels]
        if not self.program.kernels:
            return super().compiled_beside(log)
        print(f"{shlex.join(command)}  # meanwhile", flush=True)
        return super().compiled_beside(log) if self.dry else self.folder.beside(command, ROOT, log)

    def _bare(self) -> int:
        limit, words = str(self.options.limit), self.program.words
        if self._asks_for_ranges:
            words = with_ranges(words, "measure", self._measured_ranges())
        code = self.run(HERE / "bare.sh", "--limit", limit, "--out", self.folder.path, "--", *words, program=True)
        noted = self._status("bare")
        self.program_code = noted.get("exit_code", 0)
        if code and not self.program_code and "opened no" in noted.get("reason", ""):
            self.lowered.append("bare times")  # counts as done: another run would find no range either
            return 0
        return code

    def _within(self, times: int, ranges: str = "on") -> list[str]:
        """Return the command that runs the program and ends it after `times` times --limit.

        A profiler ends with its program and keeps what it has recorded.
        """
        return ["timeout", "-k", "10", str(times * self.options.limit), *self._words(ranges)]

    def _words(self, ranges: str = "on", work: Path | None = None) -> list[str]:
        words = self.program.words
        return with_ranges(words, ranges, self.folder.raw / "ranges", work) if self._has_ranges else words

    # --- automatic ranges ---

    @property
    def _asks_for_ranges(self) -> bool:
        return bool(self.options.auto_ranges) and not self.program.is_harness

    @property
    def _has_ranges(self) -> bool:
        """Return whether the bare run had automatic ranges, so that all further runs need them, too."""
        return self._asks_for_ranges and (self.dry or self._status("bare").get("auto_ranges") == "on")

    def _measured_ranges(self) -> Path:
        """Empty the folder in which a run with automatic ranges writes files about them; return the folder."""
        folder = self.folder.raw / "ranges"
        if not self.dry:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        return folder

    def _dataflow(self) -> int:
        folder = self._measured_ranges()
        code = self.run(*self._within(2, "dataflow"), program=True)
        out = ["--out", str(self.folder.captures), "--work", str(self._range_work)]
        written = self.run(PYTHON, "-m", "harness.instrument.dataflow_file", folder, *out, where=ROOT)
        return code or written

    @property
    def _range_work(self) -> Path:
        """Return the file with the least work of each range, from the dataflow's run to the timeline's."""
        return self.folder.raw / "range_work.json"

    def _within_size(self) -> list[str]:
        """Return the command that ends the program after twice --limit, or when its timeline reaches --timeline-mb."""
        limits = ["--seconds", str(2 * self.options.limit), "--megabytes", str(self.options.timeline_mb)]
        return [sys.executable, str(Path(__file__).with_name("within.py")), *limits, "--", *self._timeline_words()]

    def _timeline_words(self) -> list[str]:
        """Return the program's command for the timeline, in which each process notes its rank.

        A program with ranges of its own gets no others, but its processes have other ids than in the bare run.
        """
        if self._asks_for_ranges and not self._has_ranges:
            return with_ranges(self.program.words, "ranks", self.folder.raw / "ranges")
        return self._words(work=self._range_work)

    # --- timeline ---

    def _timeline(self) -> int:
        """Capture and export the program's own window if it opens one, else the whole program.

        With --window auto, a second capture follows if the first one used the wrong window.
        """
        asked = self.options.window
        window = asked if asked != "auto" else "profiler" if self.program.opens_window() else "all"
        code = self._capture_timeline(window)
        if self.dry or asked != "auto":
            return code
        if window == "profiler" and "never opened" in self._status("nsys").get("reason", ""):
            print("The program opens no window (cudaProfilerStart): capturing the whole program.", flush=True)
            return self._capture_timeline("all")
        if window == "all" and self._opened_a_window():
            print("The program opens a window (cudaProfilerStart): capturing only that window.", flush=True)
            return self._capture_timeline("profiler")
        return code

    def _capture_timeline(self, window: str, own_set: str = "") -> int:
        """Run nsys and export; `own_set`: nsys' own set of counters, where it samples nothing with ours."""
        out = self.folder.path
        noted = self._measured_ranges() if self._asks_for_ranges else None
        if noted and not self.dry:
            (self.folder.captures / PROCESS_RANKS).unlink(missing_ok=True)  # of another capture's processes
        options = argv.nsys(window, sample_hz=self.options.sample_hz)
        options += [f"--gpu-metrics-set={own_set}"] if own_set else []
        code = self.run_tool("nsys", options, out, self._within_size())
        if why := self._refused_samples():
            print(f"Without samples of the running program, as {why}.", flush=True)
            code = self.run_tool("nsys", argv.nsys(window), out, self._within_size())
            status.note(self.folder.captures / "nsys.json", unsampled=why)
        if not self.dry and not any((self.folder.raw / f"timeline.{end}").exists() for end in ("nsys-rep", "qdstrm")):
            return code
        if noted and any(noted.glob("rank-*.json")):
            self.run(PYTHON, "-m", "harness.instrument.process_ranks", noted, "--out", self.folder.captures, where=ROOT)
        exported = self.run(HERE / "export_csv.sh", "--only", "nsys", out)
        if not self.dry and not own_set and not code and (lost := sample_set.lost(out)):
            print("nsys sampled nothing with bytes of DRAM: once more, in whole percents of the peak.", flush=True)
            return self._capture_timeline(window, lost)
        if code and not exported and "timeline reached" in self._status("nsys").get("reason", ""):
            self.lowered.append("the whole timeline")  # counts as done: another run would reach the same size
            return 0
        return code or exported

    def _refused_samples(self) -> str:
        """Return why nsys refused to sample, before it started the program; '' if it did not refuse."""
        log = self.folder.raw / "nsys.log"
        if self.dry or not self.options.sample_hz or (self.folder.raw / "timeline.nsys-rep").exists():
            return ""
        return status.why_unsampled(log.read_text(encoding="utf-8", errors="replace")) if log.is_file() else ""

    def _opened_a_window(self) -> bool:
        calls = self.folder.captures / "nsys" / "cuda_api_sum.csv"
        return calls.is_file() and "ProfilerStart" in calls.read_text(encoding="utf-8", errors="replace")

    def _status(self, tool: str) -> dict[str, Any]:
        return read_json(self.folder.captures / f"{tool}.json")

    def _window(self) -> str:
        """Return the window of the timeline, which the counters use, too."""
        captured = self._status("nsys").get("window")
        return str(captured or ("profiler" if self.program.opens_window() else "all"))

    # --- counters ---

    def _no_plan(self) -> str:
        if not self.options.counters:
            return "as --no-counters leaves them out"
        if self.options.deep:
            return "as --deep counts every launch"
        return "" if (self.folder.captures / "nsys").is_dir() else "as there is no timeline"

    def _plan(self) -> int:
        captures, budget, steps = self.folder.captures, self.options.budget, self.options.steps
        command = [PYTHON, "-m", "analysis.counting", str(captures), "--budget", str(budget)]
        print(shlex.join([*command, *(["--steps", steps] if steps else [])]), flush=True)
        if self.dry:
            return 0
        from analysis import counting

        self._plan_file.unlink(missing_ok=True)
        return planned(lambda: counting.write_plan(captures, budget, steps))

    def _no_counters(self) -> str:
        if not self.options.counters:
            return "as --no-counters leaves them out"
        if self.program_code:
            return "as the program failed"
        if self._used_no_gpu():
            return "as nothing ran on the GPU"
        if why := self._would_stop():
            return why
        traced = (self.folder.captures / "nsys").is_dir() and not self.options.deep
        chosen = read_json(self._plan_file).get("replayed", 1) if self._plan_file.is_file() else 0
        if traced and not self._plan_file.is_file():
            return "as there is no plan"
        return "as the plan chose no launch" if traced and not chosen else ""

    def _would_stop(self) -> str:
        """Return why ncu would never end, else '': a replayed collective waits for the other ranks for ever."""
        traces = self.folder.captures / "nsys"
        sums = [traces / name for name in KERNEL_SUMS]
        talks = any(b"nccl" in path.read_bytes() for path in sums if path.is_file())
        if self.options.deep and (talks or (traces / "nccl_calls.csv").is_file()):
            return "as --deep replays collectives too, in which each rank waits for the others"
        if not traces.is_dir() and _LAUNCHES_RANKS.search(" ".join(self.program.words)):
            return "as only a timeline shows which kernels are collectives, and ncu cannot replay those"
        return ""

    @property
    def _plan_file(self) -> Path:
        return self.folder.raw / "count_plan.json"

    def _counters(self) -> int:
        """Count what the plan chose, every launch (--deep), or without a timeline the first launches."""
        chosen: dict[str, Any] = {"launches": BLIND_LAUNCHES}
        if self.options.deep:
            chosen = {}
        elif self.dry:
            numbers = [*argv.PLANNED, "--kernel-id", f"(the launches that {self._plan_file} will choose)"]
            chosen = {"numbers": numbers}
        elif self._plan_file.is_file():
            chosen = argv.of_plan(read_json(self._plan_file))
        metrics = self.metrics(deep=self.options.deep, columns=chosen.pop("columns", ""))
        domain = RANGES_DOMAIN if self._has_ranges else ""
        source = "source" if self.options.source else ""
        options = argv.ncu(metrics, window=self._window(), domain=domain, source=source, **chosen)
        code = self.run_tool("ncu", options, self.folder.path, self._within(10))
        learns = not code and "numbers" in chosen and "replay" not in chosen and not source
        if learns and not self.dry:  # only kernel replay shows what it costs
            from analysis import counting

            planned(lambda: counting.learn(self.folder.path))
        return code

    # --- the end ---

    def _report(self) -> int:
        captures, out = self.folder.captures, self.folder.path
        self.report_code = self.run(PYTHON, "analysis/report.py", captures, "--out", out, where=ROOT)
        return self.report_code

    def end(self) -> int:
        if self.lowered:
            without = ", ".join(dict.fromkeys(self.lowered))
            lower = "the report is one evidence tier lower and says what is missing"
            print(f"Without {without}: {'there is no report, as said above' if self.report_code else lower}.")
        for what, viewer, name in VIEWERS:
            if (self.folder.raw / name).is_file():
                print(f"{what}: {viewer} {shown(self.folder.raw / name)}")
        idle = not self.program_code and self._used_no_gpu()
        if self.program_code:
            print(f"{self._why_it_failed()} {shown(self.folder.path)} keeps the results so far.", file=sys.stderr)
        elif idle:
            print("The program launched nothing on the GPU: check that it uses one here.", file=sys.stderr)
        return 1 if self.program_code or self.report_code or idle else 0

    def _used_no_gpu(self) -> bool:
        """Return whether nsys recorded the program, but no GPU operation."""
        traces = [self.folder.captures / "nsys" / name for name in GPU_TRACES]
        seen = any(path.is_file() and len(path.read_bytes().splitlines()) > 1 for path in traces)
        report = self.folder.raw / "timeline.nsys-rep"
        return report.is_file() and report.stat().st_size > 0 and not seen

    def _why_it_failed(self) -> str:
        limit = self.options.limit
        if self.program_code == TIMED_OUT and self._status("bare").get("seconds", limit) + 1 >= limit:
            return f"The program ran longer than {limit} s and was ended: allow more with --limit."
        return f"The program ended with exit code {self.program_code}, its output is above: run it by itself first."
