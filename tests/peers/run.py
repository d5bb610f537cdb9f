#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the peers' programs on the drop-in, each in a process of its own, and prints a table.

run.py --sim FOLDER --work FOLDER [--only TEXT] [--arch sm_80|sm_90a] [--jobs N] [--seed N]
       [--refused] [--traceback]

LD_LIBRARY_PATH must lead to libcuda.so.1 of the simulator; scripts/test --peers sees to that. --refused
lists every spelling of a case's PTX that the simulator does not take, not only the first.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import signal
import sys
import time
import traceback

# All but aligncheck: Triton relies on where hardware begins shared memory (README.md).
CHECKS = "memcheck,initcheck,racecheck,synccheck,asynccheck"
FAMILIES = (("wgmma", r"\bwgmma\.mma"), ("mma.sync", r"\bmma\.sync"), ("ldmatrix", r"\bldmatrix"),
            ("stmatrix", r"\bstmatrix"), ("TMA", r"\bcp\.async\.bulk\.tensor"), ("bulk", r"\bcp\.async\.bulk\.(?!tensor|commit|wait)"),
            ("mbarrier", r"\bmbarrier\."), ("cp.async", r"\bcp\.async\.c[ag]"), ("tensormap", r"\btensormap\."),
            ("cluster", r"\bbarrier\.cluster|\bmapa"), ("atom", r"\b(atom|red)\."), ("shfl", r"\bshfl\."),
            ("bar", r"\bbar\.|\bbarrier\.(?!cluster)"))
Result = collections.namedtuple("Result", "case arch error text findings known seconds launches families log")


def error_of(got, want):
    """max |got - want| / max(1, max |want|); infinite where one is finite and the other is not."""
    import torch
    got, want = got.double(), want.double()
    if got.shape != want.shape:
        raise ValueError(f"shape {tuple(got.shape)}, not {tuple(want.shape)}")
    if not torch.isfinite(got[torch.isfinite(want)]).all():
        return float("inf")
    same = got == want
    difference = torch.where(same, 0.0, (got - want).abs())
    scale = max(1.0, want[torch.isfinite(want)].abs().max().item() if torch.isfinite(want).any() else 1.0)
    return difference.max().item() / scale


def families_of(paths):
    text = "\n".join(path.read_text() for path in paths)
    text = re.sub(r"//.*", "", text)
    return [name for name, pattern in FAMILIES if re.search(pattern, text)]


def refused_in(paths):
    """Every refused instruction: a refused line is blanked and the module offered again."""
    import cuda_driver
    found = collections.Counter()
    for path in paths:
        lines = path.read_text().split("\n")
        for _ in range(len(lines)):
            why = cuda_driver.refusal("\n".join(lines).encode())
            at = re.search(r"line (\d+)", why or "")
            if not at:
                if why:
                    found[f"{path.name}: {why}"] += 1
                break
            number = int(at[1]) - 1
            name = re.search(r"'([^']+)'$", why.strip())
            opcode = name[1] if name else ""
            if opcode not in lines[number] or not re.match(r"[a-z]\w*\.", opcode):
                words = re.search(r"(?:^|[\s{])([a-z]\w*(?:[.:]+\w+)*)[\s;]", lines[number])
                opcode = words[1] if words else lines[number].strip()
            found[f"{opcode}   <- {re.sub(r'^line .*?: |%[a-z]+[0-9]+', '', why.strip())[:100]}"] += 1
            blanked = re.sub(r"(@!?[%\w]+\s+)?" + re.escape(opcode) + r"(?![\w.])[^;]*;", " ", lines[number])
            if blanked == lines[number]:
                break
            lines[number] = blanked
    return found


def child(chosen, arch, folder, options):
    """Runs one case; answers what the table needs as plain data."""
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    import bridge
    bridge.install(folder)
    bridge.refused_are_skipped = options.refused
    text, worst, log = "ok", 0.0, ""
    try:
        for what, got, want, bound in chosen.run():
            error = error_of(got, want)
            worst = max(worst, error)
            if not error <= bound:
                text = f"{what}: error {error:.3g} > {bound:.3g}"
                break
    except Exception as problem:  # a peer may raise anything; the table shows it
        text = f"{type(problem).__name__}: {problem}".strip().split("\n")[0][:300]
        log = traceback.format_exc()
    paths = [path for _, path in bridge.launched]
    refused = dict(refused_in(paths)) if options.refused else {}
    return {"text": text, "error": worst, "families": families_of(paths), "refused": refused, "log": log,
            "launches": bridge.launches}


