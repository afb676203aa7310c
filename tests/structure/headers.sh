#!/usr/bin/env bash
# headers.sh PREFIX COMPILER [FLAG...]: every header installed under PREFIX compiles alone, twice, without a warning, and pulls in nothing but heed and
# the standard library. fmt.h, gtest.h and tensor/format.h are for users of fmt and GoogleTest and are left out.
set -euo pipefail
include=$1/include
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

failures=0 count=0
while read -r header; do
  printf '#include <%s>\n#include <%s>\n' "$header" "$header" >"$work/alone.cpp"
  "$@" -std=c++20 -fsyntax-only -Wall -Wextra -Wshadow -Wconversion -Wpedantic -Werror -I"$include" -H "$work/alone.cpp" 2>"$work/log" || {
    echo "$header does not compile alone:" && grep -vE '^\.+ ' "$work/log"
    failures=$((failures + 1))
  }
  # -H lists every file that was included; those of heed are seen by their own name.
  if others=$(sed -n 's/^\.\.* //p' "$work/log" | grep -vF "$include/heed/" | grep -E '/(fmt|hwy|nlohmann|gtest|gmock|oneapi)/|/dnnl|/omp\.h$' | sort -u); then
    printf '%s includes:\n%s\n' "$header" "$others"
    failures=$((failures + 1))
  fi
  count=$((count + 1))
done < <(cd "$include" && find heed -name '*.h' | sort | grep -vxE 'heed/(fmt|gtest|tensor/format)\.h')

echo "$count headers, $failures failures"
[ "$count" -gt 0 ] && [ "$failures" = 0 ]
