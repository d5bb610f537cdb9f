#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""layers.py finds every planted breach in a mock tree, and nothing in a lawful one."""
import pathlib
import sys
import tempfile

import layers

LAWFUL = {
    "templates/params/conv.h": "struct P {};",
    "templates/params/halo.h": '#include "templates/params/conv.h"',
    "templates/common/types.cuh": "",
    "templates/conv/causal_conv1d.cuh": '#include "params/conv.h"\n#include "common/types.cuh"',
    "codegen/source.cpp": '#include "codegen/spec.h"\n#include "templates/params/conv.h"\n#include <string>',
    "cache/key.cpp": '#include <xxhash.h>\n#include "codegen/spec.h"\n#include "cache/key.h"',
    "collective/group.cpp": '#include "device/driver.h"',
    "ops/schema.h": '#include "collective/group.h"',
    "ops/sparse/run.cpp": '#include "ops/schema.h"\n#include "ops/attention/block/kernels.h"\n#include "ops/sparse/run.h"',
    "ops/attention/block/sm90.cpp": '#include "device/tensor_map.h"\n#include "ops/attention/forward/sm90.h"',
    "ops/attention/run.cpp": '#include "ops/attention/forward/step.h"\n#include "ops/attention/backward/step.h"',
    "ops/kda/geometry.cpp": 'return spec.constant("m");',
    "ops/conv/kernels.cpp": '#include "codegen/spec.h"\n#include "templates/params/conv.h"',
    "api/plan.cpp": '#include "ops/executor.h"\n#include "collective/group.h"\n#include <dlpack/dlpack.h>',
    "api/cli/run.cpp": '#include "api/lathe.h"\n#include "codegen/base/text.h"\n#include <CLI/CLI.hpp>',
    "sim/exec/warp.cpp": '#include "sim/ptx/module.h"\n#include <cuda.h>',
    "api/cli/demo/demo_reference.cpp": '#include "reference/conv.h"',
    "reference/kda_backward.h": '#include <cmath>\n#include "reference/kda.h"',
    "abi/nccl.h": "#include <stddef.h>",
    "abi/cuda_runtime_api.h": '#include "abi/driver_types.h"',
    "sim/tests/runtime/programs/check.h": "#include <cuda_runtime.h>",
    "python/src/core/core.h": '#include <Python.h>\n#include "lathe.h"',
    "python/src/core/run.c": '#include <string.h>\n#include "core.h"',
    "sim/nccl/init.cpp": '#include "abi/nccl.h"\n#include <sys/mman.h>',
    "tests/cache/nvrtc_test.cpp": 'text = R"cu(\n#include <cuda_bf16.h>\n)cu";',
    "tests/cache/store_test.cpp": '#include "cache/store/store.h"\n#include "sim/ptx/module.h"',
}
LAWFUL["api/cli/print.cpp"] = 'std::printf("%.2f ms", std::stod(text));'
LAWFUL["sim/clock/picture.cpp"] = 'out += formatted("%.1f", x); is_digit(c); // strtod(text) would\nstd::from_chars(a, b, x);'
LAWFUL["codegen/base/text.h"] = "std::ostringstream out;\nout.imbue(std::locale::classic());"
# file, text, the words its line must hold
BREACHES = [
    ("codegen/spec.cpp", '#include "cache/key.h"', "codegen/ may not include cache/"),
    ("device/kernel.h", '#include "cache/store/entry.h"', "device/ may not include cache/"),
    ("sim/ptx/lexer.cpp", "x = std::strtod(text, &end);", "strtod follows"),
    ("cache/names.cpp", "words += std::toupper(letter);", "toupper follows"),
    ("ops/words.cpp", "  if (std::isalnum(c)) ++n;", "isalnum follows"),
    ("api/message.cpp", "std::ostringstream out;", "ostringstream follows"),
    ("sim/driver/line.cpp", 'std::snprintf(buffer, sizeof buffer,\n  "%d: %.9f", 3, value);', "printf of a real"),
    ("python/src/core/words.c", "value = atof(text);", "atof follows"),
    ("api/cli/main.cpp", 'std::setlocale(LC_ALL, "");', "setlocale"),
    ("cache/store/store.cpp", '  #  include "api/lathe.h"', "cache/ may not include api/"),
    ("device/kernel.cpp", '#include "collective/group.h"', "device/ may not include collective/"),
    ("collective/nccl.cpp", '#include "sim/nccl/nccl.h"', "collective/ may not include sim/"),
    ("collective/plans/layout.cpp", '#include "ops/schema.h"', "collective/ may not include ops/"),
    ("ops/problem.h", '#include "api/lathe.h"', "ops/ may not include api/"),
    ("ops/tensors.cpp", '#include "api/boundary.h"', "ops/ may not include api/"),
    ("ops/registry.cpp", '#include "ops/kda/run.h"', "may not name the family kda"),
    ("ops/conv/run.cpp", '#include "ops/kda/run.h"', "may not name the family kda"),
    ("ops/conv/halo_kernels.cpp", '#include "collective/group.h"', "functions of integers"),
    ("ops/attention/block/halo_kernels.cpp", '#include "device/tensor_map.h"', "functions of integers"),
    ("ops/attention/decode/run.cpp", '#include "ops/kda/chain/kernel_run.h"', "may not name the family kda"),
    ("ops/sparse/ranks.cpp", '#include "ops/attention/block/run.h"', "may not name the family attention"),
    ("ops/attention/schema.cpp", '#include "ops/attention/ranks/heads.h"', "may not include its runs over ranks"),
    ("ops/attention/run.cpp", '#include "ops/attention/decode/step.h"', "which is above it"),
    ("ops/attention/forward/portable.cpp", '#include "ops/attention/block/step.h"', "which is above it"),
    ("ops/attention/block/portable.cpp", '#include "ops/attention/forward/sm90.h"', "others have the step's list"),
    ("ops/kda/run.cpp", 'Status f() { x = k->constant("m");\n  k.launch(x, &p, s);\n}', "no time to look up"),
    ("api/tune/tune.cpp", '#include "ops/attention/kernels.h"', "may not name the family attention"),
    ("api/context.cpp", '#include "tests/compare.h"', "api/ may not include tests/"),
    ("api/shard.cpp", '#include "reference/conv.h"', "api/ may not include reference/"),
    ("ops/conv/check.cpp", '#include "reference/conv.h"', "ops/ may not include reference/"),
    ("reference/conv.h", '#include "tests/numbers.h"', "reference/ may not include tests/"),
    ("reference/attention.h", '#include "api/lathe.h"', "reference/ may not include api/"),
    ("sim/exec/run.cpp", '#include "reference/conv.h"', "sim/ may not include reference/"),
    ("sim/driver/code/launch.cpp", '#include "device/driver.h"', "sim/ may not include device/"),
    ("sim/ptx/parse/lexer.cpp", '#include "codegen/base/text.h"', "sim/ may not include codegen/"),
    ("api/cli/demo/demo.cpp", '#include "cache/store/store.h"', "only lathe.h"),
    ("templates/params/kda.h", "#include <cstdint>", "other parameters alone"),
    ("templates/params/merge.h", '#include "templates/common/types.cuh"', "other parameters alone"),
    ("templates/conv/bad.cuh", "#include <cuda_bf16.h>", "no system or tool kit header"),
    ("templates/conv/worse.cuh", '#include "codegen/spec.h"', "name it from templates/"),
    ("abi/nvrtc.h", '#include "codegen/spec.h"', "abi/ may not include codegen/"),
    ("api/cli/doctor.cpp", '#include "abi/nccl.h"', "only lathe.h"),
    ("api/cli/warm.cpp", '#include "codegen/base/env.h"', "only lathe.h"),
    ("sim/driver/profiler.cpp", "#include <cudaProfiler.h>", "no header that scripts/bootstrap installs"),
    ("collective/runtime.h", "#include <nccl.h>", "no header that scripts/bootstrap installs"),
    ("python/src/core/plan.c", '#include "api/plan.h"', "only lathe.h and its own headers"),
    ("python/src/core/key.c", '#include "cache/key.h"', "only lathe.h and its own headers"),
    ("python/src/core/math.c", "#include <nccl.h>", "no header that scripts/bootstrap installs"),
    ("api/python.cpp", "#include <Python.h>", "no header that scripts/bootstrap installs"),
    ("api/borrow.cpp", '#include "python/src/core/core.h"', "api/ may not include python/"),
    ("codegen/angle.cpp", "#include <cache/key.h>", "must be quoted"),
]


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def main():
    failed = 0

    def expect(ok, what):
        nonlocal failed
        if not ok:
            print(f"FAIL {what}")
            failed = 1

    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        write(root, LAWFUL)
        read, found = layers.check(root)
        expect(read == len(LAWFUL), f"read {read} files of {len(LAWFUL)}")
        expect(found == [], f"lawful tree: {found}")
        write(root, {name: text for name, text, _ in BREACHES})
        _, found = layers.check(root)
        expect(len(found) == len(BREACHES), f"{len(found)} breaches of {len(BREACHES)}: {found}")
        for name, _, words in BREACHES:
            lines = [line for line in found if line.startswith(name + ":1: ")]
            expect(len(lines) == 1 and words in lines[0], f"{name}: {lines}, expected '{words}'")
    return failed


if __name__ == "__main__":
    sys.exit(main())
