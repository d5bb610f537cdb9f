#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""What tests/selection.py takes, over the tests of a real build tree and the files of the project.

    tests/selection_test.py SOURCE BUILD
"""
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

    def test_a_wide_change_leaves_thorough_tests_to_turns(self):
        found = chosen(*(f"ops/{family}/schema.cpp" for family in ("attention", "conv", "kda")))
        self.assertLessEqual({"kda_forward_test", "conv_update_test"}, found)
        self.assertFalse({"kda_options_test", "conv_numerics_test"} & found)

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
    def test_all_tests_and_suites_come_round_once(self):
        dealt = selection.turns(TESTS, 10)
        names = [name for turn, _ in dealt for name in turn]
        self.assertEqual(sorted(names), sorted(each.name for each in TESTS))
        self.assertEqual(sorted(suite for _, suites in dealt for suite in suites),
                         sorted(selection.SUITES))

    def test_no_turn_takes_much_longer_than_another(self):
        seconds = {each.name: each.seconds for each in TESTS}
        loads = [sum(seconds[name] for name in names) +
                 sum(2 * selection.SUITES[suite] for suite in suites)
                 for names, suites in selection.turns(TESTS, 10)]
        largest = max(2 * max(selection.SUITES.values()), 1.3 * sum(loads) / 10)
        self.assertLessEqual(max(loads), largest)


if __name__ == "__main__":
    TESTS = selection.tests_of(BUILD, SOURCE)
    unittest.main(argv=sys.argv[:1])
