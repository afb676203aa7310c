"""The report as Markdown."""


def time_text(seconds):
    for unit, factor in [("ns", 1e9), ("us", 1e6), ("ms", 1e3)]:
        if seconds * factor < 999.5:
            value = seconds * factor
            return f"{value:.3g} {unit}"
    return f"{seconds:.3g} s"


def bytes_text(n):
    return f"{n / 1e6:.0f} MB" if n >= 10e6 else f"{n / 1e6:.1f} MB"


def ratio_text(ratio):
    return f"{ratio:.3g}" if ratio < 100 else f"{ratio:.0f}"


def rate_text(entry):
    """What a row is usually told in, beside its time."""
    kind, sizes = entry["row"].split()[0], entry["row"].split()[1].split(",")
    if kind == "gpt":
        return f" ({int(sizes[3]) * int(sizes[4]) / entry['seconds']:.0f} tokens/s)"
    if kind == "linear":
        return f" ({6e-9 * int(sizes[0]) * int(sizes[1]) * int(sizes[2]) / entry['seconds']:.0f} GFLOP/s)"
    return ""


def table(head, rows):
    if not rows:
        return ""
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(r) + " |" for r in rows]) + "\n"


def refusal(report):
    changes = [f"{report['probe_before'][t] / 1e9:.0f} GFLOP/s before and {report['probe_after'][t] / 1e9:.0f} after on {threads_text(t)}"
               for t in report["probe_before"]]
    return "the machine changed by more than 10 % during the run, nothing is compared: " + ", ".join(changes)


def threads_text(n):
    return f"{n} thread" + ("s" if int(n) > 1 else "")


def changed_machine(report, before):
    """Why an older report is no measure for this one, or nothing."""
    for threads, ceilings in report["ceilings"].items():
        old = before.get("ceilings", {}).get(threads)
        if old and abs(ceilings["fma_f32"] / old["fma_f32"] - 1) > 0.1:
            return (f"The older report is not compared with: {old['fma_f32'] / 1e9:.0f} GFLOP/s then, {ceilings['fma_f32'] / 1e9:.0f} now "
                    f"on {threads_text(threads)}.")
    return ""


def head_text(report):
    machine, versions = report["machine"], report["versions"]
    lines = [f"Measured {report['date']} on {machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB, {machine['system']}, "
             f"with heed {versions['heed']}" + (f" ({versions['commit']})" if versions["commit"] else "") + f": {versions['build']}."]
    if "peer" in versions:
        settings = versions["peer_settings"]
        environment = " ".join(f"{k}={v}" for k, v in settings["environment"].items())
        details = ", ".join(f"{k} {v}" for k, v in settings.items() if k not in ["environment", "mode"])
        lines.append(f"{versions['peer']}: {settings['mode']}; {details}; {environment}.")
    for threads, c in report["ceilings"].items():
        lines.append(f"Ceilings on {threads_text(threads)}: multiply-add {c['fma_f32'] / 1e9:.0f} GFLOP/s in f32 and {c['fma_f64'] / 1e9:.0f} in f64, "
                     f"exp {c['exp_f32'] / 1e9:.1f} G/s in f32 and {c['exp_f64'] / 1e9:.1f} in f64, copy {c['copy'] / 1e9:.0f} GB/s.")
    return "  \n".join(lines) + "\n"


def main_table(report, before):
    comparable, has_peer = report["comparable"], "peer" in report["versions"]
    old = {(e["row"], e["threads"]): e["seconds"] for e in before["rows"]} if before else {}
    one = {e["row"]: e["seconds"] for e in report["rows"] if e["threads"] == 1 and e["steady_machine"]}
    head = ["row", "threads", "heed", "limit", "heed / limit"] + (["PyTorch", "PyTorch / heed"] if has_peer else []) + ["1 thread / this", "peak"]
    head += (["PyTorch's"] if has_peer else []) + (["before", "before / now"] if before else [])
    rows = []
    for e in report["rows"]:
        compared = comparable and e["steady_machine"]

        def ratio(a, b):
            return "-" if not compared or not a or not b else ratio_text(a / b)
        cells = [e["row"], str(e["threads"]), time_text(e["seconds"]) + rate_text(e)]
        cells += [time_text(e["limit_seconds"]) if e["limit_seconds"] else "-", ratio(e["seconds"], e["limit_seconds"])]
        if has_peer:
            cells += [time_text(e["peer_seconds"]) if e["peer_seconds"] else "-", ratio(e["peer_seconds"], e["seconds"])]
        cells += [ratio(one.get(e["row"]), e["seconds"]) if e["threads"] > 1 else "", bytes_text(e["peak_bytes"])]
        if has_peer:
            cells.append(bytes_text(e["peer_peak_bytes"]) if "peer_peak_bytes" in e else "-")
        if before:
            was = old.get((e["row"], e["threads"]))
            cells += [time_text(was) if was else "-", ratio(was, e["seconds"])]
        rows.append(cells)
    return table(head, rows)


def steady_table(report):
    """Counts of one steady run, and what the very first one cost."""
    def count(n):
        return "?" if n is None else f"{n:.3g}"
    rows = []
    for e in report["rows"]:
        if e["row"].split()[0] in ["attention_step", "gpt", "overhead"] and e["threads"] in [1, 2]:
            s = e["steady"]
            rows.append([e["row"], str(e["threads"]), count(s["blocks"]), count(s["system_allocations"]), count(s["page_faults"]), count(s["mallocs"]), count(s["locks"]),
                         count(s["primitives"]), count(s["parallel_regions"]), bytes_text(e["counted_peak_bytes"]), bytes_text(e["kept_bytes"]), time_text(e["first_seconds"])])
    return table(["steady run", "threads", "blocks", "of them new", "page faults", "malloc", "locks", "primitives made", "parallel regions", "peak", "must be kept", "very first run"], rows)


def backends_table(report):
    """Times, and how far what heed chooses is from the faster of the two."""
    rows = []
    for e in report["backends"]:
        measured = [t for t in (e["onednn"], e["portable"]) if t]
        rows.append([e["row"], str(e["threads"])] + [time_text(e[k]) if e[k] else "-" for k in ("automatic", "onednn", "portable")] +
                    [ratio_text(e["automatic"] / min(measured)) if e["automatic"] and measured else "-"])
    return table(["by backend", "threads", "automatic", "oneDNN", "portable", "automatic / faster"], rows)


def markdown(report, before=None):
    parts = [head_text(report)]
    if not report["comparable"]:
        parts.append("No ratios: " + refusal(report) + ".\n")
    old_machine = changed_machine(report, before) if before else ""
    if old_machine:
        before = None
        parts.append(old_machine + "\n")
    parts.append(main_table(report, before))
    parts.append("Times are medians; peak is what memory grew by, inputs included; limit is exact arithmetic at the ceilings, copying for softmax.\n")
    unsteady = [f"{e['row']} on {threads_text(e['threads'])}" for e in report["rows"] if not e["steady_machine"]]
    if unsteady and report["comparable"]:
        parts.append("Not compared, because the machine changed by more than 10 % meanwhile: " + ", ".join(unsteady) + ".\n")
    parts.append(steady_table(report))
    if "backends" in report:
        parts.append(backends_table(report))
    parts.append(report.get("growth", ""))
    return "\n".join(p for p in parts if p)
