#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The program from outside, on the simulator: cli_test.py PROGRAM PART"""
import sys

import harness
from bundle_cases import BundleCases
from cache_cases import CacheCases
from clock_cases import ClockCases
from driver_cases import DriverCases
from dump_cases import DumpCases
from example_cases import ExampleCases
from explain_cases import ExplainCases
from header_cases import HeaderCases
from input_cases import InputCases
from length_cases import LengthCases
from own_cases import LadderCases, OwnCases, ThoroughLadderCases
from page_cases import PageCases
from picture_cases import PictureCases
from program_cases import ProgramCases
from rank_cases import RankCases
from ship_cases import ShipCases
from sparse_cases import SparseCases
from tool_cases import ToolCases
from tune_cases import TuneCases
from warm_cases import WarmCases

if __name__ == "__main__":
    harness.PROGRAM = sys.argv[1]
    sys.exit(harness.main({"input": InputCases, "page": PageCases, "sparse": SparseCases, "cache": CacheCases, "bundle": BundleCases,
                           "driver": DriverCases, "dump": DumpCases,
                           "tools": ToolCases, "explain": ExplainCases, "clock": ClockCases,
                           "picture": PictureCases, "programs": ProgramCases,
                           "tune": TuneCases, "own": OwnCases, "ladder": LadderCases, "headers": HeaderCases, "ladder_orders": ThoroughLadderCases,
                           "ranks": RankCases, "lengths": LengthCases, "examples": ExampleCases, "warm": WarmCases,
                           "ship": ShipCases}))