def start(chosen, arch, work, options):
    """Forks; the child's answer goes to a file."""
    folder = work / arch / chosen.name
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.iterdir():
        stale.unlink()
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid, folder
    os.setsid()
    output = os.open(folder / "output.txt", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.update(LATHE_SIM_ARCH=arch, LATHE_SIM_CHECK=CHECKS, LATHE_SIM_SEED=str(options.seed),
                      LATHE_SIM_REPORT=str(folder / "report.jsonl"), LATHE_SIM_THREADS="1")
    code = 1
    try:
        answer = child(chosen, arch, folder, options)
        (folder / "answer.json").write_text(json.dumps(answer))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def findings_of(folder):
    """A clean run writes no report."""
    report = folder / "report.jsonl"
    entries = [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []
    return [entry for entry in entries if "check" in entry]  # the others are notes


def finish(chosen, arch, folder, status, seconds):
    found = findings_of(folder)
    known = [entry for entry in found if chosen.known and
             re.search(chosen.known, f"{entry['kind']} {entry['kernel']}: {entry.get('text')}")]
    found = [entry for entry in found if entry not in known]
    answer_file = folder / "answer.json"
    if answer_file.exists():
        answer = json.loads(answer_file.read_text())
    else:
        reason = "ran past its time" if status is None else f"ended with status {status}"
        answer = {"text": reason, "error": float("inf"), "families": [], "refused": {}, "log": "", "launches": 0}
    return Result(chosen.name, arch, answer["error"], answer["text"], found, known, seconds, answer["launches"],
                  answer["families"], answer["log"]), answer["refused"]


def show(result):
    kinds = collections.Counter(finding["kind"] for finding in result.findings)
    found = " ".join(f"{check}:{count}" for check, count in kinds.items()) or "clean"
    if result.known:
        found += f" known:{len(result.known)}"
    passed = result.text == "ok" and not result.findings
    print(f"{'ok  ' if passed else 'FAIL'} {result.case:<28} {result.arch:<7} {result.error:9.2e}  {found:<16} "
          f"{result.seconds:6.1f} s  {result.launches:3d}  {' '.join(result.families)}"
          + ("" if result.text == "ok" else f"\n       {result.text}"), flush=True)
    for finding in result.findings[:3]:
        print(f"       {finding.get('kernel')} line {finding.get('ptx_line')} "
              f"{'/'.join(finding.get('source', '').split('/')[-2:])}: "
              f"{finding.get('text')}", flush=True)
    return passed


def run_all(pairs, work, options):
    waiting, running, failed, refused = list(pairs), {}, [], collections.defaultdict(list)
    while waiting or running:
        while waiting and len(running) < options.jobs:
            chosen, arch = waiting.pop(0)
            pid, folder = start(chosen, arch, work, options)
            running[pid] = (chosen, arch, folder, time.monotonic())
        pid, status = os.waitpid(-1, os.WNOHANG)
        late = [p for p, entry in running.items() if time.monotonic() - entry[3] > options.limit]
        if pid == 0 and not late:
            time.sleep(0.05)
            continue
        if pid == 0:
            pid, status = late[0], None
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        chosen, arch, folder, began = running.pop(pid)
        result, names = finish(chosen, arch, folder, status, time.monotonic() - began)
        if not show(result):
            failed.append(f"{chosen.name} {arch}")
        if options.traceback and result.log:
            print(result.log)
        for name in names:
            refused[name].append(f"{chosen.name} {arch}")
    for name, where in sorted(refused.items()):
        print(f"refused {name}\n        in {', '.join(where)}")
    return failed


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--arch", choices=("sm_80", "sm_90a"))
    parser.add_argument("--jobs", type=int, default=int(os.environ.get("LATHE_JOBS", os.cpu_count() or 1)))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=900, help="seconds for one case")
    parser.add_argument("--refused", action="store_true")
    parser.add_argument("--traceback", action="store_true")
    return parser.parse_args()


def main():
    options = arguments()
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    os.environ.setdefault("TRITON_CACHE_DIR", str((options.work / "triton_cache").resolve()))
    import torch
    torch.set_num_threads(1)
    import triton  # noqa: F401 — imported once here, before the forks
    import cases
    import fla_cases  # noqa: F401
    import triton_cases  # noqa: F401
    pairs = [(chosen, arch) for chosen in cases.CASES for arch in chosen.archs
             if options.only in f"{chosen.group}/{chosen.name}" and options.arch in (None, arch)]
    began = time.monotonic()
    print(f"     {'case':<28} {'arch':<7} {'error':>9}  {'findings':<16} {'time':>8}  launches, families")
    failed = run_all(pairs, options.work.resolve(), options)
    if failed:
        print("\nThe following tests FAILED:\n" + "".join(f"\t{name}\n" for name in failed))
    share = 100 * (len(pairs) - len(failed)) // max(1, len(pairs))
    print(f"Total time: {time.monotonic() - began:.0f} s")
    print(f"{share}% tests passed, {len(failed)} tests failed out of {len(pairs)}")
    sys.exit(1 if failed or not pairs else 0)


if __name__ == "__main__":
    main()
