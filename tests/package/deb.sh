#!/usr/bin/env bash
# deb.sh static|shared CPACK BUILD VERSION LIBRARY...: the .deb files of BUILD hold what they should, and depend on the libraries, libfmt and so on, in
# the versions that are installed here, with which they were built.
# Exit status 77 without dpkg-deb, or for a shared library without dpkg-shlibdeps.
set -euo pipefail
kind=$1 cpack=$2 build=$3 version=$4
shift 4
command -v dpkg-deb >/dev/null || { echo "no dpkg-deb" && exit 77; }
if [ "$kind" = shared ]; then command -v dpkg-shlibdeps >/dev/null && command -v file >/dev/null || { echo "no dpkg-shlibdeps" && exit 77; }; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "deb: $*" && exit 1; }

"$cpack" -G DEB --config "$build/CPackConfig.cmake" -B "$work" >"$work/log" 2>&1 || { cat "$work/log" && exit 1; }
architecture=$(dpkg --print-architecture)
soversion=${version%.*}

holds() { # holds PACKAGE PATTERN...: a path in it matches each
  local package=$1 pattern
  shift
  for pattern in "$@"; do
    dpkg-deb --contents "$work/$package" | awk '{print $6}' | grep -qE "^\./usr/$pattern\$" || fail "$package does not hold $pattern"
  done
  ! dpkg-deb --contents "$work/$package" | awk '{print $6}' | grep -vE '^\./(usr/.*)?$' || fail "$package writes outside of /usr"
}
satisfied() { # satisfied PACKAGE NAME...: depends on these names at least, and all that it depends on is installed in the right version
  local package=$1 name relation wanted depends have
  shift
  depends=$(dpkg-deb --field "$work/$package" Depends)
  echo "$package: $depends"
  for name in "$@"; do
    case ", $depends," in *", $name"[^,]*,* | *", $name,"*) ;; *) fail "$package does not depend on $name" ;; esac
  done
  while read -r name relation wanted; do
    case $name in libheed*) continue ;; esac
    have=$(dpkg-query --show --showformat '${Version}\n' "$name" | head -n 1) || fail "$package depends on $name, which is not installed"
    [ -z "$relation" ] || dpkg --compare-versions "$have" "$relation" "$wanted" || fail "$package wants $name $relation $wanted, installed is $have"
  done < <(tr ',|' '\n' <<<"$depends" | tr -d '()' | sed 's/^ *//')
}

dev=libheed-dev_${version}_$architecture.deb
[ -e "$work/$dev" ] || fail "no $dev, but: $(ls "$work")"
holds "$dev" 'include/heed/heed\.h' 'include/heed/fmt\.h' 'include/heed/tensor/tensor\.h' '.*/cmake/heed/heedConfig\.cmake' '.*/pkgconfig/heed\.pc' '.*/LICENSE'
! dpkg-deb --contents "$work/$dev" | grep -E '/kernels/|raise\.h|-inl\.h' || fail "$dev holds private headers"
if [ "$kind" = static ]; then
  holds "$dev" 'lib.*/libheed\.a'
  satisfied "$dev" "${@/%/-dev}"
else
  run=libheed${soversion}_${version}_$architecture.deb
  holds "$dev" 'lib.*/libheed\.so'
  holds "$run" "lib.*/libheed\.so\.$soversion" "lib.*/libheed\.so\.$version"
  satisfied "$dev" "libheed$soversion (= $version)"
  satisfied "$run" libstdc++6 "$@"
  [ "$(dpkg-deb --info "$work/$run" shlibs)" = "libheed $soversion libheed$soversion (>= $version)" ] || fail "shlibs: $(dpkg-deb --info "$work/$run" shlibs)"
fi
