#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
#
# scripts/test --peers: builds the drop-in, installs the peers into build/peers (install.sh) and runs them.
# Arguments go to run.py; --only TEXT skips the others. Ends with one line in the words of ctest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
here=tests/peers
peers=$PWD/build/peers

die() { echo "peers: $*" >&2; exit 1; }

passed=0 failed=0

# A log's last line of ctest's kind is added to the counts.
count() {
  local line
  line=$(grep -E '[0-9]+% tests passed' "$1" | tail -n 1)
  [[ $line =~ ([0-9]+)\ tests?\ failed\ out\ of\ ([0-9]+) ]] || { failed=$((failed + 1)); return; }
  failed=$((failed + BASH_REMATCH[1])) passed=$((passed + BASH_REMATCH[2] - BASH_REMATCH[1]))
}

# Its tests are unittest's: "Ran 14 tests", "FAILED (failures=1, errors=2)".
cuda_core() {
  local log=$peers/cuda_core_$1.log total bad
  echo "== cuda.core $1"
  LATHE_SIM_ARCH=$1 "$peers/venv/bin/python" $here/cuda_core_test.py >"$log" 2>&1 || true
  cat "$log"
  total=$(sed -nE 's/^Ran ([0-9]+) tests?.*/\1/p' "$log")
  bad=$(sed -nE 's/^FAILED \((.*)\)/\1/p' "$log" | sed 's/[a-z ]*skipped=[0-9]*//' | tr -cs '0-9' '+')
  bad=$((0${bad%+}))
  grep -qE '^(OK|FAILED)' "$log" || { total=1 bad=1; }  # it died
  failed=$((failed + bad)) passed=$((passed + total - bad))
}

$here/install.sh "$peers"
scripts/build release lathe_sim_cuda
libraries=$PWD/build/sim
for folder in "${CUDA_HOME:-/usr/local/cuda}/lib64" "$PWD/.deps/lib"; do
  if ls "$folder"/libnvrtc.so.1? >/dev/null 2>&1; then libraries+=:$folder; break; fi
done

if [ $# -eq 0 ]; then
  export LD_LIBRARY_PATH=$libraries
  cuda_core sm_80
  cuda_core sm_90a
fi

echo "== Triton and flash-linear-attention"
# The stand-ins go first: the simulator's NCCL has not all that torch is linked against.
LD_LIBRARY_PATH=$peers/standins:$PWD/build/sim TRITON_LIBCUDA_PATH=$PWD/build/sim \
  "$peers/venv/bin/python" $here/run.py --work "$peers" "$@" 2>&1 | tee "$peers/run.log" || true
count "$peers/run.log"

total=$((passed + failed))
[ "$total" -gt 0 ] || die "no test ran"
echo
echo "$((100 * passed / total))% tests passed, $failed tests failed out of $total"
[ "$failed" = 0 ]
