#!/usr/bin/env bash
# text.sh FOLDER SOURCE: the programs train_text, generate and inspect in FOLDER, on the documents of SOURCE: a run that is stopped or killed and resumed is
# the run that was not, text is a function of the seed, and bad files are refused.
set -euo pipefail
programs=$1
source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat "$source/README.md" "$source/CONTRIBUTING.md" "$source/autograd/README.md" >text

failures=0
fail() {
  printf '%s\n' "$*"
  failures=$((failures + 1))
}
expect() { # expect STATUS TEXT PROGRAM ARGUMENTS...
  local status=0 wanted=$1 part=$2
  shift 2
  "$programs/$1" "${@:2}" >out 2>&1 </dev/null || status=$?
  [ "$status" = "$wanted" ] && grep -qF -- "$part" out || fail "$* wants status $wanted and \"$part\", got $status and: $(head -c 2000 out)"
}

small=(--layers 1 --heads 2 --d-model 16 --context 16 --batch 4 --vocab-size 300 --dropout 0.1 --threads 1 --eval-every 10 --sample-length 20)

# The whole run, then the same one ended by each signal as soon as there is a checkpoint, and resumed from what that left.
expect 0 "Bits per character of the held-out part: GPT" train_text text "${small[@]}" --steps 300 --out whole.safetensors --csv whole.csv --svg whole.svg --dot step.dot --summary
grep -q "tokens/s" out && grep -q "held out: " out && grep -q "transformer.h.0.attn.c_attn.weight" out || fail "the run tells too little: $(cat out)"
grep -q "<svg" whole.svg && grep -q "transformer.h.0.mlp.c_fc.weight" step.dot || fail "the pictures are not there"
[ "$(wc -l <whole.csv)" = 302 ] || fail "whole.csv has $(wc -l <whole.csv) lines, not a header, the start and 300 steps"
for signal in INT TERM KILL; do
  rm -f part.safetensors part.csv
  "$programs/train_text" text "${small[@]}" --steps 300 --out part.safetensors --csv part.csv >out 2>&1 &
  child=$!
  for _ in $(seq 600); do
    [ -e part.safetensors ] && break
    sleep 0.05
  done
  kill -$signal $child 2>/dev/null || true
  status=0
  wait $child 2>/dev/null || status=$?
  case $signal in
    INT) [ $status = 130 ] && grep -q "Stopped after step" out || fail "Ctrl-C: status $status: $(cat out)" ;;
    TERM) [ $status = 143 ] || fail "SIGTERM: status $status" ;;
    KILL) [ $status = 137 ] || fail "SIGKILL: status $status" ;;
  esac
  rm -f .heed-*.tmp
  expect 0 "Going on after step" train_text text --resume part.safetensors --out part.safetensors --csv part.csv --threads 1 --eval-every 10 --sample-length 0
  cmp whole.safetensors part.safetensors || fail "$signal: the resumed run is another one"
  cut -d, -f1-5 whole.csv >want
  cut -d, -f1-5 part.csv >got
  [ $signal = KILL ] || cmp want got || fail "$signal: the CSV file is another one" # a kill may lose rows
done

# As many steps as fit into the time, decided early in the warm-up.
expect 0 "Saved in" train_text text "${small[@]}" --minutes 0.02 --out timed.safetensors
grep -qE "Going for [0-9]+ steps" out || fail "--minutes does not tell how many steps: $(cat out)"

# What does not go together.
expect 1 "another text" train_text "$source/LICENSE" --resume whole.safetensors
expect 1 "were made already" train_text text --resume whole.safetensors --steps 5
"$programs/train_text" text --resume whole.safetensors --lr 1 >out 2>&1 && fail "--resume takes --lr"
expect 1 "not a multiple" train_text text --heads 3 --d-model 16
expect 1 "cannot write into" train_text text --out nowhere/model.safetensors
expect 1 "do not fit" train_text text --context 100000
expect 1 "not a checkpoint" train_text text --resume "$source/tests/golden/gpt_loss.safetensors"
head -c 50 text >short
expect 1 "too few" train_text short
expect 1 "--warmup" train_text text --minutes 1 --warmup 5

# Other tokenizers.
for tokenizer in characters bytes; do
  expect 0 "Saved in" train_text text "${small[@]}" --tokenizer $tokenizer --steps 3 --out $tokenizer.safetensors --accumulate 3 --quiet
  expect 0 "The" generate --model $tokenizer.safetensors --prompt "The" --tokens 5
done
expect 1 "not in the vocabulary" generate --model characters.safetensors --prompt $'\x01'

# Text is a function of model, prompt, options and seed; the cache and the window of 16 tokens change nothing.
text_of() { "$programs/generate" --model whole.safetensors --prompt "The gradient" --tokens 60 --quiet "$@" 2>&1; }
once=$(text_of --seed 3)
[ "$once" = "$(text_of --seed 3)" ] || fail "the same seed writes two texts"
[ "$once" = "$(text_of --seed 3 --no-cache)" ] || fail "the cache changes the text"
[ "$once" != "$(text_of --seed 4)" ] || fail "the seed changes nothing"
[ "$(text_of --greedy)" = "$(text_of --seed 9 --temperature 0)" ] || fail "temperature 0 is not greedy"
[ "$(text_of --greedy)" = "$(text_of --top-k 1 --seed 5)" ] || fail "top-k 1 is not greedy"
[[ $once == "The gradient"* ]] || fail "the text does not begin with the prompt: $once"
[ "$(printf 'The gradient' | "$programs/generate" --model whole.safetensors --prompt - --tokens 60 --seed 3 --quiet)" = "$once" ] || fail "a prompt from standard input writes another text"
expect 0 "tokens/s" generate --model whole.safetensors --tokens 3
expect 1 "config.json" generate --model "$source/examples" --prompt x
expect 1 "generate: " generate --model text --prompt x
expect 1 "not a checkpoint" generate --model "$source/tests/golden/gpt_loss.safetensors" --prompt x

# inspect: good files, and what an enemy might send.
expect 0 "0 NaN, 0 infinite" inspect whole.safetensors
expect 0 "transformer.h.0.attn.c_attn.weight" inspect whole.safetensors
expect 0 "BF16" inspect "$source/tests/golden/gpt2/bf16.safetensors"
for file in "$source"/tests/fuzz/corpus/npy/*.npy; do expect 0 "1 tensors" inspect "$file"; done
: >empty
printf '\x93NUMPY' >magic
head -c 1000 whole.safetensors >cut
head -c 100000 /dev/zero >zeros
printf '\xff\xff\xff\xff\xff\xff\xff\x7f{}' >huge
cp whole.safetensors longer && printf 'x' >>longer
printf '\x1b\x00\x00\x00\x00\x00\x00\x00{"\\u001b[2J":{"dtype":"X"}}' >escape
for file in empty magic cut zeros huge longer text . nothing escape; do expect 1 "inspect: " inspect "$file"; done
! grep -q $'\x1b' out || fail "a name from a file reaches the terminal as it is"

[ "$failures" = 0 ] || {
  echo "$failures failures"
  exit 1
}
