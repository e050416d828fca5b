"""Read captures on this machine, and ask what limits them: `python examples/fleet/local.py captures store`."""

import sys

import kernel_ledger

if __name__ == "__main__":
    store, counts = kernel_ledger.fleet([sys.argv[1]], sys.argv[2], progress=True)
    print(counts)
    print(store.ask("limits"))
    print(store.sql("SELECT gpu, count(*) AS captures FROM captures GROUP BY gpu"))
