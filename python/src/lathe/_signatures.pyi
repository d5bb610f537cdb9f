# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
# Written by scripts/docs: change ops/*/schema.cpp, not this file.
"""The types of lathe.run for each operator: its tensors and options, and the names of its results.

A type checker reads this file in place of lathe._run.run, which takes any operator.
"""
from os import PathLike
from typing import Any, Literal, Protocol, Sequence, overload

from lathe._objects import Context, Group, Shard
from lathe._operators import Operator
from lathe._run import Results

class Array(Protocol):
    """An array of NumPy or CuPy, a tensor of torch, or what else has a shape and a dtype."""
    @property
    def shape(self) -> Any: ...
    @property
    def dtype(self) -> Any: ...

class CausalConv1dResults(Results):
    state_pool: Any
    y: Any
    y_0: Any
    y_1: Any
    y_2: Any
    y_3: Any
    y_4: Any
    y_5: Any
    y_6: Any
    y_7: Any
    final_state: Any
    dx: Any
    dweight: Any
    dbias: Any
    dresidual: Any
    dinitial_state: Any

class CausalConv1dUpdateResults(Results):
    state: Any
    y: Any

class FlashAttentionResults(Results):
    out: Any
    lse: Any
    dq: Any
    dk: Any
    dv: Any
    dsinks: Any

class FlashAttentionDecodeResults(Results):
    k_cache: Any
    v_cache: Any
    k_scale: Any
    v_scale: Any
    out: Any
    lse: Any

class FlashAttentionBlockResults(Results):
    out: Any
    lse: Any

class FlashAttentionBlockBwdResults(Results):
    dq: Any
    dk: Any
    dv: Any

class FlashAttentionDeltaResults(Results):
    delta: Any
    dsinks: Any

class LseMergeResults(Results):
    out: Any
    lse: Any
    rounded: Any

class KdaResults(Results):
    state_pool: Any
    saved_values: Any
    saved_states: Any
    o: Any
    final_state: Any
    chunk_states: Any
    dq: Any
    dk: Any
    dv: Any
    dg: Any
    dbeta: Any
    dA_log: Any
    ddt_bias: Any
    dinitial_state: Any

class KdaRecurrentResults(Results):
    state_pool: Any
    ring_k: Any
    ring_u: Any
    ring_g: Any
    ring_count: Any
    o: Any
    final_state: Any

class KdaDecodeResults(Results):
    conv_pool: Any
    state_pool: Any
    ring_k: Any
    ring_u: Any
    ring_g: Any
    ring_count: Any
    o: Any

class SparseFlashAttentionResults(Results):
    out: Any
    softmax_max: Any
    softmax_sum: Any
    lse: Any
    dq: Any
    dk: Any
    dv: Any
    dq_rope: Any
    dk_rope: Any
    dsinks: Any

class ShardResults(Results):
    y: Any
    buffer: Any

class UnshardResults(Results):
    y: Any
    buffer: Any

@overload
def run(op: Literal["causal_conv1d"], *, x: Array, weight: Array, bias: Array | None = None,
        residual: Array | None = None, initial_state: Array | None = None,
        cu_seqlens: Array | None = None, state_pool: Array | None = None,
        state_indices: Array | None = None, source_indices: Array | None = None,
        has_initial_state: Array | None = None, cu_checkpoints: Array | None = None,
        checkpoint_tokens: Array | None = None, checkpoint_slots: Array | None = None,
        dy: Array | None = None, dfinal_state: Array | None = None, y: Array | None = None,
        y_0: Array | None = None, y_1: Array | None = None, y_2: Array | None = None,
        y_3: Array | None = None, y_4: Array | None = None, y_5: Array | None = None,
        y_6: Array | None = None, y_7: Array | None = None, final_state: Array | None = None,
        dx: Array | None = None, dweight: Array | None = None, dbias: Array | None = None,
        dinitial_state: Array | None = None, activation: Literal["none", "silu"] | None = None,
        output_final_state: int | None = None, null_slot: int | None = None,
        split: str | Sequence[int] | None = None, context: Context | None = None,
        stream: Any = None, shard: Shard | None = None, group: Group | None = None,
        flags: Sequence[str] = ()) -> CausalConv1dResults: ...

