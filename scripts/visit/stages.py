# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The stages of a visit and their steps, with a time limit each. Most wanted first: right results, then times beside
those of others, then tuning, then the tests."""
import json
import pathlib
import shutil
import sys

from visit import machine, tuning
from visit.runner import Step

STAGES = ("check", "times", "tune", "retime", "suite")
VERBS = ("conv", "attn", "kda", "sparse")
# Golden files of an operator, and options of tests/golden_test.py.
GOLDEN = {"causal_conv1d": ("--ranks", "1,2,3"), "causal_conv1d_update": (), "flash_attention": (),
          "flash_attention_decode": (), "kda": (), "kda_recurrent": (), "sparse_flash_attention": ()}
# Tests that run on a device, by the beginning of their names; what a dry run takes of them.
SUITE = ("conv_", "attention_", "kda_", "sparse_", "shard_", "ranks_")
# They read what only the simulator counts, bring its core themselves, or name tiles of one architecture.
NOT_ON_A_DEVICE = ("counters_test", "_traffic_test", "_tiles_test", "kda_chains_test", "kda_chunks_test",
                   "kda_numerics_test", "kda_recurrent_numerics_test")
TINY_SUITE = ("sparse_repeat_test",)
RULES = {"LATHE_TUNED": "off"}  # what rules choose, also where an earlier run has tuned
PEERS = {"conv": "conv_peers.py", "attn": "attention_peers.py", "kda": "kda_peers.py"}


def first_stage(visit):
    """Small shapes of every operator, forward and backward, against float64; then golden vectors."""
    for verb in VERBS:
        yield bench(visit, "check", verb, f"smoke_{verb}.csv", 60, ["--tiny", "--runs", "3"], env=RULES, wrong=True)
    for operator, more in GOLDEN.items():
        if visit.tiny and operator != "causal_conv1d_update":
            continue
        command = [machine.python_with_numpy(), visit.root / "tests/golden_test.py", visit.build / "bin/lathe", visit.root, operator,
                   *more, "--device", visit.device, "--arch", visit.archs, "--jobs", str(visit.jobs)]
        yield Step("check", f"golden_{operator}", command, 90, env=RULES, wrong=True)


def bench(visit, stage, verb, rows, seconds, more=(), **options):
    command = [visit.build / "bin/lathe_bench", verb, "--device", visit.device, "--append", visit.folder / rows, *more]
    if visit.tiny and "--tiny" not in more:
        command.append("--tiny")
    return Step(stage, pathlib.Path(rows).stem, command, seconds, rows=rows, **options)


def times(visit):
    # Each problem is noted for the tuner.
    env = {**RULES, "LATHE_RECORD": str(visit.folder / tuning.PROBLEMS)}
    seconds = {"conv": 40, "kda": 70, "attn": 140, "sparse": 50}
    for verb in ("conv", "kda", "attn", "sparse"):
        yield bench(visit, "times", verb, f"{verb}.csv", seconds[verb], env=env, wrong=True)
        if verb in PEERS:
            yield peers(visit, verb)
    for verb, limit in (("launch", 40), ("compile", 25), ("warm", 25)):
        if visit.tiny and verb != "launch":
            continue
        command = [visit.build / "bin/lathe_bench", verb, "--device", visit.device, "--format", "csv"]
        yield Step("times", verb, command + (["--runs", "3"] if visit.tiny else []), limit, output=f"{verb}.csv", env=RULES)


def peers(visit, verb):
    command = [sys.executable, visit.root / "scripts/visit" / PEERS[verb], "--append", visit.folder / f"peers_{verb}.csv"]
    if visit.device == "sim":
        command.append("--dry-run")
    command.append(visit.folder / f"{verb}.csv")
    if verb == "kda":
        command.append(visit.build / "lib/liblathe.so")
    return Step("times", f"peers_{verb}", command, 50, rows=f"peers_{verb}.csv", env=RULES)


def tune(visit):
    """A step for each problem that the benches had, once for all lengths of it."""
    for name, line in tuning.problems(visit.folder / tuning.PROBLEMS, 2 if visit.tiny else 60):
        manifest = visit.folder / "tune" / f"{name}.jsonl"
        manifest.parent.mkdir(exist_ok=True)
        manifest.write_text(json.dumps(line) + "\n", encoding="utf-8")
        command = [visit.build / "bin/lathe", "tune", "--manifest", manifest, "--device", visit.device, "--json",
                   "--seconds", "20"]
        for letter, extent in (("B", 1), ("T", 300 if visit.tiny else 8192)):  # of conv1d, whose plans leave them open
            command += ["--extent", f"{letter}={extent}"]
        if visit.tiny:
            command += ["--repeats", "1", "--candidates", "2"]
        yield Step("tune", name, command, 60, output=f"tune/{name}.json", after=visit.keep_tuned)


def retime(visit):
    env = {"LATHE_TUNED": str(visit.folder / tuning.TUNED)}
    seconds = {"conv": 40, "kda": 70, "attn": 140, "sparse": 50}
    if not (visit.folder / tuning.TUNED).exists():
        env = RULES
    for verb in VERBS:
        yield bench(visit, "retime", verb, f"tuned_{verb}.csv", seconds[verb], env=env, wrong=True)
    # Attention's kernels are of two families, of which the rules have taken the faster one.
    yield bench(visit, "retime", "attn", "portable_attn.csv", seconds["attn"], env={**RULES, "LATHE_FAMILY": "portable"}, wrong=True)


def suite(visit):
    programs = sorted((visit.build / "tests").glob("*_test"))
    for program in programs:
        name = program.name
        if not name.startswith(SUITE) or (visit.tiny and name not in TINY_SUITE):
            continue
        if visit.device == "cuda" and name.endswith(NOT_ON_A_DEVICE):
            continue
        yield Step("suite", name, [program], 100, env=RULES, wrong=True)


def steps_of(visit, stage):
    """The steps of a stage; those of `tune` depend on what `times` has left."""
    makers = {"check": first_stage, "times": times, "tune": tune, "retime": retime, "suite": suite}
    return list(makers[stage](visit))


def outputs(visit, step):
    """What a step leaves, to be removed before it is repeated from its beginning."""
    names = [step.rows, step.rows + ".cases"] if step.rows else []
    return [visit.folder / name for name in names + [step.output] if name] + [step.log(visit.folder)]


def copy_tuned(cache, target):
    """Keeps the tuner's database as a result of the visit."""
    found = sorted(pathlib.Path(cache).glob("v*/tuned/*.txt"))
    if found:
        shutil.copyfile(found[0], target)
