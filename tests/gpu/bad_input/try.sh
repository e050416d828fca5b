#!/usr/bin/env bash
# Profile programs that cannot be profiled, with the real tools of this machine.
#
# usage: try.sh DIR [SECONDS]
#
#   DIR      folder for the runs and said.txt: what each try printed last and how it ended
#   SECONDS  end after so many (default: 90)
#
# Tries: a timeline larger than its limit. A GPU without enough memory under a profiler. More memory for ncu to save than the GPU
# has. A disk that fills while nsys writes, and one that is too small from the start. nsys without a folder for its temporary
# files. ncu as a user without rights.
# exit: 0 whatever became of each try
set -uo pipefail
case ${1:-} in -h | --help) sed -n -e '1d' -e '/^#/!q' -e 's/^# \{0,1\}//p' "$0" && exit 0 ;; esac
cd "$(dirname "$0")/../../.." || exit
out=$(mkdir -p "$1" && cd "$1" && pwd) most=${2:-90}
export PYTHON=${PYTHON:-python3}
SECONDS=0

try() { # NAME LIMIT COMMAND…
  local name=$1 limit=$2 began=$SECONDS code=0
  shift 2
  if ((SECONDS + limit > most)); then limit=$((most - SECONDS)); fi
  if ((limit < 5)); then echo "== $name: no time left" | tee -a "$out/said.txt" && return; fi
  timeout -k 5 "$limit" "$@" >"$out/$name.log" 2>&1 </dev/null || code=$?
  { echo "== $name: $((SECONDS - began)) s, exit $code" && tail -n 12 "$out/$name.log" | cut -c 1-300; } | tee -a "$out/said.txt"
}

nvcc -O2 -arch=native -o "$out/hungry" tests/gpu/bad_input/hungry.cu >"$out/build.log" 2>&1 || { cat "$out/build.log" && exit 0; }
hungry=$out/hungry profile=nsys_scripts/profile.sh
counted=(--window all --metrics gpu__time_duration.sum --out)

# how much nsys keeps is seen in its folder; the program ends by itself after some seconds
limits=(--seconds 60 --megabytes 20)
try large-timeline 30 nsys_scripts/nsys_capture.sh --window all --out "$out/large" -- \
  "$PYTHON" harness/profile/within.py "${limits[@]}" -- "$hungry" launch 2000000
du -ka "$out/large/raw" | tee -a "$out/said.txt"
try fits-alone 40 "$profile" --run "$out/fits" -- "$hungry" fit "$out/noted"
small=$out/small
mkdir -p "$small"
if mount -t tmpfs -o size=300m none "$small"; then
  cat >"$out/filler" <<FILLER
#!/usr/bin/env bash
echo run >>"$out/runs"
if [[ \$(wc -l <"$out/runs") == 2 ]]; then dd if=/dev/zero of="$small/fill" bs=1M 2>/dev/null; fi
exec "$hungry" write 1
FILLER
  chmod +x "$out/filler"
  try disk-fills 40 "$profile" --run "$small/run" -- "$out/filler"
  rm -f "$small/fill"
  try disk-is-free-again 40 "$profile" --run "$small/run"
  cp -r "$small/run/captures" "$out/disk-captures"
  dd if=/dev/zero of="$small/fill" bs=1M count=200 2>/dev/null
  try disk-is-small 10 "$profile" --run "$small/second" -- "$hungry" write 1
  umount "$small" || umount -l "$small"
else
  echo "== disk: no tmpfs may be mounted here" | tee -a "$out/said.txt"
fi

"$hungry" hold 6144 25 >"$out/hold.log" 2>&1 &
hold=$!
for _ in {1..50}; do if grep -qs held "$out/hold.log"; then break; fi; sleep 0.2; done
try no-room-to-save 25 nsys_scripts/ncu_capture.sh --window all --out "$out/saved" -- "$hungry" write 4096
kill "$hold" 2>/dev/null
wait "$hold" 2>/dev/null

try nsys-without-a-folder 15 env TMPDIR=/proc/1/fd nsys_scripts/nsys_capture.sh --window all --out "$out/nowhere" -- "$hungry" write 1
grep -s Admin /proc/driver/nvidia/params | tee -a "$out/said.txt"
mkdir -p "$out/nobody" && chmod 777 "$out/nobody"
try ncu-as-nobody 15 env HOME="$out/nobody" setpriv --reuid 65534 --regid 65534 --clear-groups \
  nsys_scripts/ncu_capture.sh "${counted[@]}" "$out/nobody/run" -- "$hungry" write 1
