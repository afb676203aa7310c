#!/usr/bin/env python3
"""Measures heed beside PyTorch, in turn and in short samples, and beside what the machine allows. bench/report.sh builds and calls it."""

import argparse
import datetime
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

here = Path(__file__).resolve().parent
tolerance = 0.10  # how far two probes of the machine may differ

# (row, whether it is short enough for --quick)
table = [("overhead add 4x4", True)]
table += [(f"attention_step {s}", quick) for s, quick in [("5,128,64", True), ("32,32,32", True), ("128,128,64", True), ("512,256,64", True),
                                                          ("1024,512,64", True), ("2048,512,64", True), ("4096,512,64", False)]]
table += [(f"sdpa_forward {s}", quick) for s, quick in [("1,1024,64", True), ("12,1024,64", True), ("8,4096,64", False), ("8,8192,64", False)]]
table += [(f"sdpa_train {s}", quick) for s, quick in [("96,256,64", True), ("12,1024,64", True), ("8,4096,64", False), ("8,8192,64", False)]]
table += [("gpt 4,4,128,64,12", True), ("gpt 6,6,384,256,8", False), ("linear 1024,768,3072", True), ("softmax 8192,1024", True),
          ("softmax_train 8192,1024", True)]
# Other sizes, masks and types; not a part of --quick.
others = ["sdpa_train 12,1000,64", "sdpa_train 12,77,64", "sdpa_train 12,1024,32", "sdpa_train 12,1024,128", "sdpa_train 12,1024,64 d_v=32",
          "sdpa_train 12,1024,64 full", "sdpa_train 8,4096,64 full", "sdpa_train 12,1024,64 keep", "sdpa_train 12,1024,64 window=128",
          "sdpa_train 12,1024,64 lengths", "sdpa_train 12,1024,64 f64", "attention_shapes 100,128,64", "overhead add 4x4 chain=10000",
          "overhead add 4x4 chain=1000000"]
# What oneDNN can have a part in: measured by either backend too.
both_ways = ["attention_step 128,128,64", "attention_step 1024,512,64", "gpt 4,4,128,64,12", "linear 1024,768,3072", "sdpa_train 12,256,64 composed",
             "softmax 128,128", "softmax 1024,64", "softmax 4096,128", "softmax 8192,1024", "softmax_train 128,128", "softmax_train 1024,64",
             "softmax_train 4096,128", "softmax_train 8192,1024"]


class Process:
    """A program that answers a line with a line of JSON."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *words):
        try:
            self.process.stdin.write(" ".join(str(w) for w in words) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        return json.loads(line) if line else {"error": f"the process ended ({self.process.poll()})"}

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def note(text):
    print(text, file=sys.stderr, flush=True)


def differ(a, b):
    return abs(a / b - 1) > tolerance or abs(b / a - 1) > tolerance


def limit_of(cost, ceilings):
    """The least time that the row's work takes on this machine, or None where it is not arithmetic that costs."""
    kind = cost["dtype"]
    arithmetic = cost["flops"] / ceilings["fma_" + kind] + cost["exps"] / ceilings["exp_" + kind]
    return max(arithmetic, cost["bytes"] / ceilings["copy"]) or None


