#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
#
# The Python package on the simulator, in the environment with torch that tests/peers/install.sh
# makes in build/peers. Ends with one line in the words of ctest.
#
#   scripts/test --python             the types, the tests with NumPy, those with torch
#     --torch oldest                  with the oldest torch that the package takes, in build/peers-oldest;
#                                     default: newest, which tests/peers/requirements.txt names
#     --sample K/N                    the K-th of N parts of the tests with torch, and no others
#   scripts/test --wheels PYTHON...   the tests with NumPy under other interpreters, on the wheels
#                                     that scripts/wheels left in dist/
#   scripts/test --peer-suites CHECKOUT [--sample N] [ARGUMENT...]
#                                     the tests of a checkout of flash-linear-attention,
#                                     flash-attention, causal-conv1d, vLLM or SGLang on lathe's functions;
#                                     arguments go to its runner in python/tests/peers
#
#   LATHE_JOBS=N                      processes of the tests with torch; default: one per core
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tests=$PWD/python/tests
peers=$PWD/build/peers
python=$peers/venv/bin/python
logs=$PWD/build/python/logs
jobs=${LATHE_JOBS:-$(nproc)}

# What pyproject.toml promises as the least.
oldest=torch==2.6.0
oldest_triton=triton==3.2.0  # which it was made with; inductor imports it

die() { echo "test: $*" >&2; exit 2; }

passed=0 failed=0

# Names NVRTC's file in LATHE_NVRTC: the stand-ins of the environment, which the loader finds first,
# have one that compiles nothing.
find_compiler() {
  local file
  for file in "${CUDA_HOME:-/usr/local/cuda}"/lib64/libnvrtc.so.1[32] \
    "$PWD"/.deps/lib/libnvrtc.so.1[32]; do
    if [ -e "$file" ]; then export LATHE_NVRTC=${LATHE_NVRTC:-$file}; fi
  done
}

set_environment() {
  mkdir -p "$logs"
  export LATHE_DEVICE=sim LATHE_CACHE_DIR=$PWD/build/python/cache
  export PYTHONPYCACHEPREFIX=$PWD/build/python/bytecode  # nothing is written beside the sources
  find_compiler
}

prepare() {
  scripts/build release lathe_python lathe_program lathe_sim_cuda lathe_sim_nccl
  tests/peers/install.sh "$peers"
  export PYTHONPATH=$PWD/build/python LD_LIBRARY_PATH=$peers/standins
  set_environment
}

# run NAME COMMAND...: runs it and leaves its output in a log, and its exit code in `code`.
run() {
  local name=$1
  shift
  echo "== $name"
  code=0
  "$@" 2>&1 | tee "$logs/${name// /_}.log" || code=$?
}

# count NAME: adds what the last line of a log says, in pytest's words: "12 passed, 1 failed,
# 3 skipped". One more has failed if there is no such line, or if the command failed and the line
# knows of nothing.
count() {
  local line good bad
  line=$(grep -E '[0-9]+ (passed|failed|errors?|skipped)\b' "$logs/${1// /_}.log" |
    tail -n 1) || true
  good=$(words "$line" passed) bad=$(words "$line" 'failed|errors?')
  if [ -z "$line" ] || { [ "$code" != 0 ] && [ "$bad" = 0 ]; }; then bad=$((bad + 1)); fi
  passed=$((passed + good)) failed=$((failed + bad))
}

# words LINE KIND: the sum of the numbers before a word.
words() { echo $(($(grep -oE "[0-9]+ ($2)\b" <<<"$1" | grep -oE '^[0-9]+' | tr '\n' '+')0)); }

# The package's types and those of calls of it, then the extension beside its stub.
types() {
  whole types -m mypy --strict --config-file python/pyproject.toml --cache-dir build/python/mypy \
    python/src/lathe python/tests/typed
  whole stub -m mypy.stubtest --ignore-disjoint-bases lathe._core
}

