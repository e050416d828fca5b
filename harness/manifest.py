"""Write manifest.json: the conditions that its numbers depend on, and nothing that names a person or a machine.

The file never holds the environment, a user name, a host name or an absolute path. `find_leaks` searches for them, and
`write_manifest` refuses a manifest with one. A short hash of the UUID tells one card from another.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import json
import locale
import os
import platform
import re
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from analysis.formats import writing
from analysis.formats.errors import InputError
from analysis.formats.files import misfits
from analysis.formats.paths import hide_paths
from analysis.formats.run import MANIFEST
from harness import doctor

SAMPLE_SECONDS = 0.5  # each reading calls the driver, which the timed program also uses
# NVML's clock event reasons (nvml.h); "gpu_idle" is left out because an idle GPU is not a throttled one.
_THROTTLE_BITS = {
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
_QUANTITIES = ("sm_mhz", "memory_mhz", "power_w", "temperature_c")


# Clocks ------------------------------------------------------------------------------------------------------


class _Nvml:
    """Readings through NVML, the library under nvidia-smi."""

    def __init__(self) -> None:
        import pynvml

        self._nvml = pynvml
        pynvml.nvmlInit()
        self._handle = self._find()
        names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
        self._reasons: Callable[[Any], int] = next(getattr(pynvml, name) for name in names if hasattr(pynvml, name))

    def _find(self) -> Any:
        # CUDA may number GPUs otherwise than NVML does; the UUID is the same in both.
        uuid = _uuid(torch.cuda.get_device_properties(torch.cuda.current_device()))
        if uuid:
            try:
                return self._nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
            except self._nvml.NVMLError:
                pass
        return self._nvml.nvmlDeviceGetHandleByIndex(0)

    def read(self) -> tuple[dict[str, float], int]:
        nvml, handle = self._nvml, self._handle
        return {
            "sm_mhz": float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            "memory_mhz": float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
            "power_w": nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            "temperature_c": float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
        }, int(self._reasons(handle))


class _Smi:
    """The same readings through nvidia-smi, if the Python package is missing."""

    _QUERY = "clocks.sm,clocks.mem,power.draw,temperature.gpu,{}"

    def __init__(self) -> None:
        self._field = "clocks_event_reasons.active"
        try:
            self.read()
        except (ValueError, IndexError):
            self._field = "clocks_throttle_reasons.active"  # its name before driver 535
            self.read()

    def read(self) -> tuple[dict[str, float], int]:
        query = "--query-gpu=" + self._QUERY.format(self._field)
        code, output = doctor.run(["nvidia-smi", query, "--format=csv,noheader,nounits"], seconds=5)
        if code:
            raise ValueError("nvidia-smi failed")
        cells = [cell.strip() for cell in output.splitlines()[0].split(",")]
        return dict(zip(_QUANTITIES, map(float, cells), strict=False)), int(cells[4], 16)


class ClockSampler:
    """Samples clocks, power and temperature on a thread of its own while the block runs.

    with ClockSampler() as sampler: …
    sampler.clocks      the manifest's `clocks`, or None
    sampler.reason      why it is None
    sampler.paused      while it is set nothing is sampled
    """

    def __init__(
        self,
        seconds: float = SAMPLE_SECONDS,
        readers: Sequence[Callable[[], Any]] = (_Nvml, _Smi),
        paused: bool = False,
    ) -> None:
        self.paused = paused
        self._seconds = seconds
        self._readers = readers
        self._samples: list[dict[str, float]] = []
        self._throttle = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.reason: str | None = None

    def __enter__(self) -> ClockSampler:
        problems = []
        for reader in self._readers:
            try:
                source = reader()
                source.read()
            except Exception as error:  # NVML has its own error tree, imported only with the package
                problems.append(type(error).__name__)
                continue
            self._thread = threading.Thread(target=self._sample, args=(source,), daemon=True)
            self._thread.start()
            return self
        self.reason = f"no clocks: neither NVML nor nvidia-smi answers ({', '.join(problems)})"
        return self

    def _sample(self, source: Any) -> None:
        while True:
            if not self.paused:
                try:
                    reading, throttle = source.read()
                except Exception as error:
                    self.reason = f"clock sampling ended early ({type(error).__name__})"
                    return
                self._samples.append(reading)
                self._throttle |= throttle
            if self._stop.wait(self._seconds):
                return

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=10)

    @property
    def clocks(self) -> dict[str, Any] | None:
        if not self._samples:
            return None
        summary: dict[str, Any] = {}
        for name in _QUANTITIES:
            values = [sample[name] for sample in self._samples]
            summary[name] = {"min": min(values), "median": median(values), "max": max(values)}
        summary["throttle_reasons"] = [name for bit, name in _THROTTLE_BITS.items() if self._throttle & bit]
        summary["samples"] = len(self._samples)
        return summary


# The manifest ------------------------------------------------------------------------------------------------


def gpu_facts() -> dict[str, Any] | None:
    """Return name and sizes of the current GPU, and a hash of its UUID if that is known; None without a GPU."""
    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    uuid = _uuid(properties)
    card = {"card": hashlib.sha256(uuid.encode()).hexdigest()[:8]} if uuid else {}
    return {
        "name": properties.name,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "sm_count": properties.multi_processor_count,
        "l2_bytes": properties.L2_cache_size,
        "memory_bytes": properties.total_memory,
        **card,
    }


def _uuid(properties: Any) -> str:
    """Return a GPU's UUID; '' if this version of PyTorch lacks it."""
    return str(getattr(properties, "uuid", ""))


