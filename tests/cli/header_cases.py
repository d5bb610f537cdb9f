# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The headers for kernels of one's own: the example in each one's comment is compiled, run under the checkers, and right."""
import math
import pathlib
import re

from harness import Case, load, save, tensor, unpack

HEADERS = pathlib.Path(__file__).parents[2] / "templates" / "lathe"


def example(name):
    """The code of a header's first comment: the lines that are indented by three blanks."""
    comment = re.match(r"(?://.*\n)+", (HEADERS / name).read_text())[0]
    return "\n".join(line[5:] for line in comment.splitlines() if line.startswith("//   "))


def vector(name="x", role="in", dtype="f32", more=""):
    return f'{name} = {{ {role} = "{dtype}", shape = "N"{more} }}\n'


X_Y = vector() + vector("y", "out")
ROWS = 'x = { in = "f32", shape = "T D" }\ny = { out = "f32", shape = "T" }\n'
PLANE = 'x = { in = "f32", shape = "T D"%s }\ny = { out = "f32", shape = "T D"%s }\n'
BOX = ', map = { box = "32 8" }'
PRODUCT = 'a = { in = "bf16", shape = "M K"%s }\nb = { in = "bf16", shape = "N K"%s }\nc = { out = "f32", shape = "M N" }\n'
SWIZZLED = ', map = { box = "64 64", swizzle = 128 }'


def launch(grid, block, more=""):
    return f'[launch]\ngrid = {grid}\nblock = {block}\n{more}'


