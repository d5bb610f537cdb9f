# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Call.into: outputs that the caller has, with strides of their own, in eager mode and traced."""
import pytest
import torch

import lathe
from lathe.torch._operator_calls import FLASH_ATTENTION as CALL, FLASH_ATTENTION_BWD as BACKWARD

NONE = (None,) * 4
CAUSAL = (("causal", 1),)


def made(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).half()


def inputs(tokens=20):
    q, k, v = made(1, tokens, 4, 32), made(1, tokens, 2, 32), made(1, tokens, 2, 32)
    return (q, k, v, *NONE, *NONE)


def test_strided_outputs_and_what_lies_between():
    tensors = inputs()
    room, lse = torch.full((1, 4, 20, 48), 7.0).half(), torch.empty(1, 4, 20)
    out = room[..., 8:40].transpose(1, 2)
    CALL.into(CAUSAL, tensors, (out, lse))
    wanted, wanted_lse = CALL(CAUSAL, *tensors)
    assert torch.equal(out, wanted) and torch.equal(lse, wanted_lse)
    assert (room[..., :8] == 7).all() and (room[..., 40:] == 7).all()


def test_gradients_into_one_tensor():
    q, k, v, *rest = inputs()
    out, lse = CALL(CAUSAL, q, k, v, *rest)
    options = (*CAUSAL, ("saved_forward", 1))
    tensors = (q, k, v, *NONE, made(1, 20, 4, 32), None, *NONE, out, lse)
    dq, dkv = torch.empty_like(q), torch.empty(1, 20, 2, 2, 32).half()
    BACKWARD.into(options, tensors, (dq, dkv[:, :, 0], dkv[:, :, 1], None))
    wanted = BACKWARD(options, *tensors)
    for found, right in zip((dq, *dkv.unbind(2)), wanted):
        assert torch.equal(found, right)


def test_outputs_that_do_not_fit():
    tensors, lse = inputs(), torch.empty(1, 4, 20)
    with pytest.raises(lathe.InvalidArgument, match="out is at .*multiple of 16 bytes"):
        shifted = torch.empty(20 * 4 * 32 + 1).half()[1:].view(1, 20, 4, 32)
        CALL.into(CAUSAL, tensors, (shifted, lse))
    with pytest.raises(lathe.InvalidArgument, match="out has"):
        CALL.into(CAUSAL, tensors, (torch.empty(1, 21, 4, 32).half(), lse))
    with pytest.raises(lathe.InvalidArgument, match="3 tensors; the plan takes 5"):
        CALL.into(CAUSAL, tensors, (None, None))


def test_compiled():
    tensors = inputs()

    def call(q, room):
        lse = torch.empty(1, 4, 20)
        CALL.into(CAUSAL, (q, *tensors[1:]), (room[..., :32], lse))
        return room + 1, lse

    rooms = [torch.zeros(1, 20, 4, 40).half() for _ in range(2)]
    plain = call(tensors[0], rooms[0])
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")(tensors[0], rooms[1])
    for pair in zip((*plain, rooms[0]), (*compiled, rooms[1])):
        assert torch.equal(*pair)
