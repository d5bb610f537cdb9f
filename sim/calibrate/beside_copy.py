#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Kernels that move bytes by the simulator's clock, and a copy of as many beside them:

    beside_copy.py conv1d|kda [--gpu GPU] [--write FILE.md]

conv1d: the convolution, on an H200. kda: a step of decoding, on an H100. `lathe explain --clock` says how long a call takes,
and the same clock times the copy of streams.cu. ptxas, nvdisasm and NVRTC must be found. The table goes to standard output,
and between two marks of the file.
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TOKENS, CHANNELS, SEQUENCES = (2048, 8192, 65536), (2048, 4096, 12288), 16
UPDATES = ((1, 4096), (16, 4096), (64, 4096), (256, 2048), (256, 4096), (256, 12288), (512, 4096))
BYTES, WIDTH, OF_BLOCK = 2, 4, 4096  # of an element; taps; that a block of the copy reads
STEPS, HEADS, HEAD = (1, 4, 16, 64, 128, 512), (12, 96), 128  # sequences of a step; heads; K and V
GATES = ("use_gate_in_kernel=1", "use_beta_sigmoid_in_kernel=1", "use_qk_l2norm_in_kernel=1", "state_v_first=1")


def explained(options: argparse.Namespace, cache: str, words: list[str]) -> dict:
    """What `lathe explain` says of a call."""
    command = [str(options.lathe), "explain", words[0], "--gpu", options.gpu, "--clock", "--json", "--cache-dir", cache]
    for word in words[1:]:
        command += ["--tensor" if ":" in word else "--set", word]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def kernels(options: argparse.Namespace, cache: str, words: list[str]) -> dict[str, float]:
    """Microseconds of each kernel of a convolution."""
    found = explained(options, cache, [*words, "activation=silu"])
    return {kernel["name"]: kernel["microseconds_of_all"] for kernel in found["clock"][0]["kernels"]}


def call(options: argparse.Namespace, cache: str, tokens: int, channels: int, packed: bool) -> dict[str, float]:
    """Microseconds of a forward and of a backward. A call with gradients has the forward's kernel too."""
    rows = f"bf16:1,{tokens},{channels}"
    words = ["causal_conv1d", f"x={rows}", f"dy={rows}", f"weight=bf16:{channels},{WIDTH}"]
    times = kernels(options, cache, words + ([f"cu_seqlens=i32:{SEQUENCES + 1}"] if packed else []))
    forward = times.pop("causal_conv1d")
    return {"forward": forward, "backward": sum(times.values())}


def copy(options: argparse.Namespace, count: int) -> float:
    """Microseconds in which so many bytes are read and written."""
    with tempfile.TemporaryDirectory() as work:
        variables = os.environ | {
            "LATHE_SIM_GPU": options.gpu, "LATHE_SIM_CLOCK": f"{work}/clock.jsonl", "LATHE_SIM_SAMPLE_BLOCKS": "16",
            "LATHE_SIM_CHECK": "none", "LATHE_SIM_QUIET": "1", "CALIBRATE_ARCH": "sm_80" if options.gpu == "a100" else "sm_90a",
            "LD_LIBRARY_PATH": f"{ROOT}/build/sim:/usr/local/cuda/lib64"}
        blocks = count // 2 // OF_BLOCK
        subprocess.run([sys.executable, __file__, "--copy", str(blocks)], env=variables, check=True)
        return json.loads(pathlib.Path(work, "clock.jsonl").read_text().splitlines()[0])["microseconds"]


