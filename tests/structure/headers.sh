#!/usr/bin/env bash
# headers.sh PREFIX COMPILER: every header installed under PREFIX compiles alone, twice, without a warning, and pulls in nothing but heed and the
# standard library. fmt.h, gtest.h and tensor/format.h are for users of fmt and GoogleTest and are left out.
set -euo pipefail
export include=$1/include compiler=$2
export work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

compiles_alone() { # compiles_alone HEADER
  local file=$work/${1//\//_}.cpp log=$work/${1//\//_}.log others
  printf '#include <%s>\n#include <%s>\n' "$1" "$1" >"$file"
  "$compiler" -std=c++20 -fsyntax-only -Wall -Wextra -Wshadow -Wconversion -Wpedantic -Werror -I"$include" -H "$file" 2>"$log" || {
    echo "$1 does not compile alone:" && grep -vE '^\.+ |^Multiple include|^/[^:]*$' "$log"
    return 1
  }
  # -H lists every file that was included; those of heed are seen by their own names.
  others=$(sed -n 's/^\.\.* //p' "$log" | grep -vF "$include/heed/" | grep -E '/(fmt|hwy|nlohmann|gtest|gmock|oneapi)/|/dnnl|/omp\.h$' | sort -u)
  [ -z "$others" ] || {
    printf '%s includes:\n%s\n' "$1" "$others"
    return 1
  }
}
export -f compiles_alone

(cd "$include" && find heed -name '*.h' | sort | grep -vxE 'heed/(fmt|gtest|tensor/format)\.h') >"$work/headers"
echo "$(wc -l <"$work/headers") headers"
xargs -a "$work/headers" -P "$(getconf _NPROCESSORS_ONLN)" -I{} bash -c 'compiles_alone {}'
