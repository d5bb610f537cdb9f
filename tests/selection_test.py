#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""What tests/selection.py takes, over the tests of a real build tree and the files of the project.

    tests/selection_test.py SOURCE BUILD
"""
import math
import os
import subprocess
import sys
import tempfile
import unittest

import selection

SOURCE, BUILD = (os.path.abspath(each) for each in sys.argv[1:3])


def chosen(*files):
    return selection.touched(TESTS, SOURCE, files)[0]


class Areas(unittest.TestCase):
    def test_every_test_is_seen_by_a_folder_of_the_tree(self):
        areas = set().union(*(each.areas for each in TESTS))
        seen = set().union(*selection.SEEN_BY.values(), selection.FAMILIES,
                           {"templates", "nvrtc_memo"})
        self.assertLessEqual(areas, seen)

    def test_each_family_has_its_tests(self):
        for family in selection.FAMILIES:
            names = {each.name for each in TESTS if family in each.areas}
            self.assertGreater(len(names), 5, family)
            self.assertTrue(any(name.startswith("golden_") for name in names), family)

    def test_tests_of_a_folder_belong_to_it(self):
        areas = {each.name: each.areas for each in TESTS}
        self.assertEqual(areas["kda_forward_test"], {"kda"})
        self.assertEqual(areas["store_test"], {"cache"})
        self.assertEqual(areas["golden_flash_attention"], {"attention", "golden"})
        self.assertEqual(areas["golden_flash_attention_sm80"], {"attention"})
        self.assertEqual(areas["attention_ranks_test"], {"attention", "ranks"})
        self.assertEqual(areas["templates_kda_compile_test"], {"kda"})
        self.assertEqual(areas["sim_race_test"], {"sim"})
        self.assertEqual(areas["docs_test"], {"root"})


    def test_a_test_names_the_program_that_it_runs(self):
        targets = {each.name: each.target for each in TESTS}
        self.assertEqual(targets["store_test"], "tests/store_test")
        self.assertEqual(targets["attention_alignment_sm80_test"], "tests/attention_alignment_test")
        self.assertIsNone(targets["layers"])


class Changes(unittest.TestCase):
    def test_device_text_reaches_those_that_include_it(self):
        with tempfile.TemporaryDirectory() as root:
            for path, text in (("common/a.cuh", ""), ("conv/b.cuh", '#include "common/a.cuh"\n'),
                               ("kda/c.cuh", '#include "conv/b.cuh"\n'), ("sparse/d.cuh", "")):
                path = os.path.join(root, "templates", path)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
            def seen(path):
                return selection.seen_by(root, path)[0] & set(selection.FAMILIES)
            self.assertEqual(seen("templates/common/a.cuh"), {"conv", "kda"})
            self.assertEqual(seen("templates/conv/b.cuh"), {"conv", "kda"})
            self.assertEqual(seen("templates/sparse/d.cuh"), {"sparse"})

    def test_a_kernel_of_one_family_runs_all_of_its_tests_and_no_others(self):
        found = chosen("templates/kda/kda_forward.cuh")
        self.assertLessEqual({"kda_forward_test", "kda_options_test", "golden_kda_sm80"}, found)
        self.assertFalse({"attention_forward_test", "store_test", "sim_race_test"} & found)

    def test_the_cache_is_seen_by_those_that_use_it_from_outside(self):
        found = chosen("cache/store/store.cpp")
        self.assertLessEqual({"store_test", "api_test", "cli_cache_test", "golden_kda"}, found)
        self.assertFalse({"kda_forward_test", "sim_race_test"} & found)

    def test_what_everything_goes_through_is_seen_by_every_family(self):
        for path in ("codegen/source.cpp", "ops/tensors.cpp", "templates/common/types.cuh"):
            self.assertLessEqual({"kda_forward_test", "conv_update_test", "sparse_run_test",
                                  "attention_forward_test"}, chosen(path), path)

    def test_some_tests_always_run(self):
        for path in ("README.md", "docs/kda.md", "LICENSE", "a/new/folder/file"):
            self.assertLessEqual({"layers", "docs_test", "golden_kda", "golden_plan"},
                                 chosen(path), path)

    def test_every_file_of_the_project_has_a_folder_with_a_rule(self):
        files = subprocess.run(["git", "-C", SOURCE, "ls-files"], capture_output=True, text=True)
        if files.returncode != 0:
            self.skipTest("not a checkout of git")
        ruled = (*selection.SEEN_BY, "templates/")
        bare = {path for path in files.stdout.splitlines()
                if "/" in path and not path.startswith(ruled)}
        self.assertEqual(bare, set())


class Turns(unittest.TestCase):
    def test_all_tests_come_round_once_and_no_turn_takes_much_longer(self):
        costs = {each.name: each.seconds for each in TESTS}
        dealt = selection.deal(costs, 10)
        self.assertEqual(sorted(name for turn in dealt for name in turn), sorted(costs))
        loads = [sum(costs[name] for name in names) for names in dealt]
        self.assertLessEqual(max(loads), max(*costs.values(), 1.1 * sum(loads) / 10))

    def test_every_suite_has_a_turn_and_those_that_see_the_change_have_two(self):
        turns = [selection.suite_of(turn, {"torch", "kda"})
                 for turn in range(len(selection.SUITES) + 2)]
        self.assertEqual({name: turns.count(name) for name in selection.SUITES},
                         {name: 2 if name.startswith("torch") else 1 for name in selection.SUITES})


class Budget(unittest.TestCase):
    COSTS = {f"test_{i}": 1.0 + i % 7 for i in range(300)}

    def setUp(self):
        names = sorted(self.COSTS)
        self.groups = (set(names[:200]), set(names[200:240]), set(names[100:]))

    def taken(self, budget, turn):
        return selection.within(self.groups, self.COSTS, budget, turn)[0]

    def test_without_a_limit_all_are_taken(self):
        found, sizes = selection.within(self.groups, self.COSTS, math.inf, 3)
        self.assertEqual(found, set(self.COSTS))
        self.assertEqual(sizes, [1, 1, 1])

    def test_what_is_taken_costs_no_more_than_the_budget(self):
        for budget in (50, 300, 1000):
            for turn in range(10):
                spent = sum(self.COSTS[name] for name in self.taken(budget, turn))
                self.assertLessEqual(spent, 1.1 * budget)
                self.assertGreater(spent, 0.4 * budget)

    def test_what_one_group_leaves_is_spent_by_the_next(self):
        found, sizes = selection.within(({"test_0"}, set(), set(self.COSTS)), self.COSTS, 1300, 0)
        self.assertGreater(sum(self.COSTS[name] for name in found), 1000)

    def test_every_test_comes_round(self):
        found = set().union(*(self.taken(300, turn) for turn in range(10)))
        self.assertLessEqual(self.groups[0] | self.groups[1], found)

    def test_a_run_of_ci_says_what_it_left_out(self):
        said = subprocess.run(
            [sys.executable, os.path.join(SOURCE, "tests/selection.py"), BUILD,
             "templates/common/types.cuh", "--turn", "2/10", "--budget", "600"],
            capture_output=True, text=True, check=True)
        words = dict(line.split(" ", 1) for line in said.stdout.splitlines())
        self.assertEqual(set(words), {"tests", "targets", "also"})
        self.assertRegex(said.stderr, r"[1-9]\d?% of those that see the change")
        self.assertLess(len(words["tests"].split("|")), len(TESTS) / 2)


if __name__ == "__main__":
    TESTS = selection.tests_of(BUILD, SOURCE)
    unittest.main(argv=sys.argv[:1])
