#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""How scripts/gpu runs steps and keeps what they leave, with small commands in place of benches: gpu_visit_test.py ROOT"""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest
import zipfile

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True
from visit import machine, pack, points, rows, runner, stages, state, summary, tuning  # noqa: E402

# A bench over the cases a, b and c: bench/operators/cases.h. What becomes of b stands for the word in place of DO.
BENCH = """
f=$1; touch $f.cases
for c in a b c; do
  grep -q -e "done $c" -e "failed $c" $f.cases && continue
  echo begin $c >>$f.cases
  if [ $c = b ]; then DO; fi
  echo $c >>$f; echo done $c >>$f.cases
done"""


class Folder(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        self.runner = runner.Runner(self.folder, self.folder, dict(os.environ))
        self.stamps = state.Stamps(self.folder)

    def tearDown(self):
        self.temporary.cleanup()

    def step(self, script, rows_file="", **options):
        command = ["bash", "-c", script, "bench", self.folder / rows_file]
        return runner.Step("times", "step", command, 100, rows=rows_file, **options)


class Steps(Folder):
    def test_plain(self):
        for script, result, reason in (("exit 0", "passed", ""), ("echo why >&2; exit 3", "failed", "exit 3: why"),
                                       ("echo no golden; exit 77", "skipped", "no golden"),
                                       ("kill -SEGV $$", "failed", "signal 11: no golden")):
            with self.subTest(script):
                self.assertEqual(self.runner.run(self.step(script), 60, False), (result, reason))

    def test_a_program_that_is_not_there(self):
        step = self.step("")
        step.command = [self.folder / "none"]
        result, reason = self.runner.run(step, 60, False)
        self.assertEqual(result, "failed")
        self.assertIn("No such file", reason)

    def test_a_hang_costs_its_own_time_and_leaves_nobody_behind(self):
        step = self.step("echo $$ >pid; sleep 1000 & wait")
        self.assertEqual(self.runner.run(step, 0.5, False)[0], "timeout")
        group = int((self.folder / "pid").read_text())
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                os.killpg(group, 0)
            except ProcessLookupError:
                return
            time.sleep(0.01)
        self.fail("a process of the step is still there")

    def test_a_step_that_the_budget_cuts_is_for_the_next_run(self):
        self.assertEqual(self.runner.run(self.step("sleep 1000"), 0.3, True)[0], "interrupted")

    def outcome(self, word, seconds=60.0):
        step = self.step(BENCH.replace("DO", word), "rows.csv")
        result, reason = self.runner.run(step, seconds, False)
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

    def test_a_case_that_hangs_costs_itself_alone(self):
        before, runner.STALL_SECONDS = runner.STALL_SECONDS, 1
        try:
            result, reason, left = self.outcome("sleep 1000")
        finally:
            runner.STALL_SECONDS = before
        self.assertEqual((result, left), ("failed", ["a", "c"]))
        self.assertIn("no answer", reason)

    def test_cases_that_take_longer_than_there_is_go_on_in_the_next_run(self):
        self.assertEqual(self.outcome("sleep 1000", 1.0)[::2], ("partial", ["a"]))
        self.assertEqual(self.outcome("true")[::2], ("passed", ["a", "b", "c"]))

    def test_a_bench_that_does_not_start_is_tried_once(self):
        (self.folder / "rows.csv.cases").write_text("begin a\n")  # of a run that was killed
        step = self.step("echo once >>starts; echo no device >&2; exit 1", "rows.csv")
        self.assertEqual(self.runner.run(step, 60, False), ("failed", "exit 1: no device"))
        self.assertEqual((self.folder / "starts").read_text(), "once\n")
        self.assertEqual((self.folder / "rows.csv.cases").read_text(), "begin a\n")


class Stamps(Folder):
    def test_life_of_a_stamp(self):
        step = self.step("")
        self.assertEqual(self.stamps.of(step), {})
        self.stamps.begin(step)
        self.assertEqual(self.stamps.of(step)["result"], "interrupted")  # as the next run would see it
        self.stamps.end(step, "passed", 1.5, "")
        self.assertTrue(self.stamps.ended(step))
        self.stamps.forget(step)
        self.assertEqual(self.stamps.of(step), {})

    def test_a_step_that_kills_every_run_is_given_up(self):
        step = self.step("")
        for _ in range(state.ATTEMPTS):
            self.assertFalse(self.stamps.ended(step))
            self.stamps.begin(step)
        self.assertEqual(self.stamps.of(step)["result"], "failed")

    def test_an_orderly_stop_does_not_count_as_a_kill(self):
        step = self.step("")
        for _ in range(3 * state.ATTEMPTS):
            self.stamps.begin(step)
            self.assertFalse(self.stamps.ended(step))
            self.stamps.end(step, "interrupted", 1, "")

    def test_a_stage_is_stamped_when_all_of_it_has_ended(self):
        steps = [self.step(""), self.step("")]
        steps[1].name = "other"
        self.assertFalse(self.stamps.close_stage("times", []))
        self.stamps.end(steps[0], "failed", 1, "why")
        self.assertFalse(self.stamps.close_stage("times", steps))
        self.stamps.end(steps[1], "passed", 1, "")
        self.assertTrue(self.stamps.close_stage("times", steps))
        self.assertEqual(state.read_json(self.folder / "stamps/times.json"), {"passed": 1, "failed": 1})

    def test_one_run_at_a_time(self):
        first, second = state.Lock(self.folder), state.Lock(self.folder)
        self.assertTrue(first.take())
        self.assertFalse(second.take())
        first.file.close()
        self.assertTrue(second.take())
        second.file.close()

    def test_processes_of_a_killed_run_are_ended(self):
        env = dict(os.environ, **{state.MARK: str(self.folder)})
        ours = subprocess.Popen(["sleep", "1000"], env=env)
        other = subprocess.Popen(["sleep", "1000"], env=dict(env, **{state.MARK: str(self.folder) + "2"}))
        try:
            until = time.monotonic() + 60  # a new process has its parent's environment for a moment
            while ours.poll() is None and time.monotonic() < until:
                state.end_leftovers(self.folder)
                time.sleep(0.01)
            self.assertEqual(ours.poll(), -signal.SIGKILL)
            self.assertIsNone(other.poll())
        finally:
            for process in (ours, other):
                process.kill()
                process.wait()


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
                                      archs="sm_90a", stamps=self.stamps, keep_tuned=None)
        visit.machine = {"gpus": [{"name": "NVIDIA H200"}], "doctor": [], "lathe": "0.1.0", "commit": "abc", "peers": {},
                         "processor": "x", "cores": 1, "system": "Linux", "python": "3", "time": "now", "device": "cuda"}
        return visit

    def test_a_summary_tells_what_is_wrong_first_and_times_beside_peers(self):
        visit = self.visit()
        wrong, = [step for step in stages.steps_of(visit, "check") if step.name == "golden_kda"]
        self.stamps.end(wrong, "failed", 2, "exit 1: o is off | by 3")
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

    def test_points_of_plots(self):
        head = "op,shape,dtype,us,us_p10,us_p90,TFLOP_per_s,minimum_MB,gpu\n"
        (self.folder / "attn.csv").write_text(head + "forward,B1,bf16,10,9,12,100,2,NVIDIA H200\n"
                                              "forward,B2,bf16,20,19,22,100,4,NVIDIA H200\n")
        (self.folder / "peers_attn.csv").write_text("op,shape,dtype,impl,us\nforward,B1,bf16,torch_flash,15\n")
        (self.folder / "portable_attn.csv").write_text(head + "forward,B1,bf16,20,19,21,50,2,NVIDIA H200\n")
        (self.folder / "attn-predicted.csv").write_text(
            "op,shape,dtype,predicted_us,predicted_TFLOP_per_s,minimum_MB,predicted_gpu\n"
            "forward,B2,bf16,18,111,4,h100\nforward,B2,bf16,16,125,4,h200\nforward,B9,bf16,1,1,1,h200\n")
        found = [point for path in sorted(self.folder.glob("*.csv")) for point in points.points_of(path)]
        (case, who), = points.beside_peers(found)["attn"]
        self.assertEqual((case[2], who["lathe"].microseconds, who["torch_flash"].microseconds), ("B1", 10, 15))
        self.assertEqual(who["lathe portable"].microseconds, 20)
        self.assertEqual([(point.flops, point.bytes) for point in points.roofline(found)], [(1e9, 2e6), (2e9, 4e6)])
        (told, measured), = points.predicted(found)
        self.assertEqual((told.microseconds, told.gpu, measured.microseconds), (16, "h200", 20))
        self.assertEqual(points.roofline([point for point in found if point.who == "predicted"])[0].gpu, "h100")

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

    def test_every_stage_fits_its_time(self):
        visit = self.visit()
        for stage in ("times", "retime"):
            self.assertLessEqual(sum(step.seconds for step in stages.steps_of(visit, stage)), stages.STAGE_SECONDS)
        for stage in stages.STAGES:
            for step in stages.steps_of(visit, stage):
                self.assertLess(step.seconds, 200, step.name)


