#!/usr/bin/env bash
# Measure fleet.csv on a machine of 24 or more processors on which nothing else runs: 150 s.
#   OUT=folder [STOP=150] [PYTHON=python3] [CPUS="0 2 …"] bash tests/bench/measure.sh        in the root of a checkout
set -uo pipefail
STOP=${STOP:-150} PYTHON=${PYTHON:-python3} OUT=${OUT:?}
mkdir -p "$OUT" && OUT=$(cd "$OUT" && pwd)
TMPDIR=$(mktemp -d "$([[ $(df --output=avail -k /dev/shm | tail -1) -gt 12000000 ]] && echo /dev/shm || echo /tmp)/bench.XXXXXX")
trap 'rm -rf "$TMPDIR"' EXIT
export TMPDIR PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} TQDM_DISABLE=1 PYTHONPYCACHEPREFIX=$TMPDIR/pyc
step() { # NAME NEED COMMAND…: nothing starts with less than NEED seconds left
  local name=$1 from=$SECONDS code=0 load
  load=$(cut -d' ' -f1 /proc/loadavg)
  ((STOP - SECONDS < $2)) && echo "$name: not started" | tee -a "$OUT/log.txt" && return 1
  timeout -k 3 $((STOP - SECONDS)) "${@:3}" >"$OUT/$name.log" 2>&1 </dev/null || code=$?
  echo "$name: exit code $code, $from s to $SECONDS s, load $load to $(cut -d' ' -f1 /proc/loadavg)" | tee -a "$OUT/log.txt"
}
# CPUS, or one processor of each core first, then their siblings.
read -ra cpus <<<"${CPUS:-}"
((${#cpus[@]})) || mapfile -t cpus < <(lscpu -p=CPU,CORE,SOCKET | grep -v '^#' | awk -F, '{print ++n[$2","$3], $1}' | sort -n -k1,1 -k2,2 | awk '{print $2}')
on() { (IFS=, && echo "${cpus[*]:0:$1}"); } # COUNT
{ lscpu && free -m && uptime && git rev-parse HEAD; } >"$OUT/machine.txt" 2>&1

# One worker reads a tenth of the captures, in the same shares of sizes. A first run of ten writes the byte code.
make='from pathlib import Path; from tests.bench import fleet; here = Path("'$TMPDIR'")'
step make 20 "$PYTHON" -c "$make; fleet.make(here / 'captures', 1000, $(nproc)); fleet.make(here / 'few', 100, $(nproc))"
step warm 20 "$PYTHON" -c "$make; fleet.measure(here / 'few/team9', 10)"
step fleet_16 45 taskset -c "$(on 16)" "$PYTHON" -m tests.bench.fleet --folder "$TMPDIR/captures" --workers 16 --out "$OUT/fleet_16.csv"
step fleet_1 40 taskset -c "$(on 1)" "$PYTHON" -m tests.bench.fleet --folder "$TMPDIR/few" --workers 1 --out "$OUT/fleet_1.csv"
