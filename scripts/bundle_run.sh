#!/usr/bin/env bash
# usage: run.sh COMMAND [ARGS...]
#
# Runs noisefloor from this folder, on a machine that needs a GPU and its driver, but no toolchain. CUDA's libraries (cuBLASLt and
# cuDNN for the baselines, CUPTI for the counters) are found on LD_LIBRARY_PATH, in python3's nvidia packages (PyTorch brings
# them), or in /usr/local/cuda.
#
#   run.sh test [GTEST FLAGS]       the host tests, then the GPU tests
#   run.sh sweep [SWEEP ARGUMENTS]  the sweep, PyTorch's rows where python3 has a PyTorch that sees the GPU, and the roofline
#   run.sh publish measure --shards DIR  the next shards of published results (tools/publish --help)
#   run.sh ncu | nsys CASE [OPTIONS] [-- FLAGS]   captures a case, as scripts/ncu and scripts/nsys do (--help there)
#   run.sh libraries                where CUDA's libraries were found
#   run.sh exec COMMAND [ARGS]      any command in this folder, with these libraries (compute-sanitizer bin/gpu_tests)
#   run.sh ANYTHING ELSE            noisefloor ANYTHING ELSE: devices, list, run, ceilings, roofline, ...
#
# NOISEFLOOR_PYTHON names the Python that has PyTorch, where it is not python3.
# Exit codes: 0 done; 1 the thing checked is not so; 2 it could not be done.
set -euo pipefail
here=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
. "$here/scripts/lib.sh"
script=run.sh
step=starting

export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
export_cuda_library_path
export_toolkit_library_path

# Libraries that the loader would not find, before it says so in its own words.
missing=$({ LC_ALL=C ldd "$here"/bin/* 2>/dev/null || true; } | sed -n 's/^[[:space:]]*\([^ ]*\) => not found.*/\1/p' | sort -u | paste -sd' ' -)
looked="LD_LIBRARY_PATH is now ${LD_LIBRARY_PATH:-empty}; add the folder that has it, or point NOISEFLOOR_PYTHON at a Python that has PyTorch"
[ -z "$missing" ] || [ "${1:-}" = libraries ] || [ "${1:---help}" = --help ] || die "the programs cannot start without $missing. $looked"
case "${1:---help}" in
  -h | --help) help_from_header "$here/run.sh" ;;
  libraries)
    for library in libcuda.so.1 libcupti.so.13 libcublasLt.so.13 libcudnn.so.9; do
      found=$(IFS=:; for folder in $LD_LIBRARY_PATH; do [ ! -e "$folder/$library" ] || { printf '%s\n' "$folder/$library"; break; }; done)
      : "${found:=$(ldconfig -p 2>/dev/null | sed -n "s/^[[:space:]]*$library .*=> //p" | head -1)}"
      printf '%-18s %s\n' "$library" "${found:-not found}"
    done
    [ -z "$missing" ] || die "missing: $missing. $looked" ;;
  exec)
    shift
    [ $# -gt 0 ] || die "exec needs a command"
    cd "$here"
    exec "$@" ;;
  test)
    shift
    cd "$here"
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
    case " $* " in *' -h '* | *' --help '*) exec "$here/bin/noisefloor" sweep --help ;; esac
    sweep_below "$here/bin/noisefloor" "$here/runs" "$@" ;;
  publish)
    shift
    NOISEFLOOR_BINARY="$here/bin/noisefloor" exec python3 "$here/tools/publish" "$@" ;;
  ncu | nsys)
    NOISEFLOOR_BINARY="$here/bin/noisefloor" exec "$here/scripts/$1" "${@:2}" ;;
  *) exec "$here/bin/noisefloor" "$@" ;;
esac
