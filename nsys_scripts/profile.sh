#!/usr/bin/env bash
# Profile a CUDA program from its first run to the report: the driver behind `make profile`.
#
# usage: profile.sh [-n] [--run DIR] [--budget S] [--steps LIST] [--deep] [--limit S] [--timeline-mb N] [--window auto|profiler|all]
#                   [--no-auto-ranges] [--no-counters] [--stdin FILE] [--remeasure] [--harness 'ARGUMENTS'] [-- COMMAND…]
#        profile.sh [-n] --roofs
#
#   COMMAND          the program and its arguments (default: GPT-2, that is python -m harness.run --mode capture)
#   -n               print every command of every stage, run nothing; needs no GPU
#   --run DIR        go on with this run: stages that are done stay, options and COMMAND are those of the run unless given
#   --budget S       seconds that ncu may spend on counting (default 60; of GPT-2 30)
#   --steps LIST     count only inside ranges of these names, with commas between: decode
#   --deep           count every launch with the long list of metrics, whatever that takes
#   --limit S        end a run of the program that takes longer (default 600)
#   --timeline-mb N  end the program under nsys when its timeline reaches so many MB, and keep that (default 1000)
#   --window WINDOW  profiler: between cudaProfilerStart and cudaProfilerStop; all: the whole program; auto (default): the
#                    program's own window if it opens one
#   --no-auto-ranges no ranges but the program's own. Otherwise a program that uses torch and opens no range itself gets one for
#                    each call of a module, for backward and for an optimiser's step. It runs once more for the dataflow
#   --no-counters    leave ncu out: bare times and timeline alone
#   --stdin FILE     what each run of the program reads (default: nothing)
#   --remeasure      measure the roofs of this GPU and the self-test of its counters anew
#   --harness ARGS   arguments of the GPT-2 harness: --harness '--weights gpt2', --harness '--only bench'
#   --roofs          only the roofs and the self-test; fails unless the counters can be trusted
#
# Stages: roofs of the GPU (kept for the next run), bare times, dataflow (of automatic ranges), timeline (nsys), plan of what to count,
# counters (ncu), report. The program runs three times, or four. A tool that is missing, denied or fails lowers the evidence tier, is named in the report and does not end the run. The
# run's folder is runs/<time>-<gpu>-<program>; only its raw/ may hold paths of this machine. Ctrl-C or a crash loses the stage at hand alone.
#
# KERNEL_LEDGER_CACHE  folder of the kept roofs (default: $XDG_CACHE_HOME/kernel-ledger, or ~/.cache/kernel-ledger; off: none are kept)
# exit: 0 done, 1 the program or a step failed, 2 usage or no GPU, 127 the program or a Python package was not found, 130 interrupted
source "$(dirname "$0")/common.sh"

for word in "$@"; do
  case $word in
  --) break ;;
  -h | --help) usage && exit 0 ;;
  esac
done
exec "$PYTHON" "$HERE/profile_driver.py" "$@"
