# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""torch.cuda on a machine without a GPU: exceptions of torch, and no process that ends.

Where torch's CUDA build runs over the stand-ins of tests/peers/standins.py, its C++ asks them for
the text of an error: a number in its place would be read as an address.
"""
import subprocess
import sys

import pytest
import torch

CALLS = ("torch.cuda.is_available()", "torch.cuda.device_count()",
         "torch.cuda.is_current_stream_capturing()", "torch.cuda.current_device()",
         "torch.cuda.current_stream()", "torch.cuda.Stream()", "torch.cuda.Event()",
         "torch.cuda.CUDAGraph()", "torch.Generator('cuda')", "torch.cuda._sleep(1)",
         "torch.cuda.get_device_capability()", "torch.cuda.synchronize()", "torch.zeros(1).cuda()",
         "torch.zeros(1).pin_memory()", "torch.cuda.manual_seed(1)", "torch.cuda.empty_cache()",
         "torch.backends.cudnn.version()", "torch.profiler.profile().__enter__()")

ASK_EACH = """
import sys, torch
for call in sys.argv[1:]:
    print(call, flush=True)
    try:
        eval(call)
    except (RuntimeError, AssertionError, AttributeError) as refused:
        # pin_memory() of torch 2.6 names no CUDA.
        assert any(word in str(refused) for word in ("CUDA", "cuDNN", "accelerator")), refused
print("all answered")
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU, which answers")
def test_cuda_calls_without_a_gpu_answer_or_raise():
    child = subprocess.run([sys.executable, "-c", ASK_EACH, *CALLS], capture_output=True, text=True)
    printed = child.stdout.split("\n")
    assert printed[-2:] == ["all answered", ""], (child.returncode, printed, child.stderr[-2000:])
