"""Writes pieces.json: how the published pattern of GPT-2 cuts every code point up, alone and between characters of each class, as digests.

Needs the package `regex` with the classes of Unicode 14: regex==2022.7.25. Run in this folder, with a Python that knows Unicode 14 (3.11): python3 pieces.py
"""

import json
import pathlib
import unicodedata

import regex

pattern = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
# {} is the code point. U+0301 is a mark, U+00A0 a space that is not the blank.
templates = ["{}", "a{}b1{}2 {} \n{}\n  {}.{}?", "\u0301{}\u0301 {}a {}1 {}! {}{} {}\u00a0{} '{}'s{}"]
block = 4096


def digest(points):
    """64-bit FNV-1a over the lengths of the pieces in bytes, a 0 after each text."""
    value = 0xCBF29CE484222325
    for point in points:
        for template in templates:
            for byte in [len(p.encode()) for p in pattern.findall(template.replace("{}", chr(point)))] + [0]:
                value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


assert unicodedata.unidata_version == "14.0.0"
for c in map(chr, range(0x110000)):
    for initial in "LN":
        assert bool(regex.match(rf"\p{{{initial}}}", c)) == unicodedata.category(c).startswith(initial), f"U+{ord(c):04X}: another Unicode"

digests = {f"{first:06X}": digest(p for p in range(first, first + block) if not 0xD800 <= p < 0xE000) for first in range(0, 0x110000, block)}
pathlib.Path("pieces.json").write_text(json.dumps({"block": block, "templates": templates, "digests": digests}, indent=0) + "\n")
