"""Profile GPT-2 without a GPU: measure its layer times on the CPU, and report on the first GPU's committed capture."""

import subprocess
from pathlib import Path

from harness.profile.gpu import PYTHON
from harness.profile.machine import ROOT
from harness.profile.program import ProfileError
from harness.profile.stages import Runner, Stage


class WithoutGpu(Runner):
    """The stages of `make profile` on a machine without a GPU."""

    def stages(self) -> list[Stage]:
        asked = [PYTHON, "-m", "studies.runs", "overview", "--first"]
        found = subprocess.run(asked, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
        committed = Path(found.stdout.strip())
        captures, run = self.folder.captures, self.folder.path
        self._of_gpu = run.with_name(f"{run.name}-{committed.name}")
        harness = [PYTHON, "-m", "harness.run", "--mode", "cpu", "--out", str(captures), *self.program.more]

        def report_committed() -> int:
            if not self.dry and not (ROOT / committed / "captures").is_dir():
                print(f"{committed}/captures is missing from this checkout, so there is no GPU capture to report on.")
                return 1
            return report(committed / "captures", self._of_gpu)

        def report(of: Path, out: Path) -> int:
            return self.run(PYTHON, "analysis/report.py", of, "--out", out, where=ROOT)

        return [
            Stage(
                name="cpu",
                title="layer times of GPT-2 on this CPU",
                work=lambda: self._must(self.run(*harness, where=ROOT)),
                seconds=60,
                key=lambda: [self.program.digest()],
            ),
            Stage(
                name="report",
                title="report of this CPU run (no GPU: layer times only)",
                work=lambda: self._must(report(captures, run)),
                seconds=5,
            ),
            Stage(
                name="committed",
                title="full report of the committed capture",
                work=lambda: self._must(report_committed()),
                seconds=5,
            ),
        ]

    def _must(self, code: int) -> int:
        """Return `code` if it is 0: the next stages need this one.

        Raises: ProfileError for any other exit code.
        """
        if code:
            raise ProfileError(code if code == 2 else 1, f"The {self.stage} failed: see the message above.")
        return code

    def end(self) -> int:
        if not self.dry:
            print(f"\nOpen {self._of_gpu}/report.html: GPT-2 on a GPU, from a committed capture.")
            print(f"{self.folder.path}/report.html: the layers of GPT-2 on this CPU.")
        return 0
