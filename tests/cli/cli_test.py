#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The program from outside, on the simulator: cli_test.py PROGRAM input|page|cache|tools|ranks"""
import sys

import harness
from cache_cases import CacheCases
from input_cases import InputCases
from page_cases import PageCases
from rank_cases import RankCases
from tool_cases import ToolCases

if __name__ == "__main__":
    harness.PROGRAM = sys.argv[1]
    sys.exit(harness.main({"input": InputCases, "page": PageCases, "cache": CacheCases, "tools": ToolCases, "ranks": RankCases}))
