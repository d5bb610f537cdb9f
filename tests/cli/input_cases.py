# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Bad input: exit 2, one line that names the thing, nothing left behind. And what is legal although it looks odd."""
import json
import pathlib
import struct
import tempfile

from attention_input_cases import AttentionInputCases
from conv_input_cases import ConvInputCases
from harness import conv, save, tensor, unpack, update, without
from kda_input_cases import KdaInputCases


class InputCases(AttentionInputCases, ConvInputCases, KdaInputCases):
    def test_tensors(self):
        self.refused("weight is not declared, but causal_conv1d requires it", without(conv(), "weight"))
        self.refused("no tensor 'z'; it has x, weight", {**conv(), "z": tensor("F32", [1])})
        self.refused('"y" is an output', {**conv(), "y": tensor("F32", [1, 20, 16])})
        self.refused(r"weight has rank 1; its shape is \[D,W\]", {**conv(), "weight": tensor("F32", [16])})
        self.refused(r"weight has .*so D is 15; \w+ says D is 16", {**conv(), "weight": tensor("F32", [15, 4])})
        self.refused(r"dy has .*so T is 19; \w+ says T is 20", {**conv(), "dy": tensor("F32", [1, 19, 16])})
        self.refused(r"dfinal_state.*without dy", {**conv(), "dfinal_state": tensor("F32", [1, 16, 4])})
        self.refused(r"initial_state has N = 2 and x has B = 1", {**conv(), "initial_state": tensor("F32", [2, 16, 4])})
        self.refused(r"initial_state has .*so W is 3; weight says W is 4", {**conv(), "initial_state": tensor("F32", [1, 16, 3])})
        self.refused("state is not declared", without(update(), "state"), op="causal_conv1d_update")
        self.refused("has no tensor .dy.", {**update(), "dy": tensor("F32", [3, 16])}, op="causal_conv1d_update")

    def test_dtypes(self):
        self.refused("x has dtype i32; allowed are f32.f16.bf16", {**conv(), "x": tensor("I32", [1, 20, 16], values=[0] * 320)})
        self.refused("bias has dtype f16; allowed is f32, that of weight", {**conv(), "bias": tensor("F16", [16])})
        self.refused("residual has dtype f16; allowed is f32, that of x", {**conv(), "residual": tensor("F16", [1, 20, 16])})
        self.refused("dy has dtype bf16; allowed is f32, that of x", {**conv(), "dy": tensor("BF16", [1, 20, 16])})
        self.refused("cu_seqlens has dtype f32; allowed are i32.i64", {**conv(), "cu_seqlens": tensor("F32", [2], values=[0, 20])})
        self.refused('"x".*"F64", allowed: F32, F16, BF16, I32, I64', {**conv(), "x": tensor("F64", [1, 20, 16])})

    def test_width(self):
        self.refused("W = 1.*2 to 8", conv(W=1))
        self.refused("W = 9.*2 to 8", conv(W=9))
        self.refused("W = 0.*2 to 8", conv(W=0))

    def test_offsets(self):
        for dtype in ("I32", "I64"):
            self.refused("cu_seqlens begins with 1; allowed is 0", conv(offsets=[1, 20], offset_dtype=dtype))
            self.refused("cu_seqlens ends with 19; allowed is T = 20", conv(offsets=[0, 5, 19], offset_dtype=dtype))
            self.refused("cu_seqlens ends with 21", conv(offsets=[0, 21], offset_dtype=dtype))
            self.refused("decreases from 9 to 8 at entry 2", conv(offsets=[0, 9, 8, 20], offset_dtype=dtype))
        self.refused("begins with -3", conv(offsets=[-3, 20]))
        self.refused("has B = 2; packed sequences need B = 1", {**conv(B=2), "cu_seqlens": tensor("I32", [2], values=[0, 20])})
        self.refused("cu_seqlens has shape .0.", {**conv(), "cu_seqlens": tensor("I32", [0])})

    def test_options(self):
        self.refused("activation.*relu.*none.silu", options=["activation=relu"])
        self.refused("activation", options=["activation="])
        self.refused("output_final_state.*2", options=["output_final_state=2"])
        self.refused("output_final_state.*nan", options=["output_final_state=nan"])
        self.refused("output_final_state.*inf", options=["output_final_state=inf"])
        self.refused("speed", options=["speed=9"])
        self.refused("expected key=value", options=["activation"])
        self.refused('"activation" is given twice', options=["activation=none", "activation=silu"])
        self.refused("output_final_state", update(), op="causal_conv1d_update", options=["output_final_state=1"])

    def test_arguments(self):
        self.refused("no operator 'conv'; there are causal_conv1d", op="conv")
        self.refused("--rotate is .ring., but --ranks is not given", flags=["--rotate", "ring"])
        self.refused("--balance is .none., but --ranks is not given", flags=["--balance", "none"])
        self.refused("--rotate.*no keys travel in causal_conv1d", flags=["--ranks", "2", "--rotate", "allgather"])
        for ranks in ("0", "-1", "two", "1.5", "99999999999999999999"):
            self.refused("--ranks is.*whole numbers from 1 to", flags=[f"--ranks={ranks}"])
        self.refused("--ranks is \"2\".*from 1 to 1", update(), op="causal_conv1d_update", flags=["--ranks", "2"])
        self.refused("sm_1", flags=["--arch", "sm_1"])
        self.refused("fortran", flags=["--arch", "fortran"])
        self.refused("--speed", flags=["--speed"])
        for words in (["run"], [], ["walk"], ["run", "causal_conv1d"],
                      ["run", "causal_conv1d", "--input", self.input],
                      self.command("causal_conv1d")[1:] + ["--device", "abacus"]):
            with self.subTest(words=words):
                self.assert_refused(self.lathe(*words), "lathe: ")

    def test_paths(self):
        save(self.input, conv())
        for output in (self.folder / "no" / "out", self.folder, "/dev/null"):
            process = self.start(self.command("causal_conv1d", output=output))
            out, err = process.communicate(timeout=60)
            self.assert_refused((process.returncode, out, err), "--output is")
        with tempfile.TemporaryDirectory() as other:
            link = pathlib.Path(other, "link")
            link.symlink_to(pathlib.Path(other, "target"))
            self.assert_refused(self.lathe(*self.command("causal_conv1d", output=link)[1:]), "a symbolic link")
        before = self.input.read_bytes()
        self.assert_refused(self.lathe(*self.command("causal_conv1d", output=self.input)[1:]), "the file of --input")
        self.assertEqual(self.input.read_bytes(), before)
        self.input.unlink()
        self.assert_refused(self.lathe(*self.command("causal_conv1d")[1:]), "no such file")

    def test_no_value_is_empty(self):
        save(self.input, conv())
        for words in (["--ranks", ""], ["--ranks="], ["--cache-dir", ""], ["--arch", ""], ["--device", ""], ["--set", ""]):
            with self.subTest(words=words):
                self.assert_refused(self.lathe(*self.command("causal_conv1d")[1:], *words), "lathe: --")
        command = ["run", "causal_conv1d", "--input", self.input, "--output"]
        self.assert_refused(self.lathe(*command, ""), '--output is "", but needs a value')
        self.assert_refused(self.lathe("cache", "stat", "--cache-dir", ""), '--cache-dir is "", but needs a value')

    def test_what_a_terminal_would_obey_is_escaped(self):
        save(self.input, conv())
        for words in (["--set", "\x1b[31mX=1"], ["--tensor", "\x1b[31m"], ["--\x1b[31m"]):
            with self.subTest(words=words):
                status, out, err = self.lathe(*self.command("causal_conv1d")[1:], *words)
                self.assertEqual(status, 2)
                self.assertNotIn("\x1b", err)
                self.assertIn("\\x1b[31m", err)

    def test_files(self):
        save(self.input, conv())
        good = self.input.read_bytes()
        size = struct.unpack("<Q", good[:8])[0]
        head = json.loads(good[8:8 + size])

        def lie(change):
            changed = json.loads(json.dumps(head))
            change(changed)
            text = json.dumps(changed).encode()
            return struct.pack("<Q", len(text)) + text + good[8 + size:]

        bad = {
            "8 bytes of header length": good[:5],
            "header length is": struct.pack("<Q", 1 << 60) + good[8:],
            "not valid JSON": good[:9] + b"}" + good[10:],
            "bytes of data": good[:-1],
            "the file has": good + b"\0",
            "takes 1280 bytes": lie(lambda h: h["x"].update(data_offsets=[0, 1276])),
            "begin <= end": lie(lambda h: h["x"].update(data_offsets=[1280, 0])),
            "overlapping": lie(lambda h: h["weight"].update(data_offsets=[1276, 1532])),
            "leaving a gap": lie(lambda h: h["x"].update(shape=[1, 19, 16], data_offsets=[0, 1216])),
            "shape must be": lie(lambda h: h["x"].update(shape=[1, -20, -16])),
            "too large": lie(lambda h: h["x"].update(shape=[1 << 62, 1 << 62, 1])),
        }
        for pattern, data in bad.items():
            with self.subTest(pattern=pattern):
                self.input.write_bytes(data)
                self.assert_refused(self.lathe(*self.command("causal_conv1d")[1:]), pattern)

    def test_an_older_output_survives_a_refusal(self):
        save(self.input, conv(W=9))
        self.output.write_text("older")
        self.assertEqual(self.lathe(*self.command("causal_conv1d")[1:])[0], 2)
        self.assertEqual(self.output.read_text(), "older")

    def test_what_comes_out(self):
        report, out = self.run_op("causal_conv1d", conv())
        self.assertEqual(set(out), {"y"})
        self.assertEqual(report["device"], "sim")
        self.assertEqual(report["arch"], "sm_90a")
        full = conv(bias=True, residual=True, state=True, backward=True, dfinal=True, weight="BF16", dtype="F16")
        _, out = self.run_op("causal_conv1d", full, ["output_final_state=1", "activation=silu"])
        self.assertEqual({n: t[0] for n, t in out.items()},
                         {"y": "F16", "final_state": "F16", "dx": "F16", "dweight": "BF16", "dbias": "BF16",
                          "dresidual": "F16", "dinitial_state": "F16"})
        self.assertEqual(out["dresidual"], full["dy"])
        self.assertEqual(out["final_state"][1], [1, 16, 4])
        # A gradient of a state that nobody asked for is legal.
        _, out = self.run_op("causal_conv1d", conv(backward=True, dfinal=True))
        self.assertEqual(set(out), {"y", "dx", "dweight"})
        _, out = self.run_op("causal_conv1d_update", update())
        self.assertEqual(set(out), {"y", "state"})
        old, new = (unpack("F32", t["state"][2]) for t in (update(), out))
        self.assertEqual([new[i] for i in range(len(new)) if i % 4 < 3], [old[i] for i in range(len(old)) if i % 4 > 0])

    def test_infinities_and_nans_are_values(self):
        tensors = conv(T=8, D=2, W=2)
        values = [0.5] * 16
        values[4], values[7] = float("nan"), float("inf")
        tensors["x"] = tensor("F32", [1, 8, 2], values=values)
        _, out = self.run_op("causal_conv1d", tensors)
        y = unpack("F32", out["y"][2])
        odd = {i for i, v in enumerate(y) if v != v or abs(v) == float("inf")}
        self.assertEqual(odd, {4, 6, 7, 9})

    def test_nothing_is_a_problem_too(self):
        _, out = self.run_op("causal_conv1d", conv(T=0, state=True), ["output_final_state=1"])
        self.assertEqual(out["y"][1], [1, 0, 16])
        self.assertEqual(out["final_state"][2], conv(T=0, state=True)["initial_state"][2])
        packed = conv(T=3, state=True, offsets=[0, 0, 3, 3])
        _, out = self.run_op("causal_conv1d", packed, ["output_final_state=1"])
        self.assertEqual(out["final_state"][2][:256], packed["initial_state"][2][:256])

    def test_the_choice_of_a_device_is_said(self):
        save(self.input, conv())
        words = self.command("causal_conv1d")
        words[words.index("sim")] = "auto"
        status, _, err = self.lathe(*words[1:], CUDA_VISIBLE_DEVICES="")
        self.assertEqual(status, 0, err)
        self.assertRegex(err, "^lathe: no GPU can be used .*simulator\nlathe: causal_conv1d ran on the simulator")
        status, _, err = self.lathe(*words[1:], "--quiet", LATHE_DEVICE="sim")
        self.assertEqual((status, err), (0, ""))
        self.output.unlink()
        self.assert_refused(self.lathe(*words[1:], LATHE_DEVICE="abacus"), "LATHE_DEVICE.*abacus.*auto, cuda, sim")
        self.assertFalse(self.output.exists())
