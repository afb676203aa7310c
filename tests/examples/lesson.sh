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
again() { # again CODE: the README's side once more, then this
  { cat "$examples/lesson.py" && echo "$1"; } | "$python" -
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
expect 0 'rounding of f32'

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
