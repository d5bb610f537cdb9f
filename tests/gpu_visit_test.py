#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""How scripts/gpu runs steps and keeps what they leave, with small commands in place of benches: gpu_visit_test.py ROOT"""
import os
import pathlib
import sys
import tempfile
import time
import types
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True
from visit import machine, rows, runner, stages, summary, tuning  # noqa: E402

# A bench over the cases a, b and c: bench/operators/cases.h. What becomes of b stands for the word in place of DO.
BENCH = """
f=$1; touch $f.cases
for c in a b c; do
  grep -q -e "done $c" -e "failed $c" $f.cases && continue
  [ $(grep -c "begin $c" $f.cases) -lt 2 ] || continue
  echo begin $c >>$f.cases
  if [ $c = b ]; then DO; fi
  echo $c >>$f; echo done $c >>$f.cases
done"""


class Folder(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        self.results = {}

    def tearDown(self):
        self.temporary.cleanup()

    def step(self, script, rows_file="", **options):
        command = ["bash", "-c", script, "bench", self.folder / rows_file]
        return runner.Step("times", "step", command, 100, rows=rows_file, **options)

    def run_step(self, step, seconds=60.0):
        return runner.run(step, types.SimpleNamespace(folder=self.folder, root=self.folder, env=dict(os.environ)), seconds)


class Steps(Folder):
    def test_plain(self):
        for script, result, reason in (("exit 0", "passed", ""), ("echo why >&2; exit 3", "failed", "exit 3: why"),
                                       ("echo no golden; exit 77", "skipped", "no golden"),
                                       ("kill -SEGV $$", "failed", "signal 11: no golden")):
            with self.subTest(script):
                self.assertEqual(self.run_step(self.step(script)), (result, reason))

    def test_a_program_that_is_not_there(self):
        step = self.step("")
        step.command = [self.folder / "none"]
        result, reason = self.run_step(step)
        self.assertEqual(result, "failed")
        self.assertIn("No such file", reason)

    def test_a_hang_costs_its_own_time_and_leaves_nobody_behind(self):
        result, _ = self.run_step(self.step("echo $$ >pid; sleep 1000 & wait"), 0.5)
        self.assertEqual(result, "timeout")
        group = int((self.folder / "pid").read_text())
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                os.killpg(group, 0)
            except ProcessLookupError:
                return
            time.sleep(0.01)
        self.fail("a process of the step is still there")

    def test_what_comes_after_a_step_comes_however_it_ends(self):
        for script in ("exit 0", "exit 1", "sleep 1000"):
            called = []
            self.run_step(self.step(script, after=lambda called=called: called.append(1)), 0.5)
            self.assertEqual(called, [1])

    def outcome(self, word, seconds=60.0):
        step = self.step(BENCH.replace("DO", word), "rows.csv")
        result, reason = self.run_step(step, seconds)
        path = self.folder / "rows.csv"
        return result, reason, path.read_text().split()

    def test_cases(self):
        self.assertEqual(self.outcome("true"), ("passed", "", ["a", "b", "c"]))

    def test_a_case_that_crashes_costs_itself_alone(self):
        result, reason, left = self.outcome("kill -SEGV $$")
        self.assertEqual((result, left), ("failed", ["a", "c"]))
        self.assertIn("signal 11", reason)

    def test_a_wrong_case_is_told_and_the_others_go_on(self):
        result, reason, left = self.outcome("echo failed b >>$f.cases; echo b: off by 3 >&2; exit 1")
        self.assertEqual((result, reason, left), ("failed", "exit 1: b: off by 3", ["a", "c"]))

    def test_cases_that_take_longer_than_there_is_go_on_in_the_next_run(self):
        self.assertEqual(self.outcome("sleep 1000", 1.0)[::2], ("timeout", ["a"]))
        self.assertEqual(self.outcome("true")[::2], ("passed", ["a", "b", "c"]))

    def test_a_case_that_hung_twice_has_no_row_and_is_told(self):
        for _ in range(2):
            self.assertEqual(self.outcome("sleep 1000", 1.0)[::2], ("timeout", ["a"]))
        self.assertEqual(self.outcome("sleep 1000"), ("failed", "no row of b", ["a", "c"]))

    def test_a_bench_that_does_not_start_is_tried_once(self):
        (self.folder / "rows.csv.cases").write_text("begin a\n")  # of a run that was killed
        step = self.step("echo once >>starts; echo no device >&2; exit 1", "rows.csv")
        self.assertEqual(self.run_step(step), ("failed", "exit 1: no device"))
        self.assertEqual((self.folder / "starts").read_text(), "once\n")
        self.assertEqual((self.folder / "rows.csv.cases").read_text(), "begin a\n")


class Results(Folder):
    def test_rows_of_a_file_that_was_cut_short(self):
        path = self.folder / "rows.csv"
        path.write_text("op,shape,dtype,us\nforward,B1,bf16,5\nop,shape,dtype,us\nforward,B1,bf16,4\nbackward,B1\n"
                        "backward,B1,bf16,9\nforward,B2")
        self.assertEqual([(row["op"], row["us"]) for row in rows.read(path)], [("forward", "4"), ("backward", "9")])
        self.assertEqual(rows.read(self.folder / "none.csv"), [])

    def test_problems_are_tuned_once_a_kind_the_largest_first_operators_in_turn(self):
        line = '{"op":"%s","tensors":{"q":["bf16",[1,%d,4,%d]]}}\n'
        path = self.folder / "problems.jsonl"
        path.write_text(line % ("attention", 100, 64) + line % ("attention", 300, 64) + line % ("attention", 100, 128) +
                        line % ("kda", 7, 64) + '{"op":"att')
        found = tuning.problems(path, 10)
        self.assertEqual([(problem["op"], problem["tensors"]["q"][1][1]) for _, problem in found],
                         [("attention", 300), ("kda", 7), ("attention", 100)])
        self.assertEqual(len({name for name, _ in found}), 3)
        names = dict((problem["op"], name) for name, problem in found[:2])
        path.write_text(line % ("kda", 9, 64) + line % ("attention", 400, 64))
        self.assertEqual(dict((problem["op"], name) for name, problem in tuning.problems(path, 10)), names)

    def test_archs(self):
        for capability, archs in (("8.0", "sm_80"), ("8.9", "sm_89"), ("9.0", "sm_90a"), ("10.0", "sm_100")):
            self.assertEqual(machine.archs_of({"gpus": [{"compute_cap": capability}]}), archs)

    def visit(self):
        visit = types.SimpleNamespace(folder=self.folder, root=ROOT, build=self.folder, device="cuda", tiny=False, jobs=1,
                                      archs="sm_90a", keep_tuned=None,
                                      of=lambda step: self.results.get(step.name, {}))
        visit.machine = {"gpus": [{"name": "NVIDIA H200"}], "doctor": [], "lathe": "0.1.0", "commit": "abc", "peers": {},
                         "processor": "x", "cores": 1, "system": "Linux", "python": "3", "time": "now", "device": "cuda"}
        return visit

    def test_a_summary_tells_what_is_wrong_first_and_times_beside_peers(self):
        visit = self.visit()
        wrong, = [step for step in stages.steps_of(visit, "check") if step.name == "golden_kda"]
        self.results[wrong.name] = {"result": "failed", "seconds": 2, "reason": "exit 1: o is off | by 3"}
        wrong.log(self.folder).parent.mkdir(parents=True)
        wrong.log(self.folder).write_text("first line\n" + "more\n" * 50)
        head = "op,shape,dtype,us,us_p10,us_p90\n"
        (self.folder / "attn.csv").write_text(head + "forward,B1,bf16,10,9,12\n")
        (self.folder / "peers_attn.csv").write_text(
            "op,shape,dtype,impl,us,us_p10,us_p90\nforward,B1,bf16,torch_flash,15,14,16\nforward,B9,bf16,torch_flash,1,1,1\n")
        (self.folder / "tuned_attn.csv").write_text(head + "forward,B1,bf16,8,8,8\n")
        (self.folder / "portable_attn.csv").write_text(head + "forward,B1,bf16,20,19,21\n")
        summary.write(visit, "")
        text = (self.folder / "summary.md").read_text()
        lines = text.splitlines()
        self.assertIn("NVIDIA H200", lines[0])
        self.assertEqual(lines[2], "## Wrong, or not known to be right")
        self.assertIn("golden_kda", lines[4])
        self.assertIn("| attn forward | B1 bf16 | 10.0 (9.0 to 12.0) | torch_flash | 15.0 (14.0 to 16.0) | 1.50 |", lines)
        self.assertIn("| attn forward | B1 bf16 | 10.0 (9.0 to 12.0) | portable kernels | 20.0 (19.0 to 21.0) | 2.00 |", lines)
        self.assertIn("| attn forward | B1 bf16 | 10.0 (9.0 to 12.0) | 8.0 (8.0 to 8.0) | 1.25 |", lines)
        self.assertIn("first line", text)
        self.assertLess(text.count("more"), 20)

    def test_nothing_but_tuning_and_its_times_uses_what_was_tuned(self):
        visit = self.visit()
        (self.folder / "problems.jsonl").write_text('{"op":"kda","tensors":{"q":["bf16",[1,9,1,64]]}}\n')
        (self.folder / "tuned.txt").write_text("")
        (self.folder / "tests").mkdir()
        (self.folder / "tests/conv_run_test").write_text("")
        chosen = {stage: {step.env.get("LATHE_TUNED") for step in stages.steps_of(visit, stage) if step.name != "portable_attn"}
                  for stage in stages.STAGES}
        self.assertEqual(chosen, {"check": {"off"}, "times": {"off"}, "tune": {None}, "suite": {"off"},
                                  "retime": {str(self.folder / "tuned.txt")}})
        portable, = [step for step in stages.steps_of(visit, "retime") if step.name == "portable_attn"]
        self.assertEqual((portable.env["LATHE_TUNED"], portable.env["LATHE_FAMILY"]), ("off", "portable"))

    def test_every_stage_fits_a_command_of_ten_minutes(self):
        visit = self.visit()
        for stage in ("times", "retime"):
            self.assertLessEqual(sum(step.seconds for step in stages.steps_of(visit, stage)), 540)
        for stage in stages.STAGES:
            for step in stages.steps_of(visit, stage):
                self.assertLess(step.seconds, 200, step.name)


if __name__ == "__main__":
    unittest.main()
