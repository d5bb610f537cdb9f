# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Golden vectors, made by other code: the files and what stands in them.

They lie in the folder LATHE_GOLDEN, else in ../shared/golden beside the checkout.
"""
import json
import os
import pathlib
from typing import NamedTuple

import pytest

from arrays import check, read_safetensors

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = pathlib.Path(os.environ.get("LATHE_GOLDEN") or ROOT.parent / "shared/golden")


class Case(NamedTuple):
    op: str
    options: dict
    inputs: dict
    wanted: dict
    tolerance: dict

    def compare(self, found):
        """Asserts that results, arrays by name, keep the rules of the file."""
        for name, wanted in self.wanted.items():
            assert name in found, f"{name} is missing among {list(found)}"
            check(found[name], wanted, self.tolerance[name])


def cases(*operators):
    """Returns a parameter for each file of these operators."""
    files = [file for op in operators for file in sorted((FOLDER / op).glob("*.safetensors"))]
    if not files:
        skip = pytest.mark.skip(reason=f"no golden files in {FOLDER}: set LATHE_GOLDEN")
        return [pytest.param(None, marks=skip)]
    return [pytest.param(file, id=f"{file.parent.name}/{file.stem}") for file in files]


def load(file):
    """Returns the case of a file."""
    arrays, metadata = read_safetensors(file)
    wanted = {name[len("expect."):]: array for name, array in arrays.items()
              if name.startswith("expect.")}
    inputs = {name: array for name, array in arrays.items() if not name.startswith("expect.")}
    return Case(metadata["op"], json.loads(metadata["options"]), inputs, wanted,
                json.loads(metadata["tolerance"]))
