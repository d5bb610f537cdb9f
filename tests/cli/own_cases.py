# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Kernels of a user's own from outside: a file takes an operator's place wherever the program takes one."""
import json
import math
import operator
import pathlib
import random
import shutil
import struct
import subprocess

from harness import Case, load, save, tensor, unpack

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "own_kernels"
NO_COMPILER = {"LATHE_JIT": "off", "LATHE_NVRTC": "/nonexistent"}
X = ["--tensor", "x=f32:64,256", "--arch", "sm_90a"]


class OwnCases(Case):
    def new(self, name="mine"):
        path = self.folder / f"{name}.cuh"
        status, out, err = self.lathe("new", path)
        self.assertEqual((status, err), (0, ""))
        self.assertIn(f"lathe ops {path}", out)
        return path

    def run_new(self, path, flags=(), **env):
        inputs = {"x": tensor("F32", [3, 256]), "bias": tensor("F32", [256], 1)}
        report, outputs = self.run_op(path, inputs, ["scale=2.5"], flags, **env)
        x, bias, y = (unpack("F32", each[2]) for each in (inputs["x"], inputs["bias"], outputs["y"]))
        for i, value in enumerate(y):
            self.assertLessEqual(abs(value - (2.5 * x[i] + bias[i % 256])), 1e-6)
        return report

    def test_new_writes_a_kernel_that_runs(self):
        path = self.new()
        report = self.run_new(path)
        self.assertEqual([kernel["name"] for kernel in report["kernels"]], ["mine"])
        self.assertEqual(report["compiled"], 1)
        self.assertEqual(self.run_new(path)["compiled"], 0)
        text = path.read_text()
        status, _, err = self.lathe("new", path)
        self.assertEqual(status, 2)
        self.assertRegex(err, "is there already; allowed is a file that is not")
        self.assertEqual(path.read_text(), text)
        for name in ("int", "two words", "x__y"):
            status, _, err = self.lathe("new", self.folder / name)
            self.assertEqual(status, 2, err)
            self.assertRegex(err, f"{name}.cuh:2:8: '{name}' is")
            self.assertFalse((self.folder / f"{name}.cuh").exists())

    def test_the_tables_of_a_file(self):
        path = self.new()
        status, out, err = self.lathe("ops", path)
        self.assertEqual(status, 0, err)
        self.assertRegex(out, r"^mine@[0-9a-f]{16}: y = scale \* x \+ bias, row by row\.\nIt runs on one rank\.")
        self.assertRegex(out, r"bias +in, optional +as x +\[D\]")
        self.assertRegex(out, r"scale +default 1 +allowed any")
        table = json.loads(self.lathe("ops", path, "--json")[1])
        self.assertEqual([each["name"] for each in table["tensors"]], ["x", "bias", "y"])
        self.assertEqual(table["tensors"][0]["shapes"], ["T,D"])
        status, out, _ = self.lathe("run", path, "--help")
        self.assertEqual(status, 0)
        self.assertIn("y = scale * x + bias, row by row.", out)

    def test_check_finds_a_race(self):
        """The skeleton is clean; without its barrier a sum over a block is not."""
        path = self.new()
        save(self.input, {"x": tensor("F32", [3, 256])})
        status, out, err = self.lathe("check", path, "--input", self.input, "--output", self.output)
        self.assertEqual(status, 0, err + out)
        self.assertRegex(out, "0 findings in 1 launches")
        racy = self.folder / "racy.cuh"
        racy.write_text("""/* lathe
tensors.x = { in = "f32", shape = "T D" }
tensors.y = { out = "f32", shape = "T" }
launch = { grid = "T", block = 256 }
*/
template <class Config> __device__ void kernel(const Params& p) {
  __shared__ float part[256];
  part[threadIdx.x] = p.x[blockIdx.x * p.D + threadIdx.x];
  if (threadIdx.x == 0) {
    float sum = 0;
    for (int i = 0; i < 256; ++i) sum += part[i];
    p.y[blockIdx.x] = sum;
  }
}
""")
        status, out, err = self.lathe("check", racy, "--input", self.input, "--output", self.folder / "race.safetensors", "--json")
        findings = json.loads(out)["findings"]
        self.assertNotEqual(status, 0)
        race = next(each for each in findings if each["check"] == "racecheck")
        # Both sides of the race, by the lines of the user's file.
        places = {(each["source"], each["source_text"]) for each in (race, race["other"])}
        self.assertEqual(places, {(f"{racy}:8", "part[threadIdx.x] = p.x[blockIdx.x * p.D + threadIdx.x];"),
                                  (f"{racy}:11", "for (int i = 0; i < 256; ++i) sum += part[i];")})
        status, out, err = self.lathe("check", racy, "--input", self.input, "--output", self.folder / "race.safetensors")
        self.assertIn(f"\n        {racy}:8: part[threadIdx.x] = p.x[", out)
        self.assertNotIn("caller/", out)

    def test_a_reference(self):
        """A function of Python beside the kernel: what agrees, what does not, and what is wrong with it."""
        if subprocess.run(["python3", "-c", "import numpy"], capture_output=True).returncode != 0:
            self.skipTest("python3 has no NumPy (remedy: apt-get install python3-numpy)")
        path = self.new()
        path.write_text(path.read_text().replace('name = "mine"\n', 'name = "mine"\nreference = "mine.py"\n'))
        python = self.folder / "mine.py"
        python.write_text("def mine(x, scale, bias=0):\n    return scale * x + bias\n")
        save(self.input, {"x": tensor("F32", [3, 256]), "bias": tensor("F32", [256], 1)})
        words = ["check", path, "--input", self.input, "--output", self.output, "--set", "scale=2.5", "--reference"]
        status, out, err = self.lathe(*words)
        self.assertEqual(status, 0, err + out)
        self.assertRegex(out, r"(?m)^y by mine.py: largest relative error \d\.\de-\d\d, allowed 1\.0e-05$")
        row, = json.loads(self.lathe(*words, "--json")[1])["reference"]
        self.assertTrue(row["good"] and 0 <= row["largest_error"] < 1e-6 and row["name"] == "y")
        for dtype, bound in (("BF16", 2 ** -7), ("F16", 2 ** -10)):
            save(self.input, {"x": tensor(dtype, [3, 256])})
            row, = json.loads(self.lathe(*words, "--json")[1])["reference"]
            self.assertTrue(row["good"] and row["allowed"] == bound, row)
        python.write_text("def mine(x, scale):\n    y = scale * x\n    y[1, 7] += 1\n    return {'y': y}\n")
        status, out, err = self.lathe(*words)
        self.assertEqual(status, 1, err)
        self.assertRegex(out, r"y by mine.py: largest relative error \S+, allowed .*: WRONG at \[1,7\]: -?[\d.]+, expected")
        status, out, err = self.lathe(*words, "--tolerance", "2")
        self.assertEqual(status, 0, out)
        for text, said in (("x = 1\n", "has no function mine; allowed is one of that name"),
                           ("def mine(x, scale):\n    return x[:1]\n", r"gives y the shape \[1, 256\]; allowed is \[3, 256\]"),
                           ("def mine(x):\n    return x\n", "unexpected keyword argument 'scale'"),
                           ("def mine(x, scale):\n    return {'z': x}\n", "gives no y; allowed are y"),
                           ("def mine(:\n", "invalid syntax")):
            python.write_text(text)
            status, out, err = self.lathe(*words)
            self.assertNotIn(status, (0, 1))
            self.assertRegex(err, said)
        python.unlink()
        self.assertRegex(self.lathe(*words)[2], 'reference is "mine.py", and ".*/mine.py" cannot be read: No such file')
        other = self.new("other")
        words[1] = other
        self.assertRegex(self.lathe(*words)[2], "--reference is given, but other@[0-9a-f]* names none; allowed is reference = ")
        self.assertRegex(self.lathe(*words[:-1], "--tolerance", "1")[2], "--tolerance is given, but --reference is not")

    def test_races_in_the_ladder_by_their_lines(self):
        """What orders two accesses is taken out of an example: the finding names the line, also where a header makes the access."""
        def planted(name, before, after, inputs, lines):
            text = (EXAMPLES / name).read_text()
            self.assertIn(before, text)
            racy = self.folder / name
            racy.write_text(text.replace(before, after))
            save(self.input, inputs)
            status, out, err = self.lathe("check", racy, "--input", self.input, "--output", self.output, "--arch", "sm_90a", "--json")
            self.assertEqual(status, 1, err)
            found = [each for each in json.loads(out)["findings"] if each["kind"] in ("race", "in_flight", "source_overwritten")]
            texts = {place.get("source_text") for each in found for place in (each, each.get("other", {}))}
            for line in lines:
                self.assertTrue(any(line in (each or "") for each in texts), (line, texts))
            for each in found:
                where = each.get("called_from", each["source"])
                self.assertEqual(where.rpartition(":")[0], str(racy))
        product = {"a": tensor("BF16", [130, 128]), "b": tensor("BF16", [136, 128], 1)}
        planted("matmul.cuh", "    __syncthreads();  // this step's tiles are here", "    // this step's tiles are here", product,
                ["b.fragment_b(warp_column + 16 * n, k, y);", "TileB{stage + TileA::kBytes}.template copy<Config::kThreads>("])
        planted("topk.cuh", "    __syncthreads();\n", "", {"x": tensor("F32", [4, 333])},
                ["warp_best[round % 2][threadIdx.x / 32] = best;", "best.take(warp_best[round % 2][w].value"])

    def test_explain_and_dump(self):
        path = self.new()
        status, out, err = self.lathe("explain", path, *X, "--json")
        self.assertEqual(status, 0, err)
        report = json.loads(out)
        self.assertEqual(report["op"].split("@")[0], "mine")
        kernel, = report["kernels"]
        self.assertRegex(kernel["spec"], "^mine x=f32 has_bias=0 y=f32 D=256 kThreads=128 kCount=4 kernel=[0-9a-f]{64} threads=128 smem=0$")
        elsewhere = self.folder / "deep" / "folder" / "other.cuh"
        elsewhere.parent.mkdir(parents=True)
        shutil.copy(path, elsewhere)
        texts = [[self.lathe("dump", each, *X, "--what", what) for what in ("source", "ptx", "key")] for each in (path, elsewhere)]
        self.addCleanup(shutil.rmtree, self.folder / "deep")
        self.assertEqual(texts[0], texts[1])
        for status, out, err in texts[0]:
            self.assertEqual(status, 0, err)
            self.assertNotIn(str(self.folder), out)
        self.assertIn("struct Params {\n  const lathe::f32* x;  // [T,D]\n", texts[0][0][1])
        self.assertIn("source=lathe/vector.cuh ", texts[0][2][1])

    def test_tune_stores_a_choice_that_runs_take(self):
        path = self.new()
        cache = {"LATHE_CACHE_DIR": str(self.folder / "tuned")}
        self.addCleanup(shutil.rmtree, self.folder / "tuned", True)
        explain = ["explain", path, *X[:2], "--device", "none", "--arch", "h100", "--json"]
        status, out, err = self.lathe("tune", path, *X[:2], "--device", "sim", "--json", **cache)
        self.assertEqual(status, 0, err)
        report = json.loads(out)
        self.assertEqual({each["choice"] for each in report["candidates"]},
                         {"kThreads=128 warps=4", "kThreads=256 warps=8", "kThreads=64 warps=2"})
        database, = (self.folder / "tuned").glob("v1/tuned/*.txt")
        record, = database.read_text().splitlines()[1:]
        fields = record.split(" | ")
        for choice in ("kThreads=64 warps=2", "kThreads=256 warps=8"):
            fields[2] = choice
            database.write_text("lathe-tuned 1\n" + " | ".join(fields) + "\n")
            spec = json.loads(self.lathe(*explain, **cache)[1])["kernels"][0]["spec"]
            self.assertIn(f" {choice.split()[0]} ", spec)
        # Another text is another kernel, with choices of its own.
        path.write_text(path.read_text().replace("p.scale * value[i]", "value[i] * p.scale"))
        spec = json.loads(self.lathe(*explain, **cache)[1])["kernels"][0]["spec"]
        self.assertIn(" kThreads=128 ", spec)

    def test_recorded_warmed_packed_and_run_without_a_compiler(self):
        path = self.new()
        manifest, bundle = self.folder / "problems.jsonl", self.folder / "kernels.bundle"
        self.run_new(path, LATHE_RECORD=str(manifest))
        line = json.loads(manifest.read_text())
        self.assertEqual(line["kernel"], path.read_text())
        self.assertNotIn(str(self.folder), manifest.read_text())
        elsewhere = {"LATHE_CACHE_DIR": str(self.folder / "elsewhere")}
        self.addCleanup(shutil.rmtree, self.folder / "elsewhere", True)
        status, out, err = self.lathe("warm", manifest, "--arch", "sm_80,sm_90a", "--bundle", bundle, "--json", **elsewhere)
        self.assertEqual(status, 0, err)
        self.assertEqual(json.loads(out)["compiled"], 2)
        # The kernel's file is not needed where the plan is made of the line; here it is read for its tables.
        report = self.run_new(path, ["--arch", "sm_90a"], LATHE_BUNDLES=str(bundle), **{**elsewhere, "LATHE_CACHE_DIR": "off"}, **NO_COMPILER)
        self.assertEqual([kernel["from"] for kernel in report["kernels"]], ["bundle"])
        path.write_text(path.read_text().replace("p.scale *", "2.0f * p.scale *"))
        save(self.input, {"x": tensor("F32", [3, 256])})
        process = self.start(self.command(path), LATHE_BUNDLES=str(bundle), LATHE_CACHE_DIR="off", **NO_COMPILER)
        _, err = process.communicate(timeout=120)
        self.assertNotEqual(process.returncode, 0)
        self.assertRegex(err, "mine is not cached in")

    def test_a_manifest_line_alone(self):
        """A line whose outputs are left out, as for lathe's own operators."""
        path = self.new()
        name = json.loads(self.lathe("ops", path, "--json")[1])["name"]
        manifest = self.folder / "problems.jsonl"
        line = {"op": name, "kernel": path.read_text(), "tensors": {"x": ["bf16", [-1, 512]]}}
        manifest.write_text(json.dumps(line) + "\n")
        status, out, err = self.lathe("warm", manifest, "--arch", "sm_90a", "--json")
        self.assertEqual(status, 0, err)
        self.assertEqual((json.loads(out)["kernels"], json.loads(out)["failed"]), (1, 0))
        status, out, err = self.lathe("tune", "--manifest", manifest, "--extent", "T=32", "--device", "sim", "--json")
        self.assertEqual(status, 0, err)

    def test_refusals(self):
        path = self.new()
        text = path.read_text()
        self.addCleanup(path.unlink)
        def refuse(pattern, tensors=None, options=(), flags=(), file=path):
            with self.subTest(pattern=pattern):
                save(self.input, tensors or {"x": tensor("F32", [3, 256])})
                process = self.start(self.command(file, options=options, flags=flags))
                _, err = process.communicate(timeout=120)
                self.assertEqual(process.returncode, 2, err)
                self.assertRegex(err, pattern)
                self.assertFalse(self.output.exists())
        refuse("a row must be whole vectors of 16 bytes \\(refused where D % kCount != 0\\)", {"x": tensor("F32", [3, 255])})
        refuse("option scale is 'big'; allowed are any", options=["scale=big"])
        refuse("has no option 'scales'; did you mean 'scale'", options=["scales=1"])
        refuse("x has dtype i32; allowed are f32\\|f16\\|bf16", {"x": tensor("I32", [3, 256], values=[0] * 768)})
        refuse("bias has extent 128", {"x": tensor("F32", [3, 256]), "bias": tensor("F32", [128])})
        refuse("--ranks is \"2\", allowed: whole numbers from 1 to 1", flags=["--ranks", "2"])
        refuse("OP is \"/nonexistent.cuh\", which cannot be read", file="/nonexistent.cuh")
        refuse("accesses rows of x, y in pieces of 16", flags=["--alignment", "8"])
        path.write_text(text.replace('shape = "D"', 'shap = "D"'))
        refuse(f"^lathe: {path}:7:20: tensor bias has no 'shap'; did you mean 'shape'")
        path.write_text(text.replace("bias[kCount] = {}", "bias[kCount] = nothing"))
        refuse(rf"{path}\(36\): error: identifier \"nothing\" is undefined")
        path.write_text("nothing\n")
        refuse(f"{path}:1:1: there is no description")

    def test_many_processes_compile_once(self):
        path = self.new()
        save(self.input, {"x": tensor("F32", [3, 256])})
        cache = {"LATHE_CACHE_DIR": str(self.folder / "fresh")}
        self.addCleanup(shutil.rmtree, self.folder / "fresh", True)
        running = [self.start([*self.command(path, output=self.folder / f"{i}.safetensors"), "--json"], **cache) for i in range(16)]
        reports = []
        for process in running:
            out, err = process.communicate(timeout=300)
            self.assertEqual(process.returncode, 0, err)
            reports.append(json.loads(out))
        self.assertEqual(sum(report["compiled"] for report in reports), 1)


