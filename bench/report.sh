#!/usr/bin/env bash
# Builds, and measures every row of the performance table on one and two threads, beside PyTorch where it is installed: a Markdown table and JSON.
# Arguments go to bench/report.py: ./bench/report.sh --help
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$top/build
jobs=$(getconf _NPROCESSORS_ONLN)

command -v python3 >/dev/null || { echo "report: needs python3" >&2 && exit 1; }
case " $* " in *" -h "* | *" --help "*) exec python3 "$top/bench/report.py" --help ;; esac

{
  "$top/setup.sh"
  generator=()
  # A folder that was configured before keeps its generator.
  if [ ! -e "$build/CMakeCache.txt" ] && command -v ninja >/dev/null; then generator=(-G Ninja); fi
  cmake -S "$top" -B "$build" "${generator[@]}" -DHEED_BUILD_BENCH=ON
  type=$(sed -n 's/^CMAKE_BUILD_TYPE:[A-Z]*=//p' "$build/CMakeCache.txt")
  [ "$type" = Release ] || { echo "report: $build is a build for $type: remove it, or configure it for Release" && exit 1; }
  cmake --build "$build" --parallel "$jobs" --target report_rows bench_attention
} >&2 # standard output is the report
exec python3 "$top/bench/report.py" --build "$build" "$@"
