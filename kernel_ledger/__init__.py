"""The command `kernel-ledger`. Installed, this package carries the folders that it needs in `tree`."""
