# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""DIR/summary.md: one page about a visit, written again after every step."""
from visit import rows, stages

LOG_LINES = 12  # of each step that failed
PEER_FILES = {"conv": ("conv.csv", "peers_conv.csv"), "attn": ("attn.csv", "portable_attn.csv", "peers_attn.csv"),
              "kda": ("peers_kda.csv", "peers_kda.csv")}  # lathe takes turns with its peer in the last
ROWS_SHOWN = 60


def write(visit, note):
    (visit.folder / "summary.md").write_text("\n".join(lines(visit, note)) + "\n", encoding="utf-8")


def lines(visit, note):
    machine = visit.machine
    found = {stage: [(step, visit.of(step)) for step in stages.steps_of(visit, stage)] for stage in stages.STAGES}
    every = [pair for stage in found.values() for pair in stage]
    wrong = [pair for pair in every if pair[0].wrong and pair[1].get("result") in ("failed", "timeout")]
    out = ["# A visit to " + (machine["gpus"][0]["name"] if machine["gpus"] else f"device {visit.device}"), ""]
    out += [note, ""] if note else []
    if wrong:
        out += ["## Wrong, or not known to be right", ""]
        out += [f"- **{step.stage}/{step.name}**: {clean(stamp['reason'])}" for step, stamp in wrong] + [""]
    elif any(stamp.get("result") == "passed" for step, stamp in every if step.wrong):
        out += ["No result was wrong so far.", ""]
    out += about(machine) + [""] + table_of_stages(found) + [""]
    out += beside_peers(visit) + tuned(visit) + failures(visit, every)
    return out


def clean(text):
    return " ".join(text.replace("|", "/").split())


def about(machine):
    out = ["## Machine", "", "| | |", "|---|---|"]
    for gpu in machine["gpus"]:
        out.append("| GPU | " + ", ".join(f"{name} {value}" for name, value in gpu.items()) + " |")
    for item in machine["doctor"]:
        out.append(f"| {item['name']} | {item['state']}, {clean(item['where'])} |")
    out.append(f"| lathe | {machine['lathe']}, commit {machine['commit']} |")
    peers = ", ".join(f"{name} {version}" for name, version in machine["peers"].items()) or "none installed"
    out.append(f"| peers | {peers} |")
    out.append(f"| host | {machine['processor']}, {machine['cores']} cores, {machine['system']}, Python "
               f"{machine['python']} |")
    return out + [f"| time | {machine['time']} |"]


def table_of_stages(found):
    out = ["## Stages", "", "| stage | passed | failed | timed out | skipped | to do | seconds |", "|---|---|---|---|---|---|---|"]
    for stage, pairs in found.items():
        results = [stamp.get("result") for _, stamp in pairs]
        seconds = sum(stamp.get("seconds", 0) for _, stamp in pairs)
        counts = [results.count(word) for word in ("passed", "failed", "timeout", "skipped")]
        left = len(results) - sum(counts)
        to_do = "known after `times`" if stage == "tune" and not pairs else left
        out.append(f"| {stage} | " + " | ".join(map(str, counts)) + f" | {to_do} | {seconds:.0f} |")
    return out


def timing(row):
    middle, low, high = (rows.number(row, name) for name in ("us", "us_p10", "us_p90"))
    if middle is None:
        return None
    return middle, f"{middle:.1f} ({low:.1f} to {high:.1f})" if None not in (low, high) else f"{middle:.1f}"


def compared(visit):
    """[(verb, op, shape, dtype, lathe's row, peer's name, peer's row)]"""
    out = []
    for verb, (own, *others) in PEER_FILES.items():
        ours = {rows.key(row): row for row in rows.read(visit.folder / own) if row.get("impl", "lathe") == "lathe"}
        for row in (row for name in others for row in rows.read(visit.folder / name)):
            mine, who = ours.get(rows.key(row)), row.get("impl", "portable kernels")
            if who != "lathe" and mine and timing(mine) and timing(row):
                out.append((verb, *rows.key(row), mine, who, row))
    return out


def beside_peers(visit):
    pairs = compared(visit)
    if not pairs:
        return ["No times beside peers.", ""]
    out = ["## Times beside peers", "", "Median microseconds of a call, with the 10th and 90th percentile. Ratio: the "
           "peer's time over lathe's; above 1 lathe is faster.", "",
           "| | shape | lathe | peer | peer's time | ratio |", "|---|---|---|---|---|---|"]
    for verb, op, shape, dtype, mine, name, row in pairs[:ROWS_SHOWN]:
        ratio = timing(row)[0] / timing(mine)[0] if timing(mine)[0] > 0 else 0
        out.append(f"| {verb} {op} | {shape} {dtype} | {timing(mine)[1]} | {name} | {timing(row)[1]} | {ratio:.2f} |")
    if len(pairs) > ROWS_SHOWN:
        out.append(f"\n{len(pairs) - ROWS_SHOWN} more are in the CSV files.")
    return out + [""]


def tuned(visit):
    out = []
    for verb in stages.VERBS:
        before = {rows.key(row): row for row in rows.read(visit.folder / f"{verb}.csv")}
        for row in rows.read(visit.folder / f"tuned_{verb}.csv"):
            mine = before.get(rows.key(row))
            if not mine or not timing(mine) or not timing(row) or timing(row)[0] <= 0:
                continue
            gain = timing(mine)[0] / timing(row)[0]
            if abs(gain - 1) >= 0.02 and row.get("op") != "copy":
                out.append((gain, f"| {verb} {row['op']} | {row['shape']} {row.get('dtype', '')} | {timing(mine)[1]} | "
                                  f"{timing(row)[1]} | {gain:.2f} |"))
    if not out:
        return []
    out.sort(reverse=True)
    return ["## What tuning changed", "", "Changes of 2 % and more, best first.", "",
            "| | shape | by rules | tuned | ratio |", "|---|---|---|---|---|"] + [line for _, line in out[:20]] + [""]


def failures(visit, every):
    out = []
    for step, stamp in every:
        if stamp.get("result") not in ("failed", "timeout"):
            continue
        out += [f"### {step.stage}/{step.name}: {stamp['result']}", "", clean(stamp["reason"]), "", "```"]
        try:
            text = step.log(visit.folder).read_text(encoding="utf-8", errors="replace")
        except OSError:
            text = ""
        out += [line[:200] for line in text.splitlines()[:LOG_LINES]] + ["```", ""]
    return ["## What failed", ""] + out if out else []
