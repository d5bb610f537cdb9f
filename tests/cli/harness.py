# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""What the tests of the program share: safetensors by hand, problems with seeded values, one run of the program."""
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""  # set by cli_test.py
KEPT = {"LATHE_SIM_DIR", "LATHE_NVRTC", "LATHE_TEST_NVRTC_MEMO"}  # of the variables that begin with LATHE_
SIZES = {"F32": 4, "F16": 2, "BF16": 2, "I32": 4, "I64": 8, "F64": 8}


def pack(dtype, values):
    if dtype == "BF16":
        # Truncation is a rounding too; the inputs only have to be valid.
        return b"".join(struct.pack("<f", v)[2:] for v in values)
    code = {"F32": "f", "F16": "e", "I32": "i", "I64": "q", "F64": "d"}[dtype]
    return struct.pack(f"<{len(values)}{code}", *values)


def unpack(dtype, data):
    if dtype == "BF16":
        return [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]
    code = {"F32": "f", "F16": "e", "I32": "i", "I64": "q"}[dtype]
    return list(struct.unpack(f"<{len(data) // SIZES[dtype]}{code}", data))


def count(shape):
    total = 1
    for extent in shape:
        total *= extent
    return total


def tensor(dtype, shape, seed=0, values=None):
    """(dtype, shape, bytes)"""
    if values is None:
        noise = random.Random(f"{dtype}{shape}{seed}")
        values = [noise.uniform(-1, 1) for _ in range(count(shape))]
    return dtype, list(shape), pack(dtype, values)


def save(path, tensors):
    head, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(head).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + body)


def load(path):
    data = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    return {name: (e["dtype"], e["shape"], data[8 + size + e["data_offsets"][0]:8 + size + e["data_offsets"][1]])
            for name, e in json.loads(data[8:8 + size]).items()}


def conv(B=1, T=20, D=16, W=4, dtype="F32", weight=None, bias=False, residual=False, state=False, backward=False,
         dfinal=False, offsets=None, offset_dtype="I32", seed=0):
    weight = weight or dtype
    N = B if offsets is None else len(offsets) - 1
    out = {"x": tensor(dtype, [B, T, D], seed), "weight": tensor(weight, [D, W], seed)}
    if bias:
        out["bias"] = tensor(weight, [D], seed)
    if residual:
        out["residual"] = tensor(dtype, [B, T, D], seed + 1)
    if state:
        out["initial_state"] = tensor(dtype, [N, D, W], seed)
    if backward:
        out["dy"] = tensor(dtype, [B, T, D], seed + 2)
    if dfinal:
        out["dfinal_state"] = tensor(dtype, [N, D, W], seed + 3)
    if offsets is not None:
        out["cu_seqlens"] = tensor(offset_dtype, [N + 1], values=offsets)
    return out


def update(B=3, D=16, W=4, dtype="F32"):
    return {"x": tensor(dtype, [B, D]), "state": tensor(dtype, [B, D, W]), "weight": tensor(dtype, [D, W])}


def attention(packed=False, dtype="F16"):
    """Two sequences of 5 queries and 7 keys; packed, of 4 and 6, 4 and 10."""
    if packed:
        return {"q": tensor(dtype, [10, 4, 16]), "k": tensor(dtype, [14, 2, 16]), "v": tensor(dtype, [14, 2, 8]),
                "cu_seqlens_q": tensor("I32", [3], values=[0, 4, 10]), "cu_seqlens_k": tensor("I32", [3], values=[0, 4, 14])}
    return {"q": tensor(dtype, [2, 5, 4, 16]), "k": tensor(dtype, [2, 7, 2, 16]), "v": tensor(dtype, [2, 7, 2, 8])}


def block(ranges=((0, 6, 0, 9, 0, 0, 0), (6, 10, 2, 5, 3, 6, 2)), positions=False, dtype="BF16", batch=()):
    """Ten rows of four heads and nine keys of two, with a partial result; `batch`: of as many of them."""
    out = {"q": tensor(dtype, [*batch, 10, 4, 16]), "k": tensor(dtype, [*batch, 9, 2, 16]), "v": tensor(dtype, [*batch, 9, 2, 8]),
           "out": tensor("F32", [*batch, 10, 4, 8]), "lse": tensor("F32", [*batch, 4, 10])}
    if positions:
        return {**out, "q_pos": tensor("I32", [10], values=range(10)), "k_pos": tensor("I32", [9], values=range(9))}
    return {**out, "ranges": tensor("I32", [len(ranges), 7], values=[word for each in ranges for word in each])}


