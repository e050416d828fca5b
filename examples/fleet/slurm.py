"""Read captures on a SLURM cluster, from its login node: `python examples/fleet/slurm.py /nfs/captures /nfs/store`.

It needs `pip install dask-jobqueue`, and one file system with this checkout, the captures and the store on every node.
Each job runs 16 workers of one thread, and each of them a process that reads one capture at a time.
"""

import argparse

import kernel_ledger

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("captures")
    parser.add_argument("store")
    given = parser.parse_args()
    from dask_jobqueue import SLURMCluster

    cluster = SLURMCluster(cores=16, processes=16, memory="48GB", walltime="02:00:00", queue="cpu")
    cluster.adapt(maximum_jobs=16)
    print(kernel_ledger.fleet([given.captures], given.store, scheduler=cluster.scheduler_address, progress=True)[1])
