#!/usr/bin/env python3
"""The report end to end, without a peer and briefly: what its JSON and its tables hold. Times are not judged.

report_test.py BUILD FOLDER: the build folder, and one to write to."""

import json
import subprocess
import sys
from pathlib import Path

top = Path(__file__).resolve().parents[2]
build, folder = sys.argv[1], Path(sys.argv[2])
folder.mkdir(parents=True, exist_ok=True)
rows = ["overhead add 4x4", "attention_step 5,128,64", "gpt 1,2,16,8,2", "sdpa_train 2,77,64 window=16", "linear 32,32,32"]


def report(*arguments):
    command = [sys.executable, str(top / "bench/report.py"), "--build", build, "--quick", "--no-peer", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def check(condition, message):
    if not condition:
        sys.exit(f"report_test: {message}")


only = [a for row in rows for a in ["--only", row]]
run = report(*only, "--json", folder / "now.json")
# 3: the machine was busy with something else; everything but ratios is there all the same.
check(run.returncode in (0, 3), f"exit status {run.returncode}: {run.stderr}")
now = json.loads((folder / "now.json").read_text())
check({"machine", "versions", "rows", "ceilings", "date"} <= now.keys(), f"keys are {sorted(now)}")
check(now["machine"]["cores"] >= 1 and now["machine"]["cpu"] is not None, f"machine is {now['machine']}")
check(now["versions"]["heed"] and "build" in now["versions"], f"versions are {now['versions']}")
check([(r["row"], r["threads"]) for r in now["rows"]] == [(row, t) for row in rows for t in (1, 2)], f"rows are {[r['row'] for r in now['rows']]}")
for r in now["rows"]:
    check({"row", "threads", "seconds", "limit_seconds", "peer_seconds", "peer", "peak_bytes"} <= r.keys(), f"a row has {sorted(r)}")
    check(0 < r["seconds"] < 60, f"{r['row']} takes {r['seconds']} s")
    check((r["limit_seconds"] is None) == r["row"].startswith("overhead"), f"{r['row']} has the limit {r['limit_seconds']}")
    check(r["limit_seconds"] is None or 0 < r["limit_seconds"] < 60, f"{r['row']} has the limit {r['limit_seconds']}")
    check(r["peer"] is None and r["peer_seconds"] is None, f"{r['row']} has a peer")
    check(r["peak_bytes"] > 0, f"{r['row']} needs {r['peak_bytes']} bytes")
    check(all(not r["steady"][what] for what in ["system_allocations", "primitives", "locks"]), f"{r['row']} in a steady run: {r['steady']}")
lines = run.stdout.splitlines()
for row in rows:
    check(sum(line.startswith(f"| {row} | ") for line in lines) >= 2, f"the table lacks {row}:\n{run.stdout}")

# 5 x 128 x 64: three products of the input, their gradients, and seven products of 15 pairs.
step = next(r for r in now["rows"] if r["row"] == rows[1] and r["threads"] == 1)
limit = (12 * 5 * 128 * 64 + 14 * 15 * 64) / now["ceilings"]["1"]["fma_f32"] + 2 * 15 / now["ceilings"]["1"]["exp_f32"]
check(abs(step["limit_seconds"] / limit - 1) < 1e-9, f"the limit is {step['limit_seconds']}, not {limit}")

# Beside an older report: of this machine, and of one twice as fast.
old = folder / "old.json"
old.write_text(json.dumps(now))
document = folder / "document.md"
document.write_text("# Before\n<!-- report -->\nold\n<!-- end of report -->\nafter\n")
text = report("--only", rows[0], "--threads", "1", "--before", old, "--fill", document).stdout
check(document.read_text() == f"# Before\n<!-- report -->\n{text}<!-- end of report -->\nafter\n", f"the document is now\n{document.read_text()}")
check("before / now" in text or "not compared with" in text, f"no column for the older report:\n{text}")
for ceilings in now["ceilings"].values():
    ceilings["fma_f32"] *= 3
old.write_text(json.dumps(now))
text = report("--only", rows[0], "--threads", "1", "--before", old).stdout
check("not compared with" in text and "before / now" not in text, f"compared with another machine:\n{text}")

# By either backend; a build without oneDNN has one.
both = report("--only", "softmax 64,64", "--threads", "1", "--backends", "--json", folder / "both.json")
backends = json.loads((folder / "both.json").read_text())["backends"]
check([e["row"] for e in backends] == ["softmax 64,64"] and "| by backend |" in both.stdout, f"backends are {backends}:\n{both.stdout}")
has_onednn = bool(now["versions"]["onednn"])
check(all(0 < e[k] < 1 for e in backends for k in ["automatic", "portable"] + ["onednn"] * has_onednn), f"backends are {backends}")
check(has_onednn or all(e["onednn"] is None for e in backends), f"without oneDNN: {backends}")

bad = report("--only", "sdpa_train 1,2,x", "--threads", "1")
check(bad.returncode == 1 and "not a size: x" in bad.stderr, f"a row that is none: {bad.returncode} {bad.stderr}")
print("report_test: ok")
