#!/usr/bin/env bash
# Runs the tests of build/ at each SIMD level that this CPU has below the best, which run.sh has seen: HEED_SIMD for heed's kernels, oneDNN held to the
# same instructions. Arguments go to ctest: tests/levels.sh -R softmax
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$top/build
jobs=$(getconf _NPROCESSORS_ONLN)
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}

# A name that there is not makes heed list those that there are, the best first.
levels=$(HEED_SIMD='?' "$build/tests/kernels_tests" --gtest_list_tests 2>&1 >/dev/null | sed -n 's/^heed: HEED_SIMD=.* have //p')
[ -n "$levels" ] || { echo "levels: $build/tests/kernels_tests lists no SIMD levels" >&2 && exit 1; }
echo "levels: this CPU and this build have $levels"

failed=
for level in ${levels#* }; do
  case $level in
    AVX2) isa=AVX2 ;;
    *) isa=SSE41 ;; # the least that oneDNN has fast kernels for
  esac
  echo "levels: HEED_SIMD=$level ONEDNN_MAX_CPU_ISA=$isa"
  HEED_SIMD=$level ONEDNN_MAX_CPU_ISA=$isa ctest --test-dir "$build" --output-on-failure --no-tests=error --parallel "$jobs" \
    -R '^(kernels|tensor|autograd|nn)\.' "$@" || failed="$failed $level"
done
[ -z "$failed" ] || { echo "levels: failed:$failed" >&2 && exit 1; }
