"""GPU tests are skipped with a reason on a machine without a GPU, and the summary says how many."""

import functools
import importlib.util
import shutil
import subprocess

import pytest

GPU_SKIPS = pytest.StashKey[int]()


@functools.cache
def gpu_missing() -> str:
    """Why GPU tests cannot run here, empty if they can."""
    if not shutil.which("nvidia-smi"):
        return "no NVIDIA GPU: nvidia-smi is not on PATH"
    listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    if listing.returncode or not listing.stdout.startswith("GPU"):
        return "no NVIDIA GPU: nvidia-smi lists none"
    if not importlib.util.find_spec("torch"):
        return "torch is not installed"
    import torch

    return "" if torch.cuda.is_available() else "torch sees no CUDA device (a CPU build of torch?)"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what is marked gpu where there is none."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and gpu_missing():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=f"GPU test: {gpu_missing()}"))
        config.stash[GPU_SKIPS] = len(marked)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Show the number of GPU tests that did not run."""
    if count := config.stash.get(GPU_SKIPS, 0):
        terminalreporter.write_line(f"{count} GPU tests were skipped: {gpu_missing()}.", yellow=True)
