"""Recognise files of other tools, and say how to get a file that the readers can read."""

import mmap
import re
import shlex

from analysis.capture import ncu_rep

_TAR = b"ustar"
_REPORT = b"NVIDIA Tegra Profiler Report"  # .nsys-rep, and .qdrep until 2021
_STREAM = b"QuadD"
_NCU_REPORT = b"NVR\0"
_NVPROF = re.compile(
    rb"^==\d+== (?:NVPROF is profiling|Profiling application|(?:Profiling|Metric|Event) result)"
    rb"|^ *GPU activities: +[\d.]+%|^\"?Type\"?,\"?Time\(%\)\"?,"
    rb"|^ *Start +Duration +(?:Grid Size|Name)|^\"?Start\"?,\"?Duration\"?,\"?(?:Grid X|Name)\"?,"
    rb"|^ *Invocations +(?:Event|Metric) Name|^\"?Device\"?,\"?Kernel\"?,\"?Invocations\"?,",
    re.M,
)
# What nsys says of a capture that it could not import, or only in part.
IMPORTER = re.compile(
    rb"^(?:Importer error status: (?P<status>[^\r\n]*)|Import(?:ation)? failed[^\r\n]*|\*{4} Analysis failed with:|"
    rb"(?:[^\r\n]*: )?Wrong event order has been detected[^\r\n]*)",
    re.M | re.I,
)
# What else a text may be: a pattern of its first megabyte, what it is, and what to do.
_TEXTS: tuple[tuple[re.Pattern[bytes], str, str], ...] = (
    (
        re.compile(rb"^ *Name +Self CPU(?: %| time)|^ *Name +.*Self (?:CUDA|XPU|MPS)(?: %|  )", re.M),
        "the table of key_averages() of torch.profiler, which has no timeline",
        'give the trace that `prof.export_chrome_trace("trace.json")` writes',
    ),
    (
        re.compile(
            rb"Legend \(Metric: |^(?:proton|\[proton\])|^[\d.]+(?: [\d.]+)* ROOT *$|\"frame\": *\{\"name\": *\"ROOT\"",
            re.M,
        ),
        "a profile of Proton, Triton's profiler",
        "capture with `nsys profile -t cuda,nvtx`, or with torch.profiler, and give that",
    ),
    (
        re.compile(
            rb"^\"?(?:Index\"?,\"?KernelName|Kind\"?,\"?Agent_Id|Name\"?,\"?Calls\"?,\"?TotalDurationNs|Dispatch_ID\"?,)"
            rb"|^\"?Domain\"?,\"?Function\"?,\"?Process_Id"
            rb"|^ROCProfiler: |\brocprofv?\d?[: ].*(?:input|output|dispatch)",
            re.M,
        ),
        "output of rocprof, AMD's profiler",
        "read it with `rocprof-compute analyze`, or give a trace of torch.profiler, which this program reads",
    ),
    (
        re.compile(
            rb"\((?:cuda_memcpy_async|cuda_memcpy_sync|cuda_memset_sync|cuda_api_sync|gpu_gaps|gpu_time_util)\):"
            rb"|^\"?Row#\"?,\"?(?:Duration|In-Use)|^\"?Duration \(\w+\)\"?,\"?Start \(\w+\)\"?,",
            re.M,
        ),
        "a table of `nsys analyze`, which lists what one of its rules found, not the kernels",
        "export what the capture holds with `nsys stats --report cuda_gpu_trace,cuda_api_trace,nvtx_pushpop_trace "
        "--format csv`",
    ),
    (
        re.compile(rb"^Profiler ran for [\d.]+ \S+, capturing \d+ events", re.M),
        "the table of CUDA.@profile of CUDA.jl",
        "capture with `nsys profile -t cuda,nvtx julia <program>`, and give `nsys stats --format csv` of that",
    ),
    (
        IMPORTER,
        "a log in which nsys says that it could not import all of a capture",
        "capture a shorter window with fewer kinds of events, with the newest nsys",
    ),
    (
        re.compile(rb"^\| NVIDIA-SMI \d", re.M),
        "output of nvidia-smi, which names GPUs and no kernels",
        "capture with `nsys profile -t cuda,nvtx`",
    ),
)
_METRICS = re.compile(rb"^-{20,}[- ]*\nMetric Name +(?:Metric Type|Metric Description)", re.M)
_FENCE = re.compile(rb"^ {0,3}(?:```|~~~)", re.M)
_HEADING = re.compile(rb"^#{1,6} \S", re.M)
_LOOKED_AT = 1 << 20

Named = tuple[str, str]  # what was found, and what to do


def of_binary(head: bytes, name: str) -> Named | None:
    """Return the kind of a binary file that begins with `head`, and the advice for it; `name` fills in the commands."""
    file = shlex.quote(name)
    stem = shlex.quote(name.rpartition(".")[0] or name)
    if head[257:262] == _TAR:
        return "a tar archive", f"unpack it with `tar xf {file}`, then give the files in it"
    if head.startswith(b"PK\x03\x04"):
        return "a zip archive", f"unpack it with `unzip {file}`, then give the files in it"
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return "a Zstandard file", f"unpack it with `zstd -d {file}`, then give what is in it"
    if head.startswith(_REPORT):
        return "a binary nsys report", (
            f"export it with `nsys export --type sqlite --force-overwrite true --output {stem}.sqlite {file}` and give "
            f"{stem}.sqlite"
        )
    if head.startswith(_NCU_REPORT):
        return "a binary ncu report", (
            f"{ncu_rep.INSTALL} `ncu --import {file} --csv --page raw > {stem}.csv` and give {stem}.csv"
        )
    if _STREAM in head[:4096]:
        return "an unfinished nsys capture", (
            f"run `QdstrmImporter -i {file} -o {stem}.nsys-rep`, which is in the folder host-linux-x64 of nsys, then "
            f"`nsys export --type sqlite --output {stem}.sqlite {stem}.nsys-rep`, and give {stem}.sqlite"
        )
    return None


def of_text(raw: bytes | mmap.mmap) -> Named | None:
    """Return the kind of a text that no reader knows, and the advice for it, from its first megabyte."""
    head = bytes(raw[:_LOOKED_AT])
    if _NVPROF.search(head):
        return "output of nvprof, the tool before nsys and ncu", (
            "capture again with `nsys profile --stats=true <program>` for times, or with `ncu --csv --page raw "
            "<program>` for counters"
        )
    for pattern, what, do in _TEXTS:
        if pattern.search(head):
            return what, do
    if _METRICS.search(head):
        return "the list of metrics that ncu knows (--query-metrics), of no launch", (
            "run `ncu --csv --page raw <program>` and give what it prints"
        )
    return None


def is_markdown(raw: bytes | mmap.mmap) -> bool:
    """Return whether a text is Markdown: it begins with a heading, and has further headings or fenced blocks."""
    head = bytes(raw[:_LOOKED_AT])
    headings = len(_HEADING.findall(head))
    return _HEADING.match(head.lstrip()) is not None and (headings > 1 or len(_FENCE.findall(head)) > 1)


MARKDOWN: Named = (
    "a Markdown page that quotes output of nsys or ncu",
    "give the export that it quotes, or the page itself by its name",
)
