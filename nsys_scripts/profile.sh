#!/usr/bin/env bash
# Profile a CUDA program from its first run to the report.
#
# usage: profile.sh [-n] [--run DIR] [--budget S] [--steps LIST] [--deep] [--source] [--limit S] [--timeline-mb N] [--sample-hz N]
#                   [--window auto|profiler|all] [--no-auto-ranges] [--no-counters] [--stdin FILE] [--remeasure] [--harness 'ARGUMENTS'] [-- COMMAND…]
#        profile.sh [-n] --roofs
#
#   COMMAND          the program and its arguments (default: GPT-2)
#   -n               print every command of every stage, run nothing; needs no GPU
#   --run DIR        continue this run: finished stages stay; options and COMMAND come from the run unless you give them
#   --budget S       seconds that ncu may spend on counting (default 40)
#   --steps LIST     comma-separated names: count only inside ranges of these names, such as decode
#   --deep           count every launch with the long list of metrics, however long that takes
#   --source         ncu also samples and counts every instruction and keeps the sources, which takes several times as long. The
#                    report then shows the hottest lines (compile CUDA with -lineinfo)
#   --limit S        end a run of the program that takes longer (default 600)
#   --timeline-mb N  end the program under nsys when its timeline reaches so many MB, and keep that timeline (default 1000)
#   --sample-hz N    sample the counters of all GPUs so often while the program runs under nsys (default 10000; 0: never).
#                    Above 20000, nsys loses samples
#   --window WINDOW  profiler: between cudaProfilerStart and cudaProfilerStop; all: the whole program; auto (default): the
#                    program's own window if it opens one
#   --no-auto-ranges add no ranges to the program. Without this option, a program that uses torch and opens no range itself gets
#                    ranges: one for each call of a module, for backward and for an optimiser's step. The program then runs
#                    once more, for the dataflow
#   --no-counters    do not run ncu: only bare times and timeline
#   --stdin FILE     the standard input of each run of the program (default: empty)
#   --remeasure      measure the roofs of this GPU again, and test its counters again
#   --harness ARGS   arguments of the GPT-2 harness: --harness '--weights gpt2', --harness '--only bench'
#   --roofs          measure only the roofs and test the counters; fails unless the counters can be trusted
#
# Stages: roofs of the GPU (stored for later runs), bare times, dataflow (only with automatic ranges), timeline (nsys), plan of
# what to count, counters (ncu), report. The program runs three times, with automatic ranges four times. If a tool is missing,
# denied or fails, the run goes on one evidence tier lower, and the report names the tool. The folder of the run is
# runs/<time>-<gpu>-<program>; only its raw/ may hold paths of this machine. Ctrl-C or a crash loses only the current stage.
#
# KERNEL_LEDGER_CACHE  folder of the stored roofs (default: $XDG_CACHE_HOME/kernel-ledger, or ~/.cache/kernel-ledger; off: store none)
# exit: 0 done, 1 the program or a step failed, 2 usage or no GPU, 127 the program or a Python package was not found, 130 interrupted
source "$(dirname "$0")/common.sh"

exec "$PYTHON" "$ROOT/harness/profile" "$@"
