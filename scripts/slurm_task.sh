#!/usr/bin/env bash
# usage: slurm_task.sh ROOT BINARY part FOLDER COUNT [ARGUMENTS OF `noisefloor sweep`]
#        slurm_task.sh ROOT BINARY merge FOLDER COUNT
#
# What the jobs of scripts/slurm-sweep run. Slurm runs a copy of it, hence ROOT. Exit codes: as noisefloor's.
set -euo pipefail
if [ "${1:---help}" = --help ]; then
  sed -n '2,/^[^#]/{/^#/!d;s/^# \{0,1\}//;p}' "$0"
  exit 0
fi
task_root=$1 binary=$2 job=$3 folder=$4 count=$5
shift 5
. "$task_root/scripts/lib.sh"
root=$task_root script="slurm $job"

export_cuda_library_path
[ ! -x "$root/run.sh" ] || export_toolkit_library_path  # a bundle

part() {
  local index=$SLURM_ARRAY_TASK_ID code=0 out
  out=$folder/shards/$(printf %04d "$index")
  say "part $index of $count on $(hostname), $(date -u +%FT%TZ)"
  rm -f "$out/.finished"
  "$binary" sweep "$@" --shard "$index/$count" --out "$out" >/dev/null || code=$?
  [ $code -le 1 ] || exit 2
  printf '%s\n' "$code" >"$out/.finished"
  exit $code
}

merge() {
  local code=0 index shards=() shard
  for ((index = 1; index <= count; ++index)); do
    shard=$folder/shards/$(printf %04d "$index")
    [ ! -e "$shard/sweep.csv" ] || shards+=("$shard")
  done
  if [ ${#shards[@]} -eq 0 ]; then
    say "no part has any rows; their logs are in $folder/logs"
    code=2
  else
    "$binary" merge "${shards[@]}" --out "$folder/merged" --replace || code=$?
    if [ $code -le 1 ]; then
      "$binary" roofline "$folder/merged" || code=2
      [ $code -gt 1 ] || printf '%s\n' "$code" >"$folder/merged/.finished"
    else
      say "not merged; submit the same command again: only what is missing runs"
    fi
  fi
  printf '%s\n' "$code" >"$folder/logs/merge.${SLURM_JOB_ID:-0}"
  exit $code
}

case "$job" in
  part) part "$@" ;;
  merge) merge ;;
  *) die "unknown job '$job'" ;;
esac
