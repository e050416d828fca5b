"""Send known bytes over the NVLink of two GPUs, to hold the samples of nsys against them.

    nsys_scripts/profile.sh --no-counters --run DIR -- python3 -m harness.known_links      needs two GPUs and torch

Each range says what one GPU sends: `known peer64MiB` (a copy from GPU 0 to GPU 1), `known allreduce64MiB` (with two
ranks, each also receives so much). The report has the table known_bytes.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

SIZES = {16: 100, 64: 100, 256: 40, 1024: 10}  # MiB: times


def rank(number: int, file: str) -> None:
    """Run the all-reduces of one rank, and the copies of rank 0."""
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # with multicast a GPU sends less than the tensor has
    import torch
    from torch import distributed
    from torch.cuda import nvtx

    torch.cuda.set_device(number)
    distributed.init_process_group("nccl", init_method=f"file://{file}", rank=number, world_size=2)
    tensors = {size: torch.ones(size << 18, device="cuda") for size in SIZES}
    others = {size: torch.empty(size << 18, device="cuda:1") for size in SIZES} if number == 0 else {}
    distributed.all_reduce(tensors[16])
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    distributed.barrier()
    nvtx.range_push("alone")
    for size, times in SIZES.items():
        for _ in range(times):
            with nvtx.range(f"known allreduce{size}MiB"):
                distributed.all_reduce(tensors[size])
            torch.cuda.synchronize()
            time.sleep(5e-4)
    distributed.barrier()
    torch.cuda.synchronize()
    for size, other in others.items():
        for _ in range(SIZES[size]):
            with nvtx.range(f"known peer{size}MiB"):
                other.copy_(tensors[size])
            torch.cuda.synchronize()
            time.sleep(5e-4)
    nvtx.range_pop()
    distributed.barrier()
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()
    distributed.destroy_process_group()


def main() -> int:
    """Run both ranks. Exit code: 127 without two GPUs."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    import torch
    from torch import multiprocessing

    if torch.cuda.device_count() < 2:
        print("known_links: needs two GPUs.", file=sys.stderr)
        return 127
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(rank, (str(Path(folder) / "store"),), nprocs=2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
