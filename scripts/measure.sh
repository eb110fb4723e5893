# shellcheck shell=bash disable=SC2154,SC2034
# The measuring half of scripts/sweep, which a bundle's run.sh shares; sourced after lib.sh.

# sweep_and_report BINARY RUNS [ARGUMENTS OF `noisefloor sweep`]
# Sweeps into the run folder that the arguments name, or resumes the newest below RUNS where the same program and command were cut
# short, or begins a new one there; prints the table and the totals. Ends the script.
sweep_and_report() {
  local binary=$1 runs=$2 argument previous='' out='' fresh=false own_output=false all=false newest
  shift 2
  for argument in "$@"; do
    case "$previous $argument" in
      '--out '*) out=$argument ;;
      *' --out='*) out=${argument#*=} ;;
      '--device all' | *' --device=all') all=true ;;
      *' --fresh') fresh=true ;;
      *' --benchmark_list_tests'* | *' --benchmark_format='*) own_output=true ;;
    esac
    previous=$argument
  done

  step="choosing a run folder"
  local command
  command="$("$binary" --version) $(printf '%q ' "$@")"
  if [ -z "$out" ]; then
    newest=$(find "$runs" -mindepth 1 -maxdepth 1 -type d 2>/dev/null | sort | tail -n 1 || true)
    if ! $fresh && [ -n "$newest" ] && [ "$(cat "$newest/.unfinished" 2>/dev/null)" = "$command" ]; then
      out=$newest
      say "resuming $out (--fresh starts it again)"
    else
      out=$runs/$(date -u +%Y-%m-%d_%H-%M-%S)
    fi
    set -- "$@" --out "$out"
  fi
  # Held to the end of the script, between its programs too; each of them locks the folder itself (reports/run/folder_lock.h).
  { mkdir -p "$out" && exec {session}>>"$out/.session"; } 2>/dev/null || die "cannot write the run folder $out"
  ! have flock || flock -n "$session" || die "another sweep is writing to $out"
  printf '%s\n' "$command" >"$out/.unfinished" || die "cannot write the run folder $out"
  trap 'say "interrupted: the finished rows are in $out; the same command resumes"; exit 130' INT TERM

  # The roofline prints the table, with each row's place under the roof.
  if $own_output; then
    measure sweeping "$binary" sweep "$@"
  else
    measure sweeping "$binary" sweep "$@" >/dev/null
  fi
  # With --device all: one run folder per GPU, in gpus.csv; what one of them could not do does not stop the others.
  local folder folders=("$out") listing=$out/sweep.csv
  if $all && ! $own_output; then
    listing=$out/gpus.csv folders=()
    [ ! -s "$listing" ] || while IFS=, read -r folder _; do
      [ ! -s "$out/$folder/sweep.csv" ] || folders+=("$out/$folder")
    done < <(tail -n +2 "$listing")
  fi
  if { [ "$code" -gt 1 ] && ! $all; } || [ ! -s "$listing" ] || [ ${#folders[@]} -eq 0 ]; then
    if [ ! -s "$listing" ]; then
      rm -f "$out/.unfinished" "$out/.session" "$out/.lock"
      rmdir "$out" 2>/dev/null || true
    fi
    exit $((code > 1 ? 2 : code))
  fi
  [ "$worst" -gt 1 ] || rm -f "$out/.unfinished"
  if ! $own_output; then
    for folder in "${folders[@]}"; do measure "placing the rows on the roofline" "$binary" roofline "$folder"; done
  fi
  say "report.html, sweep.csv, roofline.csv, plan.csv, samples.jsonl and env.json are in ${folders[*]}"
  exit $((worst > 1 ? 2 : worst))
}

worst=0
# measure STEP COMMAND...: runs it; `code` is its exit code, `worst` the worst so far.
measure() {
  code=0
  step=$1
  say "$step"
  shift
  "$@" </dev/null || code=$?
  [ $code -le 1 ] || say "error while $step: '$*' ended with exit code $code"
  [ $code -le "$worst" ] || worst=$code
}
