#!/usr/bin/env bash
# usage: run.sh COMMAND [ARGS...]
#
# Runs noisefloor from this folder, on a machine that needs a GPU and its driver, but no toolchain. CUDA's libraries (cuBLASLt and
# cuDNN for the baselines, CUPTI for the counters) are found on LD_LIBRARY_PATH, in python3's nvidia packages (PyTorch brings
# them), or in /usr/local/cuda.
#
#   run.sh test [GTEST FLAGS]       the host tests, then the GPU tests
#   run.sh sweep [SWEEP ARGUMENTS]  the sweep, PyTorch's rows where python3 has a PyTorch that sees the GPU, and the roofline
#   run.sh libraries                where CUDA's libraries were found
#   run.sh exec COMMAND [ARGS]      any command, with these libraries (compute-sanitizer bin/gpu_tests)
#   run.sh ANYTHING ELSE            noisefloor ANYTHING ELSE: devices, list, run, ceilings, roofline, ...
#
# NOISEFLOOR_PYTHON names the Python that has PyTorch, where it is not python3.
# Exit codes: 0 done; 1 the thing checked is not so; 2 it could not be done.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
python=${NOISEFLOOR_PYTHON:-python3}
say() { printf 'run.sh: %s\n' "$*" >&2; }
die() { say "error: $*"; exit 2; }

library_folders() {
  "$python" - 2>/dev/null <<'PYTHON' || true
import glob, importlib.util
spec = importlib.util.find_spec("nvidia")
for place in spec.submodule_search_locations if spec else ():
    print("\n".join(sorted(glob.glob(place + "/*/lib"))))
PYTHON
  local folder
  for folder in "${CUDA_HOME:-/usr/local/cuda}/lib64" "${CUDA_HOME:-/usr/local/cuda}/extras/CUPTI/lib64"; do
    [ ! -d "$folder" ] || printf '%s\n' "$folder"
  done
}
folders=$(library_folders | paste -sd: -)
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}${LD_LIBRARY_PATH:+${folders:+:}}$folders"
export NOISEFLOOR_ROOT=$here

# Libraries that the loader would not find, before it says so in its own words.
missing=$(LC_ALL=C ldd "$here"/bin/* 2>/dev/null | sed -n 's/^[[:space:]]*\([^ ]*\) => not found.*/\1/p' | sort -u | paste -sd' ' -)
looked="LD_LIBRARY_PATH is now ${LD_LIBRARY_PATH:-empty}; add the folder that has it, or point NOISEFLOOR_PYTHON at a Python that has PyTorch"
where() { # LIBRARY: the first file of that name on LD_LIBRARY_PATH
  local folder
  while read -r -d: folder; do
    if [ -e "$folder/$1" ]; then
      printf '%s\n' "$folder/$1"
      return
    fi
  done <<<"$LD_LIBRARY_PATH:"
  ldconfig -p 2>/dev/null | sed -n "s/^[[:space:]]*$1 .*=> //p" | head -1
}

[ -z "$missing" ] || [ "${1:-}" = libraries ] || [ "${1:---help}" = --help ] || die "the programs cannot start without $missing. $looked"
cd "$here"
case "${1:---help}" in
  -h | --help) sed -n '2,/^[^#]/{/^#/!d;s/^# \{0,1\}//;p}' "$here/run.sh" ;;
  libraries)
    for library in libcuda.so.1 libcupti.so.13 libcublasLt.so.13 libcudnn.so.9; do
      found=$(where "$library")
      printf '%-18s %s\n' "$library" "${found:-not found}"
    done
    [ -z "$missing" ] || die "missing: $missing. $looked" ;;
  exec)
    shift
    [ $# -gt 0 ] || die "exec needs a command"
    exec "$@" ;;
  test)
    shift
    failed=''
    for program in host_tests gpu_tests; do
      code=0
      say "$program"
      "bin/$program" --gtest_brief=1 "$@" </dev/null || code=$?
      if [ $code -eq 77 ]; then
        say "$program: skipped, no CUDA device"
      elif [ $code -ne 0 ]; then
        failed="$failed $program"
      fi
    done
    [ -z "$failed" ] || { say "failed:$failed"; exit 1; }
    say "passed" ;;
  sweep)
    shift
    out=''
    previous=''
    for argument in "$@"; do
      case "$previous $argument" in
        '--out '*) out=$argument ;;
        *' --out='*) out=${argument#*=} ;;
        *' -h' | *' --help') exec bin/noisefloor sweep --help ;;
      esac
      previous=$argument
    done
    if [ -z "$out" ]; then
      out=$here/runs/$(date -u +%Y%m%d-%H%M%S)
      set -- "$@" --out "$out"
    fi
    worst=0
    bin/noisefloor sweep "$@" </dev/null || worst=$?
    [ $worst -le 1 ] || exit $worst
    if "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' >/dev/null 2>&1; then
      code=0
      say "PyTorch's rows ($(command -v "$python"))"
      "$python" -m baselines.pytorch sweep --run-dir "$out" --noisefloor "$here/bin/noisefloor" </dev/null || code=$?
      [ $code -le 1 ] || die "PyTorch's rows failed with exit code $code; the finished rows are in $out"
      [ $code -eq 0 ] || worst=$code
    else
      say "$python has no PyTorch that sees a GPU: its rows are left out"
    fi
    bin/noisefloor roofline "$out" </dev/null || worst=$?
    say "the run folder is $out"
    exit $worst ;;
  *) exec bin/noisefloor "$@" ;;
esac
