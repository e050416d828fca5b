"""Run processes with one amount of work each in turns, as `make ab` runs two commands, and keep their times.

    python -m studies.comparison.turns [--seconds S] [--seed N] BINARY SIDES... > turns.csv

BINARY is processes.cu, compiled. A word of SIDES is one block of rounds, such as 100,100,101: each of its TURNS rounds
runs a fresh process for each side, in an order that is drawn. The first side is A; the second has the same work, so any
verdict on it is false; the others have more. After S seconds no block starts. A process starts while the one before
still measures, but it only finds the driver: it touches the GPU when that one has ended.

A line is block,round,place,side,process,second,row,percent,count,median_ns,mean_ns,sd_ns.
"""

import argparse
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from analysis.formats.comparison import TURNS


def order(blocks: Sequence[Sequence[int]], coin: random.Random) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield block, round, place, side and percent of each process in the order in which they run."""
    for block, percents in enumerate(blocks):
        for number in range(TURNS):
            for place, side in enumerate(coin.sample(range(len(percents)), len(percents))):
                yield block, number, place, side, percents[side]


def _started(binary: str, process: int, percent: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [binary, str(process), str(percent)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def main() -> int:
    """Run the command line: 0, or 1 at the first process that fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("binary")
    parser.add_argument("sides", nargs="+")
    options = parser.parse_args()
    blocks = [[int(one) for one in word.split(",")] for word in options.sides]
    begin = time.monotonic()
    plan = list(order(blocks, random.Random(options.seed)))
    following = _started(options.binary, 0, plan[0][-1])
    for process, (block, number, place, side, _) in enumerate(plan):
        current = following
        if (number, place) == (0, 0) and time.monotonic() - begin > options.seconds:
            current.kill()
            break
        if process + 1 < len(plan):
            following = _started(options.binary, process + 1, plan[process + 1][-1])
        said, _ = current.communicate("\n")
        if current.returncode:
            following.kill()
            print(f"turns: process {process} ended with {current.returncode}.", file=sys.stderr)
            return 1
        for line in said.splitlines():
            print(block, number, place, side, line, sep=",", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
