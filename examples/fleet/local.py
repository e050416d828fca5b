"""Read captures on this machine, and ask what limits them: `python examples/fleet/local.py captures store`."""

import argparse

import kernel_ledger

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("captures")
    parser.add_argument("store")
    given = parser.parse_args()
    store, counts = kernel_ledger.fleet([given.captures], given.store, progress=True)
    print(counts)
    print(store.ask("limits"))
    print(store.sql("SELECT gpu, count(*) AS captures FROM captures GROUP BY gpu"))
