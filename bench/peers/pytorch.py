#!/usr/bin/env python3
"""Times the rows of bench/report.sh with PyTorch, in its best settings, which `about` prints.

Reads requests from standard input and answers each with a line of JSON, as bench/rows/main.cpp does:
`about`, or `THREADS SECONDS ROW`. By hand:

    pytorch.py [--threads N] [--seconds S] "sdpa_train 12,1024,64" ...

A row runs in a child process of its own, so that its memory is its own. Where there are several ways to do the same work
(kernels, forms of the optimizer), a first child tries them all and the fastest is the one that is timed.
"""

import argparse
import glob
import json
import os
import statistics
import sys
import time

# An allocator that keeps memory: what it returns to the system costs page faults again.
settings = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
            "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "THP_MEM_ALLOC_ENABLE": "1"}
if os.environ.get("HEED_PEER_SETTINGS") != "1":
    environment = {**settings, **os.environ, "HEED_PEER_SETTINGS": "1"}
    for library in sorted(glob.glob("/usr/lib/*/libjemalloc.so*"))[:1]:
        environment.setdefault("LD_PRELOAD", library)
        environment.setdefault("MALLOC_CONF", "dirty_decay_ms:-1,muzzy_decay_ms:-1,thp:always")
    os.execve(sys.executable, [sys.executable] + sys.argv, environment)

try:
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError as error:
    sys.exit(f"pytorch.py: {error}\nInstall it with: python3 -m venv torch && torch/bin/pip install torch numpy")


class Row:
    def __init__(self, name):
        words = name.split()
        self.name, self.kind = name, words[0]
        self.sizes = [int(n) for n in (words[2].split("x") if self.kind == "overhead" else words[1].split(","))]
        rest = words[3:] if self.kind == "overhead" else words[2:]
        self.options = {w.split("=")[0]: int(w.split("=")[1]) if "=" in w else True for w in rest}
        self.dtype = torch.float64 if "f64" in self.options else torch.float32


# What each kind of row does: a function of (row, variant) that makes the inputs and returns (run, items), and the variants to choose from.


def overhead(row, _):
    x, c, up = (torch.randn(row.sizes, dtype=row.dtype) for _ in range(3))
    x.requires_grad_()
    chain = row.options.get("chain", 100)

    def run():
        x.grad = None
        y = x
        for _ in range(chain):
            y = y + c
        y.backward(up)
    return run, chain


def make_optimizer(kind, parameters, form, **options):
    return kind(parameters, **options, **{"plain": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}[form])


def steps(row, variant, lengths):
    kernel, form = variant
    _, D, H = row.sizes
    bound = (6 / (D + H)) ** 0.5
    W_q, W_k, W_v = (((torch.rand(D, H, dtype=row.dtype) * 2 - 1) * bound).requires_grad_() for _ in range(3))
    optimizer = make_optimizer(torch.optim.SGD, [W_q, W_k, W_v], form, lr=1e-3)
    batches = [(torch.randn(T, D, dtype=row.dtype), torch.randn(T, H, dtype=row.dtype),
                torch.full((T, T), -torch.inf, dtype=row.dtype).triu(1) if kernel == "composed" else None) for T in lengths]

    def run():
        for x, target, mask in batches:
            optimizer.zero_grad(set_to_none=True)
            q, k, v = x @ W_q, x @ W_k, x @ W_v
            if kernel == "composed":
                out = torch.softmax(torch.addmm(mask, q, k.t(), alpha=H ** -0.5), -1) @ v
            else:
                out = F.scaled_dot_product_attention(q[None, None], k[None, None], v[None, None], is_causal=True)[0, 0]
            F.mse_loss(out, target).backward()
            optimizer.step()
    return run, len(lengths)


def attention_step(row, variant):
    return steps(row, variant, [row.sizes[0]])


def attention_shapes(row, variant):
    return steps(row, variant, range(1, row.sizes[0] + 1))


