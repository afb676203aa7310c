#!/usr/bin/env bash
# bare_system.sh SUITE [FOLDER]: what a stranger does, on a Debian of that name (bookworm, trixie) that has its base packages and this commit's tree
# and nothing else: both commands of the README, to the end. Then the .deb, installed with apt on a second such system, where users' projects build
# against it and run.
#
# Wants root, debootstrap and about 3 GB in FOLDER (a temporary one when absent, removed at the end). Mirror and proxies are those of this system's
# apt. What debootstrap made is kept in a FOLDER that was named, and so is SUITE.tests, a line for each test and what became of it. With CCACHE_DIR in
# the environment that compiler cache is used, and ccache is one more package.
set -euo pipefail
suite=${1:?usage: bare_system.sh SUITE [FOLDER]}
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
fail() { echo "bare_system: $*" >&2 && exit 1; }
[ "$(id -u)" = 0 ] || fail "debootstrap and chroot want root"
command -v debootstrap >/dev/null || fail "debootstrap is not installed"
if [ -n "${2:-}" ]; then
  mkdir -p "$2"
  folder=$(cd "$2" && pwd)
else
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
fi
base=$folder/$suite.base builder=$folder/$suite.builder user=$folder/$suite.user

mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Label: Debian' 'Created-By: Packages' | head -n 1)
[ -n "$mirror" ] || fail "this system's apt knows no mirror of Debian; apt-get update may help"
say() { printf '\n==== %s: %s\n' "$suite" "$*"; }

fresh() { # fresh ROOT: a system with base packages only
  if [ ! -e "$base" ]; then
    say "debootstrap"
    rm -rf "$base.part"
    debootstrap --variant=minbase "$suite" "$base.part" "$mirror"
    mv "$base.part" "$base"
  fi
  rm -rf "$1"
  cp -a "$base" "$1"
  apt-config dump | grep -E '^Acquire::(https?|Check-|Retries)' >"$1/etc/apt/apt.conf.d/90host" || true
}
# A command inside of a system, with names for mounts and processes of its own: nothing stays mounted, nothing keeps running.
inside() { # inside ROOT COMMAND...
  unshare --mount --pid --fork --kill-child bash -c '
    root=$1 && shift
    mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" || exit
    settings=()
    if [ -n "${CCACHE_DIR:-}" ] && [ -x "$root/usr/bin/ccache" ]; then
      mkdir -p "$root/ccache" && mount --bind "$CCACHE_DIR" "$root/ccache" || exit
      settings=(CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_DIR=/ccache CCACHE_BASEDIR=/heed CCACHE_NOHASHDIR=1)
    fi
    for name in http_proxy https_proxy no_proxy; do [ -z "${!name:-}" ] || settings+=("$name=${!name}"); done
    exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive "${settings[@]}" "$@"' inside "$@"
}
install() { # install ROOT PACKAGE...
  local root=$1
  shift
  inside "$root" apt-get update -q
  inside "$root" apt-get install -q -y --no-install-recommends "$@"
}

fresh "$builder"
mkdir "$builder/heed"
git -C "$top" archive HEAD | tar -x -C "$builder/heed"
[ -z "${CCACHE_DIR:-}" ] || install "$builder" ccache

say "./examples/demo.sh"
inside "$builder" /heed/examples/demo.sh
say "./tests/run.sh"
outcome=0
inside "$builder" /heed/tests/run.sh --output-junit /heed/tests.xml || outcome=$?
sed -nE 's/.*<testcase name="([^"]*)".* status="([^"]*)".*/\2 \1/p' "$builder/heed/tests.xml" | sed 's/, /,/g' | sort >"$folder/$suite.tests" # g++ 12 and 14 space types differently
say "$(wc -l <"$folder/$suite.tests") tests, of these $(cut -d ' ' -f 1 "$folder/$suite.tests" | uniq -c | xargs)"
[ "$outcome" = 0 ] || fail "tests failed on $suite"

say "the .deb"
inside "$builder" bash -c 'cd /heed/build && cpack -G DEB'
fresh "$user"
mkdir "$user/deb"
cp "$builder"/heed/build/*.deb "$user/deb"
cp -r "$top/tests/package" "$user/users"
install "$user" $(cd "$user" && printf '/%s ' deb/*.deb)
say "users of the .deb"
install "$user" g++ cmake make pkgconf
inside "$user" bash -c 'cmake -S /users/find_package -B /build && cmake --build /build -j "$(nproc)" && ctest --test-dir /build --output-on-failure --no-tests=error'
inside "$user" /users/pkg_config.sh static /usr c++
say "done"
