"""A program of ranks for tests: the last one is killed, the others sleep. It imports nothing that takes time."""

import os
import signal
import time

if os.environ["RANK"] == str(int(os.environ["WORLD_SIZE"]) - 1):
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(60)