@overload
def run(op: Literal["causal_conv1d_update"], *, x: Array, weight: Array, state: Array,
        bias: Array | None = None, residual: Array | None = None, cu_seqlens: Array | None = None,
        state_indices: Array | None = None, source_indices: Array | None = None,
        cache_seqlens: Array | None = None, num_accepted_tokens: Array | None = None,
        y: Array | None = None, activation: Literal["none", "silu"] | None = None,
        null_slot: int | None = None, update_state: int | None = None,
        context: Context | None = None, stream: Any = None, shard: Shard | None = None,
        group: Group | None = None, flags: Sequence[str] = ()) -> CausalConv1dUpdateResults: ...

@overload
def run(op: Literal["flash_attention"], *, q: Array, k: Array, v: Array,
        alibi_slopes: Array | None = None, sinks: Array | None = None, q_scale: Array | None = None,
        k_scale: Array | None = None, v_scale: Array | None = None,
        cu_seqlens_q: Array | None = None, cu_seqlens_k: Array | None = None,
        dout: Array | None = None, dlse: Array | None = None, capture_0: Array | None = None,
        capture_1: Array | None = None, capture_2: Array | None = None,
        capture_3: Array | None = None, out: Array | None = None, lse: Array | None = None,
        dq: Array | None = None, dk: Array | None = None, dv: Array | None = None,
        dsinks: Array | None = None, softmax_scale: float | None = None, causal: int | None = None,
        window_left: int | None = None, window_right: int | None = None,
        softcap: float | None = None, deterministic: int | None = None,
        saved_forward: int | None = None, score_mod: str | PathLike[str] | None = None,
        mask_mod: str | PathLike[str] | None = None, scalar_0: float | None = None,
        scalar_1: float | None = None, scalar_2: float | None = None, scalar_3: float | None = None,
        sm_margin: int | None = None, gather_heads: int | None = None,
        head_ranks: int | None = None, dispatch: Literal["auto", "always", "home"] | None = None,
        out_dtype: Literal["none", "bf16", "f16", "f32"] | None = None,
        dispatch_tokens: int | None = None, context: Context | None = None, stream: Any = None,
        shard: Shard | None = None, group: Group | None = None,
        flags: Sequence[str] = ()) -> FlashAttentionResults: ...

@overload
def run(op: Literal["flash_attention_decode"], *, q: Array, k_cache: Array, block_table: Array,
        cache_seqlens: Array, v_cache: Array | None = None, k_new: Array | None = None,
        v_new: Array | None = None, alibi_slopes: Array | None = None, sinks: Array | None = None,
        k_scale: Array | None = None, v_scale: Array | None = None,
        cu_seqlens_q: Array | None = None, leftpad: Array | None = None,
        total_seqlens: Array | None = None, rope_cos: Array | None = None,
        rope_sin: Array | None = None, rope_positions: Array | None = None,
        capture_0: Array | None = None, capture_1: Array | None = None,
        capture_2: Array | None = None, capture_3: Array | None = None, out: Array | None = None,
        lse: Array | None = None, softmax_scale: float | None = None, causal: int | None = None,
        window_left: int | None = None, window_right: int | None = None,
        softcap: float | None = None, deterministic: int | None = None,
        score_mod: str | PathLike[str] | None = None, mask_mod: str | PathLike[str] | None = None,
        scalar_0: float | None = None, scalar_1: float | None = None, scalar_2: float | None = None,
        scalar_3: float | None = None, num_splits: int | None = None, key_stride: int | None = None,
        key_offset: int | None = None, row_format: Literal["none", "e4m3_656"] | None = None,
        rope_interleaved: int | None = None, context: Context | None = None, stream: Any = None,
        shard: Shard | None = None, group: Group | None = None,
        flags: Sequence[str] = ()) -> FlashAttentionDecodeResults: ...

@overload
def run(op: Literal["flash_attention_block"], *, q: Array, k: Array, v: Array, out: Array,
        lse: Array, ranges: Array | None = None, range_batch: Array | None = None,
        q_pos: Array | None = None, k_pos: Array | None = None, alibi_slopes: Array | None = None,
        capture_0: Array | None = None, capture_1: Array | None = None,
        capture_2: Array | None = None, capture_3: Array | None = None,
        softmax_scale: float | None = None, causal: int | None = None,
        window_left: int | None = None, window_right: int | None = None,
        softcap: float | None = None, first: int | None = None, sm_margin: int | None = None,
        score_mod: str | PathLike[str] | None = None, mask_mod: str | PathLike[str] | None = None,
        scalar_0: float | None = None, scalar_1: float | None = None, scalar_2: float | None = None,
        scalar_3: float | None = None, context: Context | None = None, stream: Any = None,
        shard: Shard | None = None, group: Group | None = None,
        flags: Sequence[str] = ()) -> FlashAttentionBlockResults: ...

