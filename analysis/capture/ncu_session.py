"""Read the session page of ncu (`--page session`): GPU, versions and clocks, but nothing about the user or machine.

The page has several small tables, with host names, process names, command lines and paths. This reader keeps only the
entries and the profiler options that it names.
"""

import re

from analysis.capture import ncu_csv

_SESSION = {
    "CUDA Version": "cuda",
    "Display Driver Version": "driver",
    "PerfWorks": "perfworks",
    "Nsight Compute Target": "ncu",
    "Nsight Compute Version": "ncu",
    "Created": "created",
}
_DEVICE = {
    "display_name": "gpu",
    "compute_capability_major": "cc_major",
    "compute_capability_minor": "cc_minor",
    "multiprocessor_count": "sm_count",
    "total_memory": "memory_bytes",
    "l2_cache_size": "l2_bytes",
    "clock_rate": "clock_rate_khz",
    "memory_clock_rate": "memory_clock_rate_khz",
    "max_gpu_frequency_khz": "max_gpu_frequency_khz",
    "max_mem_frequency_khz": "max_mem_frequency_khz",
    "global_memory_bus_width": "bus_bits",
    "confidential_computing_mode": "confidential_computing_mode",
}
# Words and versions. The reader drops any other value, such as a path.
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9 .,:()+_-]{0,79}")
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"
_DAY = re.compile(rf"(?P<year>\d{{4}})-(?P<month>{'|'.join(re.findall('...', _MONTHS))})-(?P<day>\d\d)\b")
_OPTION = re.compile(
    r"(?<=\s)--(?P<name>set|clock-control|cache-control|replay-mode|target-processes|pipeline-boost-state|"
    r"graph-profiling)[= ](?P<value>[a-z-]+)(?=\s|$)"
)


def read_session(section: ncu_csv.Section) -> dict[str, str]:
    """Return {name: value} for GPU, versions and clock options. If the page lists several devices, take the first."""
    kept: dict[str, str] = {}
    for _, line in section.lines:
        row = ncu_csv.split_row(line)
        if row is None or len(row) < 2:
            continue
        name, value = row[0], row[1].strip()
        if name == "Profiler Command Line":
            for match in _OPTION.finditer(" " + value):
                kept.setdefault(match["name"].replace("-", "_"), match["value"])
        elif _SAFE.fullmatch(value):
            short = _SESSION.get(name) or _DEVICE.get(name)
            if short:
                kept.setdefault(short, value)
    if day := _DAY.match(kept.pop("created", "")):
        kept["date"] = f"{day['year']}-{_MONTHS.index(day['month']) // 3 + 1:02}-{day['day']}"
    if "cc_major" in kept and "cc_minor" in kept:
        kept["cc"] = f"{kept['cc_major']}.{kept['cc_minor']}"
    return {name: value for name, value in kept.items() if not name.startswith("cc_")}


__all__ = ["read_session"]
