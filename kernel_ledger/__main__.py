"""`python -m kernel_ledger`: the same as the command."""

import sys

from kernel_ledger.cli import main

sys.exit(main())