class Session:
    def __init__(self, options):
        self.options = options
        self.worker = str(options.build / "bench/rows/report_rows")
        if not os.access(self.worker, os.X_OK):
            sys.exit(f"report: no {self.worker}: ./bench/report.sh builds it")
        self.prober = Process([self.worker])
        self.peer, self.peer_about = None, None
        self.start_peer()

    def start_peer(self):
        if self.options.no_peer:
            return
        python = self.options.python or os.environ.get("HEED_PEER_PYTHON") or shutil.which("python3")
        found = subprocess.run([python, "-c", "import torch.nn.attention"], capture_output=True, text=True) if shutil.which(python) else None
        if found is None or found.returncode != 0:
            reason = found.stderr.strip().splitlines()[-1] if found and found.stderr.strip() else "no such program"
            if self.options.python:
                sys.exit(f"report: {python} has no PyTorch from 2.3 on: {reason}")
            note(f"report: no PyTorch from 2.3 on for {python} ({reason}): heed is measured alone. To install it:\n"
                 "  python3 -m venv torch && torch/bin/pip install torch numpy\n"
                 "and then: ./bench/report.sh --python torch/bin/python")
            return
        self.python = python
        self.peer = Process([python, "-W", "ignore", str(here / "peers/pytorch.py")])
        self.peer_about = self.peer.ask("about")
        if "error" in self.peer_about:
            sys.exit(f"report: bench/peers/pytorch.py: {self.peer_about['error']}")

    def ceilings(self, threads):
        """The best of three, a second's fraction each: another program that wants the machine for a moment is no other machine."""
        probes = [self.prober.ask("ceilings", threads, 0.03 if self.options.quick else 0.1) for _ in range(3)]
        return {key: max(p[key] for p in probes) for key in probes[0]}

    def fma(self, threads):
        return self.prober.ask("fma", threads, 0.03)["fma_f32"]

    def measure(self, row):
        """Entries of a row for all numbers of threads: heed and its peer in turn."""
        heed = Process([self.worker])
        entries, firsts = [], {}
        for threads in self.options.threads[:1] if " chain=" in row else self.options.threads:
            for attempt in range(3):
                entry, before, began = {"row": row, "threads": threads}, self.fma(threads), time.monotonic()
                self.sample(heed, entry, row, threads)
                for key in ["first_seconds", "peer_first_seconds", "kept_bytes"]:  # told once, by the very first run
                    if key in entry:
                        firsts[key] = entry[key]
                after = self.fma(threads)
                entry["probe"] = [before, after]
                entry["steady_machine"] = not differ(before, after)
                if entry["steady_machine"] or "error" in entry or self.options.quick or attempt == 2 or time.monotonic() - began > 10:
                    break
                note(f"  {row}: the machine changed by more than 10 % meanwhile: once more")
            entries.append({**entry, **firsts})
        heed.close()
        return entries

    def backends(self, row, threads):
        """Seconds of the row by the backend that heed chooses and by each of the two, in turn: the fastest of five samples."""
        workers = {backend: Process([self.worker]) for backend in ["automatic", "onednn", "portable"]}
        times = {backend: [] for backend in workers}
        for _ in range(5):
            for backend, worker in workers.items():
                answer = worker.ask(threads, 0.05, row if backend == "automatic" else f"{row} {backend}")
                times[backend].append(answer.get("seconds"))
        for worker in workers.values():
            worker.close()
        return {"row": row, "threads": threads, **{backend: min(t) if None not in t else None for backend, t in times.items()}}

    def growth(self):
        """What bench_attention finds about cost over T: Markdown."""
        command = [str(self.options.build / "bench/bench_attention"), "--longest=8192", "--benchmark_min_time=0.02", "--benchmark_filter= 1,"]
        if self.peer:
            command.append("--peer=" + self.python)
        text = subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout
        return text[text.find("### How cost grows"):] if "### How cost grows" in text else ""

    def sample(self, heed, entry, row, threads):
        quick = self.options.quick
        seconds, samples = (0.03, 3) if quick else (0.1, 5)
        times, peer_times = [], []
        while len(times) < samples:
            mine = heed.ask(threads, seconds, row)
            if "error" in mine:
                entry["error"] = mine["error"]
                return
            times.append(mine["seconds"])
            for key in ["first_seconds", "peak_bytes", "counted_peak_bytes", "kept_bytes", "cost", "steady"]:
                if key in mine:
                    entry.setdefault(key, mine[key]) if key == "first_seconds" else entry.update({key: mine[key]})
            whole = mine["seconds"]
            if self.peer:
                theirs = self.peer.ask(threads, seconds, row)
                if "error" in theirs:
                    entry["peer_error"] = theirs["error"]
                    note(f"  PyTorch: {theirs['error']}")
                    if self.peer.process.poll() is not None:
                        self.start_peer()
                else:
                    peer_times.append(theirs["seconds"])
                    entry["peer"] = theirs["peer"] + (f" ({theirs['variant']})" if "variant" in theirs else "")
                    entry["peer_peak_bytes"] = theirs["peak_bytes"]
                    if "first_seconds" in theirs:
                        entry.setdefault("peer_first_seconds", theirs["first_seconds"])
                    whole += theirs["seconds"]
            if whole > 0.5:  # long runs even out by themselves
                samples = min(samples, 2 if whole > 2 else 3)
        entry["seconds"] = median(times)
        entry["peer_seconds"] = median(peer_times) if peer_times else None
        entry.setdefault("peer", None)


