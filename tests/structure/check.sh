#!/usr/bin/env bash
# check.sh RULE [TREE]: one of CONTRIBUTING's rules about the source tree, over TREE (this one when absent). Prints what breaks it.
set -euo pipefail
rule=$1
cd "${2:-$(dirname "${BASH_SOURCE[0]}")/../..}"

# Everything that belongs to the project, with or without git.
files() {
  find . \( -name '.git' -o -name 'build*' \) -prune -o -type f -print | sed 's|^\./||'
}
sources() { # sources FOLDER...: headers and sources in these folders
  files | grep -E "^($(IFS='|' && echo "$*"))/.*\.(h|cpp)$" || true
}
includes() { # includes of the files named on standard input, as FILE:LINE:#include ...
  xargs -r grep -nHE '^[[:space:]]*#[[:space:]]*include' || true
}

broken() {
  case $rule in
    direction) # tensor <- autograd <- nn
      sources tensor | includes | grep -E '[</"](autograd|nn)/' || true
      sources autograd | includes | grep -E '[</"]nn/' || true
      ;;
    spelling) # the library includes its own headers relative to the including file, everybody else as installed
      sources tensor autograd nn | includes | grep -E '<heed/' || true
      sources tests examples bench | includes | grep -E '"([^"]*/)?(tensor|autograd|nn)/' || true
      ;;
    onednn) # one file knows oneDNN's interface
      sources tensor autograd nn tests examples bench | includes | grep -E '[</"](oneapi/|dnnl)' | grep -v '^tensor/kernels/onednn\.cpp:' || true
      ;;
    length) # a file can be read in one sitting
      files | grep -E '\.(h|cpp)$' | xargs -r wc -l | awk '$2 != "total" && $1 > 500 {print $2 ": " $1 " lines"}'
      ;;
    words) # nothing of the machine it was written on, nothing put off
      files | grep -vE '\.(safetensors|npy)$|^tests/fuzz/' |
        xargs -r grep -nHIE '/(home|root|Users|work|workspace)/[A-Za-z0-9_]|\b(TO[D]O|FI[X]ME|X[X]X|HA[C]K)\b' || true
      ;;
    top) # the top level stays small
      files | sed 's|/.*|/|' | sort -u | grep -vxE '(tensor|autograd|nn|examples|tests|bench|\.ci)/' |
        grep -vxE 'CMakeLists\.txt|CMakePresets\.json|README\.md|CONTRIBUTING\.md|LICENSE|setup\.sh|\.clang-format|\.gitignore' || true
      ;;
    *)
      echo "no such rule: $rule"
      ;;
  esac
}

found=$(broken)
[ -z "$found" ] || {
  printf '%s: broken by\n%s\n' "$rule" "$found"
  exit 1
}