def round_f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def e4m3(code):
    """The number of a code of eight bits, by its definition."""
    sign, exponent, fraction = (-1 if code & 128 else 1), code >> 3 & 15, code & 7
    return sign * (fraction / 8 * 2 ** -6 if exponent == 0 else (1 + fraction / 8) * 2 ** (exponent - 7))


def inputs_of(name):
    """(tensors, options) of a small call of each example."""
    def noise(dtype, *shape, seed=0):
        return tensor(dtype, list(shape), seed)
    return {
        "add.cuh": lambda: ({"x": noise("F32", 1000), "y": noise("F32", 1000, seed=1)}, []),
        "softmax.cuh": lambda: ({"x": noise("F32", 3, 300)}, []),
        "rms_norm.cuh": lambda: ({"x": noise("BF16", 5, 512), "residual": noise("BF16", 5, 512, seed=1),
                                  "weight": noise("BF16", 512, seed=2)}, ["eps=1e-5"]),
        "gelu.cuh": lambda: ({"x": noise("F32", 5, 40), "bias": noise("F32", 40, seed=1)}, ["scale=0.5"]),
        "gelu_backward.cuh": lambda: ({"x": noise("F32", 5, 40), "bias": noise("F32", 40, seed=1), "dy": noise("F32", 5, 40, seed=2)},
                                      ["scale=0.5"]),
        "quantise.cuh": lambda: ({"x": noise("F32", 3, 512)}, []),
        "topk.cuh": lambda: ({"x": noise("F32", 4, 333)}, ["k=12"]),
        "matmul.cuh": lambda: ({"a": noise("BF16", 70, 72), "b": noise("BF16", 136, 72, seed=1)}, []),
        "matmul_sm90.cuh": lambda: ({"a": noise("BF16", 140, 136), "b": noise("BF16", 264, 136, seed=1)}, []),
        "mlp.cuh": lambda: ({"x": noise("F16", 33, 40), "gate": noise("F16", 72, 40, seed=1), "up": noise("F16", 72, 40, seed=2)}, []),
        "attention.cuh": lambda: ({"q": noise("BF16", 1, 5, 2, 64), "k": noise("BF16", 1, 70, 2, 64, seed=1),
                                   "v": noise("BF16", 1, 70, 2, 64, seed=2)}, ["causal=1"]),
    }[name]()


