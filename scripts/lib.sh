# shellcheck shell=bash disable=SC2154,SC2034
# Sourced by the scripts beside it: messages, what this machine has, building. Not run by itself.
# Settings, all optional:
#   NOISEFLOOR_JOBS     compile jobs (default: every core)
#   NOISEFLOOR_PYTHON   the Python that has PyTorch (default: python3, then .venv)
#   NOISEFLOOR_PRESET   the CMake preset to build (default: cuda with a GPU and a CUDA toolkit, else host)

# What the caller's shell, git hook or pip is set to must not reach the scripts: where cd goes, whose repository git takes, how many cores
# nproc counts, where things are installed.
# shellcheck disable=SC2086
unset CDPATH DESTDIR ${!GIT_@}
nproc() { env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc "$@"; }

script=${0##*/}
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/.venv
step=starting  # what die and the exit trap name

say() { printf '%s: %s\n' "$script" "$*" >&2; }
die() {
  say "error while $step: $*"
  exit 2
}
# run STEP COMMAND...: runs it, says every half minute that it still does, and ends the script with the step's name where it fails. A script that
# is interrupted ends all that this started.
run() {
  local code=0 begun beat signal=TERM
  step=$1
  shift
  say "$step"
  printf -v begun '%(%T)T'
  # One that was stopped, as by asking at the terminal, hears of it only where it goes on; one that does not listen ends by the second signal.
  trap 'say "interrupted while $step"; for job in $(jobs -p); do kill -$signal -- "-$job" && kill -CONT -- "-$job"; done 2>/dev/null || true; signal=KILL; wait; exit 130' HUP INT QUIT TERM
  set -m  # each in a process group of its own
  while sleep 30 && kill -0 $$ 2>/dev/null; do say "still $step, since $begun"; done &
  beat=$!
  "$@" </dev/null &
  set +m
  wait $! || code=$?
  kill -- -$beat 2>/dev/null || true  # somebody else may have
  trap - HUP INT QUIT TERM
  [ $code -eq 0 ] || die "'$*' ended with exit code $code"
}
# The comment at the top of a script is its help.
help_from_header() { sed -n '2,/^[^#]/{/^#/!d;s/^# \{0,1\}//;p}' "$1"; }

have() { command -v "$1" >/dev/null 2>&1; }

# setup [--sweep]: runs scripts/setup; without its Python packages the caller goes on.
setup() {
  local code=0
  step="setting up"
  "$root/scripts/setup" "$@" </dev/null || code=$?
  [ $code -eq 0 ] || [ $code -eq 3 ] || exit $code
}

# pip_of PYTHON ARGUMENTS...: that Python's pip. What the caller has set says where packages come from, and not where they go, or whether.
pip_of() {
  local python=$1
  shift
  env -u PIP_USER -u PIP_TARGET -u PIP_PREFIX -u PIP_ROOT -u PIP_DRY_RUN "$python" -I -m pip "$@" -q --disable-pip-version-check --no-input </dev/null
}

# python_with MODULES: prints the first Python that has them, as `import` takes them; fails where none has.
python_with() {
  local python
  for python in "${NOISEFLOOR_PYTHON:-}" python3 "$venv/bin/python3"; do
    [ -n "$python" ] && have "$python" && "$python" -c "import $1" </dev/null >/dev/null 2>&1 || continue
    printf '%s\n' "$python"
    return 0
  done
  return 1
}

# Prints nvcc's path; fails where there is none.
find_nvcc() {
  local candidate
  for candidate in "${CUDACXX:-}" "$(command -v nvcc || true)" "${CUDA_HOME:-}/bin/nvcc" "${CUDA_PATH:-}/bin/nvcc" /usr/local/cuda/bin/nvcc; do
    if [ -n "$candidate" ] && [ -x "$candidate" ]; then
      printf '%s\n' "$candidate"
      return 0
    fi
  done
  return 1
}

# Sets `gpus`, one a line as scripts/gpus has them, and `no_gpu`, why there is none.
find_gpus() {
  local answer
  answer=$(python3 -I "$root/scripts/gpus" 2>&1) || true
  gpus=$(grep -E '^[0-9]+\.[0-9] ' <<<"$answer" || true)
  no_gpu=''
  [ -n "$gpus" ] || no_gpu=$(paste -sd'|' - <<<"$answer" | sed 's/|/; /g')
}

# Sets `preset` and says in one line why, when it is not the GPU that is measured.
choose_preset() {
  find_gpus
  nvcc=$(find_nvcc || true)
  preset=host
  if [ -n "${NOISEFLOOR_PRESET:-}" ]; then
    preset=$NOISEFLOOR_PRESET
    say "preset $preset, as NOISEFLOOR_PRESET asks"
  elif [ -n "$gpus" ] && [ -n "$nvcc" ]; then
    preset=cuda
    say "GPU: $(cut -d' ' -f2- <<<"$gpus" | sort | uniq -c | sed 's/^ *1 //; s/^ *\([0-9]*\) /\1 x /' | paste -sd, -); CUDA compiler: $nvcc"
  elif [ -n "$gpus" ]; then
    say "no CUDA toolkit (no nvcc on PATH, in CUDA_HOME or /usr/local/cuda): the host variants only; the GPU needs CUDA 12.6 or newer, or a bundle (scripts/bundle)"
  else
    say "no GPU ($no_gpu): the host variants only, on $(nproc) cores"
  fi
  [ -z "$nvcc" ] || export CUDACXX=$nvcc
}

find_cmake() {
  local candidate
  for candidate in cmake "$venv/bin/cmake"; do
    if have "$candidate" && [ "$(printf '3.24\n%s\n' "$("$candidate" --version | sed -n '1s/[^0-9]*//p')" | sort -V | head -1)" = 3.24 ]; then
      command -v "$candidate"
      return 0
    fi
  done
  return 1
}

# build PRESET [-DNAME=VALUE...] [-- TARGET...]
build() {
  local name=$1 definitions=() targets=() cmake
  shift
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    definitions+=("$1")
    shift
  done
  [ $# -eq 0 ] || shift
  [ $# -eq 0 ] || targets=(--target "$@")
  step="configuring $root/build/$name"
  cmake=$(find_cmake) || die "needs CMake 3.24 or newer; scripts/setup installs it"
  mkdir -p "$root/build/$name" 2>/dev/null && [ -w "$root/build/$name" ] || die "cannot write $root/build/$name"
  local cache=$root/build/$name/CMakeCache.txt made=$root/build/$name/.system system
  # A folder that was copied or moved here holds the old place's paths.
  if [ -f "$cache" ] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$cache"; then
    say "build/$name was made in another place: configuring it anew"
    rm -rf "$cache" "$root/build/${name:?}/CMakeFiles"
  fi
  # A home may be shared between systems, whose headers and libraries are others.
  system="$(uname -m)$(sed -n 's/^\(ID\|VERSION_ID\)=/ /p' /etc/os-release 2>/dev/null | tr -d '"\n')" || true  # no such file
  if [ -f "$made" ] && [ "$(cat "$made")" != "$system" ]; then
    say "build/$name was made on $(cat "$made"), and this is $system: building it anew"
    find "${root:?}/build/$name" -mindepth 1 -maxdepth 1 -exec rm -rf {} +
  fi
  printf '%s\n' "$system" >"$made"
  local log=$root/build/$name/configure.log
  configure() {
    cd "$root" && "$cmake" --preset "$name" "${definitions[@]}" >"$log" 2>&1 && return
    tail -n 40 "$log" >&2
    say "CMake refused; the whole output is in $log"
    return 2
  }
  run "$step" configure
  { grep '^-- noisefloor:' "$log" || true; } | sed 's/^-- noisefloor: //' | while read -r line; do say "$line"; done
  run "building $root/build/$name" env NINJA_STATUS="[%f/%t, %es] " \
    "$cmake" --build "$root/build/$name" --parallel "${NOISEFLOOR_JOBS:-$(nproc)}" "${targets[@]}"
}

newest_binary() { ls -1t "$root"/build/*/bin/noisefloor 2>/dev/null | head -1 | grep .; }

# cuBLASLt and cuDNN are opened at run time: lets the loader find the ones that come as Python packages.
export_cuda_library_path() {
  local candidate folders
  for candidate in "${NOISEFLOOR_PYTHON:-}" python3 "$venv/bin/python3"; do
    [ -n "$candidate" ] && have "$candidate" || continue
    folders=$("$candidate" - 2>/dev/null <<'PYTHON' || true
import glob, importlib.util
spec = importlib.util.find_spec("nvidia")
print(":".join(f for p in (spec.submodule_search_locations if spec else ()) for f in sorted(glob.glob(p + "/*/lib"))))
PYTHON
    )
    [ -z "$folders" ] || export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folders"
  done
}

# A bundle, which was linked elsewhere, also looks into this machine's toolkit.
export_toolkit_library_path() {
  local folder
  for folder in "${CUDA_HOME:-/usr/local/cuda}/lib64" "${CUDA_HOME:-/usr/local/cuda}/extras/CUPTI/lib64"; do
    [ ! -d "$folder" ] || export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder"
  done
}

# choose_tests CTEST BUILD RE ONLY: sets `selection`, the arguments for ctest that keep to the tests whose names match RE (all, where it is
# empty) and, where ONLY is gpu, to those that need a GPU. The GPU tests are one test to ctest: they get RE in NOISEFLOOR_TEST_FILTER.
choose_tests() {
  local ctest=$1 build=$2 filter=$3 only=$4 found
  selection=()
  [ "$only" != gpu ] || selection+=(-L gpu)
  [ -n "$filter" ] || return 0
  found=$("$ctest" --test-dir "$build" -N "${selection[@]}" -R "$filter" </dev/null) || die "ctest does not take '$filter'"
  if [ -x "$build/bin/gpu_tests" ] && ! grep -q ': gpu_tests$' <<<"$found" &&
    NOISEFLOOR_TEST_FILTER=$filter "$build/bin/gpu_tests" --gtest_list_tests </dev/null | grep '^  ' >/dev/null; then
    export NOISEFLOOR_TEST_FILTER=$filter
    selection+=(-R "($filter)|^gpu_tests\$")
  elif grep -q '^Total Tests: 0$' <<<"$found"; then
    die "no test's name matches '$filter'"
  else
    selection+=(-R "$filter")
  fi
}

# sweep_below BINARY RUNS [ARGUMENTS OF `noisefloor sweep`]: sweeps into a run folder below RUNS, or goes on in the one that was cut short.
# Ends the script.
sweep_below() {
  local binary=$1 runs=$2 code=0
  shift 2
  step=sweeping
  say "$step"
  trap 'say "interrupted: the finished rows are kept, and the same command resumes"; exit 130' INT TERM
  "$binary" sweep --runs "$runs" "$@" </dev/null || code=$?
  [ $code -le 2 ] || say "error while $step: '$binary sweep $*' ended with exit code $code"
  exit $((code > 1 ? 2 : code))
}
