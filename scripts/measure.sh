# shellcheck shell=bash disable=SC2154,SC2034
# The measuring half of scripts/sweep, which a bundle's run.sh shares; sourced after lib.sh.

# sweep_and_report BINARY RUNS ON_GPU [ARGUMENTS OF `noisefloor sweep`]
# Sweeps into the run folder that the arguments name, or resumes the newest below RUNS where the same program and command were cut
# short, or begins a new one there; adds PyTorch's rows on a GPU; prints the table and the totals. Ends the script.
sweep_and_report() {
  local binary=$1 runs=$2 on_gpu=$3 argument previous='' out='' budget='' fresh=false own_output=false with_torch=true all=false torch=() torch_python newest
  shift 3
  for argument in "$@"; do
    case "$previous" in  # values that PyTorch's sweep shares, or that decide whether it runs
      --ops | --networks | --dtypes | --problems) torch+=("$previous" "$argument") ;;
      --budget) budget=$argument ;;
      --out) out=$argument ;;
      --device)
        case "$argument" in
          host) with_torch=false ;;
          all) all=true ;;
          *) torch+=(--device "$argument") ;;
        esac ;;
      --kinds) [[ ,$argument, == *,baseline,* ]] || with_torch=false ;;
    esac
    case "$argument" in
      --ops=* | --networks=* | --dtypes=* | --problems=* | --device=[0-9]*) torch+=("${argument%%=*}" "${argument#*=}") ;;
      --budget=*) budget=${argument#*=} ;;
      --out=*) out=${argument#*=} ;;
      --device=all) all=true ;;
      --device=host | --variants | --variants=* | --benchmark_filter=*) with_torch=false ;;
      --kinds=*) [[ ,${argument#*=}, == *,baseline,* ]] || with_torch=false ;;
      --fresh) fresh=true ;;
      --benchmark_list_tests* | --benchmark_format=*) own_output=true ;;
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
  children=()
  trap '[ ${#children[@]} -eq 0 ] || kill "${children[@]}" 2>/dev/null; say "interrupted: the finished rows are in $out; the same command resumes"; exit 130' INT TERM

  local began=$SECONDS  # the budget is for both sweeps
  # The table comes at the end, with PyTorch's rows in it.
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
  if [ -n "$budget" ]; then
    budget=$(awk -v budget="$budget" -v spent=$((SECONDS - began)) 'BEGIN { if (budget > spent) print budget - spent }')
    if [ -n "$budget" ]; then
      torch+=(--budget "$budget")
    elif $on_gpu && $with_torch; then
      with_torch=false
      say "the budget is spent: PyTorch's rows are left out"
    fi
  fi
  if $on_gpu && $with_torch; then
    if torch_python=$(find_torch_python); then
      if $all; then
        torch_side_by_side
      else
        measure "sweeping PyTorch ($torch_python)" env PYTHONPATH="$root" \
          "$torch_python" -m baselines.pytorch sweep --run-dir "$out" --noisefloor "$binary" "${torch[@]}"
      fi
    else
      say "no PyTorch that sees a GPU: its rows are left out (NOISEFLOOR_PYTHON names a Python that has one)"
    fi
  fi
  [ "$worst" -gt 1 ] || rm -f "$out/.unfinished"
  if ! $own_output; then
    for folder in "${folders[@]}"; do measure "placing the rows on the roofline" "$binary" roofline "$folder"; done
  fi
  say "report.html, sweep.csv, roofline.csv, plan.csv, samples.jsonl and env.json are in ${folders[*]}"
  exit $((worst > 1 ? 2 : worst))
}

# PyTorch's rows of every GPU at once, each into its own folder (`folders`, of sweep_and_report); one that fails leaves the others.
torch_side_by_side() {
  local folder index i
  step="sweeping PyTorch on every GPU ($torch_python)"
  say "$step"
  for folder in "${folders[@]}"; do
    index=${folder##*/gpu}
    index=${index%%-*}
    PYTHONPATH=$root "$torch_python" -m baselines.pytorch sweep --run-dir "$folder" --noisefloor "$binary" "${torch[@]}" \
      --device "$index" </dev/null > >(sed -u "s/^/gpu$index | /" >&2) 2>&1 &
    children+=($!)
  done
  for i in "${!children[@]}"; do
    code=0
    wait "${children[i]}" || code=$?
    [ $code -le 1 ] || say "error while $step: ${folders[i]##*/} ended with exit code $code"
    [ $code -le "$worst" ] || worst=$code
  done
  children=()
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