@overload
def run(op: Literal["flash_attention_block_bwd"], *, q: Array, k: Array, v: Array, dout: Array,
        lse: Array, delta: Array, dq: Array, dk: Array, dv: Array, ranges: Array | None = None,
        range_batch: Array | None = None, q_pos: Array | None = None, k_pos: Array | None = None,
        alibi_slopes: Array | None = None, capture_0: Array | None = None,
        capture_1: Array | None = None, capture_2: Array | None = None,
        capture_3: Array | None = None, softmax_scale: float | None = None,
        causal: int | None = None, window_left: int | None = None, window_right: int | None = None,
        softcap: float | None = None, deterministic: int | None = None, first: int | None = None,
        first_keys: int | None = None, sm_margin: int | None = None,
        score_mod: str | PathLike[str] | None = None, mask_mod: str | PathLike[str] | None = None,
        scalar_0: float | None = None, scalar_1: float | None = None, scalar_2: float | None = None,
        scalar_3: float | None = None, context: Context | None = None, stream: Any = None,
        shard: Shard | None = None, group: Group | None = None,
        flags: Sequence[str] = ()) -> FlashAttentionBlockBwdResults: ...

@overload
def run(op: Literal["flash_attention_delta"], *, out: Array, dout: Array, lse: Array,
        dlse: Array | None = None, sinks: Array | None = None, delta: Array | None = None,
        dsinks: Array | None = None, context: Context | None = None, stream: Any = None,
        shard: Shard | None = None, group: Group | None = None,
        flags: Sequence[str] = ()) -> FlashAttentionDeltaResults: ...

@overload
def run(op: Literal["lse_merge"], *, out: Array, lse: Array, block_out: Array | None = None,
        block_lse: Array | None = None, sinks: Array | None = None, rounded: Array | None = None,
        output_rounded: int | None = None, context: Context | None = None, stream: Any = None,
        shard: Shard | None = None, group: Group | None = None,
        flags: Sequence[str] = ()) -> LseMergeResults: ...

@overload
def run(op: Literal["kda"], *, q: Array, k: Array, v: Array, g: Array, beta: Array,
        A_log: Array | None = None, dt_bias: Array | None = None,
        initial_state: Array | None = None, cu_seqlens: Array | None = None,
        state_pool: Array | None = None, state_indices: Array | None = None,
        source_indices: Array | None = None, has_initial_state: Array | None = None,
        cu_checkpoints: Array | None = None, checkpoint_tokens: Array | None = None,
        checkpoint_slots: Array | None = None, do: Array | None = None, dht: Array | None = None,
        saved_values: Array | None = None, saved_states: Array | None = None,
        o: Array | None = None, final_state: Array | None = None, chunk_states: Array | None = None,
        dq: Array | None = None, dk: Array | None = None, dv: Array | None = None,
        dg: Array | None = None, dbeta: Array | None = None, dA_log: Array | None = None,
        ddt_bias: Array | None = None, dinitial_state: Array | None = None,
        scale: float | None = None, chunk_size: int | None = None,
        use_qk_l2norm_in_kernel: int | None = None, use_gate_in_kernel: int | None = None,
        use_beta_sigmoid_in_kernel: int | None = None, allow_neg_eigval: int | None = None,
        safe_gate: int | None = None, lower_bound: float | None = None,
        state_v_first: int | None = None, output_final_state: int | None = None,
        null_slot: int | None = None, output_chunk_states: int | None = None,
        disable_recompute: int | None = None, segments: int | None = None,
        warmup_segments: int | None = None, deterministic: int | None = None,
        context: Context | None = None, stream: Any = None, shard: Shard | None = None,
        group: Group | None = None, flags: Sequence[str] = ()) -> KdaResults: ...

