# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Softmax attention as flash-attention's packages call it: what their modules here share.

Options are made from a caller's window, scale and softcap; widths that are no multiple of 8 are
padded; packed keys and values get one gradient, which the kernel writes in place.
"""
from __future__ import annotations

from typing import Any, Sequence, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from lathe._errors import InvalidArgument, Unsupported
from lathe.torch._calls import Options, count
from lathe.torch._gradients import FlashAttention
from lathe.torch._operator_calls import CAPTURES, FLASH_ATTENTION, FLASH_ATTENTION_BWD
from lathe.torch._tensors import (computed, dense, each_once, laid, no_second_gradient,
                                  upstream_or_zeros, usable, wants_gradient)

_Two = tuple[Tensor, Tensor]

NO_CAPTURES = (None,) * len(CAPTURES)
_GRANULE = 8  # widths are multiples of it
_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)

# ---- arguments -----------------------------------------------------------------------------------


def refuse(name: str, value: Any, remedy: str) -> None:
    """Raises Unsupported for an argument that would change the results."""
    if isinstance(value, Tensor):
        value = f"a tensor {list(value.shape)} of {value.dtype}"
    raise Unsupported(f"{name} is {value}, which nothing here computes; {remedy}")


_FLEX = "lathe.flex.flex_attention takes functions of torch in its place"
_SPARSE = "lathe.torch.sparse_flash_attention takes lists of keys, and q_rope and k_rope"
_ROTATE = "rotate q and k before the call, and append the rotated k"
_REMEDIES = {
    "rotary_cos": _ROTATE, "rotary_sin": _ROTATE, "qv": _SPARSE, "q_v": _SPARSE,
    "gather_kv_indices": _SPARSE, "gather_kv_valid_length": _SPARSE,
    "score_mod": _FLEX, "score_mod_bwd": _FLEX, "mask_mod": _FLEX,
    "aux_tensors": _FLEX, "aux_scalars": _FLEX, "block_sparse_tensors": _FLEX,
    "block_sparse_tensors_bwd": _FLEX,
    "cache_leftpad": "move the keys to the start of the cache",
    "attention_chunk": "cut the sequences into chunks with cu_seqlens",
    "output_scale": "keep the result in 16 bits",
    "dynamic_causal": "give causal",
    "dropout_p": "give 0.0, and drop elements of the result instead",
}


def _refuse_given(given: dict[str, Any]) -> None:
    """Raises Unsupported for the first argument of _REMEDIES that is neither None nor empty."""
    for name, value in given.items():
        if value is not None and (isinstance(value, Tensor) or value):
            refuse(name, value, _REMEDIES[name])


def refuse_float8(**tensors: Tensor) -> None:
    """Raises Unsupported for 8-bit inputs. With others the peers ignore descales, and so do we."""
    for name, tensor in tensors.items():
        if tensor.dtype in _FLOAT8:
            refuse(name, tensor, "convert q, k and v to bfloat16 or float16, with their descales")


def _bounds(window: Any) -> tuple[int, int]:
    """Returns a window's two bounds; None and negative ones are -1."""
    try:
        left, right = (-1, -1) if window is None else window
        left, right = (-1 if each is None else int(each) for each in (left, right))
    except (TypeError, ValueError):
        raise InvalidArgument(f"window_size is {window!r}; allowed are two integers, left and "
                              "right, of which None or -1 is no bound") from None
    return left, right


def options_for(softmax_scale: float | None, causal: bool, window: Sequence[Any] | None,
                softcap: float | None, deterministic: bool = False, **refused: Any) -> Options:
    """Returns the operator's options. A bound that is None or negative is no bound.

    refused: arguments of _REMEDIES, of which nothing may be given.
    """
    _refuse_given(refused)
    found: list[tuple[str, Any]] = []
    if softmax_scale is not None:
        found.append(("softmax_scale", float(softmax_scale)))
    if causal:
        found.append(("causal", 1))
    left, right = _bounds(window)
    if left >= 0:
        found.append(("window_left", left))
    if right >= 0 and not causal:
        found.append(("window_right", right))
    if softcap is not None and not softcap <= 0.0:  # the operator refuses nan
        found.append(("softcap", float(softcap)))
    if deterministic or torch.are_deterministic_algorithms_enabled():
        found.append(("deterministic", 1))
    return tuple(found)


def float_sinks(sinks: Tensor | None) -> Tensor | None:
    """Returns the sinks in float32; their gradient gets their dtype again."""
    if sinks is None or sinks.dtype == torch.float32:
        return sinks
    count("cast sinks to float32")
    return sinks.float()


# ---- widths --------------------------------------------------------------------------------------


def is_odd(first: Tensor, second: Tensor) -> bool:
    """Returns true if one's width is no multiple of 8, which kernels need."""
    return bool(first.shape[-1] % _GRANULE or second.shape[-1] % _GRANULE)


def padded(tensor: Tensor) -> Tensor:
    """Returns the tensor with columns of 0 up to a multiple of 8."""
    more = -tensor.shape[-1] % _GRANULE
    if not more:
        return tensor
    count("padded to a width that is a multiple of 8")
    return F.pad(tensor, (0, more))