def machine():
    cpu = platform.processor()
    if Path("/proc/cpuinfo").exists():
        models = [line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        cpu = models[0] if models else cpu
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    system = platform.system()
    if Path("/etc/os-release").exists():
        names = [line.split("=")[1].strip('"') for line in Path("/etc/os-release").read_text().splitlines() if line.startswith("PRETTY_NAME=")]
        system = names[0] if names else system
    return {"cpu": cpu, "cores": os.cpu_count(), "memory_bytes": memory, "system": system, "kernel": platform.release(), "arch": platform.machine()}


def versions(session):
    about = session.prober.ask("about")
    commit = subprocess.run(["git", "-C", str(here), "describe", "--always", "--dirty"], capture_output=True, text=True)
    result = {"heed": about["heed"], "build": about["build"], "onednn": about["onednn"], "commit": commit.stdout.strip() or None, "python": platform.python_version()}
    if session.peer_about:
        result["peer"], result["peer_settings"] = session.peer_about["peer"], session.peer_about["settings"]
    return result


def arguments():
    parser = argparse.ArgumentParser(prog="report.sh", description="Times heed beside the machine's limits and beside PyTorch; prints Markdown.",
                                     epilog="Exit status 3: the machine changed by more than 10 % during the run, so that nothing is compared. "
                                            "HEED_PEER_PYTHON in the environment stands for --python.")
    parser.add_argument("--only", metavar="ROW", action="append", help="this row alone, named as in the table; or one of other sizes; or all of a kind: --only sdpa_train. Repeatable")
    parser.add_argument("--quick", action="store_true", help="short samples, and no long rows: under a minute")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures there too")
    parser.add_argument("--fill", metavar="FILE.md", type=Path, help="put the report between the lines <!-- report --> and <!-- end of report --> of that file too")
    parser.add_argument("--before", metavar="OLD.json", type=Path, help="show the change since that run")
    parser.add_argument("--python", metavar="PATH", help="the interpreter that has PyTorch")
    parser.add_argument("--backends", action="store_true", help="the rows by oneDNN and by heed's own kernels too, beside each other; a part of the full report")
    parser.add_argument("--no-peer", action="store_true", help="heed alone")
    parser.add_argument("--threads", metavar="N,N", default="1,2", type=lambda s: [int(n) for n in s.split(",")], help="numbers of threads (1,2)")
    parser.add_argument("--build", metavar="DIR", type=Path, default=here.parent / "build", help=argparse.SUPPRESS)
    return parser.parse_args()


def selected(options):
    rows = [row for row, short in table if short or not options.quick] + ([] if options.quick else others)
    if options.only is None:
        return rows
    everything, chosen = [row for row, _ in table] + others, []
    for name in options.only:
        begun = [name] if name in everything else [row for row in everything if row.startswith(name + " ")]
        chosen += begun or [name]  # or sizes of one's own
    return list(dict.fromkeys(chosen))


def fill(document, text):
    head, begin, rest = document.read_text().partition("<!-- report -->\n")
    _, end, tail = rest.partition("<!-- end of report -->")
    if not begin or not end:
        sys.exit(f"report: {document} has no lines <!-- report --> and <!-- end of report -->")
    document.write_text(head + begin + text + "\n" + end + tail)


def main():
    options = arguments()
    before = json.loads(options.before.read_text()) if options.before else None
    session = Session(options)
    report = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"), "machine": machine(), "versions": versions(session)}
    started = {t: session.ceilings(t) for t in options.threads}
    rows = []
    for row in selected(options):
        note(row)
        rows += session.measure(row)
    whole = not options.quick and options.only is None
    if options.backends or whole:
        note("backends")
        report["backends"] = [session.backends(row, threads) for row in (both_ways if whole else selected(options)) for threads in options.threads]
    if whole:
        note("how cost grows")
        report["growth"] = session.growth()
    ended = {t: session.ceilings(t) for t in options.threads}
    report["ceilings"] = {str(t): {k: max(started[t][k], ended[t][k]) for k in ended[t]} for t in options.threads}
    report["probe_before"], report["probe_after"] = ({str(t): p[t]["fma_f32"] for t in options.threads} for p in (started, ended))
    report["comparable"] = not any(differ(started[t]["fma_f32"], ended[t]["fma_f32"]) for t in options.threads)
    for entry in rows:
        cost = entry.pop("cost", None)
        entry["limit_seconds"] = limit_of(cost, report["ceilings"][str(entry["threads"])]) if cost else None
    report["rows"] = [e for e in rows if "error" not in e]
    report["errors"] = [{"row": e["row"], "threads": e["threads"], "error": e["error"]} for e in rows if "error" in e]

    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    sys.path.insert(0, str(here))
    import report_text
    text = report_text.markdown(report, before)
    print(text)
    if options.fill:
        fill(options.fill, text)
    for e in report["errors"]:
        note(f"report: {e['error']}")
    if not report["comparable"]:
        note("report: " + report_text.refusal(report))
        sys.exit(3)
    if report["errors"]:
        sys.exit(1)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