# whole NAME ARGUMENT...: a program of Python that is one test.
whole() {
  run "$1" "$python" "${@:2}"
  if [ "$code" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
}

# Those of the tests with torch that the oldest one can run: others are about what is newer there.
oldest_tests=(with_torch/test_{causal_conv1d,dtensor,flash_attn,flex,functions_compile,functions_gradients,into}.py
              with_torch/test_{negative_views,ranks,vmap}.py)

# sampled PART/PARTS FILE...: a part of the tests with torch, dealt by their names: by a process for
# each job, as pytest has one alone.
sampled() {
  local part=${1%/*} parts=${1#*/} job pids=()
  shift
  echo "== with_torch, $jobs processes"
  for ((job = 0; job < jobs; job++)); do
    env -C "$tests" "$python" -m pytest -q -p no:cacheprovider \
      --part "$((part + parts * job))/$((parts * jobs))" "$@" >"$logs/with_torch_$job.log" 2>&1 &
    pids+=($!)
  done
  for ((job = 0; job < jobs; job++)); do
    code=0
    wait "${pids[job]}" || code=$?
    cat "$logs/with_torch_$job.log"
    count "with_torch $job"
  done
}

# The folders have files of equal names, which one pytest would take for the same module.
own_tests() {
  run core env -C "$tests" "$python" -m pytest -q -p no:cacheprovider core
  count core
  sampled 1/1 with_torch
}

# on_wheels PYTHON: installs the wheels for an interpreter and tests them.
on_wheels() {
  local version place
  version=$("$1" -c 'import platform; print(platform.python_version())')
  place=$PWD/build/python/wheels-$version
  "$1" -m venv --clear "$place"
  "$place/bin/pip" install --quiet --disable-pip-version-check --no-input \
    -c tests/peers/requirements.txt numpy pytest dist/lathe_jit*.whl
  run "wheels $version" env -u PYTHONPATH -C "$tests" "$place/bin/python" -m pytest -q \
    -p no:cacheprovider core
  count "wheels $version"
}

# Prints whose checkout a folder is.
owner() {
  if [ -d "$1/fla/ops/kda" ]; then
    echo flash-linear-attention
  elif [ -e "$1/hopper/test_flash_attn.py" ]; then
    echo flash-attention
  elif [ -e "$1/tests/test_causal_conv1d.py" ]; then
    echo causal-conv1d
  elif [ -e "$1/tests/kernels/mamba/test_causal_conv1d.py" ]; then
    echo vllm
  elif [ -d "$1/test/registered" ]; then
    echo sglang
  else
    die "'$1' is a checkout of neither flash-linear-attention, flash-attention, causal-conv1d, vLLM nor SGLang"
  fi
}

# peer OWNER CHECKOUT ARGUMENT...
peer() {
  local arguments=" ${*:3} " version versions=(2 3)
  case "$1" in
    flash-linear-attention)
      [[ $arguments != *" --sample"* ]] || die "--sample: the tests of $1 run whole"
      suite "$1" fla_suite.py "${@:2}"
      ;;
    flash-attention)
      [[ $arguments != *" --version"* ]] || versions=("")
      for version in "${versions[@]}"; do
        suite "$1 $version" flash_attn_suite.py "${@:2}" ${version:+--version "$version"}
      done
      ;;
    causal-conv1d) suite "$1" causal_conv1d_suite.py "${@:2}" ;;
    vllm | sglang) suite "$1" servers_suite.py "${@:2}" ;;
  esac
}

# suite NAME FILE ARGUMENT...
suite() {
  run "$1" "$python" "$tests/peers/$2" "${@:3}"
  count "$1"
}

case "${1:-}" in
  --python)
    shift
    part='' files=(with_torch)
    while [ $# -gt 0 ]; do
      case "$1 ${2:-}" in
        "--torch newest") ;;
        "--torch oldest")
          export LATHE_PEERS_TORCH=$oldest LATHE_PEERS_TRITON=$oldest_triton
          peers=$peers-oldest
          python=$peers/venv/bin/python files=("${oldest_tests[@]}")
          ;;
        "--sample "*/*) part=$2 ;;
        *) die "--python takes --torch oldest|newest and --sample K/N, not '$1 ${2:-}'" ;;
      esac
      shift 2
    done
    prepare
    if [ -n "$part" ]; then
      sampled "$part" "${files[@]}"
    else
      types
      own_tests
    fi
    ;;
  --wheels)
    [ $# -ge 2 ] || die "--wheels needs interpreters, such as python3.13"
    compgen -G 'dist/lathe_jit-*.whl' >/dev/null ||
      die "there are no wheels in dist: run scripts/wheels"
    set_environment
    for interpreter in "${@:2}"; do on_wheels "$interpreter"; done
    ;;
  --peer-suites)
    [ $# -ge 2 ] || die "--peer-suites needs the folder of a checkout"
    whose=$(owner "$2")
    prepare
    peer "$whose" "${@:2}"
    ;;
  *) die "unknown argument '${1:-}': --python, --wheels PYTHON..., --peer-suites CHECKOUT" ;;
esac

total=$((passed + failed))
[ "$total" -gt 0 ] || { echo "no test ran"; exit 1; }
echo
echo "$((100 * passed / total))% tests passed, $failed tests failed out of $total"
[ "$failed" = 0 ]
