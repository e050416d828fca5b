#!/usr/bin/env bash
# Capture what runs on one node, or one rank of mpirun. profile.sbatch starts it on each, with LEDGER_* in the environment.
#
# usage: node.sh COMMAND…
#
# exit: 0 captured, 1 failed, 127 nsys missing
source "$(dirname "$0")/common.sh"
if [[ ${1:-} == --help || $# == 0 ]]; then usage; fi

rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${PMIX_RANK:-}}}
if [[ -n $LEDGER_MODULES ]]; then
  if ! declare -F module >/dev/null; then
    # shellcheck disable=SC1090  # whichever the node has
    for file in /etc/profile.d/modules.sh /etc/profile.d/lmod.sh; do if [[ -r $file ]]; then source "$file"; fi; done
  fi
  declare -F module >/dev/null || die 1 "This node has no environment modules: leave --modules out."
  # shellcheck disable=SC2086  # several names
  module load $LEDGER_MODULES
fi
program=("$@")
if [[ -n $LEDGER_CONTAINER ]]; then
  command -v apptainer >/dev/null || die 1 "This node has no apptainer: leave --container out, or use --srun --container-image=IMAGE with pyxis."
  program=(apptainer exec --nv --bind "$LEDGER_RUN" --bind "$ROOT" "$LEDGER_CONTAINER" "${program[@]}")
fi
one=("$HERE/slurm/rank.sh" "${program[@]}")
name=node$SLURM_NODEID
case $LEDGER_LAUNCH in
torchrun)
  command=(torchrun --nnodes "$SLURM_NNODES" --node-rank "$SLURM_NODEID" --nproc-per-node "$LEDGER_RANKS" --master-addr "$MASTER_ADDR"
    --master-port "$MASTER_PORT" --no-python "${one[@]}")
  ;;
srun) command=("$HERE/slurm/ranks.sh" "${one[@]}") ;;
mpirun)
  [[ -n $rank ]] || die 1 "mpirun says no rank (OMPI_COMM_WORLD_RANK, PMI_RANK): use --launch srun."
  name=rank$rank
  export RANK=$rank
  command=("${one[@]}")
  ;;
esac
command=(timeout -k 10 "$LEDGER_LIMIT" "${command[@]}")
if [[ -n $LEDGER_NCU_RANK ]]; then exec "${command[@]}"; fi # rank.sh starts ncu

out=$LEDGER_RUN/nodes/$name
"$HERE/nsys_capture.sh" --window "$LEDGER_WINDOW" --out "$out" -- "${command[@]}" || failed=yes
if [[ -f $out/captures/nsys.json ]]; then cp "$out/captures/nsys.json" "$LEDGER_RUN/captures/nsys-$name.json"; fi
[[ -s $out/raw/timeline.nsys-rep ]] || die 1 "nsys left no timeline on $name: look at $out/raw/nsys.log."
nsys=$(nsys_with_host "$(find_nsys)")
"$nsys" export --type sqlite --include-blobs=true --force-overwrite=true --output "$out/raw/timeline.sqlite" "$out/raw/timeline.nsys-rep" >"$out/raw/export.log" 2>&1 ||
  die 1 "nsys cannot export the timeline of $name: look at $out/raw/export.log."
mv "$out/raw/timeline.sqlite" "$LEDGER_RUN/captures/$name.sqlite"
[[ -z ${failed:-} ]]
