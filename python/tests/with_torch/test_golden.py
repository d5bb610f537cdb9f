# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Every golden file through lathe.torch: results by calls, gradients by autograd."""
import pytest
import torch

import golden
import lathe.torch
from tensors import to_numpy, to_torch

# What a function returns, and the upstream gradient of each; None: it has none.
_RESULTS = {
    "causal_conv1d": {"y": "dy", "final_state": "dfinal_state"},
    "causal_conv1d_update": {"y": None},
    "kda": {"o": "do", "final_state": "dht", "chunk_states": None},
    "kda_recurrent": {"o": None, "final_state": None},
    "flash_attention": {"out": "dout", "lse": "dlse"},
    "flash_attention_decode": {"out": None, "lse": None},
    "sparse_flash_attention": {"out": "dout", "softmax_max": None, "softmax_sum": None,
                               "lse": None},
}


@pytest.mark.parametrize("file", golden.cases(*_RESULTS))
def test_file(file):
    case = golden.load(file)
    results = _RESULTS[case.op]
    tensors = {name: to_torch(array) for name, array in case.inputs.items()}
    upstream = {name: tensors.pop(name) for name in results.values() if name in tensors}
    if upstream:
        for tensor in tensors.values():
            if tensor.is_floating_point():
                tensor.requires_grad_()
    if "final_state" in case.wanted or "dht" in upstream or "dfinal_state" in upstream:
        case.options["output_final_state"] = True
    found = getattr(lathe.torch, case.op)(**tensors, **case.options)
    found = dict(zip(results, found if isinstance(found, tuple) else (found,)))
    pairs = [(found[name], upstream[of]) for name, of in results.items() if of in upstream]
    if pairs:
        torch.autograd.backward(*zip(*pairs))
    arrays = {name: to_numpy(tensor) for name, tensor in found.items() if tensor is not None}
    for name, tensor in tensors.items():
        arrays[name] = to_numpy(tensor)  # what is changed in place
        if tensor.grad is not None:
            arrays["d" + name] = to_numpy(tensor.grad)
    case.compare(arrays)