def sdpa(row, variant, train):
    B, T, d = row.sizes
    widths = [d, d, row.options.get("d_v", d)]
    q, k, v = (torch.randn(1, B, T, width, dtype=row.dtype, requires_grad=train) for width in widths)
    up = torch.randn(1, B, T, widths[2], dtype=row.dtype)
    causal, mask = True, None
    i, j = torch.arange(T)[:, None], torch.arange(T)[None, :]
    if "full" in row.options:
        causal = False
    elif "window" in row.options:
        causal, mask = False, (j <= i) & (i - j < row.options["window"])
    elif "keep" in row.options:
        causal, mask = False, torch.rand(T, T) < 0.5
    elif "lengths" in row.options:
        causal, mask = False, (torch.arange(T)[None, :] < torch.tensor([T * (b + 1) // B for b in range(B)])[:, None])[None, :, None, :]
    backend = {"flash": [SDPBackend.FLASH_ATTENTION], "math": [SDPBackend.MATH], "default": [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]}[variant]

    def run():
        with sdpa_kernel(backend):
            if train:
                q.grad = k.grad = v.grad = None
                F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal).backward(up)
            else:
                with torch.inference_mode():
                    F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
    return run, 1


def linear(row, _):
    rows, size_in, size_out = row.sizes
    layer = torch.nn.Linear(size_in, size_out, dtype=row.dtype)
    x = torch.randn(rows, size_in, dtype=row.dtype, requires_grad=True)
    up = torch.randn(rows, size_out, dtype=row.dtype)

    def run():
        x.grad = layer.weight.grad = layer.bias.grad = None
        layer(x).backward(up)
    return run, 1


def softmax(row, _):
    x = torch.randn(row.sizes, dtype=row.dtype)

    def run():
        with torch.inference_mode():
            torch.softmax(x, -1)
    return run, 1


def softmax_train(row, _):
    x = torch.randn(row.sizes, dtype=row.dtype, requires_grad=True)
    up = torch.randn(row.sizes, dtype=row.dtype)

    def run():
        x.grad = None
        torch.softmax(x, -1).backward(up)
    return run, 1


class Block(torch.nn.Module):
    def __init__(self, C, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = torch.nn.LayerNorm(C), torch.nn.LayerNorm(C)
        self.qkv, self.proj = torch.nn.Linear(C, 3 * C), torch.nn.Linear(C, C)
        self.fc, self.out = torch.nn.Linear(C, 4 * C), torch.nn.Linear(4 * C, C)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in self.qkv(self.ln_1(x)).split(C, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(B, T, C))
        return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


def gpt(row, form):
    layers, heads, C, T, B = row.sizes
    vocabulary = 65
    torch.set_default_dtype(row.dtype)
    tokens, positions = torch.nn.Embedding(vocabulary, C), torch.nn.Embedding(T, C)
    body = torch.nn.Sequential(*[Block(C, heads) for _ in range(layers)], torch.nn.LayerNorm(C))
    head = torch.nn.Linear(C, vocabulary, bias=False)
    for table in [tokens, positions]:
        torch.nn.init.normal_(table.weight, std=0.02)
    head.weight = tokens.weight
    parameters = list(torch.nn.ModuleList([tokens, positions, body, head]).parameters())
    optimizer = make_optimizer(torch.optim.AdamW, parameters, form, lr=1e-3)
    ids, targets = torch.randint(vocabulary, (B, T)), torch.randint(vocabulary, (B, T))
    where = torch.arange(T)

    def run():
        optimizer.zero_grad(set_to_none=True)
        logits = head(body(tokens(ids) + positions(where)))
        F.cross_entropy(logits.view(-1, vocabulary), targets.view(-1)).backward()
        optimizer.step()
    return run, 1


def sdpa_variants(row):
    if "composed" in row.options:
        return ["math"]
    return ["flash", "math", "default"] if row.sizes[0] * row.sizes[1] ** 2 <= 1 << 24 else ["default"]


forms = ["plain", "foreach", "fused"]
kinds = {
    "overhead": (overhead, lambda row: ["default"]),
    "attention_step": (attention_step, lambda row: [(k, f) for k in ["sdpa"] + ["composed"] * (row.sizes[0] <= 1024) for f in forms]),
    "attention_shapes": (attention_shapes, lambda row: [(k, f) for k in ["sdpa", "composed"] for f in forms]),
    "sdpa_forward": (lambda row, variant: sdpa(row, variant, False), sdpa_variants),
    "sdpa_train": (lambda row, variant: sdpa(row, variant, True), sdpa_variants),
    "linear": (linear, lambda row: ["default"]),
    "softmax": (softmax, lambda row: ["default"]),
    "softmax_train": (softmax_train, lambda row: ["default"]),
    "gpt": (gpt, lambda row: ["foreach", "fused"]),
}


def resident():
    """Bytes in memory that are no file's: now, and the most since the process began."""
    kib = {}
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(("VmHWM", "RssFile", "RssAnon")):
                kib[line.split(":")[0]] = int(line.split()[1])
    return kib["RssAnon"] * 1024, max(kib["VmHWM"] - kib["RssFile"], kib["RssAnon"]) * 1024


def timed(run, repeats=1):
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - start) / repeats


def in_child(serve):
    """Runs serve(read, write) in a child, and returns the other ends and its id. The parent has run no op, so it has no threads to lose."""
    to_child, to_parent = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(to_child[1]), os.close(to_parent[0])
        try:
            serve(os.fdopen(to_child[0]), os.fdopen(to_parent[1], "w", buffering=1))
        finally:
            os._exit(0)
    os.close(to_child[0]), os.close(to_parent[1])
    return os.fdopen(to_child[1], "w", buffering=1), os.fdopen(to_parent[0]), child


def fastest(row, threads):
    """The variant that wins a short trial, in a child of its own."""
    make, variants = kinds[row.kind][0], kinds[row.kind][1](row)
    if len(variants) == 1:
        return variants[0]

    def serve(_, write):
        torch.set_num_threads(threads)
        results = []
        for number, variant in enumerate(variants):
            try:
                run, _ = make(row, variant)
                once = min(timed(run), timed(run))
                repeats = max(1, int(0.01 / once))
                results.append((min(timed(run, repeats) for _ in range(3 if once < 0.2 else 1)), number))
            except RuntimeError:  # a kernel that does not take this row
                pass
        write.write(f"{min(results)[1]}\n")
    write, read, child = in_child(serve)
    answer = read.readline()
    write.close(), read.close()
    os.waitpid(child, 0)
    return variants[int(answer)]


def serve_row(row):
    def serve(read, write):
        before, run, last_variant, last_threads = resident()[0], None, None, None
        first = True
        for line in read:
            threads, seconds, variant = json.loads(line)
            variant = tuple(variant) if isinstance(variant, list) else variant
            torch.set_num_threads(threads)
            answer = {"row": row.name, "threads": threads, "peer": f"PyTorch {torch.__version__}"}
            if variant != "default":
                answer["variant"] = variant if isinstance(variant, str) else ", ".join(variant)
            try:
                if variant != last_variant:
                    run = None
                    run, items = kinds[row.kind][0](row, variant)
                once = 0
                if first:
                    answer["first_seconds"] = (once := timed(run)) / items
                if (variant, threads) != (last_variant, last_threads) and once < 0.3:
                    timed(run)
                    last_time = timed(run)
                elif once:
                    last_time = once
                first, last_variant, last_threads = False, variant, threads
                batch, times, total = max(1, int(200e-6 / last_time)), [], 0
                while not times or total < seconds:
                    times.append(timed(run, batch))
                    total += times[-1] * batch
                last_time = statistics.median_low(times)
                answer.update(seconds=last_time / items, runs=batch * len(times), peak_bytes=resident()[1] - before)
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            write.write(json.dumps(answer) + "\n")
    return serve


class Peer:
    """The rows, each in a child that stays until another is asked for."""

    def __init__(self):
        self.row, self.variants = None, {}

    def answer(self, threads, seconds, name):
        if self.row is None or self.row.name != name:
            self.close()
            self.row, self.variants = Row(name), {}
            if self.row.kind not in kinds:
                self.row = None
                return {"error": f"no such row: {name}"}
            self.write, self.read, self.child = in_child(serve_row(self.row))
        if threads not in self.variants:
            self.variants[threads] = fastest(self.row, threads)
        self.write.write(json.dumps([threads, seconds, self.variants[threads]]) + "\n")
        return json.loads(self.read.readline() or '{"error": "the process ended"}')

    def close(self):
        if self.row is not None:
            self.write.close(), self.read.close()
            os.waitpid(self.child, 0)
            self.row = None


def about():
    return {"peer": f"PyTorch {torch.__version__}", "settings": {
        "mode": "eager; inference mode where no gradient is wanted; the fastest of its kernels and optimizer forms for each row",
        "cpu_capability": torch.backends.cpu.get_cpu_capability(), "mkl": torch.backends.mkl.is_available(),
        "mkldnn": torch.backends.mkldnn.is_available(),
        "environment": {k: os.environ[k] for k in [*settings, "LD_PRELOAD", "MALLOC_CONF", "OPENBLAS_CORETYPE", "ATEN_CPU_CAPABILITY"] if k in os.environ}}}


def main():
    parser = argparse.ArgumentParser(description="The rows of bench/report.sh with PyTorch. Without rows: serves requests from standard input.")
    parser.add_argument("rows", nargs="*", metavar="ROW")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.1)
    arguments = parser.parse_args()
    peer = Peer()
    for name in arguments.rows:
        print(json.dumps(peer.answer(arguments.threads, arguments.seconds, name)), flush=True)
    if not arguments.rows:
        for line in sys.stdin:
            words = line.split(maxsplit=2)
            try:
                result = about() if words == ["about"] else peer.answer(int(words[0]), float(words[1]), words[2].strip())
            except (IndexError, ValueError) as error:
                result = {"error": f"wants THREADS SECONDS ROW: {error}"}
            print(json.dumps(result), flush=True)
    peer.close()


if __name__ == "__main__":
    main()
