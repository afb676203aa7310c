#!/usr/bin/env bash
# The checks of check.sh find what they are there to find: each rule passes on a clean tree and fails after one bad file.
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

[ "$failures" = 0 ]
