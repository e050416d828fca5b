"""Run the stages of a profile one after the other, keep each result, and print the time that is left."""

import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from analysis.formats import place
from harness.profile.folder import Folder, digest
from harness.profile.machine import HERE
from harness.profile.program import ProfileError, Program

FULL_BYTES = 1 << 20  # a disk with less free space counts as full


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage. `work` runs it and returns an exit code.

    key      returns the inputs of the stage; it is not repeated while they stay the same
    outputs  files that must exist, or the stage is repeated
    runs     number of times that it runs the program
    seconds  its expected duration without these runs
    skip     returns why the stage is left out, '' if it is not
    lowers   what the report lacks if the stage fails
    """

    name: str
    title: str
    work: Callable[[], int]
    seconds: float
    key: Callable[[], list[object]] = lambda: [time.time_ns()]
    runs: int = 0
    outputs: tuple[Path, ...] = ()
    skip: Callable[[], str] = lambda: ""
    lowers: str = ""


@dataclass
class Runner:
    """Run the stages of a program in a folder; with `dry`, only print their commands."""

    program: Program
    folder: Folder
    dry: bool = False
    stage: str = "the beginning"
    lowered: list[str] = field(default_factory=list)

    def stages(self) -> list[Stage]:
        """Return the stages in their order."""
        raise NotImplementedError

    def end(self) -> int:
        """Print where the results are, and return the exit code of the profile."""
        raise NotImplementedError

    def go(self) -> int:
        """Run every stage that is not done yet, and return the exit code. With `dry`, only print the commands."""
        stages = self.stages()
        for at, stage in enumerate(stages):
            self.stage = stage.title
            place = f"{at + 1}/{len(stages)} {stage.title}"
            if self.dry:
                print(f"# {place}", flush=True)
                stage.work()
            elif why := stage.skip():
                print(f"\n== {place}: left out, {why}", flush=True)
            else:
                self._do(stage, place, stages[at + 1 :])
        return 0 if self.dry else self.end()

    def _do(self, stage: Stage, place: str, later: Sequence[Stage]) -> None:
        key = digest([stage.name, *stage.key()])
        if self.folder.kept(stage.name, key, stage.outputs):
            print(f"\n== {place}: done before", flush=True)
            return
        print(f"\n== {place}", flush=True)
        self._check_disk("was full before")
        self.folder.forget(stage.name)
        started = time.monotonic()
        code = stage.work()
        seconds = time.monotonic() - started
        if code == 0:
            self.folder.done(stage.name, key, seconds)
        else:
            self._check_disk("became full in")
            if stage.lowers:
                self.lowered.append(stage.lowers)
        print(f"   {seconds:.0f} s{self._left(later)}", flush=True)

    def _check_disk(self, when: str) -> None:
        """Check the free space of the disk: on a full disk a stage cannot even record its start.

        Raises: ProfileError if less than FULL_BYTES is free.
        """
        if shutil.disk_usage(self.folder.captures).free < FULL_BYTES:
            again = self.folder.continued()
            sentence = f"The disk {when} {self.stage}: free some space; finished stages are kept, {again}."
            raise ProfileError(1, sentence)

    def _left(self, later: Sequence[Stage]) -> str:
        """Return the expected time of the later stages in words, such as `; about 20 s left`; "" if there are none."""
        if not later:
            return ""
        once = self.folder.records().get("bare", {}).get("seconds")
        runs = sum(stage.runs for stage in later)
        seconds = sum(stage.seconds for stage in later) + (once or 0.0) * runs
        also = f" and {runs} runs of the program" if runs and once is None else ""
        return f"; about {seconds:.0f} s{also} left"

    def run(self, *command: str | Path, where: Path | None = None, program: bool = False) -> int:
        """Print and run one command, and return its exit code. Our scripts print their own commands.

        where     its working folder (default: the program's)
        program   whether the command runs the program, and so reads --stdin
        """
        words = [str(word) for word in command]
        where = where or self.program.folder
        ours = words[0].startswith(f"{HERE}/")
        if self.dry and ours:
            return subprocess.run([words[0], "-n", *words[1:]], cwd=where, check=False).returncode
        if not ours:
            elsewhere = [] if place.IN_CHECKOUT or where == self.program.folder else ["env", "-C", str(where)]
            print(shlex.join([*elsewhere, *words]), flush=True)
        if self.dry:
            return 0
        return self.folder.run(words, self.stage, where, self.program.stdin if program else None)
