"""Writes gpt2/: a tiny model in the form in which GPT-2 is published, in four copies, and the logits that PyTorch computes from each.

    model.safetensors     F32, names without a prefix, the buffers of causal masks that old files have
    prefixed.safetensors  F32, as saved with the head: "transformer." before the names, lm_head.weight beside them
    f16.safetensors       F16
    bf16.safetensors      BF16
    logits.safetensors    idx, and F64 logits from the weights as stored in F32, F16 and BF16

Needs torch and numpy. Run in this folder: python3 gpt2.py
"""

import json
import math
import pathlib
import struct

import torch
from torch.nn import functional as F

torch.manual_seed(20)
V, T, C, L, H = 41, 16, 12, 2, 3
config = {
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "bos_token_id": 40, "embd_pdrop": 0.1,
    "eos_token_id": 40, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": T, "n_embd": C, "n_head": H,
    "n_layer": L, "n_positions": T, "resid_pdrop": 0.1, "summary_type": "cls_index", "vocab_size": V,
}


def save(path, tensors, metadata):
    names = {torch.float32: "F32", torch.float64: "F64", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64", torch.uint8: "U8"}
    header, data = {"__metadata__": metadata}, b""
    for name, t in tensors.items():
        raw = t.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": names[t.dtype], "shape": list(t.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def conv1d(n_in, n_out):  # GPT-2's projections hold (in, out)
    return torch.randn(n_in, n_out) * 0.3, torch.randn(n_out) * 0.1


def make():
    p = {"wte.weight": torch.randn(V, C) * 0.4, "wpe.weight": torch.randn(T, C) * 0.2}
    for i in range(L):
        h = f"h.{i}."
        for ln in ("ln_1", "ln_2"):
            p[h + ln + ".weight"], p[h + ln + ".bias"] = 1 + torch.randn(C) * 0.1, torch.randn(C) * 0.1
        for name, n_in, n_out in (("attn.c_attn", C, 3 * C), ("attn.c_proj", C, C), ("mlp.c_fc", C, 4 * C), ("mlp.c_proj", 4 * C, C)):
            p[h + name + ".weight"], p[h + name + ".bias"] = conv1d(n_in, n_out)
    p["ln_f.weight"], p["ln_f.bias"] = 1 + torch.randn(C) * 0.1, torch.randn(C) * 0.1
    return p


def logits(p, idx):
    p = {k: v.double() for k, v in p.items()}
    norm = lambda x, n: F.layer_norm(x, (C,), p[n + ".weight"], p[n + ".bias"], 1e-5)
    project = lambda x, n: x @ p[n + ".weight"] + p[n + ".bias"]
    n = idx.shape[1]
    x = p["wte.weight"][idx] + p["wpe.weight"][:n]
    for i in range(L):
        h = f"h.{i}."
        q, k, v = (t.view(-1, n, H, C // H).transpose(1, 2) for t in project(norm(x, h + "ln_1"), h + "attn.c_attn").split(C, -1))
        scores = q @ k.transpose(-1, -2) / math.sqrt(C // H)
        scores = scores.masked_fill(torch.ones(n, n).triu(1).bool(), -math.inf)
        x = x + project((scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, n, C), h + "attn.c_proj")
        x = x + project(F.gelu(project(norm(x, h + "ln_2"), h + "mlp.c_fc"), approximate="tanh"), h + "mlp.c_proj")
    return norm(x, "ln_f") @ p["wte.weight"].T


p = make()
folder = pathlib.Path("gpt2")
folder.mkdir(exist_ok=True)
(folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
mask = torch.ones(T, T).tril().view(1, 1, T, T)
stray = {}
for i in range(L):
    stray[f"h.{i}.attn.bias"] = mask.clone()
    stray[f"h.{i}.attn.masked_bias"] = torch.tensor(-1e4)
save(folder / "model.safetensors", {**p, **stray}, {"format": "pt"})
prefixed = {"transformer." + k: v for k, v in p.items()}
prefixed["transformer.h.0.attn.bias"] = mask.to(torch.uint8)
prefixed["lm_head.weight"] = p["wte.weight"].clone()
save(folder / "prefixed.safetensors", prefixed, {"format": "pt"})
idx = torch.randint(0, V, (2, T))
out = {"idx": idx, "f32": logits(p, idx)}
for name, dtype in (("f16", torch.float16), ("bf16", torch.bfloat16)):
    half = {k: v.to(dtype) for k, v in p.items()}
    save(folder / f"{name}.safetensors", half, {"format": "pt"})
    out[name] = logits(half, idx)
save(folder / "logits.safetensors", out, {"made with": f"PyTorch {torch.__version__}"})