def with_scale(options: Options, width: int) -> Options:
    """Returns the options with a scale, for this width unless they have one."""
    if any(name == "softmax_scale" for name, _ in options):
        return options
    return (("softmax_scale", width**-0.5), *options)


def narrowed(out: Tensor, width: int) -> Tensor:
    """Returns the first columns of a result. It is a copy, as callers change results in place."""
    return out if out.shape[-1] == width else out[..., :width].contiguous()


# ---- calls ---------------------------------------------------------------------------------------


def attend(options: Options, q: Tensor, k: Tensor, v: Tensor, slopes: Tensor | None = None,
           sinks: Tensor | None = None, cu_q: Tensor | None = None, cu_k: Tensor | None = None,
           out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Returns (out, lse), both differentiable; a given `out` is written, without gradients."""
    if is_odd(q, v):
        return _attend_odd(options, q, k, v, slopes, sinks, cu_q, cu_k, out)
    tensors = (q, k, v, slopes, sinks, cu_q, cu_k, *NO_CAPTURES)
    if out is not None:
        lse = q.new_empty(lse_shape(q, cu_q), dtype=torch.float32)
        FLASH_ATTENTION.into(options, laid(FLASH_ATTENTION, tensors), (out, lse))
        return out, lse
    return cast(_Two, computed(FLASH_ATTENTION, FlashAttention, options, tensors))


def lse_shape(q: Tensor, cu_q: Tensor | None) -> tuple[int, ...]:
    """Returns [B,H,Sq], or [H,Tq] of packed queries."""
    if cu_q is not None:
        return (q.shape[1], q.shape[0])
    return (q.shape[0], q.shape[2], q.shape[1])


def _attend_odd(options: Options, q: Tensor, k: Tensor, v: Tensor, slopes: Tensor | None,
                sinks: Tensor | None, cu_q: Tensor | None, cu_k: Tensor | None, out: Tensor | None
                ) -> tuple[Tensor, Tensor]:
    wide, lse = attend(with_scale(options, q.shape[-1]), padded(q), padded(k), padded(v), slopes,
                       sinks, cu_q, cu_k)
    if out is None:
        return narrowed(wide, v.shape[-1]), lse
    count("copied into the given out")
    return out.copy_(wide[..., :v.shape[-1]]), lse


# ---- packed keys and values ----------------------------------------------------------------------


def _parts(q: Tensor | None, packed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns q, k, v: views of [.., 3, H, D], or q and views of [.., 2, H, D]."""
    if q is None:
        return packed.unbind(-3)  # type: ignore[return-value]
    k, v = packed.unbind(-3)
    return q, k, v


class _Packed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, options: Options, q: Tensor | None, packed: Tensor,
                *others: Tensor | None) -> Any:
        slopes, cu_q, cu_k = others
        out, lse = FLASH_ATTENTION(options, *_parts(q, packed), slopes, None, cu_q, cu_k,
                                   *NO_CAPTURES)
        ctx.save_for_backward(q, packed, slopes, cu_q, cu_k, out, lse)
        ctx.options = options
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    @no_second_gradient
    def backward(ctx: Any, saved: Any, dout: Tensor | None, dlse: None) -> Any:
        q, packed, slopes, cu_q, cu_k, out, lse = saved
        dout = upstream_or_zeros(dout, out)
        dq = None if q is None else torch.empty_like(q, memory_format=torch.contiguous_format)
        dpacked = torch.empty_like(packed, memory_format=torch.contiguous_format)
        q, k, v = _parts(q, packed)
        tensors = FLASH_ATTENTION_BWD.ordered(q=q, k=k, v=v, alibi_slopes=slopes, cu_seqlens_q=cu_q,
                                              cu_seqlens_k=cu_k, dout=dout, out=out, lse=lse)
        FLASH_ATTENTION_BWD.into((*ctx.options, ("saved_forward", 1)), tensors,
                                 (*_parts(dq, dpacked), None))
        return None, dq, dpacked, None, None, None


def attend_packed(options: Options, q: Tensor | None, packed: Tensor, slopes: Tensor | None = None,
                  cu_q: Tensor | None = None, cu_k: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Returns (out, lse) for [.., 2, HK, D] and q, or for [.., 3, H, D]. lse has no gradient."""
    width = packed.shape[-1]
    if is_odd(packed, packed):
        options = with_scale(options, width)
        q, packed = None if q is None else padded(q), padded(packed)
    q, packed = None if q is None else usable(q), usable(packed)
    others = (dense(slopes), dense(cu_q), dense(cu_k))
    if wants_gradient((q, packed)):
        out, lse = _Packed.apply(options, *each_once((q, packed, *others)))
    else:
        slopes, cu_q, cu_k = others
        out, lse = FLASH_ATTENTION(options, *_parts(q, packed), slopes, None, cu_q, cu_k,
                                   *NO_CAPTURES)
    return narrowed(out, width), lse
