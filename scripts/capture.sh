# shellcheck shell=bash disable=SC2154,SC2034
# Captures of single cases by Nsight Compute and Nsight Systems: what scripts/ncu, scripts/nsys and a bundle's run.sh share; sourced after
# lib.sh. Both run `noisefloor run CASE --profile`, which verifies and then launches once more in an NVTX range of the case's name;
# only that launch is captured.

# capture_arguments TOOL ARGUMENTS...: reads the command line and finds the tool, before anything is built.
capture_arguments() {
  tool=$1 words=() tool_flags=() program_flags=() filter='' captures='' dtype=bf16 most=10
  shift
  step="reading the arguments"
  while [ $# -gt 0 ]; do
    case "$1" in
      --) shift; tool_flags=("$@"); break ;;
      --filter | --out | --run | --device | --dtype | --most)
        [ $# -gt 1 ] && [ -n "$2" ] || die "$1 needs a value"
        case "$1" in
          --filter) filter=$2 ;;
          --out) captures=$2 ;;
          --run) [ -f "$2/sweep.csv" ] || die "--run: $2 is not a run folder (no sweep.csv there)"; captures=$2/captures ;;
          --device) program_flags=(--device "$2") ;;
          --dtype) dtype=$2 ;;
          --most) [[ $2 =~ ^[1-9][0-9]*$ ]] || die "--most is '$2', not a whole number from 1"; most=$2 ;;
        esac
        shift ;;
      -*) die "unknown argument '$1' (see --help); flags for $tool itself go behind --" ;;
      *) words+=("$1") ;;
    esac
    shift
  done
  if [ -n "$filter" ]; then
    [ ${#words[@]} -eq 0 ] || die "give a case or --filter, not both"
  else
    case ${#words[@]} in
      1) [[ ${words[0]} == */*/*/* ]] || die "'${words[0]}' is not a case: give op/problem/dtype/variant, or OP PROBLEM VARIANT, or --filter RE" ;;
      3) words=("${words[0]}/${words[1]}/$dtype/${words[2]}") ;;
      *) die "give one case: op/problem/dtype/variant, or OP PROBLEM VARIANT, or --filter RE" ;;
    esac
  fi
  find_profiler
}

# Sets `profiler` to the tool's path.
find_profiler() {
  local named=NOISEFLOOR_${tool^^} candidate package
  step="looking for $tool"
  profiler=${!named:-}
  if [ -n "$profiler" ]; then
    [ -x "$profiler" ] || die "$named is '$profiler', which cannot be executed"
    return
  fi
  for candidate in "$(command -v "$tool" || true)" "${CUDA_HOME:-}/bin/$tool" /usr/local/cuda/bin/"$tool" \
    $(printf '%s\n' /opt/nvidia/nsight-compute/*/"$tool" /opt/nvidia/nsight-systems/*/bin/"$tool" | sort -Vr); do
    if [ -n "$candidate" ] && [ -x "$candidate" ]; then
      profiler=$candidate
      return
    fi
  done
  [ "$tool" = ncu ] && package=nsight-compute || package=nsight-systems
  die "there is no $tool on PATH, in CUDA_HOME/bin, /usr/local/cuda/bin or /opt/nvidia. It comes with the CUDA toolkit (package cuda-$package-*) and from https://developer.nvidia.com/$package; $named names one that lies elsewhere"
}

