#!/usr/bin/env bash
# Measure fleet.csv, and big.csv with each report on two cores of its own, on a machine of 24 or more processors: 200 s.
#   OUT=folder [STOP=200] [PYTHON=python3] bash tests/bench/measure.sh        in the root of a checkout
set -uo pipefail
STOP=${STOP:-200} PYTHON=${PYTHON:-python3} OUT=${OUT:?}
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
# One processor of each core first, then their siblings.
mapfile -t cpus < <(lscpu -p=CPU,CORE,SOCKET | grep -v '^#' | awk -F, '{print ++n[$2","$3], $1}' | sort -n -k1,1 -k2,2 | awk '{print $2}')
on() { (IFS=, && echo "${cpus[*]:$1:$2}"); } # FIRST COUNT
{ lscpu && free -m && uptime && git rev-parse HEAD; } >"$OUT/machine.txt" 2>&1

make='from pathlib import Path; from tests.bench import big, fleet; here = Path("'$TMPDIR'")'
mkdir "$TMPDIR/large"
step make_large 40 "$PYTHON" -c "$make; big.write(big.SHAPES['ranges'], 10_000_000, here / 'large')" &
step make 40 "$PYTHON" -c "$make; fleet.make(here / 'captures', 1000, 16); fleet.make(here / 'few', 100, 16)"
wait

step fleet_16 45 taskset -c "$(on 0 16)" "$PYTHON" -m tests.bench.fleet --folder "$TMPDIR/captures" --workers 16 --out "$OUT/fleet_16.csv"
rm -rf "$TMPDIR/captures"
# One worker reads a tenth of them, in the same shares of sizes.
step fleet_1 40 taskset -c "$(on 0 1)" "$PYTHON" -m tests.bench.fleet --folder "$TMPDIR/few" --workers 1 --out "$OUT/fleet_1.csv" &
step large 35 taskset -c "$(on 2 2)" "$PYTHON" -c "$make; print(big.measure('report', here / 'large/capture.sqlite', 2))" &
lane() { # FIRST LAUNCHES SHAPE…
  local shape
  for shape in "${@:3}"; do
    step "big_$2_${shape// /_}" 15 taskset -c "$(on "$1" 2)" "$PYTHON" -m tests.bench.big --sizes "$2" --shapes "$shape" \
      --out "$OUT/big_$2_${shape// /_}.csv"
  done
}
lane 4 1000000 ranges "plain CSV" "64 streams" &
lane 6 1000000 "torch trace" "one name" &
lane 8 1000000 "5,000 names" "elementwise CSV" "ranges, Parquet" &
lane 10 100000 ranges "plain CSV" "one name" "64 streams" "elementwise CSV" "torch trace" &
lane 12 100000 "5,000 names" "ranges, Parquet" "200 ranges deep" &
lane 14 100000 "512 ranks" &
wait
