#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Golden vectors made by other code, through the program: golden_test.py LATHE ROOT OPERATOR OPTION...

Runs FOLDER/run_golden.py on FOLDER/OPERATOR, or for `plan` FOLDER/cp/check_plan.py. FOLDER is LATHE_GOLDEN, else ../shared/golden beside
ROOT; where there is none the test is skipped (exit 77).
"""
import os
import pathlib
import subprocess
import sys


def main():
    lathe, root, operator, *rest = sys.argv[1:]
    chosen = os.environ.get("LATHE_GOLDEN")
    folder = pathlib.Path(chosen) if chosen else pathlib.Path(root).resolve().parent / "shared/golden"
    plans = operator == "plan"
    runner = folder / ("cp/check_plan.py" if plans else "run_golden.py")
    if not runner.is_file():
        print(f"no {runner}: set LATHE_GOLDEN to the folder of golden files")
        return 77
    env = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", LATHE_SIM_CHECK="all")
    what = [folder / "cp"] if plans else [folder / operator, "--quiet", *rest]
    return subprocess.run([sys.executable, runner, lathe, *what], env=env).returncode


if __name__ == "__main__":
    sys.exit(main())