class Pack(Folder):
    def test_there_and_back(self):
        here, there = self.folder / "here", self.folder / "there"
        for name in ("bin/lathe", "bin/lathe_bench", "lib/liblathe.so.0", "sim/libcuda.so.1", "tests/conv_run_test",
                     "tests/store_test"):
            path = here / "build" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"I am {name}")
            path.chmod(0o755)
        (here / "build/lib/liblathe.so").symlink_to("liblathe.so.0")
        (here / ".deps/lib").mkdir(parents=True)
        for name in ("libnvrtc.so.13", "libnvrtc-builtins.so.13.0", "libnvrtc.so.12", "libnvrtc-builtins.so.12.9"):
            (here / ".deps/lib" / name).write_text(name)
        (here / "wheels").mkdir()
        with zipfile.ZipFile(here / "wheels/fla-1-py3-none-any.whl", "w") as wheel:
            wheel.writestr("fla/__init__.py", "")
        os.environ.update(LATHE_BUILD=str(here / "build"), LATHE_GOLDEN=str(here / "none"))
        folder = there / pack.PLACE
        words = [str(folder), "--preset", "0", "--wheels", str(here / "wheels")]
        self.assertEqual(pack.main(here, words + ["--limit", "0.0001"]), 1)
        self.assertEqual(pack.main(here, words), 0)
        told = []
        pack.unpack(there, told.append)
        self.assertEqual(told, [f"unpacking {name}" for name in ("nvrtc12", "nvrtc13", "programs", "wheels")])
        self.assertEqual((there / "build/lib/liblathe.so").read_text(), "I am lib/liblathe.so.0")
        self.assertTrue(os.access(there / "build/bin/lathe", os.X_OK))
        self.assertTrue((there / "build/tests/conv_run_test").exists())
        self.assertFalse((there / "build/tests/store_test").exists())  # needs no device
        self.assertEqual({path.name for path in (there / ".deps/lib").iterdir()},
                         {path.name for path in (here / ".deps/lib").iterdir()})
        self.assertTrue((folder / "site/fla/__init__.py").exists())
        pack.unpack(there, told.append)
        self.assertEqual(len(told), 4)  # once

    def test_a_tree_that_was_built_stays_as_it_is(self):
        for name in (f"{pack.PLACE}/pack.json", "build/CMakeCache.txt"):
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("{}")
        told = []
        pack.unpack(self.folder, told.append)
        self.assertEqual(told, [])


if __name__ == "__main__":
    unittest.main()
