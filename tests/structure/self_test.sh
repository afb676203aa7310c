#!/usr/bin/env bash
# The checks of check.sh and readme.sh find what they are there to find: each rule passes on a clean tree and fails after one bad file.
set -euo pipefail
check=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/check.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

failures=0
expect() { # expect RULE FILE LINE: a clean tree keeps the rule, FILE with LINE in it breaks it
  local rule=$1 file=$2 line=$3
  rm -rf "${tree:?}"/*
  mkdir -p "$tree"/{tensor/kernels,autograd,nn,tests}
  printf '#include "../tensor/layout.h"\n' >"$tree/nn/good.h"
  printf '#include <oneapi/dnnl/dnnl.hpp>\n#include "onednn.h"\n' >"$tree/tensor/kernels/onednn.cpp"
  printf '#include <heed/tensor/layout.h>\n' >"$tree/tests/good_test.cpp"
  "$check" "$rule" "$tree" || { echo "$rule does not pass a clean tree" && failures=$((failures + 1)); }
  mkdir -p "$tree/$(dirname "$file")"
  printf '%b\n' "$line" >>"$tree/$file"
  if "$check" "$rule" "$tree" >/dev/null; then
    echo "$rule does not see $file with: $line" && failures=$((failures + 1))
  fi
}

expect direction tensor/a.cpp '#include "../autograd/op.h"'
expect direction tensor/io/a.cpp '  # include "../../nn/linear.h"'
expect direction tensor/a.h '#include <heed/nn/linear.h>'
expect direction autograd/ops/a.cpp '#include "../../nn/linear.h"'
expect spelling nn/a.h '#include <heed/tensor/tensor.h>'
expect spelling tests/a_test.cpp '#include "../tensor/tensor.h"'
expect onednn nn/a.cpp '#include <dnnl.hpp>'
expect onednn tensor/kernels/gemm.cpp '#include <oneapi/dnnl/dnnl.h>'
expect onednn tests/a_test.cpp '#include "oneapi/dnnl/dnnl.h"'
expect length nn/long.cpp "$(printf 'int x;\\n%.0s' {1..501})"
expect words nn/a.cpp "// see /ho""me/someone/notes"
expect words nn/a.cpp "// TO""DO later"
expect top utils/a.h 'int x;'
expect top notes.txt 'x'
if "$check" unknown "$tree" >/dev/null; then
  echo "an unknown rule passes" && failures=$((failures + 1))
fi

# So does readme.sh, of each kind of quote; and it fills in what is right.
readme=$(dirname "$check")/readme.sh
expect_quotes() { # expect_quotes STATUS CODE PART OUTPUT
  local status=0
  printf '<!-- code: .clang-format -->\n```\n%s\n```\n\n<!-- part: LICENSE -->\n```\n%s\n```\n<!-- output: say 1 -->\n```\n%s\n```\n' "${@:2}" >"$tree/quotes.md"
  "$readme" "$tree/quotes.md" "$tree" >"$tree/log" 2>&1 || status=1
  [ "$status" = "$1" ] || { echo "readme.sh: status $status for" && cat "$tree/quotes.md" "$tree/log" && failures=$((failures + 1)); }
}
printf '#!/bin/sh\necho "$1 plus $1 makes $(($1 + $1))"\n' >"$tree/say" && chmod +x "$tree/say"
right=("$(<"$(dirname "$check")/../../.clang-format")" "$(sed -n 2,3p "$(dirname "$check")/../../LICENSE")" "3 plus 3 makes 6")
expect_quotes 0 "${right[@]}"
expect_quotes 1 "${right[0]}x" "${right[1]}" "${right[2]}"
expect_quotes 1 "${right[0]}" "${right[1]}x" "${right[2]}"
expect_quotes 1 "${right[0]}" "${right[1]}" "1 and 1 makes 2"
expect_quotes 1 "nothing" "${right[1]}" "nothing"
"$readme" --fill "$tree/quotes.md" "$tree"
"$readme" "$tree/quotes.md" "$tree" >/dev/null && grep -q '^1 plus 1 makes 2$' "$tree/quotes.md" || { echo "readme.sh --fill" && failures=$((failures + 1)); }

[ "$failures" = 0 ]
