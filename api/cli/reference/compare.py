# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Calls a reference and compares: compare.py FILE FUNCTION INPUTS OUTPUTS OPTIONS TOLERANCE

FILE has FUNCTION, which takes tensors and options by name, tensors as float64 or int64 arrays of NumPy, and
returns the outputs: one array, several in the order of OUTPUTS, or a dictionary. Prints a line of JSON for each.
"""
import importlib.util
import json
import struct
import sys

try:
    import numpy
except ImportError:
    sys.exit("a reference needs NumPy, which this python3 lacks (remedy: apt-get install python3-numpy)")

KINDS = {"F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "u1", "F8_E4M3": "u1", "BF16": "<u2"}
# Relative errors that may be: a rounding of the result, and in float32 the roundings of sums on the way. They are
# relative to |expected|, but to the output's largest value, up to the second number, where that is more.
ALLOWED = {"F32": (1e-5, 1), "F16": (2 ** -10, 1), "BF16": (2 ** -7, 1), "F8_E4M3": (2 ** -4 * 1.01, 2 ** -6)}


def e4m3():
    codes = numpy.arange(256)
    exponent, fraction = codes >> 3 & 15, (codes & 7) / 8
    size = numpy.where(exponent == 0, fraction * 2.0 ** -6, (1 + fraction) * 2.0 ** (exponent - 7))
    size[codes & 127 == 127] = numpy.nan
    return numpy.where(codes & 128, -size, size)


def load(path):
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        begin, end = entry["data_offsets"]
        array = numpy.frombuffer(data[8 + size + begin:8 + size + end], KINDS[entry["dtype"]]).reshape(entry["shape"])
        if entry["dtype"] == "BF16":
            array = (array.astype("<u4") << 16).view("<f4")
        if entry["dtype"] == "F8_E4M3":
            array = e4m3()[array]
        tensors[name] = entry["dtype"], array.astype(numpy.int64 if array.dtype.kind in "iu" else numpy.float64)
    return tensors


def compared(name, dtype, found, expected, tolerance):
    if found.shape != expected.shape:
        sys.exit(f"the reference gives {name} the shape {list(expected.shape)}; allowed is {list(found.shape)}")
    share, floor = (tolerance, 1) if tolerance else ALLOWED.get(dtype, (0, 1))
    with numpy.errstate(invalid="ignore"):
        same = (found == expected) | (numpy.isnan(found) & numpy.isnan(expected))
        error = numpy.where(same, 0.0, numpy.abs(found - expected))
        finite = numpy.abs(expected[numpy.isfinite(expected)])
        least = min(floor, finite.max()) if finite.size and finite.max() > 0 else floor
        off = numpy.where(same, 0.0, error / numpy.maximum(numpy.abs(expected), least))
    off = numpy.where(numpy.isfinite(off), off, numpy.inf)
    worst = numpy.unravel_index(int(off.argmax()), off.shape) if off.size else ()
    largest = float(off[worst]) if off.size else 0.0
    return {"name": name, "largest_error": largest if numpy.isfinite(largest) else None, "allowed": share,
            "at": [int(i) for i in worst], "found": str(found[worst]) if off.size else "",
            "expected": str(expected[worst]) if off.size else "", "good": not off.size or bool(off.max() <= share)}


def main():
    file, function, inputs, outputs, options, tolerance = sys.argv[1:]
    spec = importlib.util.spec_from_file_location("reference", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    call = getattr(module, function, None)
    if call is None:
        sys.exit(f"{file} has no function {function}; allowed is one of that name, which takes the tensors and options")
    found = load(outputs)
    given = {name: array for name, (_, array) in load(inputs).items()}
    result = call(**given, **json.loads(options))
    if not isinstance(result, dict):
        result = dict(zip(found, result if isinstance(result, (tuple, list)) else (result,)))
    for name, (dtype, array) in found.items():
        if name not in result:
            sys.exit(f"the reference gives no {name}; allowed are {', '.join(found)}, in this order or by name")
        kind = numpy.int64 if array.dtype.kind == "i" else numpy.float64
        print(json.dumps(compared(name, dtype, array, numpy.asarray(result[name]).astype(kind), float(tolerance))))


main()
