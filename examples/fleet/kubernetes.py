"""Read captures on Kubernetes: `python examples/fleet/kubernetes.py s3://bucket/captures /store`.

It needs `pip install dask-kubernetes s3fs`, the operator of Dask in the cluster, an image with this
project, its extra `fleet` and s3fs at the same path as here, and a volume at /store for each pod and this machine.
"""

import argparse

import kernel_ledger

IMAGE = "registry.example.com/kernel-ledger:0.3.0"

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("captures")
    parser.add_argument("store")
    given = parser.parse_args()
    from dask_kubernetes.operator import KubeCluster, make_cluster_spec

    spec = make_cluster_spec(name="fleet", image=IMAGE, resources={"limits": {"cpu": "1", "memory": "3Gi"}})
    volume = {"name": "store", "persistentVolumeClaim": {"claimName": "fleet-store"}}
    pod = spec["spec"]["worker"]["spec"]
    pod["volumes"] = [volume]
    pod["containers"][0]["volumeMounts"] = [{"name": "store", "mountPath": "/store"}]
    with KubeCluster(custom_cluster_spec=spec) as cluster:
        cluster.adapt(minimum=1, maximum=64)
        print(kernel_ledger.fleet([given.captures], given.store, scheduler=cluster.scheduler_address, progress=True)[1])