def kda(B=2, T=3, H=1, HV=2, K=8, V=12, dtype="F32", offsets=None, pool=None, indices=None, accepted=None, sources=None):
    """`indices` is a list, or a list of rows, of slots of a pool of `pool`."""
    out = {"q": tensor(dtype, [B, T, H, K]), "k": tensor(dtype, [B, T, H, K], 1), "v": tensor(dtype, [B, T, HV, V]),
           "g": tensor("F32", [B, T, HV, K], values=[-0.5] * (B * T * HV * K)), "beta": tensor("F32", [B, T, HV])}
    if offsets is not None:
        out["cu_seqlens"] = tensor("I32", [len(offsets)], values=offsets)
    if pool is not None:
        out["state_pool"] = tensor("F32", [pool, HV, K, V])
        rows = [slot if isinstance(slot, list) else [slot] for slot in indices]
        shape = [len(rows)] + ([len(rows[0])] if isinstance(indices[0], list) else [])
        out["state_indices"] = tensor("I32", shape, values=[slot for row in rows for slot in row])
    if sources is not None:
        out["source_indices"] = tensor("I32", [len(sources)], values=sources)
    if accepted is not None:
        out["num_accepted_tokens"] = tensor("I32", [len(accepted)], values=accepted)
    return out


def sparse(packed=False, dtype="BF16", rows=5, keys=9, topk=4, block=1, rope=True, values=True, B=2, dout=False):
    """Two sequences, packed of 2 and 3 rows and of all keys but one; lists with -1 and what is out of range."""
    shape = (lambda n, *rest: [n, *rest]) if packed else (lambda n, *rest: [B, n, *rest])
    count = rows * (1 if packed else B)
    entries = [(7 * i + i // 3) % (keys // block + 3) - 1 for i in range(count * 2 * topk)]
    out = {"q": tensor(dtype, shape(rows, 8, 16)), "k": tensor(dtype, shape(keys, 2, 16), 1),
           "indices": tensor("I32", shape(rows, 2, topk), values=entries)}
    if values:
        out["v"] = tensor(dtype, shape(keys, 2, 24), 2)
    if rope:
        out.update(q_rope=tensor(dtype, shape(rows, 8, 8), 3), k_rope=tensor(dtype, shape(keys, 2, 8), 4))
    if packed:
        out.update(cu_seqlens_q=tensor("I32", [3], values=[0, 2, rows]), cu_seqlens_k=tensor("I32", [3], values=[0, keys - 1, keys]))
    if dout:
        out["dout"] = tensor(dtype, shape(rows, 8, 24 if values else 16), 5)
    return out


def without(tensors, name):
    return {k: v for k, v in tensors.items() if k != name}


class Case(unittest.TestCase):
    """Each class has a cache of its own, each test a folder of its own."""

    @classmethod
    def setUpClass(cls):
        cls.cache = tempfile.mkdtemp(prefix="lathe-cli-cache-")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.cache, ignore_errors=True)

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lathe-cli-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.input, self.output = self.folder / "in.safetensors", self.folder / "out.safetensors"

    def environment(self, **extra):
        env = {k: v for k, v in os.environ.items() if not k.startswith("LATHE_") or k in KEPT}
        env["LATHE_CACHE_DIR"] = self.cache
        env.update(extra)
        return env

    def command(self, op, verb="run", options=(), flags=(), output=None):
        words = [PROGRAM, verb, op, "--input", self.input, "--output", output or self.output, "--device", "sim"]
        for option in options:
            words += ["--set", option]
        return [str(w) for w in words + list(flags)]

    def start(self, words, **env):
        return subprocess.Popen([str(w) for w in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=self.environment(**env))

    def lathe(self, *words, **env):
        process = self.start([PROGRAM, *words], **env)
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err

    def run_op(self, op, tensors, options=(), flags=(), verb="run", **env):
        """(report, outputs) of a run that must succeed."""
        save(self.input, tensors)
        process = self.start(self.command(op, verb, options, [*flags, "--json"]), **env)
        out, err = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 0, err + out)
        return json.loads(out), load(self.output)

    def assert_refused(self, process_result, pattern, code=2, lines=1):
        status, out, err = process_result
        self.assertEqual(status, code, err)
        self.assertRegex(err, pattern)
        self.assertEqual(len(err.strip().splitlines()), lines, err)
        self.assertEqual(out, "")
        left = {p.name for p in self.folder.iterdir()} - {self.input.name}
        self.assertEqual(left, set(), "files were left behind")

    def refused(self, pattern, tensors=None, op="causal_conv1d", options=(), flags=()):
        with self.subTest(pattern=pattern):
            save(self.input, conv() if tensors is None else tensors)
            process = self.start(self.command(op, options=options, flags=flags))
            out, err = process.communicate(timeout=120)
            self.assert_refused((process.returncode, out, err), pattern)


def main(cases):
    """cli_test.py PROGRAM PART"""
    part = sys.argv[2]
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(cases[part])
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    return 0 if result.wasSuccessful() and result.testsRun else 1
