# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""flex_attention of torch 2.15 (torch.nn.attention.flex_attention), computed by lathe.

    from lathe.flex import flex_attention
    out = flex_attention(query, key, value, score_mod=lambda score, b, h, q, k: score + bias[h])

A mod runs once a call, so what it reads is never stale; its text is kept by what that run does. A
number is compiled into it until another value comes, and is read at run time from then on. Tensors
that mods close over are read by the kernels, up to four; a block_mask is one of them, and so are
the numbers that vary: with four others, each value is compiled. Lists of blocks restrict keys as in
torch's compiled flex_attention, full blocks without mask_mod; entries that name no block are
padding. A run of a mod takes 0.1 to 0.5 ms of the processor, 1 ms with gradients, and lists of
blocks about ten small kernels a call. Ints wrap as torch's do; a division by 0 gives 0.
"""
from __future__ import annotations

import sys
from typing import Any, Callable

import torch
from torch import Tensor

from lathe._errors import Unsupported
from lathe.torch._calls import Options, options_of
from lathe.torch._gradients import for_arguments
from lathe.torch._mod_blocks import Blocks, blocks_of
from lathe.torch._mod_trace import Mods, trace_mods
from lathe.torch._operator_calls import CAPTURES, FLASH_ATTENTION, FLASH_ATTENTION_BWD
from lathe.torch._tensors import (dense_upstream, each_once, no_second_gradient, upstream_or_zeros,
                                  usable, wants_gradient)
from lathe.torch._transforms import refuse_transforms

__all__ = ["flex_attention"]

# Rows of docs/python.md, as lathe.compat describes them.
DROP_INS = (
    ("flex_attention",
     "wrote the text of a mod; cast a capture; copied a capture; laid out lists of blocks",
     "kernel_options (BACKEND); return_aux (max_scores)"),
)

_NONE = (None,) * 4  # slopes, sinks and offsets
_PLACES = (-1, 0, 1, 2, *[-1] * len(CAPTURES))  # of the gradients of q, k and v
# torch 2.6 has no higher-order operator to derive one from: there the graph breaks at a mod.
_GRAPHS = tuple(int(each) for each in torch.__version__.split(".")[:2]) >= (2, 7)


class _FlexAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, options: Options, q: Tensor, k: Tensor, v: Tensor,
                *captures: Tensor | None) -> Any:
        out, lse = _forward(options, q, k, v, captures)
        ctx.save_for_backward(q, k, v, out, lse, *captures)
        ctx.options = options
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    @no_second_gradient
    def backward(ctx: Any, saved: Any, dout: Tensor | None, dlse: Tensor | None) -> Any:
        q, k, v, out, lse, *captures = saved
        rows = [usable(each.transpose(1, 2)) for each in (q, k, v)]
        out = out.transpose(1, 2)
        dout = upstream_or_zeros(None if dout is None else dout.transpose(1, 2), out)
        options = (*ctx.options, ("saved_forward", 1))
        found = FLASH_ATTENTION_BWD(options, *rows, *_NONE, dout, dense_upstream(dlse), *captures,
                                    out, lse)
        gradients = [None if each is None else each.transpose(1, 2) for each in found[:3]]
        return for_arguments(gradients, _PLACES)


def _forward(options: Options, q: Tensor, k: Tensor, v: Tensor, captures: tuple[Tensor | None, ...]
             ) -> tuple[Tensor, Tensor]:
    rows = [usable(each.transpose(1, 2)) for each in (q, k, v)]
    out, lse = FLASH_ATTENTION(options, *rows, *_NONE, *captures)
    assert out is not None and lse is not None
    out.transpose_(1, 2)  # no view is made, so that callers may change out in place
    return out, lse


def _mask_of(block_mask: Any) -> Callable[..., Any] | None:
    """Returns the mask_mod of a BlockMask; None if it keeps every key."""
    mask_mod: Callable[..., Any] | None = getattr(block_mask, "mask_mod", None)
    known = sys.modules.get("torch.nn.attention.flex_attention")  # it made the block_mask
    return None if mask_mod is getattr(known, "noop_mask", None) else mask_mod


def computed(score_mod: Callable[..., Any] | None, mask_mod: Callable[..., Any] | None,
              blocks: Blocks | None, query: Tensor, key: Tensor, value: Tensor, scale: float | None
              ) -> tuple[Tensor, Tensor]:
    """Returns (out, lse)."""
    gradient = wants_gradient((query, key, value))
    mods = Mods(None, None, ())
    if score_mod is not None or blocks is not None:
        mods = trace_mods(score_mod, mask_mod, gradient, query.device, blocks)
    captures = (*mods.captures, *(None,) * (len(CAPTURES) - len(mods.captures)))
    deterministic = 1 if torch.are_deterministic_algorithms_enabled() else None
    options = options_of(softmax_scale=None if scale is None else float(scale),
                         score_mod=mods.score_mod, mask_mod=mods.mask_mod,
                         deterministic=deterministic)
    if gradient:
        out, lse = _FlexAttention.apply(options, *each_once((query, key, value, *captures)))
        return out, lse
    return _forward(options, query, key, value, captures)


# ---- the function --------------------------------------------------------------------------------


def _check(query: Tensor, key: Tensor, value: Tensor, block_mask: Any, enable_gqa: bool,
           return_lse: bool, kernel_options: Any, return_aux: Any) -> None:
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        raise NotImplementedError("query, key, and value must be 4D tensors")
    if query.shape[3] != key.shape[3]:
        raise ValueError("Expect query and key/value to have the same embedding dimension but got "
                         f"E={query.shape[3]} and E={key.shape[3]}.")
    heads, key_heads = query.shape[1], key.shape[1]
    if not enable_gqa and heads != key_heads:
        raise ValueError("Expect query and key/value to have the same number of heads but got "
                         f"Hq={heads} and Hkv={key_heads}. Try setting enable_gqa=True for GQA.")
    if heads % key_heads != 0:
        raise ValueError("Expect number of query heads to be a multiple of kv heads for GQA but "
                         f"got Hq={heads} and Hkv={key_heads}.")
    if query.shape[0] != key.shape[0] and (block_mask is None or key.shape[0] != 1):
        raise ValueError("Expect query and key/value to have the same batch size, or non-none "
                         f"block_mask, but got Bq={query.shape[0]}, and Bkv={key.shape[0]}.")
    if return_lse and return_aux is not None:
        raise ValueError("Cannot specify both return_lse and return_aux; use "
                         "return_aux=AuxRequest(lse=True)")
    backend = (kernel_options or {}).get("BACKEND", "AUTO")
    if backend != "AUTO":
        raise Unsupported(f'kernel_options["BACKEND"] is "{backend}"; allowed is "AUTO": lathe\'s '
                          "kernels are the only ones here")
    if return_aux is not None and return_aux.max_scores:
        raise Unsupported("return_aux.max_scores is True; allowed is False: kernels keep lse alone")


def flex_attention(query: Tensor, key: Tensor, value: Tensor,
                   score_mod: Callable[..., Any] | None = None, block_mask: Any = None,
                   scale: float | None = None, enable_gqa: bool = False, return_lse: bool = False,
                   kernel_options: Any = None, *, return_aux: Any = None) -> Any:
    """Returns out [B,H,Sq,DV]; with return_lse (out, lse), with return_aux (out, AuxOutput).

    query [B,H,Sq,D], key [B,HK,Sk,D], value [B,HK,Sk,DV]. lse [B,H,Sq] is a natural logarithm and
    can be differentiated. score_mod(score, b, h, q_idx, kv_idx) computes in float32.
    """
    _check(query, key, value, block_mask, enable_gqa, return_lse, kernel_options, return_aux)
    refuse_transforms((query, key, value))  # before a mod is traced, which reads its tensors
    if key.shape[0] != query.shape[0]:
        key = key.expand(query.shape[0], -1, -1, -1)
        value = value.expand(query.shape[0], -1, -1, -1)
    blocks = blocks_of(block_mask, query, key) if block_mask is not None else None
    given = (score_mod, _mask_of(block_mask), blocks, query, key, value, scale)
    if torch.compiler.is_dynamo_compiling() and (score_mod is not None or blocks is not None):
        if _GRAPHS:
            from lathe.torch._mod_compile import in_a_graph
            out, lse = in_a_graph(*given)
        else:
            from lathe.torch._mod_break import outside
            out, lse = outside(computed, *given)
    else:
        out, lse = computed(*given)
    if return_aux is not None:
        from torch.nn.attention.flex_attention import AuxOutput
        return out, AuxOutput(lse=lse if return_aux.lse else None)
    return (out, lse) if return_lse else out
