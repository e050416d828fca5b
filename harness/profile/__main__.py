"""Run the driver: `python -m harness.profile`, or from any folder `python CHECKOUT/harness/profile`."""

import os
import sys

if not __package__:  # Python runs the folder: its modules are those of a package
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness.profile.driver import main

sys.exit(main())
