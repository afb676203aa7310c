#!/usr/bin/env bash
# Sets up, builds the library and examples/train_attention in build/, trains the attention layer and shows it.
# Arguments go to the program: ./examples/demo.sh --help. Pictures go to build/pictures, unless --pictures says otherwise.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$top/build
jobs=$(getconf _NPROCESSORS_ONLN)

"$top/setup.sh"

generator=()
# A folder that was configured before keeps its generator.
if [ ! -e "$build/CMakeCache.txt" ] && command -v ninja >/dev/null; then generator=(-G Ninja); fi
echo "demo: configuring $build"
cmake -S "$top" -B "$build" "${generator[@]}" -DHEED_BUILD_EXAMPLES=ON
echo "demo: building with $jobs jobs"
cmake --build "$build" --parallel "$jobs" --target train_attention
echo "demo: running examples/train_attention $*"
exec "$build/examples/train_attention" --pictures "$build/pictures" "$@"
