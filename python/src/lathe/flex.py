# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""flex_attention of torch 2.15 (torch.nn.attention.flex_attention), computed by lathe.

    from lathe.flex import flex_attention
    out = flex_attention(query, key, value, score_mod=lambda score, b, h, q, k: score + bias[h])

score_mod and the mask_mod of a block_mask become text of the device by tracing, and their gradient
that of torch.func.vjp. Tensors that they close over are read by the kernels, up to four. Of a
block_mask only mask_mod is used: lathe finds the blocks itself.
"""
from __future__ import annotations

import ctypes
import types
import weakref
from typing import Any, Callable

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.nn.attention import flex_attention as _torch_flex
from torch.utils._python_dispatch import _disable_current_modes

from lathe._errors import Unsupported
from lathe.torch._mod_trace import Mods, trace_mods
from lathe.torch._calls import Options, count, options_of
from lathe.torch._functions import _CAPTURES, _attention, _attention_bwd
from lathe.torch._tensors import (dense_upstream, no_second_gradient, upstream_or_zeros, usable,
                                  wants_gradient)
from lathe.torch._transforms import refuse_transforms

__all__ = ["flex_attention"]

# Rows of docs/python.md, as lathe.compat describes them.
DROP_INS = (
    ("flex_attention",
     "traced a mod; cast a capture; copied a capture",
     "kernel_options (BACKEND); return_aux (max_scores)"),
)

_noop_mask = getattr(_torch_flex, "noop_mask", None)
_LARGE_BLOCK = getattr(_torch_flex, "_LARGE_SPARSE_BLOCK_SIZE", 1 << 30)
_NONE = (None, None, None, None)


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
        found = _attention_bwd(options, *rows, *_NONE, dout, dense_upstream(dlse), *captures, out,
                               lse)
        gradients = [each.transpose(1, 2) for each in found[:3] if each is not None]
        return (None, *gradients, *_NONE)


def _forward(options: Options, q: Tensor, k: Tensor, v: Tensor, captures: tuple[Tensor | None, ...]
             ) -> tuple[Tensor, Tensor]:
    rows = [usable(each.transpose(1, 2)) for each in (q, k, v)]
    out, lse = _attention(options, *rows, *_NONE, *captures)
    assert out is not None and lse is not None
    out.transpose_(1, 2)  # no view is made, so that callers may change out in place
    return out, lse


# ---- mods ----------------------------------------------------------------------------------------

# Under torch.compile mods are prepared when the caller is traced and lie here by the identity of
# their functions, which id() guards. The compiled code reads the captures from here at each call.
_prepared = types.ModuleType("lathe._prepared_mods")


def _made_outside(name: str, score_mod: int, mask_mod: int, gradient: bool, device: str) -> bool:
    """Prepares the mods of two functions, made outside of what is compiled: their id(), or 0."""
    both = []
    for address in (score_mod, mask_mod):
        given = ctypes.cast(address, ctypes.py_object).value if address else None
        both.append(given)
    # Whatever torch.compile traces with must not see this, but the mods' own trace must.
    with _disable_current_modes(), torch.no_grad():
        setattr(_prepared, name, trace_mods(both[0], both[1], gradient, torch.device(device)))
    for each in both:
        if each is not None:
            weakref.finalize(each, _prepared.__dict__.pop, name, None)
    return True


_prepare: Any = torch._dynamo.assume_constant_result(  # type: ignore[no-untyped-call]
    _made_outside)


def _mods(score_mod: Callable[..., Any] | None, mask_mod: Callable[..., Any] | None, gradient: bool,
          device: torch.device) -> Mods:
    if not torch.compiler.is_dynamo_compiling():
        with temporarily_clear_interpreter_stack():  # a mod is traced outside of torch.func.vmap
            return trace_mods(score_mod, mask_mod, gradient, device)
    first = id(score_mod) if score_mod is not None else 0
    second = id(mask_mod) if mask_mod is not None else 0
    name = f"m{first}_{second}_{gradient}"
    _prepare(name, first, second, gradient, device.type)
    found: Mods = getattr(_prepared, name)
    return found


def _mask_of(block_mask: Any) -> Callable[..., Any] | None:
    """Returns the mask_mod of a BlockMask; None if it has none and keeps every key."""
    if block_mask is None:
        return None
    mask_mod: Callable[..., Any] | None = getattr(block_mask, "mask_mod", None)
    if mask_mod is None or mask_mod is _noop_mask:
        if block_mask.BLOCK_SIZE[0] < _LARGE_BLOCK:
            raise Unsupported("block_mask has blocks and no mask_mod; of a block_mask only "
                              "mask_mod is used here, so make it with one")
        return None
    return mask_mod


_NARROW = (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64)


def _flat(capture: Tensor) -> Tensor:
    """Returns a captured tensor as kernels read it: in one dimension, of a dtype that they have."""
    if capture.dtype not in _NARROW:
        count("cast a capture")
        capture = capture.to(torch.float32 if capture.is_floating_point() else torch.int32)
    if not capture.is_contiguous():
        count("copied a capture")
    return capture.reshape(-1)


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
    gradient = wants_gradient((query, key, value))
    mask_mod = _mask_of(block_mask)
    if score_mod is None and mask_mod is None:
        mods = Mods(None, None, ())
    else:
        mods = _mods(score_mod, mask_mod, gradient, query.device)
    captures = (*[_flat(each) for each in mods.captures],
                *(None,) * (len(_CAPTURES) - len(mods.captures)))
    if key.shape[0] != query.shape[0]:
        key = key.expand(query.shape[0], -1, -1, -1)
        value = value.expand(query.shape[0], -1, -1, -1)
    deterministic = 1 if torch.are_deterministic_algorithms_enabled() else None
    options = options_of(softmax_scale=None if scale is None else float(scale),
                         score_mod=mods.score_mod, mask_mod=mods.mask_mod,
                         deterministic=deterministic)
    if gradient:
        out, lse = _FlexAttention.apply(options, query, key, value, *captures)
    else:
        out, lse = _forward(options, query, key, value, captures)
    if return_aux is not None:
        return out, _torch_flex.AuxOutput(lse=lse if return_aux.lse else None)
    return (out, lse) if return_lse else out
