"""Writes bpe/: a small vocabulary in GPT-2's format, and texts with the tokens that a plain reading of GPT-2's tokenizer gives them.

Needs the package `regex`, which has the classes of the published pattern. Run in this folder: python3 bpe.py
"""

import collections
import json
import pathlib
import random

import regex

pattern = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")

printable = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
order = printable + [b for b in range(256) if b not in printable]
character = {b: chr(b) for b in printable}
for n, b in enumerate(order[len(printable) :]):
    character[b] = chr(256 + n)


def pieces(text):
    return ["".join(character[b] for b in piece.encode()) for piece in pattern.findall(text)]


def merge(parts, pair):
    out, i = [], 0
    while i < len(parts):
        if tuple(parts[i : i + 2]) == pair:
            out.append(parts[i] + parts[i + 1])
            i += 2
        else:
            out.append(parts[i])
            i += 1
    return out


def train(text, size):
    """The most frequent pair again and again; of equals the one whose numbers are smaller."""
    numbers = {character[b]: n for n, b in enumerate(order)}
    words = collections.Counter(pieces(text))
    parts = {w: list(w) for w in words}
    merges = []
    while len(numbers) < size - 1:
        count = collections.Counter()
        for w, n in words.items():
            for pair in zip(parts[w], parts[w][1:]):
                count[pair] += n
        best = min(count, key=lambda p: (-count[p], numbers[p[0]], numbers[p[1]]))
        if count[best] < 2:
            break
        merges.append(best)
        numbers.setdefault(best[0] + best[1], len(numbers))
        parts = {w: merge(p, best) for w, p in parts.items()}
    numbers["<|endoftext|>"] = len(numbers)
    return numbers, merges


def encode(text, numbers, merges):
    rank = {pair: n for n, pair in enumerate(merges)}
    ids = []
    for piece in pieces(text):
        parts = list(piece)
        while True:
            known = [pair for pair in zip(parts, parts[1:]) if pair in rank]
            if not known:
                break
            parts = merge(parts, min(known, key=rank.get))
        ids += [numbers[p] for p in parts]
    return ids


corpus = (
    "It's what they'll say: we've tried, you're late, I'm done, he'd know, don't. The theory of the other than there is this: "
    "then the man and the manner, the hand and the handle, 12 of 1234 in 2026. Ein Gr\u00fc\u00df Gott, \u00fcber alle Stra\u00dfen; \u4f60\u597d \u4e16\u754c \u4f60\u597d. "
    "banana bananas bandana aaaa aaaaaaaa    and   more    space\n\n\nThe end of the thing, the other thing, and nothing. "
)
numbers, merges = train(corpus, 330)

texts = [
    "", " ", "  ", "   x", "x   ", "\n\n", " \n x", "\t\ta\tb", "The other thing.", "it's 'til they'll've don't IT'S 's'", "'", "''s", " 's",
    "Stra\u00dfe 123abc456 \u0664\u0665 \u00bd \u2167", "\u4f60\u597d\uff0c\u4e16\u754c\u3002", "e\u0301te\u0301", "\U0001f600 \U0001f469\u200d\U0001f469", "a\u00a0b\u3000c\u2003 d", "<|endoftext|>", "_under_score-dash",
    "aaaaaaaaaaaaaaaaaaa", "banana bandana", "\u01c5 \u02b0 \u0915\u093f", "x\u0085y", "a \r\n b", "\x00\x01 \x7f", "\u037a\ufffd\ue000\u0378",
]
generator = random.Random(1)
alphabet = "theanindo 's\n \u00df\u4f601.\u00a0!"
texts += ["".join(generator.choice(alphabet) for _ in range(40)) for _ in range(25)]

folder = pathlib.Path("bpe")
folder.mkdir(exist_ok=True)
(folder / "vocab.json").write_text(json.dumps(numbers))
(folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges), encoding="utf-8")
cases = [{"text": t, "pieces": pattern.findall(t), "ids": encode(t, numbers, merges)} for t in texts]
(folder / "cases.json").write_text(json.dumps({"corpus": corpus, "vocab_size": len(numbers), "cases": cases}))