class LadderCases(Case):
    """Each example: run, compared with its definition, checked."""
    orders = [("3", "lazy")]  # seeds, and when asynchronous operations take place

    def both(self, name, tensors, options=(), flags=()):
        save(self.input, tensors)
        words = [EXAMPLES / name, "--input", self.input, "--output", self.output, *(w for o in options for w in ("--set", o)), *flags]
        outputs = None
        for seed, when in self.orders:
            with self.subTest(name=name, seed=seed, when=when):
                status, out, err = self.lathe("check", *words, LATHE_SIM_SEED=seed, LATHE_SIM_ASYNC=when)
                self.assertEqual(status, 0, err + out)
                self.assertIn(outputs, (None, load(self.output)))  # the same bits in any order
                outputs = load(self.output)
        return outputs

    def close(self, found, expected, bound):
        self.assertEqual(len(found), len(expected))
        for a, b in zip(found, expected):
            self.assertLessEqual(abs(a - b), bound * max(1.0, abs(b)))

    def test_add(self):
        inputs = {"x": tensor("F32", [1000]), "y": tensor("F32", [1000], 1)}
        z = unpack("F32", self.both("add.cuh", inputs)["z"][2])
        x, y = (unpack("F32", inputs[name][2]) for name in "xy")
        self.close(z, [a + b for a, b in zip(x, y)], 1e-6)

    def test_rms_norm(self):
        inputs = {"x": tensor("BF16", [5, 512]), "residual": tensor("BF16", [5, 512], 1), "weight": tensor("BF16", [512], 2)}
        outputs = self.both("rms_norm.cuh", inputs, ["eps=1e-5"])
        x, r, w = (unpack("BF16", inputs[name][2]) for name in ("x", "residual", "weight"))
        h = [a + b for a, b in zip(x, r)]
        expected = []
        for row in range(5):
            values = h[512 * row:512 * row + 512]
            factor = 1 / math.sqrt(sum(v * v for v in values) / 512 + 1e-5)
            expected += [v * factor * w[i] for i, v in enumerate(values)]
        self.close(unpack("BF16", outputs["y"][2]), expected, 2 ** -8)
        self.close(unpack("BF16", outputs["sum"][2]), h, 2 ** -8)

    def test_softmax(self):
        x = tensor("F32", [3, 300])
        y = unpack("F32", self.both("softmax.cuh", {"x": x})["y"][2])
        values = unpack("F32", x[2])
        for row in range(3):
            part = values[300 * row:300 * row + 300]
            powers = [math.exp(v - max(part)) for v in part]
            self.close(y[300 * row:300 * row + 300], [v / sum(powers) for v in powers], 2e-6)

    def test_quantise(self):
        values = [random.Random(5).gauss(0, 3) for _ in range(3 * 512)]
        values[512:1024] = [0.0] * 512
        inputs = {"x": tensor("F32", [3, 512], values=values)}
        outputs = self.both("quantise.cuh", inputs)
        x, scales, codes = unpack("F32", inputs["x"][2]), unpack("F32", outputs["scale"][2]), outputs["y"][2]
        self.assertEqual(outputs["y"][0], "F8_E4M3")
        for row in range(3):
            part = x[512 * row:512 * row + 512]
            scale = round_f32(max(map(abs, part)) / 448) if any(part) else 1.0
            self.assertEqual(scales[row], scale)
            for i, value in enumerate(part):
                code = codes[512 * row + i]
                # The code is the nearest of all.
                error = abs(e4m3(code) - round_f32(value / scale))
                self.assertTrue(all(error <= abs(e4m3(other) - round_f32(value / scale)) for other in (code - 1, code + 1)
                                    if 0 <= other <= 255 and other & 127 != 127))

    def test_matmul(self):
        M, N, K = 70, 136, 72
        inputs = {"a": tensor("BF16", [M, K]), "b": tensor("BF16", [N, K], 1)}
        a, b = (unpack("BF16", inputs[name][2]) for name in "ab")
        expected = [sum(a[i * K + k] * b[j * K + k] for k in range(K)) for i in range(M) for j in range(N)]
        for arch in ("sm_80", "sm_90a"):
            found = unpack("BF16", self.both("matmul.cuh", inputs, flags=["--arch", arch])["c"][2])
            self.close(found, expected, 2 ** -8)

    def test_matmul_sm90(self):
        # Two tiles in each direction, of which the last are not whole; K ends inside of a box.
        for M, N, K in ((140, 264, 72), (3, 8, 8), (130, 8, 0)):
            inputs = {"a": tensor("BF16", [M, K]), "b": tensor("BF16", [N, K], 1)}
            a, b = (unpack("BF16", inputs[name][2]) for name in "ab")
            expected = [sum(map(operator.mul, a[i * K:i * K + K], b[j * K:j * K + K])) for i in range(M) for j in range(N)]
            found = unpack("BF16", self.both("matmul_sm90.cuh", inputs, flags=["--arch", "sm_90a"])["c"][2])
            self.close(found, expected, 2 ** -8)
        save(self.input, inputs)
        words = ["--input", self.input, "--output", self.output]
        for arch in ("sm_80", "sm_90"):
            status, _, err = self.lathe("run", EXAMPLES / "matmul_sm90.cuh", *words, "--device", "sim", "--arch", arch)
            self.assertNotEqual(status, 0)
            self.assertRegex(err, "warpgroup instructions are those of sm_90a|has a tensor map, and sm_80 has none")

    def test_mlp(self):
        T, D, H = 33, 40, 72
        inputs = {"x": tensor("F16", [T, D]), "gate": tensor("F16", [H, D], 1), "up": tensor("F16", [H, D], 2)}
        x, g, u = (unpack("F16", inputs[name][2]) for name in ("x", "gate", "up"))
        expected = []
        for i in range(T):
            for j in range(H):
                a, b = (sum(x[i * D + d] * w[j * D + d] for d in range(D)) for w in (g, u))
                expected.append(a / (1 + math.exp(-a)) * b)
        self.close(unpack("F16", self.both("mlp.cuh", inputs)["y"][2]), expected, 2 ** -10)

    def test_gelu(self):
        tensors, options = inputs_of("gelu_backward.cuh")
        x, bias, dy = (unpack("F32", tensors[name][2]) for name in ("x", "bias", "dy"))
        x = [v + bias[i % 40] for i, v in enumerate(x)]
        y = unpack("F32", self.both("gelu.cuh", {"x": tensors["x"], "bias": tensors["bias"]}, options)["y"][2])
        self.close(y, [v * (1 + math.erf(v / math.sqrt(2))) / 4 for v in x], 2e-6)
        outputs = self.both("gelu_backward.cuh", tensors, options)
        dx = [g / 2 * ((1 + math.erf(v / math.sqrt(2))) / 2 + v * math.exp(-v * v / 2) / math.sqrt(2 * math.pi)) for v, g in zip(x, dy)]
        self.close(unpack("F32", outputs["dx"][2]), dx, 2e-6)
        self.close(unpack("F32", outputs["dbias"][2]), [sum(dx[i::40]) for i in range(40)], 4e-6)

    def test_topk(self):
        noise = random.Random(8)
        values = [float(noise.randrange(200)) for _ in range(4 * 333)]  # many are equal
        values[5:9] = [-math.inf] * 4
        values[333:666] = [-math.inf] * 333
        outputs = self.both("topk.cuh", {"x": tensor("F32", [4, 333], values=values)}, ["k=12"])
        found, indices = unpack("F32", outputs["values"][2]), unpack("I32", outputs["indices"][2])
        for row in range(4):
            part = values[333 * row:333 * row + 333]
            order = sorted(range(333), key=lambda i: (-part[i], i))[:12]
            self.assertEqual(indices[12 * row:12 * row + 12], order)
            self.assertEqual(found[12 * row:12 * row + 12], [part[i] for i in order])

    def test_attention(self):
        B, Sq, Sk, H, D = 1, 5, 70, 2, 64
        inputs = {"q": tensor("BF16", [B, Sq, H, D]), "k": tensor("BF16", [B, Sk, H, D], 1), "v": tensor("BF16", [B, Sk, H, D], 2)}
        q, k, v = (unpack("BF16", inputs[name][2]) for name in "qkv")
        for causal in (0, 1):
            found = unpack("BF16", self.both("attention.cuh", inputs, [f"causal={causal}", "scale=0.5"])["out"][2])
            for i in range(Sq):
                for h in range(H):
                    keys = range(i + Sk - Sq + 1 if causal else Sk)
                    row = q[(i * H + h) * D:(i * H + h + 1) * D]
                    scores = [0.5 * sum(a * b for a, b in zip(row, k[(j * H + h) * D:])) for j in keys]
                    weights = [math.exp(score - max(scores)) for score in scores]
                    for d in range(D):
                        expected = sum(w * v[(j * H + h) * D + d] for w, j in zip(weights, keys)) / sum(weights)
                        self.assertLessEqual(abs(found[(i * H + h) * D + d] - expected), 6e-3)

    def test_each_is_explained_tuned_warmed_packed_and_run_without_a_compiler(self):
        names = sorted(path.name for path in EXAMPLES.glob("*.cuh"))
        manifest, bundle = self.folder / "ladder.jsonl", self.folder / "ladder.bundle"
        cache = {"LATHE_CACHE_DIR": str(self.folder / "cache")}
        self.addCleanup(shutil.rmtree, self.folder / "cache", True)
        outputs = {}
        for name in names:
            with self.subTest(name=name):
                self.assertLessEqual(len((EXAMPLES / name).read_text().splitlines()), 150)
                tensors, options = inputs_of(name)
                save(self.input, tensors)
                words = [EXAMPLES / name, "--input", self.input, *(w for o in options for w in ("--set", o))]
                status, out, err = self.lathe("explain", *words, "--arch", "h100", "--clock", "--device", "none", "--json", **cache)
                self.assertEqual(status, 0, err)
                report = json.loads(out)
                self.assertGreater(report["clock"][0]["microseconds"], 0)
                places = [line.get("called_from", line.get("source", "")) for line in report["clock"][0]["kernels"][0]["lines"]]
                self.assertIn(f"{EXAMPLES / name}", {place.rpartition(":")[0] for place in places}, places)
                self.assertEqual([kernel["spill_bytes"] for kernel in report["kernels"]], [0])
                status, out, err = self.lathe("tune", *words, "--device", "sim", "--json", **cache)
                self.assertEqual(status, 0, err)
                run = ["run", *words, "--output", self.output, "--device", "sim"]
                status, out, err = self.lathe(*run, LATHE_RECORD=str(manifest), **cache)
                self.assertEqual(status, 0, err)
                outputs[name] = load(self.output)
        status, out, err = self.lathe("warm", manifest, "--arch", "sm_90a", "--bundle", bundle, "--json", **cache)
        self.assertEqual(status, 0, err)
        report = json.loads(out)
        self.assertEqual((report["kernels"], report["failed"]), (len(names), 0))
        alone = {"LATHE_CACHE_DIR": "off", "LATHE_BUNDLES": str(bundle), **NO_COMPILER}
        for name in names:
            with self.subTest(name=name):
                tensors, options = inputs_of(name)
                save(self.input, tensors)
                status, out, err = self.lathe("run", EXAMPLES / name, "--input", self.input, "--output", self.output, "--device", "sim",
                                              "--json", *(w for o in options for w in ("--set", o)), **alone)
                self.assertEqual(status, 0, err)
                self.assertEqual([kernel["from"] for kernel in json.loads(out)["kernels"]], ["bundle"])
                self.assertEqual(load(self.output), outputs[name])

    def test_predictions(self):
        """What the documentation says of the products by the clock, as ratios to the best that others published."""
        for name, arch, least in (("matmul_sm90.cuh", "h100", 600), ("matmul.cuh", "a100", 220)):
            with self.subTest(name=name):
                words = ["--tensor", "a=bf16:8192,8192", "--tensor", "b=bf16:8192,8192", "--arch", arch, "--device", "none"]
                status, out, err = self.lathe("explain", EXAMPLES / name, *words, "--clock", "--json")
                self.assertEqual(status, 0, err)
                report = json.loads(out)
                self.assertGreaterEqual(2 * 8192 ** 3 / report["clock"][0]["microseconds"] / 1e6, least)
                self.assertAlmostEqual(report["counted"]["kernels"][0]["tensor_ops"] / (2 * 8192 ** 3), 1, delta=0.005)


class ThoroughLadderCases(LadderCases):
    """The same in twenty orders of warps, with asynchronous operations as early and as late as they may be, and in between."""
    orders = [(str(seed), when) for seed in range(20) for when in ("eager", "lazy", "random")]
    test_each_is_explained_tuned_warmed_packed_and_run_without_a_compiler = test_predictions = None
