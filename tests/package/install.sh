#!/usr/bin/env bash
# install.sh CMAKE BUILD PREFIX: installs BUILD under another name and moves it to PREFIX, so that nothing in the package can lean on its first place.
set -euo pipefail
cmake=$1 build=$2 prefix=$3
rm -rf "$prefix" "$prefix.first"
"$cmake" --install "$build" --prefix "$prefix.first"
mv "$prefix.first" "$prefix"