# A file name for a case, without what a shell or a file system minds; long ones end in a checksum.
capture_name() {
  local name=${1//\//__}
  if [ ${#name} -gt 180 ]; then name=${name:0:160}-$(printf '%s' "$1" | cksum | cut -d' ' -f1); fi
  printf '%s\n' "$name"
}

# capture BINARY RUNS: captures the cases of capture_arguments. Ends the script.
capture() {
  local binary=$1 runs=$2 cases=() case_name worst=0 code listed
  step="choosing cases"
  if [ -n "$filter" ]; then
    listed=$("$binary" sweep --networks all --dtypes bf16,fp16,fp32 --benchmark_list_tests "--benchmark_filter=$filter" "${program_flags[@]}" \
      </dev/null) || die "no cases for --filter '$filter'"
    mapfile -t cases <<<"$listed"
    [ ${#cases[@]} -le "$most" ] ||
      die "--filter '$filter' matches ${#cases[@]} cases, more than $most: narrow it, or give --most ${#cases[@]} (the first is ${cases[0]})"
  else
    cases=("${words[@]}")
  fi
  captures=${captures:-$runs/captures}
  step="making $captures"
  stage=$captures/.partial.$$
  mkdir -p "$stage" 2>/dev/null || die "cannot write $captures"
  trap 'rm -rf "$stage"' EXIT
  for case_name in "${cases[@]}"; do
    step="capturing $case_name"
    say "$step"
    code=0
    "capture_with_$tool" "$binary" "$case_name" || code=$?
    [ $code -le $worst ] || worst=$code
  done
  exit $worst
}

# complain MESSAGE: says what went wrong with a case, with the end of the tool's log; the capture goes on with the next one.
complain() {
  say "error while $step: $*"
  [ ! -s "$log" ] || tail -n 12 "$log" | sed 's/^/    /' >&2
  return 2
}

explain_permission() {
  die "the driver lets only administrators count (ERR_NVGPUCTRPERM). Run as root (in a container with --cap-add SYS_ADMIN), or load the kernel module with NVreg_RestrictProfilingToAdminUsers=0: https://developer.nvidia.com/ERR_NVGPUCTRPERM"
}

# What the program says of a case that it did not launch, or that is wrong.
program_words() { grep -v -e '^==' -e ': launched$' -e '^$' "$log" | head -n 3 || true; }

capture_with_ncu() {
  local binary=$1 case_name=$2 name code=0 sections=(--set full) flag report
  name=$(capture_name "$case_name") log=$stage/log
  for flag in "${tool_flags[@]}"; do
    case "$flag" in --set* | --section*) sections=() ;; esac
  done
  # The range's name holds slashes, which ncu takes for nesting, unless it is a regular expression and they are left out of it. The clocks
  # are left alone: the harness does not lock them either. The metrics are those of `noisefloor crosscheck`.
  "$profiler" --nvtx --nvtx-include "regex:.*${case_name##*/}/" --clock-control none "${sections[@]}" \
    --metrics gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum,sm__warps_active.avg.pct_of_peak_sustained_active,gpc__cycles_elapsed.avg.per_second \
    --force-overwrite --export "$stage/$name" "${tool_flags[@]}" \
    "$binary" run "$case_name" --profile "${program_flags[@]}" </dev/null >"$log" 2>&1 || code=$?
  ! grep -q ERR_NVGPUCTRPERM "$log" || explain_permission
  report=$stage/$name.ncu-rep
  if [ ! -s "$report" ]; then
    complain "ncu wrote no report (exit code $code). $(program_words)"
    return
  fi
  "$profiler" --import "$report" --csv --page raw --print-units base </dev/null >"$stage/$name.csv" 2>>"$log" || {
    complain "ncu could not read its own report"
    return
  }
  mv "$report" "$stage/$name.csv" "$captures/" || { complain "cannot write $captures"; return; }
  say "$captures/$name.ncu-rep (open with ncu-ui), and $name.csv for: noisefloor crosscheck '$case_name' --report FILE.csv"
  [ $code -eq 0 ] || { complain "captured, but ncu or the program ended with exit code $code. $(program_words)"; return; }
}

capture_with_nsys() {
  local binary=$1 case_name=$2 name code=0
  name=$(capture_name "$case_name") log=$stage/log
  # NSYS_NVTX_PROFILER_REGISTER_ONLY=0: the range is named by a plain string.
  "$profiler" profile -t cuda,nvtx --sample none --cpuctxsw none --capture-range nvtx --nvtx-capture "$case_name@*" \
    --env-var NSYS_NVTX_PROFILER_REGISTER_ONLY=0 --capture-range-end stop --force-overwrite true --output "$stage/$name" "${tool_flags[@]}" \
    "$binary" run "$case_name" --profile "${program_flags[@]}" </dev/null >"$log" 2>&1 || code=$?
  ! grep -q ERR_NVGPUCTRPERM "$log" || explain_permission
  if [ -s "$stage/$name.nsys-rep" ]; then
    mv "$stage/$name.nsys-rep" "$captures/" || { complain "cannot write $captures"; return; }
    say "$captures/$name.nsys-rep (open with nsys-ui, or: nsys stats FILE)"
    [ $code -eq 0 ] || { complain "captured, but nsys or the program ended with exit code $code. $(program_words)"; return; }
  elif [ -s "$stage/$name.qdstrm" ]; then
    mv "$stage/$name.qdstrm" "$captures/" || { complain "cannot write $captures"; return; }
    complain "nsys recorded, but made no report: its importer does not work here. $captures/$name.qdstrm is kept; open it with nsys-ui (File, Import) or give it to QdstrmImporter where Nsight Systems is installed whole"
  else
    complain "nsys wrote no report (exit code $code). $(program_words)"
  fi
}
