# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Tensors of torch for tests."""
import numpy as np
import torch


def to_torch(array):
    """Returns a tensor with an array's values; unsigned 16-bit numbers are bfloat16."""
    if array.dtype == np.uint16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def to_numpy(tensor):
    """Returns an array; bfloat16 becomes float32."""
    tensor = tensor.detach()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def hands_on_narrow():
    """Returns true if this torch lends tensors of 8-bit floats by DLPack, as 2.6 does not."""
    try:
        torch.zeros(1, dtype=torch.float8_e4m3fn).__dlpack__()
    except (RuntimeError, BufferError):
        return False
    return True


NARROW = hands_on_narrow()
