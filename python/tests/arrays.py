# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Arrays for tests: bfloat16 in NumPy, safetensors files, the metrics of errors."""
import json
import pathlib
import struct

import numpy as np

_TYPES = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "I32": np.int32, "I64": np.int64}


def to_bf16(x):
    """Returns float numbers as bits of bfloat16, rounded to nearest even."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def to_float(x):
    """Returns any array of lathe as float64; unsigned 16-bit numbers are bfloat16."""
    if x.dtype == np.uint16:
        x = (x.astype(np.uint32) << 16).view(np.float32)
    return x.astype(np.float64)


def read_safetensors(path):
    """Returns (arrays by name, metadata)."""
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", {})
    arrays = {}
    for name, row in header.items():
        begin, end = row["data_offsets"]
        flat = np.frombuffer(data[8 + length + begin:8 + length + end], _TYPES[row["dtype"]])
        arrays[name] = flat.reshape(row["shape"]).copy()
    return arrays, metadata


def rms_error(found, wanted):
    """Returns the root of the mean square error, relative to that of what is wanted."""
    found, wanted = to_float(np.asarray(found)), to_float(np.asarray(wanted))
    scale = np.sqrt(np.mean(wanted**2))
    return np.sqrt(np.mean((found - wanted)**2)) / (scale if scale > 0 else 1.0)


def check(found, wanted, tolerance):
    """Asserts the rule of a golden file: shape, infinities where they should be, and the error."""
    found, wanted = to_float(found), to_float(wanted)
    assert found.shape == wanted.shape, (found.shape, wanted.shape)
    ordinary = np.isfinite(wanted)
    assert np.array_equal(found[~ordinary], wanted[~ordinary], equal_nan=True), "inf or nan differ"
    assert np.isfinite(found[ordinary]).all(), "inf or nan where the reference has none"
    found, wanted = found[ordinary], wanted[ordinary]
    if found.size == 0:
        return
    worst = np.abs(found - wanted).max()
    if tolerance["rule"] == "exact":
        assert worst == 0, worst
    elif "atol" in tolerance:
        assert worst <= tolerance["atol"], (worst, tolerance)
    elif tolerance["rule"] == "max2x":
        assert worst <= tolerance["bound"], (worst, tolerance)
    else:
        error = rms_error(found, wanted)
        assert error < tolerance["bound"], (error, tolerance)
