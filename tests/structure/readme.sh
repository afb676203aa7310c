#!/usr/bin/env bash
# Holds a Markdown file against what it quotes: readme.sh [--fill] FILE.md PROGRAMS
#
# Marks, each before a block:
#   <!-- code: PATH -->               is that file, to the letter
#   <!-- part: PATH -->               stands in that file, line for line
#   <!-- output: PROGRAM [ARG...] --> is what the program of that name in the folder PROGRAMS prints, up to the digits of numbers, which differ between CPUs
#   <!-- run: PROGRAM [ARG...] -->    as output, but more than digits differ (a text that is sampled): not compared
# With --fill the blocks are written anew, all but parts; programs run at the top of the tree, where they may write pictures.
set -euo pipefail
fill=
if [ "$1" = --fill ]; then fill=yes && shift; fi
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
document=$(realpath "$1") programs=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

block() { awk -v marker="<!-- $1 -->" '$0 == marker {found = 1; next} found && /^```/ {if (inside) exit; inside = 1; next} inside {print}' "$document"; }
# Numbers become #, with the spaces that line them up.
masked() { sed -E 's/ *-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?/ #/g; s/[.:=+*#%@-]{2,}/ @/g; s/ +/ /g; s/ +$//'; }
built() { [ -x "$programs/${1%% *}" ]; } # not every build has every program
output() {                               # output "PROGRAM ARG...": what it prints, examples named from the top of the tree
  local words
  read -ra words <<<"$1"
  "$programs/${words[0]}" "${words[@]:1}" | sed -E 's#[^ ]*/(examples/)#\1#g'
}

if [ -n "$fill" ]; then
  cd "$top"
  while IFS= read -r line; do
    printf '%s\n' "$line"
    [[ $line =~ ^'<!-- '(code|output|run)': '(.*)' -->'$ ]] || continue
    what=${BASH_REMATCH[2]}
    if [ "${BASH_REMATCH[1]}" = code ]; then
      cp "$top/$what" "$work/block"
    else
      built "$what" || continue
      output "$what" >"$work/block" </dev/null
    fi
    while IFS= read -r line && [[ $line != '```'* ]]; do printf '%s\n' "$line"; done # blank lines before the block
    printf '%s\n' "$line"
    cat "$work/block"
    while IFS= read -r line && [[ $line != '```'* ]]; do :; done
    printf '%s\n' "$line"
  done <"$document" >"$work/filled"
  cat "$work/filled" >"$document"
  exit
fi

quoted=0
cd "$work"
while read -r kind what; do
  block "$kind $what" >quote
  case $kind in
    code:)
      diff -u "$top/$what" quote || { echo "$document quotes another $what" && exit 1; } ;;
    part:)
      # The quote with line ends as one string, inside the file as one string.
      [[ -s quote && $'\n'$(<"$top/$what")$'\n' == *$'\n'"$(<quote)"$'\n'* ]] || { echo "$document quotes as a part of $what:" && cat quote && exit 1; } ;;
    output:)
      built "$what" || continue
      OMP_NUM_THREADS=1 output "$what" >printed </dev/null || { echo "$what fails:" && cat printed && exit 1; }
      diff -u <(masked <printed) <(masked <quote) || { echo "$document quotes another output of $what" && exit 1; } ;;
  esac
  quoted=$((quoted + 1))
done < <(sed -n 's/^<!-- \(code: .*\|part: .*\|output: .*\) -->$/\1/p' "$document")
[ "$quoted" -gt 0 ] || { echo "$document quotes nothing" && exit 1; }
echo "$document: $quoted quotes are right"
