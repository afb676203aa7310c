#!/usr/bin/env bash
# pkg_config.sh static|shared PREFIX COMPILER: a program is built and run with what heed.pc, installed under PREFIX, says and nothing else.
# Exit status 77 without pkg-config.
set -euo pipefail
kind=$1 prefix=$2 compiler=$3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command -v pkg-config >/dev/null || { echo "no pkg-config" && exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "pkg_config: $*" && exit 1; }

file=$(find "$prefix" -name heed.pc)
[ -n "$file" ] || fail "no heed.pc under $prefix"
export PKG_CONFIG_PATH=${file%/*}
also=
case $kind in
  static) also=--static ;;
  shared) export PKG_CONFIG_LIBDIR=$PKG_CONFIG_PATH ;; # no other package can be found
esac
flags=$(pkg-config $also --cflags --libs heed)
echo "$(pkg-config --modversion heed): $flags"

case $(pkg-config --libs heed) in
  *-lfmt* | *-lhwy* | *-ldnnl* | *-lgomp* | *openmp*) fail "what is private is handed on: $(pkg-config --libs heed)" ;;
esac
if [ "$kind" = shared ] && [ "$(pkg-config --static --libs heed)" != "$(pkg-config --libs heed)" ]; then
  fail "a shared heed asks its users for more: $(pkg-config --static --libs heed)"
fi

# shellcheck disable=SC2086 # flags are words
"$compiler" -std=c++20 "$here/find_package/layer.cpp" $flags -o "$work/layer"
LD_LIBRARY_PATH=$(pkg-config --variable=libdir heed) "$work/layer"
