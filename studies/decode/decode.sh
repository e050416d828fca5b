#!/usr/bin/env bash
# Decode GPT-2 with every rung: check its tokens, time it in fresh processes, and capture its steps with nsys.
#
# usage: decode.sh [-n] [--out DIR] [--processes N] [--seconds S] [--counters] [ARGUMENT…]
#
#   -n             print the exact commands, run nothing
#   --out DIR      run folder (default: runs/<time>-decode); processes that it already holds are not measured again
#   --processes N  fresh processes that count (default 10); one more runs first and fills the compilers' caches
#   --seconds S    time for the processes (default 300): no process starts that would end later
#   --counters     also count the DRAM bytes of every kernel of engine eager with ncu (one minute more)
#   ARGUMENT…      arguments of studies.decode.measure: --weights, --config, --dtype, --batch, --rungs …
#
# DIR holds the run, with its steps captured kernel by kernel. DIR-graphs holds the same run with each CUDA graph captured as
# a whole. All of it takes less than 8 minutes on a GPU, and 2 minutes more the first time, to compile. Without a GPU, the
# script runs a small model on the CPU and captures nothing.
# exit: 0 done, 1 a part failed (the others ran), 2 usage
source "$(dirname "$0")/../../nsys_scripts/common.sh"

dry='' out=runs/$(date -u +%Y%m%dT%H%M%SZ)-decode processes=10 seconds=300 counters='' more=()
while (($#)); do
  case $1 in
  -h | --help) usage ;;
  -n) dry=yes && shift ;;
  --out) value "$1" $# && out=$2 && shift 2 ;;
  --processes) value "$1" $# && processes=$2 && shift 2 ;;
  --seconds) value "$1" $# && seconds=$2 && shift 2 ;;
  --counters) counters=yes && shift ;;
  *) more+=("$1") && shift ;;
  esac
done
cd "$ROOT"
status=0 measure=("$PYTHON" -m studies.decode.measure)
if [[ -z $dry ]] && ! find_gpu >/dev/null; then
  sizes=n_layer=2,n_embd=128,n_head=2,vocab_size=97,n_positions=48
  more=(--device cpu --dtype float32 --config "$sizes" --context 8 --tokens 4 ${more[@]+"${more[@]}"})
  limit=300 step "correctness" "${measure[@]}" check --out "$out" "${more[@]}" || status=1
  limit=600 step "times in fresh processes" "${measure[@]}" fair --out "$out" --processes "$processes" --seconds "$seconds" "${more[@]}" || status=1
  limit=300 step "ranges" "${measure[@]}" capture --out "$out" "${more[@]}" || status=1
  exit $status
fi
program=("${measure[@]}" capture --out)
ops=(attention attention_decode attention_grouped decode encoder gelu gemv layernorm matmul permute residual_layernorm)
limit=240 step "kernels" "$PYTHON" -m kernels.build "${ops[@]}" || status=1
# if a part fails or takes too long, the others still run
limit=120 step "correctness" "${measure[@]}" check --out "$out" ${more[@]+"${more[@]}"} || status=1
limit=$((seconds + 60)) step "times in fresh processes" "${measure[@]}" fair --out "$out" --processes "$processes" --seconds "$seconds" ${more[@]+"${more[@]}"} || status=1
limit=90 step "steps, kernel by kernel" "$HERE/nsys_capture.sh" --out "$out" -- "${program[@]}" "$out" ${more[@]+"${more[@]}"} || status=1
limit=60 step "export" "$HERE/export_csv.sh" --only nsys "$out" || status=1
whole=$out-graphs
step "a second run for whole graphs" mkdir -p "$whole/captures"
step "with the same times" cp "$out/captures/decode.json" "$out/captures/timing.json" "$out/captures/manifest.json" "$whole/captures/" || status=1
limit=90 step "steps, graph by graph" "$HERE/nsys_capture.sh" --graphs graph --out "$whole" -- "${program[@]}" "$whole" --rungs "graph,few,persistent" ${more[@]+"${more[@]}"} || status=1
limit=60 step "export of whole graphs" "$HERE/export_csv.sh" --only nsys "$whole" || status=1
if [[ -n $counters ]]; then
  limit=150 step "counters under ncu" "$HERE/ncu_capture.sh" --columns duration_ns,dram_read_bytes,dram_write_bytes --include eager/ --out "$out" -- "${program[@]}" "$out" --rungs eager ${more[@]+"${more[@]}"} || status=1
  limit=60 step "export of counters" "$HERE/export_csv.sh" --only ncu "$out" || status=1
fi
exit $status
