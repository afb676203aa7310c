#!/usr/bin/env bash
# Holds a Markdown file against what it quotes: readme.sh FILE.md PROGRAMS
# A block after `<!-- code: PATH -->` is that file, to the letter. A block after `<!-- output: PROGRAM -->` is what the program of that name in the folder PROGRAMS prints, up to the
# digits of numbers, which differ between CPUs; other outputs (with arguments, or of scripts) are left alone.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
document=$1 programs=$2

block() { awk -v marker="<!-- $1 -->" '$0 == marker {found = 1; next} found && /^```/ {if (inside) exit; inside = 1; next} inside {print}' "$document"; }
# Numbers become #, with the spaces that line them up; examples are named from the top of the tree.
masked() { sed -E 's#[^ ]*/(examples/)#\1#g; s/ *-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?/ #/g; s/[.:=+*#%@-]{2,}/ @/g; s/ +/ /g; s/ +$//'; }

quoted=0
while read -r kind what; do
  case $kind in
    code:)
      diff -u "$top/$what" <(block "code: $what") || { echo "$document quotes another $what" && exit 1; } ;;
    output:)
      [ -x "$programs/$what" ] || continue
      diff -u <(OMP_NUM_THREADS=1 "$programs/$what" | masked) <(block "output: $what" | masked) || { echo "$document quotes another output of $what" && exit 1; } ;;
  esac
  quoted=$((quoted + 1))
done < <(sed -n 's/^<!-- \(code: .*\|output: [^ ]*\) -->$/\1/p' "$document")
[ "$quoted" -gt 0 ] || { echo "$document quotes nothing" && exit 1; }
echo "$document: $quoted quotes are right"