def _cpu_facts() -> dict[str, Any]:
    model = platform.machine()
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text("utf-8"), flags=re.MULTILINE)
        model = found[1].strip() if found else model
    except OSError:
        pass
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"cores": cores, "model": model}


def _driver_version() -> str | None:
    try:
        found = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)*)\b", Path("/proc/driver/nvidia/version").read_text("utf-8"))
        if found:
            return found[1]
    except OSError:
        pass
    code, output = doctor.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    return output.splitlines()[0].strip() if code == 0 and output.strip() else None


def _git(*arguments: str) -> str | None:
    code, output = doctor.run(["git", "-C", str(Path(__file__).resolve().parent), *arguments])
    return output.strip() if code == 0 else None


def _identities() -> list[str]:
    """Return words that would name the user or the machine; short and generic ones would match everything."""
    words = [Path.home().name, socket.gethostname(), socket.gethostname().split(".")[0]]
    with contextlib.suppress(OSError, KeyError):
        words.append(getpass.getuser())
    generic = {"root", "user", "users", "home", "admin", "ubuntu", "localhost", "runner", "nobody"}
    return sorted({word for word in words if len(word) > 2 and word.lower() not in generic})


def _without_paths(text: str) -> str:
    return hide_paths(text.replace(str(Path.home()) + "/", "/home/"))


def scrub(argument: str) -> str:
    """Return an argument without absolute paths and without the names of the user and the machine."""
    text = _without_paths(argument)
    for word in _identities():
        text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", "<name>", text)
    return text


def first_line(error: BaseException, most: int = 200) -> str:
    """Return the first line of an error, or its type if it has no text: scrubbed, with at most `most` characters."""
    return scrub((str(error).strip() or type(error).__name__).splitlines()[0][:most])


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def find_leaks(manifest: dict[str, Any]) -> list[str]:
    """Return the strings with an absolute path, and strings of the user with a user or host name.

    It searches for names in `arguments` and `weights` only, because on a host called `h200` the GPU's name is no leak.
    """
    leaks = [text for text in _texts(manifest) if _without_paths(text) != text]
    own_words = [manifest.get("arguments"), manifest.get("weights")]
    return leaks + [text for text in _texts(own_words) if text not in leaks and scrub(text) != text]


def build_manifest(
    arguments: Sequence[str],
    workloads: Sequence[dict[str, Any]],
    seed: int,
    weights: dict[str, Any],
    sampler: ClockSampler | None = None,
) -> dict[str, Any]:
    """Return every property of this process and this machine that the numbers depend on."""
    status = _git("status", "--porcelain", "--untracked-files=no")
    precision = torch.get_float32_matmul_precision()
    return {
        "kind": MANIFEST.kind,
        "schema_version": MANIFEST.version,
        "gpu": gpu_facts(),
        "cpu": _cpu_facts(),
        "driver": _driver_version(),
        "cuda": torch.version.cuda,
        "torch": str(torch.__version__),
        "triton": doctor.package_version("triton"),
        "transformers": doctor.package_version("transformers"),
        "nvtx": doctor.package_version("nvtx"),
        "python": platform.python_version(),
        "nsys": doctor.tool_version(doctor.find_nsys()),
        "ncu": doctor.tool_version(doctor.find_ncu()),
        # an archive or a copy has no history, or that of another project: a variable then names the commit
        "git_sha": os.environ.get("GIT_COMMIT") or _git("rev-parse", "--verify", "HEAD"),
        "git_dirty": None if status is None else bool(status),
        "arguments": [scrub(argument) for argument in arguments],
        "workloads": list(workloads),
        "seed": seed,
        "weights": {name: scrub(value) for name, value in weights.items() if value is not None},
        "locale": locale.setlocale(locale.LC_NUMERIC),
        "matmul_precision": {"float32": precision, "tf32": precision != "highest"},
        "clocks": sampler.clocks if sampler else None,
        "clocks_reason": sampler.reason if sampler else "clocks were not sampled in this run",
    }


def validate_manifest(manifest: Any) -> list[str]:
    """Return the faults of a manifest, one sentence each. Unknown keys are allowed."""
    if not isinstance(manifest, dict):
        return ["the manifest is no JSON object"]
    problems = [
        f"{misfit.field} is missing" if misfit.absent else f"{misfit.field} is a {type(misfit.found).__name__}"
        for misfit in misfits(manifest, MANIFEST.content, written=True)
    ]
    if manifest.get("kind") != MANIFEST.kind or manifest.get("schema_version") != MANIFEST.version:
        problems.append(f"kind and schema_version are not {MANIFEST.kind} and {MANIFEST.version}")
    problems += [f"it holds a path or a name: {text!r}" for text in find_leaks(manifest)]
    return problems


def write_json(path: Path, value: Any) -> None:
    """Write JSON so that no reader sees half a file."""
    writing.write(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_manifest(path: Path, manifest: dict[str, Any]) -> None:
    """Validate a manifest and write it. Raises InputError if it breaks the schema or leaks a name or a path."""
    problems = validate_manifest(manifest)
    if problems:
        raise InputError(f"{path.name} was not written: {problems[0]}; report this as a bug of the harness.")
    write_json(path, manifest)
