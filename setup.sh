#!/usr/bin/env bash
# Installs what heed needs to build, where it is missing. With --dev also what CI uses: clang, its sanitizers, clang-format, ccache, doxygen, NumPy.
# Does nothing when all is there. Exit status 1 where something is missing and cannot be installed.
# shellcheck disable=SC2046,SC2086 # lists of names are split into words on purpose
set -euo pipefail

usage() {
  echo "usage: ./setup.sh [--dev]    install the packages that heed needs; --dev: also clang, clang-format, ccache, doxygen and NumPy, as CI uses them"
}

dev=
for argument in "$@"; do
  case $argument in
    --dev) dev=yes ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
  esac
done

cmake_minimum=3.25

# What is needed, and the package that brings it: apt, dnf, pacman, brew ("-": part of another one).
packages() {
  cat <<'END'
compiler      g++                 gcc-c++                 gcc            gcc
cmake         cmake               cmake                   cmake          cmake
ninja         ninja-build         ninja-build             ninja          ninja
oneDNN        libdnnl-dev         onednn-devel            onednn         onednn
fmt           libfmt-dev          fmt-devel               fmt            fmt
Highway       libhwy-dev          highway-devel           highway        highway
nlohmann-json nlohmann-json3-dev  json-devel              nlohmann-json  nlohmann-json
CLI11         libcli11-dev        cli11-devel             cli11          cli11
GoogleTest    libgtest-dev        gtest-devel             gtest          googletest
GoogleMock    libgmock-dev        gmock-devel             gtest          googletest
benchmark     libbenchmark-dev    google-benchmark-devel  benchmark      google-benchmark
pkg-config    pkgconf             pkgconf-pkg-config      pkgconf        pkgconf
clang         clang               clang                   clang          llvm
sanitizers    libclang-rt-dev     compiler-rt             compiler-rt    llvm
libomp        libomp-dev          libomp-devel            openmp         libomp
clang-format  clang-format        clang-tools-extra       clang          clang-format
ccache        ccache              ccache                  ccache         ccache
doxygen       doxygen             doxygen                 doxygen        doxygen
NumPy         python3-numpy       python3-numpy           python-numpy   numpy
END
}

# Headers are asked for in one run of the preprocessor, wherever they come from; tools by calling them.
header() {
  printf '#if !__has_include(<%s>)\nmissing %s\n#endif\n' "$2" "$1"
}
at_least() { # at_least 3.25 3.31.2: the second version is not the older one
  [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]
}
cmake_version() { cmake --version 2>/dev/null | sed -n 's/^cmake version \([0-9.]*\).*/\1/p'; }
compiles_with_clang() { echo 'int main() {}' | clang++ "$@" -x c++ - -o /dev/null >/dev/null 2>&1; }

missing() {
  local compiler=${CXX:-c++} include=()
  at_least "$cmake_minimum" "$(cmake_version)" || echo cmake
  command -v ninja >/dev/null || echo ninja
  command -v pkg-config >/dev/null || echo pkg-config
  if command -v brew >/dev/null; then include=("-I$(brew --prefix)/include"); fi
  if command -v "$compiler" >/dev/null; then
    {
      header oneDNN oneapi/dnnl/dnnl.hpp
      header fmt fmt/core.h
      header Highway hwy/highway.h
      header nlohmann-json nlohmann/json.hpp
      header CLI11 CLI/CLI.hpp
      header GoogleTest gtest/gtest.h
      header GoogleMock gmock/gmock.h
      header benchmark benchmark/benchmark.h
    } | "$compiler" -E -P "${include[@]}" -x c++ - | sed -n 's/^missing //p'
  else
    packages | awk '{print $1}' | sed -n '/compiler/p; /oneDNN/,/benchmark/p'
  fi
  if [ -n "$dev" ]; then
    if ! command -v clang++ >/dev/null; then
      printf '%s\n' clang sanitizers libomp
    else
      compiles_with_clang -fsanitize=address,fuzzer-no-link || echo sanitizers
      compiles_with_clang -fopenmp || echo libomp
    fi
    command -v clang-format >/dev/null || echo clang-format
    command -v ccache >/dev/null || echo ccache
    command -v doxygen >/dev/null || echo doxygen
    # Packages bring it for the system's Python, which need not be the first on the path.
    python3 -c 'import numpy' 2>/dev/null || /usr/bin/python3 -c 'import numpy' 2>/dev/null || echo NumPy
  fi
}

package_names() { # package_names COLUMN THING...
  local column=$1 thing
  shift
  for thing in "$@"; do
    packages | awk -v thing="$thing" -v column="$column" '$1 == thing {print $column}'
  done | sort -u
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    echo "setup: run as root: $*" >&2
    return 1
  fi
}

install_apt() {
  local names=() name version
  as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q
  # The sanitizers' package carries clang's version in its name; before clang 14.0.6 they are part of another one.
  version=$(apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9]*\).*/\1/p' | head -n 1)
  for name in $(package_names 2 "$@"); do
    if [ "$name" = libclang-rt-dev ]; then
      name=libclang-rt-$version-dev
      apt-cache show "$name" >/dev/null 2>&1 || name=libclang-common-$version-dev
    fi
    names+=("$name")
  done
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${names[@]}"
}

lacking=$(missing)
if [ -z "$lacking" ]; then
  echo "setup: everything is there"
  exit 0
fi
set -- $lacking
echo "setup: missing:" "$@"

if command -v apt-get >/dev/null; then
  install_apt "$@" </dev/null || true
elif command -v dnf >/dev/null; then
  as_root dnf install -y $(package_names 3 "$@") </dev/null || true
elif command -v pacman >/dev/null; then
  as_root pacman -S --needed --noconfirm $(package_names 4 "$@") </dev/null || true
elif command -v brew >/dev/null; then
  brew install $(package_names 5 "$@") </dev/null || true
fi

hash -r
lacking=$(missing)
if [ -z "$lacking" ]; then
  echo "setup: everything is there now"
  exit 0
fi
if [ "$lacking" = oneDNN ]; then
  echo "setup: no package of oneDNN to be had: heed will use its own kernels for f32, which are slower"
  exit 0
fi
{
  echo "setup: still missing:" $lacking
  echo "Get them from your system's package manager. The names on Debian and Ubuntu, Fedora, Arch Linux, Homebrew:"
  for thing in $lacking; do packages | awk -v thing="$thing" '$1 == thing {print "  " $0}'; done
  case " $(echo $lacking) " in
    *" cmake "*) echo "CMake must be $cmake_minimum or newer; 'python3 -m pip install cmake' brings a current one." ;;
  esac
} >&2
exit 1