def launch_copy(blocks: int) -> None:
    import cuda_cases
    import cuda_driver
    cuda_driver.start()
    ptx = cuda_cases.nvrtc((HERE / "streams.cu").read_text())
    buffers = [cuda_cases.buffer(blocks * OF_BLOCK) for _ in range(2)]
    cuda_cases.launch(ptx, "copy", blocks, OF_BLOCK // 16, buffers)


def steps(options: argparse.Namespace, cache: str) -> list[str]:
    """Rows of a decoding step: a layer in one launch, and the recurrence alone."""
    lines = ["| bf16, K = V = 128 | bytes | kda_decode, us | of a copy | kda_recurrent, us | of a copy |", "|---|---|---|---|---|---|"]
    for heads in HEADS:
        for batch in STEPS:
            width, per_head = heads * HEAD, f"{batch},{heads}"
            pool = [f"state_pool=f32:{batch + 1},{heads},{HEAD},{HEAD}", f"state_indices=i32:{batch}", f"A_log=f32:{heads}",
                    f"dt_bias=f32:{width}", *GATES]
            layer = ["kda_decode", f"qkv=bf16:{batch},{3 * width}", f"conv_weight=bf16:{3 * width},{WIDTH}",
                     f"conv_pool=bf16:{batch + 1},{3 * width},{WIDTH - 1}", f"g=bf16:{per_head},{HEAD}", f"beta=bf16:{per_head}",
                     f"output_gate=bf16:{per_head},{HEAD}", f"norm_weight=bf16:{HEAD}"]
            token = ["kda_recurrent", *(f"{name}=bf16:{batch},1,{heads},{HEAD}" for name in "qkvg"),
                     f"beta=bf16:{batch},1,{heads}"]
            cells = []
            for words in (layer, token):
                found = explained(options, cache, words + pool)
                kernel, moved = found["clock"][0]["kernels"][0], found["estimate"]["minimum_bytes"]
                time = kernel["microseconds_of_all"]
                cells += [f"{time:.1f}", f"{copy(options, moved) / time:.2f}"]
                if words is layer:
                    cells.insert(0, f"{moved / 1e6:.1f} MB")
            lines.append(f"| H {heads}, B {batch} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    return lines


def rows(options: argparse.Namespace, cache: str) -> list[str]:
    lines = ["| bf16, W 4, SiLU | forward, us | of a copy | packed | backward, us | of a copy | packed |", "|---|---|---|---|---|---|---|"]
    for tokens in TOKENS:
        for channels in CHANNELS:
            cells = []
            times = [call(options, cache, tokens, channels, packed) for packed in (False, True)]
            for op, tensors in (("forward", 2), ("backward", 3)):
                alone = copy(options, tensors * tokens * channels * BYTES)
                cells += [f"{times[0][op]:.1f}", f"{alone / times[0][op]:.2f}", f"{alone / times[1][op]:.2f}"]
            lines.append(f"| T {tokens}, D {channels} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    lines += ["", "| bf16, W 4, SiLU | update, us | of a copy |", "|---|---|---|"]
    for batch, channels in UPDATES:
        words = ["causal_conv1d_update", f"x=bf16:{batch},{channels}", f"weight=bf16:{channels},{WIDTH}",
                 f"state=bf16:{batch},{channels},{WIDTH}"]
        time = sum(kernels(options, cache, words).values())
        alone = copy(options, 2 * (1 + WIDTH) * batch * channels * BYTES)
        lines.append(f"| B {batch}, D {channels} | {time:.1f} | {alone / time:.2f} |")
        print(lines[-1], flush=True)
    return lines


def put_between(document: pathlib.Path, name: str, text: str) -> None:
    """Puts a table between the two marks of this name in a Markdown file."""
    begin, end = (f"<!-- {name}: {side} -->" for side in ("begin", "end"))
    before, _, rest = document.read_text().partition(begin)
    document.write_text(f"{before}{begin}\n\n{text}\n\n{end}{rest.partition(end)[2]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("table", nargs="?", choices=("conv1d", "kda"), default="conv1d")
    parser.add_argument("--gpu")
    parser.add_argument("--lathe", type=pathlib.Path, default=ROOT / "build/bin/lathe")
    parser.add_argument("--write", type=pathlib.Path, help="puts the table into this Markdown file")
    parser.add_argument("--copy", type=int, metavar="BLOCKS", help="only launches the copy, on the driver that is there")
    options = parser.parse_args()
    if options.copy:
        launch_copy(options.copy)
        return
    options.gpu = options.gpu or ("h100" if options.table == "kda" else "h200")
    with tempfile.TemporaryDirectory() as cache:
        text = "\n".join((steps if options.table == "kda" else rows)(options, cache))
    if options.write:
        put_between(options.write, f"{options.table} clock", text)


if __name__ == "__main__":
    main()
