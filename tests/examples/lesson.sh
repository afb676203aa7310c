#!/usr/bin/env bash
# lesson.sh PROGRAM: what the README tells somebody who comes from NumPy. Exit status 77 where there is no NumPy.
set -euo pipefail
program=$1
examples=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../examples" && pwd)
python=python3
"$python" -c 'import numpy' 2>/dev/null || python=/usr/bin/python3 # where packages bring it
"$python" -c 'import numpy' 2>/dev/null || { echo "no NumPy" && exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

failures=0
expect() { # expect STATUS TEXT: what the program says of this folder's arrays
  local status=0
  "$program" --npy . >out 2>&1 || status=$?
  [ "$status" = "$1" ] && grep -qF -- "$2" out && return
  printf 'wants status %s and "%s", got %s and\n' "$1" "$2" "$status" && cat out
  failures=$((failures + 1))
}
# Weights of the lesson are saturated more often than not, which hides mistakes; these are not.
example() { sed 's/^scores = /W_q, W_k, W_v = W_q \/ 128**0.5, W_k \/ 128**0.5, W_v \/ 128**0.5\n&/' "$examples/lesson.py"; }
again() { # again CODE: the README's side once more, then this
  { example && echo "$1"; } | "$python" -
}

"$python" "$examples/lesson.py"
expect 0 'output.npy, without mask: largest difference'
grep -q '^weights.npy: largest difference' out || { echo "no word about weights.npy" && failures=1; }

again 'arrays["output"][2, 3] += 1e-6; np.save("output.npy", arrays["output"])'
expect 1 'at (2, 3)'
again 'arrays["weights"][1, 4] += 1e-6; np.save("weights.npy", arrays["weights"])'
expect 1 'at (1, 4)'
again 'arrays["output"][0, 0] = np.nan; np.save("output.npy", arrays["output"])'
expect 1 'NOT rounding'

# The lesson's mask, other sizes, and f32.
masked='
def softmax(s): e = np.exp(s - s.max(axis=-1, keepdims=True)); return e / e.sum(axis=-1, keepdims=True)
allowed = np.tril(np.ones((5, 5)))
weights = softmax(np.where(allowed == 0, -np.inf, scores))
np.save("output.npy", weights @ (x @ W_v)); np.save("weights.npy", weights)'
again "$masked"
expect 0 'output.npy, with the look-ahead mask'
again "$masked; np.save('mask.npy', allowed)"
expect 0 'output.npy, with mask.npy'
again "$masked; np.save('mask.npy', allowed.T)"
expect 1 'NOT rounding'
rm mask.npy
again "$masked
weights = softmax(scores * 8); np.save('output.npy', weights @ (x @ W_v))"
expect 1 'it agrees with scores that are not scaled, without mask'
again '
x, W_q, W_k, W_v = (a.astype(np.float32) for a in (x, W_q, W_k, W_v))
s = (x @ W_q) @ (x @ W_k).T / np.float32(8); e = np.exp(s - s.max(axis=-1, keepdims=True)); weights = e / e.sum(axis=-1, keepdims=True)
for name, array in dict(x=x, W_q=W_q, W_k=W_k, W_v=W_v, weights=weights, output=weights @ (x @ W_v)).items(): np.save(name + ".npy", array)'
expect 0 'rounding of f32 (up to'
again '
x = x.astype(np.float32)  # NumPy 2 makes float32 / np.float64 a float64 whose errors are those of float32
s = ((x @ W_q.astype(np.float32)) @ (x @ W_k.astype(np.float32)).T) / np.sqrt(64); e = np.exp(s - s.max(axis=-1, keepdims=True))
weights = e / e.sum(axis=-1, keepdims=True)
for name, array in dict(x=x, weights=weights, output=weights @ (x @ W_v)).items(): np.save(name + ".npy", array)'
expect 0 'rounding of f32 (x is f32) (up to'
again 'np.save("x.npy", x.astype(np.float16))'
expect 1 'x.npy is float16'

# Other mistakes, and what no known mistake explains.
softmax='
def softmax(s, axis=-1): e = np.exp(s - s.max(axis=axis, keepdims=True)); return e / e.sum(axis=axis, keepdims=True)
def save(weights): np.save("weights.npy", weights); np.save("output.npy", weights @ (x @ W_v))
allowed = np.tril(np.ones((5, 5)))'
again "$softmax; save(softmax(scores, 0))"
expect 1 'it agrees with softmax over axis 0 instead of -1, without mask'
again "$softmax; save(softmax(scores.T))"
expect 1 'it agrees with Q and K swapped, without mask'
again "$softmax; save(softmax(np.where(np.triu(np.ones((5, 5))) == 0, -np.inf, scores)))"
expect 1 'it agrees with np.triu in place of np.tril'
again "$softmax; save(softmax(scores + np.eye(5)))"
expect 1 'No known mistake explains it; a mask of your own goes into mask.npy.'
grep -q 'NOT the lesson' out && { echo "a mistake is named that was not made" && failures=$((failures + 1)); }

# Saturated weights: another head gives the same output, which is said; the weights tell where they are saved.
again "$softmax
x = 10000 * x; scores = (x @ W_q) @ (x @ W_k).T / 8; save(softmax(scores)); np.save('x.npy', x)"
expect 0 'output.npy, without mask'
rm weights.npy
expect 0 'the weights are saturated'
grep -q '^  scores that are not scaled, without mask$' out || { echo "no word about scores that are not scaled" && failures=$((failures + 1)); }
again "$softmax
x = 10 * x; scores = (x @ W_q) @ (x @ W_k).T; save(softmax(scores)); np.save('x.npy', x)"
expect 1 'it agrees with scores that are not scaled, without mask'
again "$softmax
x, W_q, W_k, W_v = (a.astype(np.float32) for a in (10 * x, W_q, W_k, W_v)); w = softmax((x @ W_q) @ (x @ W_k).T / np.float32(8))
for name, array in dict(x=x, W_q=W_q, W_k=W_k, W_v=W_v, weights=w, output=w @ (x @ W_v) + 0.08).items(): np.save(name + '.npy', array)"
expect 1 'No known mistake explains it'

# Masks.
again "$softmax; save(softmax(np.where(allowed == 0, -np.inf, scores))); np.save('mask.npy', np.where(allowed == 0, -np.inf, 0))"
expect 1 'mask.npy holds -inf: wants 1 where a query may look and 0 where it may not'
again "$softmax; save(softmax(np.where(allowed == 0, -np.inf, scores))); np.save('mask.npy', allowed == 0)"
expect 1 'with mask.npy the other way round'
again "$softmax; allowed[2] = 0
with np.errstate(all='ignore'): save(softmax(np.where(allowed == 0, -np.inf, scores)))  # NaN in row 2
np.save('mask.npy', allowed == 1)"
expect 0 'Row 2 of mask.npy is all 0.'
rm mask.npy
again "$softmax
w = softmax(scores); w[0, 0] = -np.nan; save(w)"
expect 1 'largest difference nan'
grep -q -- '-nan' out && { echo "NaN with a sign" && failures=$((failures + 1)); }
again 'np.save("W_q.npy", W_q.T)'
expect 1 'W_q.npy has shape (64, 128): wants (d_model, d_head), and x.npy has d_model 128: it is transposed, save W_q.T'
again ''

again 'np.save("output.npy", arrays["output"][:4])'
expect 1 'output.npy has shape (4, 64), here it is (5, 64)'
again 'np.save("x.npy", x[0])'
expect 1 'x.npy has shape (128,): wants two dims'
again 'np.save("W_k.npy", np.ones((128, 63)))'
expect 1 'd_k=63'
rm W_v.npy x.npy
expect 1 'lacks x.npy, W_v.npy'

# The other way round: arrays from heed, the lesson's lines from NumPy.
"$program" --save ours >here
cat >there.py <<'END'
import numpy as np
x, W_q, W_k, W_v, output, saved = (np.load(f"ours/{name}.npy") for name in ("x", "W_q", "W_k", "W_v", "output", "weights"))
scores = (x @ W_q) @ (x @ W_k).T / np.sqrt(W_q.shape[1])
def softmax(s): e = np.exp(s - s.max(axis=-1, keepdims=True)); return e / e.sum(axis=-1, keepdims=True)
weights, mask = softmax(scores), np.tril(np.ones((5, 5)))
assert np.allclose(output, weights @ (x @ W_v), rtol=0, atol=1e-9) and np.allclose(saved, weights, rtol=0, atol=1e-9)
print("Input shape:", x.shape)
print("Output shape:", output.shape)
print("Attention weights shape:", weights.shape)
print("\nFirst row of attention weights (sums to 1):", weights[0])
print("Sum of first row:", np.sum(saved[0]))
print("\nLook-ahead mask:\n", mask)
print("\nMasked attention weights (first 3x3):\n", softmax(np.where(mask == 0, -np.inf, scores))[:3, :3])
END
"$python" there.py >there
diff there <(sed '/^Saved to/d' here | sed '$d') || { echo "NumPy prints other lines" && failures=$((failures + 1)); }
[ "$failures" = 0 ]
