#!/usr/bin/env bash
# Sets up, builds everything in build/ and runs all tests. Arguments go to ctest: ./tests/run.sh -R softmax
# HEED_CMAKE_ARGS in the environment goes to cmake: HEED_CMAKE_ARGS=-DHEED_WERROR=ON ./tests/run.sh
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$top/build
jobs=$(getconf _NPROCESSORS_ONLN)

"$top/setup.sh"

generator=()
# A folder that was configured before keeps its generator.
if [ ! -e "$build/CMakeCache.txt" ] && command -v ninja >/dev/null; then generator=(-G Ninja); fi
echo "run: configuring $build"
read -ra cmake_args <<<"${HEED_CMAKE_ARGS:-}"
cmake -S "$top" -B "$build" "${generator[@]}" -DHEED_BUILD_TESTS=ON -DHEED_BUILD_EXAMPLES=ON -DHEED_BUILD_BENCH=ON "${cmake_args[@]}"
echo "run: building with $jobs jobs"
cmake --build "$build" --parallel "$jobs"
# Tests run side by side, each with threads for all cores: those that wait must not spin while others have work.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
echo "run: testing"
exec ctest --test-dir "$build" --output-on-failure --no-tests=error --parallel "$jobs" "$@"