class HeaderCases(Case):
    def outcome(self, header, tensors, description, inputs, options=(), more="", arch="sm_90a"):
        """The outputs of a header's example as a kernel's body. `tensors`: of its description, like what follows."""
        self.tested = getattr(self, "tested", set()) | {header}
        path = self.folder / "example.cuh"
        path.write_text(f'/* lathe\n[tensors]\n{tensors}{description}*/\n#include "lathe/{header}"\n{more}'
                        f"template <class Config>\n__device__ void kernel(const Params& p) {{\n{example(header)}\n}}\n")
        save(self.input, inputs)
        words = ["--input", self.input, "--output", self.output, "--arch", arch, *(w for o in options for w in ("--set", o))]
        status, out, err = self.lathe("check", path, *words)
        self.assertEqual(status, 0, err + out)
        self.assertRegex(out, "0 findings in 1 launches")
        return {name: unpack(dtype, data) if dtype in ("F32", "BF16", "I32") else list(data)
                for name, (dtype, _, data) in load(self.output).items()}

    def near(self, found, expected, bound=2e-6):
        self.assertEqual(len(found), len(expected))
        for a, b in zip(found, expected):
            self.assertLessEqual(abs(a - b), bound * max(1.0, abs(b)))

    def values(self, *shape, seed=0):
        given = tensor("F32", list(shape), seed)
        return given, unpack("F32", given[2])

    def test_every_header_has_an_example_that_is_tested(self):
        tests = pathlib.Path(__file__).read_text()
        for path in sorted(HEADERS.glob("*.cuh")):
            with self.subTest(header=path.name):
                self.assertGreaterEqual(len(example(path.name).splitlines()), 3)
                self.assertIn(f'self.outcome("{path.name}"', tests)

    def test_types(self):
        x, values = self.values(1000)
        y = self.outcome("types.cuh", vector() + vector("y", "out", "bf16"), launch('"ceil_div(N, 256)"', 256), {"x": x})["y"]
        self.near(y, [2 * v for v in values], 2 ** -8)

    def test_vector(self):
        x, values = self.values(1000)
        y = self.outcome("vector.cuh", X_Y, launch('"ceil_div(N, 512)"', 64), {"x": x})["y"]
        self.assertEqual(y, [2 * v for v in values])

    def test_reduce(self):
        x, values = self.values(3, 300)
        y = self.outcome("reduce.cuh", ROWS, launch('"T"', 128), {"x": x})["y"]
        rows = [values[300 * t:300 * t + 300] for t in range(3)]
        self.near(y, [sum(row) - 300 * max(row) for row in rows])

    def test_math(self):
        x, values = self.values(500)
        y = self.outcome("math.cuh", X_Y, launch('"ceil_div(N, 256)"', 256), {"x": x})["y"]
        self.near(y, [v / (1 + math.exp(-v)) + v * (1 + math.erf(v / math.sqrt(2))) / 2 + 2 ** v for v in values])

    def test_narrow(self):
        codes = [i for i in range(256) if i % 128 != 127][:248]
        x = ("F8_E4M3", [len(codes)], bytes(codes))
        y = self.outcome("narrow.cuh", vector(dtype="f8_e4m3") + vector("y", "out", "f8_e4m3"),
                         '[options]\nscale = { default = 1.0 }\n' + launch('"ceil_div(N, 512)"', 64), {"x": x}, ["scale=448"])["y"]

        def number(code):
            size = (code & 7) / 8 * 2 ** -6 if code >> 3 & 15 == 0 else (1 + (code & 7) / 8) * 2 ** ((code >> 3 & 15) - 7)
            return -size if code & 128 else size
        for code, found in zip(codes, y):
            exact = (448 * number(code)) ** 2 / 448
            nearest = min((abs(number(c) - min(exact, 448)) for c in range(127)))
            self.assertLessEqual(abs(number(found) - min(exact, 448)), nearest * (1 + 1e-6))

    def test_async_copy(self):
        x, values = self.values(500)
        y = self.outcome("async_copy.cuh", vector(more=", aligned = 16") + vector("y", "out", more=", aligned = 16"),
                         launch('"ceil_div(N, 256)"', 64), {"x": x})["y"]
        padded = values + [0.0] * 12
        self.assertEqual(y, [padded[4 * (i // 4 ^ 1) + i % 4] for i in range(500)])

    def product(self, M, N, K):
        inputs = {"a": tensor("BF16", [M, K]), "b": tensor("BF16", [N, K], 1)}
        a, b = (unpack("BF16", inputs[name][2]) for name in "ab")
        return inputs, [sum(a[i * K + k] * b[j * K + k] for k in range(K)) for i in range(M) for j in range(N)]

    def test_tile(self):
        for M, N, K in ((16, 16, 32), (9, 11, 24)):
            inputs, expected = self.product(M, N, K)
            c = self.outcome("tile.cuh", PRODUCT % (", aligned = 16", ", aligned = 16"), launch(1, 32), inputs, arch="sm_80")["c"]
            self.near(c, expected)

    def test_softmax(self):
        x, values = self.values(70, 20)
        y = self.outcome("softmax.cuh", ROWS, launch('"ceil_div(T, 64)"', 64), {"x": x})["y"]
        expected = []
        for t in range(70):
            weights = [2 ** v for v in values[20 * t:20 * t + 20]]
            expected.append(sum(i * w for i, w in enumerate(weights)) / sum(weights))
        self.near(y, expected)

    def test_mbarrier(self):
        x, values = self.values(32)
        y = self.outcome("mbarrier.cuh", X_Y, launch(1, 64), {"x": x})["y"]
        self.assertEqual(y, values[::-1])

    def test_wgmma(self):
        inputs, expected = self.product(64, 64, 64)
        c = self.outcome("wgmma.cuh", PRODUCT % (SWIZZLED, SWIZZLED), launch(1, 128, "shared = 16392\n"), inputs,
                         more='#include "lathe/tma.cuh"\n')["c"]
        self.near(c, expected)

    def test_tma(self):
        x, values = self.values(13, 52)
        y = self.outcome("tma.cuh", PLANE % (BOX, BOX), launch('["ceil_div(D, 32)", "ceil_div(T, 8)"]', 32), {"x": x})["y"]
        self.assertEqual(y, [2 * v for v in values])

    def test_cluster(self):
        x, values = self.values(5, 64)
        y = self.outcome("cluster.cuh", 'x = { in = "f32", shape = "T 64", map = { box = "64 1" } }\ny = { out = "f32", shape = "T 2 64" }\n',
                         launch('"2 * T"', 64, "cluster = 2\n"), {"x": x}, more='#include "lathe/tma.cuh"\n')["y"]
        self.assertEqual(y, [v for t in range(5) for v in 2 * values[64 * t:64 * t + 64]])

    def test_ring(self):
        x, values = self.values(900)
        y = self.outcome("ring.cuh", vector(more=", map = { box = 128 }") + 'y = { out = "f32", shape = "128" }\n',
                         launch(1, 160, "shared = 1584\n"), {"x": x}, more='#include "lathe/tma.cuh"\n')["y"]
        self.near(y, [sum(values[i::128]) for i in range(128)])

    def test_schedule(self):
        # Eleven rows of tiles: a band of four, another one and one of three.
        x, values = self.values(85, 70)
        y = self.outcome("schedule.cuh", PLANE % ("", ""), launch(5, 32), {"x": x}, arch="sm_80")["y"]
        self.assertEqual(y, [2 * v for v in values])

    def test_scan(self):
        x, values = self.values(201)
        outputs = self.outcome("scan.cuh", vector() + 'y = { inout = "f32", shape = "N" }\ncount = { out = "i32", shape = "1" }\n',
                               launch(1, 256), {"x": x, "y": tensor("F32", [201], values=[-1.0] * 201)})
        kept = [v for v in values if v > 0]
        self.assertEqual(outputs["count"], [len(kept)])
        self.assertEqual(outputs["y"], kept + [-1.0] * (201 - len(kept)))

    def test_random(self):
        x, values = self.values(1000)
        y = self.outcome("random.cuh", X_Y, "[options]\nseed = { default = 0 }\nrate = { default = 0.5 }\n"
                         + launch('"ceil_div(N, 256)"', 64), {"x": x}, ["seed=81985529216486895", "rate=0.25"])["y"]
        for i, (value, found) in enumerate(zip(values, y)):
            keep = (philox(81985529216486895, i // 4, 0)[i % 4] >> 8) * 2.0 ** -24 >= 0.25
            self.assertLessEqual(abs(found - (value / 0.75 if keep else 0)), 1e-6)
        self.assertLess(abs(sum(v != 0 for v in y) - 750), 60)


def philox(seed, subsequence, offset):
    """Philox4x32-10 by its definition, over known answers of its authors."""
    counter = [offset & 0xFFFFFFFF, offset >> 32, subsequence & 0xFFFFFFFF, subsequence >> 32]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [b >> 32 ^ counter[1] ^ key[0], b & 0xFFFFFFFF, a >> 32 ^ counter[3] ^ key[1], a & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter


assert philox(0, 0, 0) == [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]
assert philox(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88) == [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1]
