# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The operators as Calls: which inputs each takes and which outputs are wanted of it.

A Call here is torch.ops.lathe's operator of the same name. lathe.torch's functions are made of
them, and so are lathe.flex, lathe.nn and lathe.compat.
"""
from __future__ import annotations

from lathe.torch._calls import Call

# ---- causal convolution --------------------------------------------------------------------------

_CONV = ("x", "weight", "bias", "residual", "initial_state", "cu_seqlens")
_CONV_ROWS = ("x", "residual")

CAUSAL_CONV1D = Call("causal_conv1d", "causal_conv1d", _CONV, ("y",), rows=_CONV_ROWS)
CAUSAL_CONV1D_FINAL = Call("causal_conv1d_final", "causal_conv1d", _CONV, ("y", "final_state"),
                           rows=_CONV_ROWS)
CAUSAL_CONV1D_BWD = Call("causal_conv1d_bwd", "causal_conv1d", (*_CONV, "dy", "dfinal_state"),
                         ("dx", "dweight", "dbias", "dinitial_state"), rows=(*_CONV_ROWS, "dy"))
# A pool's states change in place, so a call over a pool has no final state, and no gradient.
_SLOTS = ("state_pool", "state_indices", "source_indices", "has_initial_state")
_CHECKPOINTS = ("cu_checkpoints", "checkpoint_tokens", "checkpoint_slots")
_CONV_PARTS = tuple(f"y_{part}" for part in range(8))
CAUSAL_CONV1D_POOL = Call("causal_conv1d_pool", "causal_conv1d", (*_CONV, *_SLOTS, *_CHECKPOINTS),
                          ("y",), rows=_CONV_ROWS)
CAUSAL_CONV1D_PARTS = Call("causal_conv1d_parts", "causal_conv1d",
                           (*_CONV, *_SLOTS, *_CHECKPOINTS), _CONV_PARTS, rows=_CONV_ROWS)
CAUSAL_CONV1D_PARTS_FINAL = Call("causal_conv1d_parts_final", "causal_conv1d", _CONV,
                                 (*_CONV_PARTS, "final_state"), rows=_CONV_ROWS)
CAUSAL_CONV1D_UPDATE = Call("causal_conv1d_update", "causal_conv1d_update",
                            ("x", "weight", "bias", "residual", "state", "cu_seqlens",
                             "state_indices", "source_indices", "cache_seqlens",
                             "num_accepted_tokens"), ("y",), rows=_CONV_ROWS)

# ---- Kimi Delta Attention ------------------------------------------------------------------------

_KDA_ROWS = ("q", "k", "v", "g", "beta")
_KDA_ONLY = (*_KDA_ROWS, "A_log", "dt_bias", "initial_state", "cu_seqlens")
_SAVED = ("saved_values", "saved_states")  # what a forward leaves to its backward
_KDA = (*_KDA_ONLY, *_SAVED)
_RINGS = ("ring_k", "ring_u", "ring_g", "ring_count")
_POOL = (*_SLOTS, "num_accepted_tokens", *_RINGS)

KDA = Call("kda", "kda", _KDA, ("o",), rows=_KDA_ROWS)
KDA_FINAL = Call("kda_final", "kda", _KDA, ("o", "final_state"), rows=_KDA_ROWS)
KDA_CHUNKS = Call("kda_chunks", "kda", _KDA, ("o", "chunk_states"), rows=_KDA_ROWS)
KDA_FINAL_CHUNKS = Call("kda_final_chunks", "kda", _KDA, ("o", "final_state", "chunk_states"),
                        rows=_KDA_ROWS)
_KDA_POOL = (*_KDA_ONLY, *_SLOTS, *_CHECKPOINTS)
KDA_POOL = Call("kda_pool", "kda", _KDA_POOL, ("o",), into=True, rows=_KDA_ROWS)
KDA_POOL_CHUNKS = Call("kda_pool_chunks", "kda", _KDA_POOL, ("o", "chunk_states"), rows=_KDA_ROWS)
KDA_BWD = Call("kda_bwd", "kda", (*_KDA_ONLY, "do", "dht", *_SAVED),
               ("dq", "dk", "dv", "dg", "dbeta", "dA_log", "ddt_bias", "dinitial_state"),
               rows=(*_KDA_ROWS, "do"))
KDA_RECURRENT = Call("kda_recurrent", "kda_recurrent", (*_KDA_ONLY, *_POOL), ("o",), into=True,
                     rows=(*_KDA_ROWS, "initial_state"))
KDA_RECURRENT_FINAL = Call("kda_recurrent_final", "kda_recurrent", _KDA_ONLY, ("o", "final_state"),
                           rows=(*_KDA_ROWS, "initial_state"))

KDA_DECODE = Call("kda_decode", "kda_decode",
                  ("qkv", "conv_weight", "conv_pool", "g", "beta", "A_log", "dt_bias", "conv_bias",
                   "state_pool", "state_indices", "source_indices", "output_gate", "norm_weight",
                   *_RINGS), ("o",), into=True, rows=("qkv", "g", "beta", "output_gate"))

# ---- flash attention -----------------------------------------------------------------------------

CAPTURES = ("capture_0", "capture_1", "capture_2", "capture_3")
_ATTENTION_ROWS = ("q", "k", "v")
_ATTENTION = (*_ATTENTION_ROWS, "alibi_slopes", "sinks", "cu_seqlens_q", "cu_seqlens_k")

FLASH_ATTENTION = Call("flash_attention", "flash_attention", (*_ATTENTION, *CAPTURES),
                       ("out", "lse"), rows=_ATTENTION_ROWS, into=True)
# Over float8_e4m3fn, which has no gradient.
FLASH_ATTENTION_NARROW = Call("flash_attention_narrow", "flash_attention",
                              (*_ATTENTION[:5], "q_scale", "k_scale", "v_scale", *_ATTENTION[5:],
                               *CAPTURES), ("out", "lse"))
FLASH_ATTENTION_BWD = Call("flash_attention_bwd", "flash_attention",
                           (*_ATTENTION, "dout", "dlse", *CAPTURES, "out", "lse"),
                           ("dq", "dk", "dv", "dsinks"), rows=(*_ATTENTION_ROWS, "dout", "out"),
                           into=True)
# What a call of decoding may have beside its pages.
_SERVED = ("k_scale", "v_scale", "cu_seqlens_q", "leftpad", "total_seqlens", "rope_cos", "rope_sin",
           "rope_positions")
NOT_SERVED = (None,) * len(_SERVED)
FLASH_ATTENTION_DECODE = Call("flash_attention_decode", "flash_attention_decode",
                              ("q", "k_cache", "v_cache", "block_table", "cache_seqlens", "k_new",
                               "v_new", "alibi_slopes", "sinks", *_SERVED, *CAPTURES),
                              ("out", "lse"), rows=("q", "k_new", "v_new"), into=True)

# ---- sparse flash attention ----------------------------------------------------------------------

_SPARSE_ROWS = ("q", "k", "v", "q_rope", "k_rope", "indices")
_SPARSE = (*_SPARSE_ROWS, "cu_seqlens_q", "cu_seqlens_k", "q_pos", "sinks", "topk_length",
           "k_extra", "indices_extra", "topk_length_extra")

SPARSE_FLASH_ATTENTION = Call("sparse_flash_attention", "sparse_flash_attention", _SPARSE,
                              ("out", "softmax_max", "softmax_sum", "lse"), rows=_SPARSE_ROWS)
SPARSE_FLASH_ATTENTION_BWD = Call("sparse_flash_attention_bwd", "sparse_flash_attention",
                                  (*_SPARSE, "dout", "out", "lse"),
                                  ("dq", "dk", "dv", "dq_rope", "dk_rope", "dsinks"),
                                  rows=(*_SPARSE_ROWS, "dout", "out"))