@overload
def run(op: Literal["kda_recurrent"], *, q: Array, k: Array, v: Array, g: Array, beta: Array,
        A_log: Array | None = None, dt_bias: Array | None = None,
        initial_state: Array | None = None, cu_seqlens: Array | None = None,
        state_pool: Array | None = None, state_indices: Array | None = None,
        source_indices: Array | None = None, has_initial_state: Array | None = None,
        num_accepted_tokens: Array | None = None, ring_k: Array | None = None,
        ring_u: Array | None = None, ring_g: Array | None = None, ring_count: Array | None = None,
        o: Array | None = None, final_state: Array | None = None, scale: float | None = None,
        use_qk_l2norm_in_kernel: int | None = None, use_gate_in_kernel: int | None = None,
        use_beta_sigmoid_in_kernel: int | None = None, allow_neg_eigval: int | None = None,
        safe_gate: int | None = None, lower_bound: float | None = None,
        state_v_first: int | None = None, output_final_state: int | None = None,
        null_slot: int | None = None, update_state: int | None = None, append: int | None = None,
        context: Context | None = None, stream: Any = None, shard: Shard | None = None,
        group: Group | None = None, flags: Sequence[str] = ()) -> KdaRecurrentResults: ...

@overload
def run(op: Literal["kda_decode"], *, qkv: Array, conv_weight: Array, conv_pool: Array, g: Array,
        beta: Array, state_pool: Array, state_indices: Array, A_log: Array | None = None,
        dt_bias: Array | None = None, conv_bias: Array | None = None,
        source_indices: Array | None = None, output_gate: Array | None = None,
        norm_weight: Array | None = None, ring_k: Array | None = None, ring_u: Array | None = None,
        ring_g: Array | None = None, ring_count: Array | None = None, o: Array | None = None,
        scale: float | None = None, use_qk_l2norm_in_kernel: int | None = None,
        use_gate_in_kernel: int | None = None, use_beta_sigmoid_in_kernel: int | None = None,
        allow_neg_eigval: int | None = None, safe_gate: int | None = None,
        lower_bound: float | None = None, state_v_first: int | None = None,
        null_slot: int | None = None, update_state: int | None = None, append: int | None = None,
        activation: Literal["silu", "none"] | None = None, norm_eps: float | None = None,
        gate_activation: Literal["sigmoid", "silu"] | None = None, context: Context | None = None,
        stream: Any = None, shard: Shard | None = None, group: Group | None = None,
        flags: Sequence[str] = ()) -> KdaDecodeResults: ...

@overload
def run(op: Literal["sparse_flash_attention"], *, q: Array, k: Array, indices: Array,
        v: Array | None = None, q_rope: Array | None = None, k_rope: Array | None = None,
        cu_seqlens_q: Array | None = None, cu_seqlens_k: Array | None = None,
        q_pos: Array | None = None, sinks: Array | None = None, topk_length: Array | None = None,
        k_extra: Array | None = None, indices_extra: Array | None = None,
        topk_length_extra: Array | None = None, dout: Array | None = None, out: Array | None = None,
        softmax_max: Array | None = None, softmax_sum: Array | None = None,
        lse: Array | None = None, dq: Array | None = None, dk: Array | None = None,
        dv: Array | None = None, dq_rope: Array | None = None, dk_rope: Array | None = None,
        dsinks: Array | None = None, scale: float | None = None, block_size: int | None = None,
        sparse_mode: int | None = None, index_space: Literal["sequence", "absolute"] | None = None,
        num_splits: int | None = None, deterministic: int | None = None,
        sinks_in_statistics: int | None = None,
        row_format: Literal["none", "e4m3_656"] | None = None, saved_forward: int | None = None,
        context: Context | None = None, stream: Any = None, shard: Shard | None = None,
        group: Group | None = None, flags: Sequence[str] = ()) -> SparseFlashAttentionResults: ...

@overload
def run(op: Literal["shard"], *, indices: Array, x: Array | None = None, y: Array | None = None,
        buffer: Array | None = None, axis: int | None = None, context: Context | None = None,
        stream: Any = None, shard: Shard | None = None, group: Group | None = None,
        flags: Sequence[str] = ()) -> ShardResults: ...

@overload
def run(op: Literal["unshard"], *, indices: Array, x: Array | None = None, y: Array | None = None,
        buffer: Array | None = None, axis: int | None = None, context: Context | None = None,
        stream: Any = None, shard: Shard | None = None, group: Group | None = None,
        flags: Sequence[str] = ()) -> UnshardResults: ...

@overload
def run(op: Operator, *, context: Context | None = None, stream: Any = None,
        shard: Shard | None = None, group: Group | None = None, flags: Sequence[str] = (),
        **given: Any) -> Results: ...
