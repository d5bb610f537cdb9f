# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
# Written by scripts/docs: change ops/*/schema.cpp or torch/_functions.py, not this file.
"""The functions of lathe.torch as callers see them: each tensor and option with its type and text.

help(), inspect.signature, editors and type checkers read this file; calls go to _functions.py.
"""
from os import PathLike
from typing import Any, Literal, Sequence

from torch import Tensor

from lathe.torch._calls import Over


def causal_conv1d(x: Tensor, weight: Tensor, bias: Tensor | None = None, *,
                  residual: Tensor | None = None, initial_state: Tensor | None = None,
                  cu_seqlens: Tensor | None = None, output_final_state: bool = False,
                  over: Over | None = None, state_pool: Tensor | None = None,
                  state_indices: Tensor | None = None, source_indices: Tensor | None = None,
                  has_initial_state: Tensor | None = None, cu_checkpoints: Tensor | None = None,
                  checkpoint_tokens: Tensor | None = None, checkpoint_slots: Tensor | None = None,
                  activation: Literal["none", "silu"] = "none", null_slot: int = -1,
                  split: str | Sequence[int] | None = None
                  ) -> tuple[Any, Tensor | None]:
    """Returns (y, final_state): x [B,T,D] convolved along T with weight [D,W].

    With split, y is a tuple of its parts, each contiguous; where a gradient is wanted they are
    views of one result. A pool of states is changed in place, and has no gradient and no final
    state. Neither has a group.

    Args:
        x: [B,T,D]. The input; its dtype is that of all activations and states.
        weight: [D,W]. Taps, oldest first; W is 2 to 8.
        bias: [D]. Added before the activation.
        residual: [B,T,D]. Added after the activation.
        initial_state: [N,D,W]. The last W inputs before each sequence.
        cu_seqlens: [N+1]. Offsets of packed sequences; B is then 1.
        output_final_state: Whether final_state is computed and returned.
        over: The ranks that share the sequence, lathe.torch.Ranks; each calls with its own tokens.
        state_pool: [S,D,LS]. In place of initial_state and final_state: the last W or W - 1 inputs
            before each sequence in a slot, changed in place; slots that nobody names are not
            touched.
        state_indices: [N]. The slot of each sequence, in place of initial_state and final_state;
            below 0 or null_slot: padding.
        source_indices: [N]. The slot that each sequence reads in place of the one that it writes;
            below 0 or null_slot: its state before is 0.
        has_initial_state: [N]. 0: the state before a sequence is 0, and no slot is read for it.
        cu_checkpoints: [N+1]. Offsets of each sequence's checkpoints.
        checkpoint_tokens: [C]. After so many tokens of its sequence, 0 to its length, the state
            goes to a slot of its own too.
        checkpoint_slots: [C]. The slots of checkpoints; below 0 or null_slot: none is written.
        activation: The activation after the filter. Allowed: none, silu.
        null_slot: A slot that stands for padding wherever it is named, as those below 0 do.
            Allowed: -1, [-2147483648,2147483648).
        split: Channels of each of up to 8 results y_0, y_1, ... in place of y, such as 16,16,32.
            Allowed: whole numbers, None.
    """
    raise NotImplementedError


def causal_conv1d_update(x: Tensor, state: Tensor, weight: Tensor, bias: Tensor | None = None, *,
                         residual: Tensor | None = None, cu_seqlens: Tensor | None = None,
                         state_indices: Tensor | None = None, source_indices: Tensor | None = None,
                         cache_seqlens: Tensor | None = None,
                         num_accepted_tokens: Tensor | None = None,
                         activation: Literal["none", "silu"] = "none", null_slot: int = -1,
                         update_state: bool = True
                         ) -> Tensor:
    """Returns y, shaped as x, and rolls state in place. Has no gradient.

    Args:
        x: [B,T,D] or [B,D]. One token for each sequence, or T of them; with cu_seqlens rows of
            packed sequences.
        state: [S,D,LS]. The last inputs of each sequence, the newest at the right end, rolled in
            place: W of them, more, or W - 1.
        weight: [D,W]. Taps, oldest first; W is 2 to 8.
        bias: [D]. Added before the activation.
        residual: [B,T,D] or [B,D]. Added after the activation.
        cu_seqlens: [N+1]. Offsets of packed sequences.
        state_indices: [N]. The slot of state that each sequence writes, and reads; below 0 or
            null_slot: padding, whose y is 0. Without it sequence n has slot n.
        source_indices: [N]. The slot that each sequence reads; padding: zeros before.
        cache_seqlens: [N]. The state is a ring: token t of the call goes to column (cache_seqlens +
            t) % LS.
        num_accepted_tokens: [N]. How many tokens of the last call count, at least 1: column W - 2 +
            j holds token j of it, and this call's tokens follow those that count.
        activation: The activation after the filter. Allowed: none, silu.
        null_slot: A slot that stands for padding wherever it is named, as those below 0 do.
            Allowed: -1, [-2147483648,2147483648).
        update_state: 0: state is only read, and comes out as it went in.
    """
    raise NotImplementedError


def kda(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, *, A_log: Tensor | None = None,
        dt_bias: Tensor | None = None, initial_state: Tensor | None = None,
        cu_seqlens: Tensor | None = None, output_final_state: bool = False,
        output_chunk_states: bool = False, over: Over | None = None,
        state_pool: Tensor | None = None, state_indices: Tensor | None = None,
        source_indices: Tensor | None = None, has_initial_state: Tensor | None = None,
        cu_checkpoints: Tensor | None = None, checkpoint_tokens: Tensor | None = None,
        checkpoint_slots: Tensor | None = None, out: Tensor | None = None,
        scale: float | None = None, chunk_size: int = 64, use_qk_l2norm_in_kernel: bool = False,
        use_gate_in_kernel: bool = False, use_beta_sigmoid_in_kernel: bool = False,
        allow_neg_eigval: bool = False, safe_gate: bool = False, lower_bound: float | None = None,
        state_v_first: bool = False, null_slot: int = -1, disable_recompute: bool = False,
        segments: int = 0, warmup_segments: int = 0, deterministic: bool = True
        ) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Returns (o, final_state, chunk_states) of chunked Kimi Delta Attention.

    A pool of states is changed in place. Such a call has no final state, no gradient and no group;
    it writes `out` if that is given.

    Args:
        q: [B,T,H,K]. Queries; their dtype is that of keys, values and o.
        k: [B,T,H,K]. Keys.
        v: [B,T,HV,V]. Values; HV is a multiple of H.
        g: [B,T,HV,K]. The decay's natural logarithm, or the raw gate.
        beta: [B,T,HV]. The step of the delta rule, or its logit.
        A_log: [HV]. The logarithm of the gate's rate, with use_gate_in_kernel.
        dt_bias: [HV*K]. Added to the raw gate, with use_gate_in_kernel.
        initial_state: [N,HV,K,V] or [N,HV,V,K]. The state before each sequence; without it, 0.
        cu_seqlens: [N+1]. Offsets of packed sequences; B is then 1.
        output_final_state: Whether final_state is computed and returned.
        output_chunk_states: Whether chunk_states are computed and returned.
        over: The ranks that share the sequence, lathe.torch.Ranks; each calls with its own tokens.
        state_pool: [S,HV,K,V] or [S,HV,V,K]. States in slots, changed in place; slots that nobody
            names are not touched. Of 16 bits: rounded where they are written, and float32 in
            between.
        state_indices: [N]. The slot of each sequence, in place of initial_state and final_state;
            below 0 or null_slot: padding.
        source_indices: [N]. The slot that each sequence reads in place of the one that it writes;
            below 0 or null_slot: its state before is 0.
        has_initial_state: [N]. 0: the state before a sequence is 0, and no slot is read for it.
        cu_checkpoints: [N+1]. Offsets of each sequence's checkpoints.
        checkpoint_tokens: [C]. After so many tokens of its sequence, 0 to its length, the state
            goes to a slot of its own too.
        checkpoint_slots: [C]. The slots of checkpoints; below 0 or null_slot: none is written.
        out: Where o is written, if there is no final state. Its rows are contiguous.
        scale: o is multiplied by it. Allowed: >0, None: K^-0.5.
        chunk_size: How many tokens lie between two of chunk_states; nothing else depends on it.
            Allowed: 64, 16, 32.
        use_qk_l2norm_in_kernel: Whether rows of q and k are divided by their norms.
        use_gate_in_kernel: Whether g is the raw gate; lower_bound chooses the formula.
        use_beta_sigmoid_in_kernel: Whether beta is a logit.
        allow_neg_eigval: 1: beta is twice the sigmoid of the logit.
        safe_gate: The promise of flash-linear-attention's callers that g is not below -5. With
            use_gate_in_kernel it needs lower_bound; no result depends on it.
        lower_bound: The gate becomes lower_bound * sigmoid; unset: -exp(A_log) * softplus. Allowed:
            [-5,0), None: unset.
        state_v_first: Whether states are [..,V,K].
        null_slot: A slot that stands for padding wherever it is named, as those below 0 do.
            Allowed: -1, [-2147483648,2147483648).
        disable_recompute: 1: the forward stores saved_values and saved_states, so that the backward
            need not compute them again.
        segments: How many segments each sequence is cut into, computed at the same time; results
            are as exact as without. 0: chosen for the device. Allowed: 0, [1,33).
        warmup_segments: Like segments, for inference alone and with a bounded error: each segment
            starts some tokens early, from a state of 0. 0: off. Allowed: 0, [1,33).
        deterministic: Accepted as other libraries have it: with 0 results repeat bit for bit too.
    """
    raise NotImplementedError


def kda_recurrent(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, *,
                  A_log: Tensor | None = None, dt_bias: Tensor | None = None,
                  initial_state: Tensor | None = None, cu_seqlens: Tensor | None = None,
                  state_pool: Tensor | None = None, state_indices: Tensor | None = None,
                  num_accepted_tokens: Tensor | None = None, output_final_state: bool = False,
                  out: Tensor | None = None, source_indices: Tensor | None = None,
                  has_initial_state: Tensor | None = None, ring_k: Tensor | None = None,
                  ring_u: Tensor | None = None, ring_g: Tensor | None = None,
                  ring_count: Tensor | None = None, scale: float | None = None,
                  use_qk_l2norm_in_kernel: bool = False, use_gate_in_kernel: bool = False,
                  use_beta_sigmoid_in_kernel: bool = False, allow_neg_eigval: bool = False,
                  safe_gate: bool = False, lower_bound: float | None = None,
                  state_v_first: bool = False, null_slot: int = -1, update_state: bool = True,
                  append: bool = True
                  ) -> tuple[Tensor, Tensor | None]:
    """Returns (o, final_state), token by token; a pool of states and its rings of records are
    changed in place.

    There is no gradient.

    Args:
        q: [B,T,H,K]. Queries; their dtype is that of keys, values and o.
        k: [B,T,H,K]. Keys.
        v: [B,T,HV,V]. Values; HV is a multiple of H.
        g: [B,T,HV,K]. The decay's natural logarithm, or the raw gate.
        beta: [B,T,HV]. The step of the delta rule, or its logit.
        A_log: [HV]. The logarithm of the gate's rate, with use_gate_in_kernel.
        dt_bias: [HV*K]. Added to the raw gate, with use_gate_in_kernel.
        initial_state: [N,HV,K,V] or [N,HV,V,K]. The state before each sequence; without it, 0.
        cu_seqlens: [N+1]. Offsets of packed sequences; B is then 1.
        state_pool: [S,HV,K,V] or [S,HV,V,K]. States in slots, changed in place; slots that nobody
            names are not touched. Of 16 bits: rounded where they are written, and float32 in
            between.
        state_indices: [N] or [N,spec]. The slot of each sequence, or with [N,spec] the slot for the
            state after each of its tokens; below 0 or null_slot, in the first column: padding.
        num_accepted_tokens: [N]. With [N,spec]: a sequence starts from the slot in column
            num_accepted_tokens - 1; without it, from that in column 0.
        output_final_state: Whether final_state is computed and returned.
        out: Where o is written, if there is no final state. Its rows are contiguous.
        source_indices: [N]. The slot that each sequence reads in place of the one that it writes;
            below 0 or null_slot: its state before is 0.
        has_initial_state: [N]. 0: the state before a sequence is 0, and no slot is read for it.
        ring_k: [S,L,H,K]. Records of the tokens behind each state of the pool: keys, as the
            recurrence uses them.
        ring_u: [S,L,HV,V]. The update beta (v - S^T k) of each record; float32 or q's dtype.
        ring_g: [S,L,HV,K]. The decay's natural logarithm of each record.
        ring_count: [S]. How many records of each slot count: its state is that of the pool after
            these. Where a call's tokens leave no room, they are folded into the pool.
        scale: o is multiplied by it. Allowed: >0, None: K^-0.5.
        use_qk_l2norm_in_kernel: Whether rows of q and k are divided by their norms.
        use_gate_in_kernel: Whether g is the raw gate; lower_bound chooses the formula.
        use_beta_sigmoid_in_kernel: Whether beta is a logit.
        allow_neg_eigval: 1: beta is twice the sigmoid of the logit.
        safe_gate: The promise of flash-linear-attention's callers that g is not below -5. With
            use_gate_in_kernel it needs lower_bound; no result depends on it.
        lower_bound: The gate becomes lower_bound * sigmoid; unset: -exp(A_log) * softplus. Allowed:
            [-5,0), None: unset.
        state_v_first: Whether states are [..,V,K].
        null_slot: A slot that stands for padding wherever it is named, as those below 0 do.
            Allowed: -1, [-2147483648,2147483648).
        update_state: 0: state_pool is only read, and o is as if it had been written.
        append: With rings: whether ring_count grows by the tokens of the call. 0: their records are
            written, and the caller counts those that he accepts.
    """
    raise NotImplementedError


def kda_decode(qkv: Tensor, conv_weight: Tensor, conv_pool: Tensor, g: Tensor, beta: Tensor,
               state_pool: Tensor, state_indices: Tensor, *, conv_bias: Tensor | None = None,
               A_log: Tensor | None = None, dt_bias: Tensor | None = None,
               source_indices: Tensor | None = None, output_gate: Tensor | None = None,
               norm_weight: Tensor | None = None, ring_k: Tensor | None = None,
               ring_u: Tensor | None = None, ring_g: Tensor | None = None,
               ring_count: Tensor | None = None, out: Tensor | None = None,
               scale: float | None = None, use_qk_l2norm_in_kernel: bool = False,
               use_gate_in_kernel: bool = False, use_beta_sigmoid_in_kernel: bool = False,
               allow_neg_eigval: bool = False, safe_gate: bool = False,
               lower_bound: float | None = None, state_v_first: bool = False, null_slot: int = -1,
               update_state: bool = True, append: bool = True,
               activation: Literal["silu", "none"] = "silu", norm_eps: float | None = None,
               gate_activation: Literal["sigmoid", "silu"] = "sigmoid"
               ) -> Tensor:
    """Returns o [B,HV,V] or [B,T,HV,V]: a decoding step of a layer in one launch. Both pools and
    the rings of records are changed in place.

    There is no gradient.

    Args:
        qkv: [B,D] or [B,T,D]. What the convolution reads: H*K channels of q, H*K of k and HV*V of
            v. Its dtype is that of o and of keys in records.
        conv_weight: [D,W]. Taps, oldest first; W is 2 to 8.
        conv_pool: [S,D,LS]. The last inputs of each slot, the newest in the last of at least W - 1
            columns, rolled in place; its columns or its channels may lie side by side.
        g: [B,HV,K] or [B,T,HV,K]. The decay's natural logarithm, or the raw gate.
        beta: [B,HV] or [B,T,HV]. The step of the delta rule, or its logit.
        state_pool: [S,HV,K,V] or [S,HV,V,K]. States in slots, changed in place; slots that nobody
            names are not touched. Of 16 bits: rounded where they are written, and float32 in
            between.
        state_indices: [B]. The slot of each sequence, of both pools; below 0 or null_slot: padding.
        conv_bias: [D]. Added before the activation.
        A_log: [HV]. The logarithm of the gate's rate, with use_gate_in_kernel.
        dt_bias: [HV*K]. Added to the raw gate, with use_gate_in_kernel.
        source_indices: [B]. The slot that each sequence reads in place of the one that it writes;
            below 0 or null_slot: its state and its inputs before are 0.
        output_gate: [B,T,HV,V] or [B,HV,V]. o is multiplied by gate_activation of it.
        norm_weight: [V]. Rows of o are divided by their root mean square and multiplied by it;
            float32 or qkv's dtype.
        ring_k: [S,L,H,K]. Records of the tokens behind each state of the pool: keys, as the
            recurrence uses them.
        ring_u: [S,L,HV,V]. The update beta (v - S^T k) of each record; float32 or q's dtype.
        ring_g: [S,L,HV,K]. The decay's natural logarithm of each record.
        ring_count: [S]. How many records of each slot count: its state is that of the pool after
            these. Where a call's tokens leave no room, they are folded into the pool.
        out: Where o is written, if there is no final state. Its rows are contiguous.
        scale: o is multiplied by it. Allowed: >0, None: K^-0.5.
        use_qk_l2norm_in_kernel: Whether rows of q and k are divided by their norms.
        use_gate_in_kernel: Whether g is the raw gate; lower_bound chooses the formula.
        use_beta_sigmoid_in_kernel: Whether beta is a logit.
        allow_neg_eigval: 1: beta is twice the sigmoid of the logit.
        safe_gate: The promise of flash-linear-attention's callers that g is not below -5. With
            use_gate_in_kernel it needs lower_bound; no result depends on it.
        lower_bound: The gate becomes lower_bound * sigmoid; unset: -exp(A_log) * softplus. Allowed:
            [-5,0), None: unset.
        state_v_first: Whether states are [..,V,K].
        null_slot: A slot that stands for padding wherever it is named, as those below 0 do.
            Allowed: -1, [-2147483648,2147483648).
        update_state: 0: both pools are only read, and o is as if they had been written.
        append: With rings: whether ring_count grows by the tokens of the call. 0: their records are
            written, and the caller counts those that he accepts.
        activation: The activation after the convolution. Allowed: silu, none.
        norm_eps: Added to the mean square of a row of o. Allowed: >=0, None: 1e-5.
        gate_activation: What output_gate goes through. Allowed: sigmoid, silu.
    """
    raise NotImplementedError


def flash_attention(q: Tensor, k: Tensor, v: Tensor, *, alibi_slopes: Tensor | None = None,
                    sinks: Tensor | None = None, cu_seqlens_q: Tensor | None = None,
                    cu_seqlens_k: Tensor | None = None, q_scale: Tensor | None = None,
                    k_scale: Tensor | None = None, v_scale: Tensor | None = None,
                    captures: tuple[Tensor, ...] = (), over: Over | None = None,
                    softmax_scale: float | None = None, causal: bool = False, window_left: int = -1,
                    window_right: int = -1, softcap: float = 0.0, deterministic: bool | None = None,
                    score_mod: str | PathLike[str] | None = None,
                    mask_mod: str | PathLike[str] | None = None, scalar_0: float = 0.0,
                    scalar_1: float = 0.0, scalar_2: float = 0.0, scalar_3: float = 0.0,
                    sm_margin: int = 0, gather_heads: int = 0, head_ranks: int = 0,
                    dispatch: Literal["auto", "always", "home"] = "auto",
                    out_dtype: Literal["none", "bf16", "f16", "f32"] = "none",
                    dispatch_tokens: int = 0
                    ) -> tuple[Tensor, Tensor]:
    """Returns (out, lse) of softmax attention; both can be differentiated.

    Queries, keys and values of float8_e4m3fn have scales, and no gradient.

    Args:
        q: [B,Sq,H,D] or [Tq,H,D]. Queries; their dtype is that of keys and values, and unless it is
            f8_e4m3 of out.
        k: [B,Sk,HK,D] or [Tk,HK,D]. Keys; HK divides H.
        v: [B,Sk,HK,DV] or [Tk,HK,DV]. Values; their width may differ from that of the keys.
        alibi_slopes: [H] or [B,H]. ALiBi's slopes; in a packed call B is the number of sequences.
        sinks: [H]. One more logit for each head, whose value row is 0.
        cu_seqlens_q: [N+1]. Offsets of packed queries.
        cu_seqlens_k: [N+1]. Offsets of packed keys.
        q_scale: [q_scales]. What codes of q are multiplied by: one number, or one for each of H
            heads.
        k_scale: [k_scales]. The same of k: one number, or one for each of HK heads.
        v_scale: [v_scales]. The same of v.
        captures: Up to four arrays of numbers that mods read: captures.get<0>(i) and so on.
        over: The ranks that share the sequence, lathe.torch.Ranks; each calls with its own tokens.
        softmax_scale: Scores are multiplied by it. Allowed: >0, None: D^-0.5.
        causal: 1: a row sees no key after its own token; the last row and the last key are one
            token.
        window_left: How many keys back a row sees; -1: all. Allowed: -1, >=0.
        window_right: How many keys ahead a row sees; -1: all. causal overrides it. Allowed: -1,
            >=0.
        softcap: Scores become softcap * tanh(score / softcap). Allowed: 0, >0.
        deterministic: 1: gradients repeat bit for bit on GPUs with the same number of
            multiprocessors. None: as torch.use_deterministic_algorithms says.
        score_mod: Device text that changes scores, after softcap and ALiBi. Allowed: the name of a
            file, lathe.DeviceText, None.
        mask_mod: Device text that drops keys, beside causal and windows. Allowed: the name of a
            file, lathe.DeviceText, None.
        scalar_0: Mods read it as captures.scalar(0). Allowed: any number.
        scalar_1: Mods read it as captures.scalar(1). Allowed: any number.
        scalar_2: Mods read it as captures.scalar(2). Allowed: any number.
        scalar_3: Mods read it as captures.scalar(3). Allowed: any number.
        sm_margin: Over ranks: how many multiprocessors the kernels leave free for the exchange of
            messages. Allowed: 0, >0.
        gather_heads: Over ranks with all-gather: how many key heads are gathered at a time; fewer
            need less memory. 0: all. Allowed: 0, >0.
        head_ranks: Over ranks by heads: how many ranks exchange heads; keys travel a ring between
            such sets of ranks. 0: all ranks. Allowed: 0, >0.
        dispatch: Over ranks by dispatch: other ranks compute queries where that pays (auto),
            always, or never (home). Allowed: auto, always, home.
        out_dtype: With queries of f8_e4m3: the dtype of out, in which all is computed; none: bf16.
            Allowed: none, bf16, f16, f32.
        dispatch_tokens: Over ranks by dispatch: the most tokens of queries and keys that a rank may
            receive; 0: any number. Allowed: 0, >0.
    """
    raise NotImplementedError


def flash_attention_decode(q: Tensor, k_cache: Tensor, v_cache: Tensor | None, block_table: Tensor,
                           cache_seqlens: Tensor, *, k_new: Tensor | None = None,
                           v_new: Tensor | None = None, alibi_slopes: Tensor | None = None,
                           sinks: Tensor | None = None, cu_seqlens_q: Tensor | None = None,
                           leftpad: Tensor | None = None, total_seqlens: Tensor | None = None,
                           rope_cos: Tensor | None = None, rope_sin: Tensor | None = None,
                           rope_positions: Tensor | None = None, k_scale: Tensor | None = None,
                           v_scale: Tensor | None = None, captures: tuple[Tensor, ...] = (),
                           softmax_scale: float | None = None, causal: bool = False,
                           window_left: int = -1, window_right: int = -1, softcap: float = 0.0,
                           deterministic: bool = False,
                           score_mod: str | PathLike[str] | None = None,
                           mask_mod: str | PathLike[str] | None = None, scalar_0: float = 0.0,
                           scalar_1: float = 0.0, scalar_2: float = 0.0, scalar_3: float = 0.0,
                           num_splits: int = 0, key_stride: int = 1, key_offset: int = 0,
                           row_format: Literal["none", "e4m3_656"] = "none",
                           rope_interleaved: bool = False
                           ) -> tuple[Tensor, Tensor]:
    """Returns (out, lse) over a cache in pages, to which k_new and v_new are appended in place.

    With cu_seqlens_q the queries are packed, any number of rows for each sequence. Without v_cache,
    values are the first 512 of the 576 columns of k_cache. Caches of float8_e4m3fn have k_scale and
    v_scale. There is no gradient.

    Args:
        q: [B,Sq,H,D] or [Tq,H,D]. Queries; their dtype is that of keys, values and out.
        k_cache: [P,page,HK,D] or [P,page,bytes]. Keys in pages; HK divides H. Of q's dtype, f8_e4m3
            with k_scale, or with row_format rows of bytes. It is only read unless k_new is given.
        v_cache: [P,page,HK,DV]. Values in pages, of k_cache's dtype; without them the first 512 of
            the 576 columns of k_cache are the values. It is only read unless v_new is given.
        block_table: [B,M]. The pages of each sequence, in order.
        cache_seqlens: [B]. Keys of each sequence before new ones are appended; below 0: padding,
            whose pages are not looked at.
        k_new: [B,Sq,HK,D] or [Tq,HK,D]. Keys of the queries' tokens, appended to the cache.
        v_new: [B,Sq,HK,DV] or [Tq,HK,DV]. Values of the queries' tokens, appended to the cache;
            with v_cache.
        alibi_slopes: [H] or [B,H]. ALiBi's slopes.
        sinks: [H]. One more logit for each head, whose value row is 0.
        cu_seqlens_q: [B+1]. Offsets of packed queries, with any number of rows for each sequence;
            new keys and values are packed alike.
        leftpad: [B]. The first key of each sequence that counts.
        total_seqlens: [B]. Keys of each sequence over all ranks, those of the call's rows included.
            Key j of the cache is key j * key_stride + key_offset of the sequence.
        rope_cos: [positions,R/2]. Cosines of the rotary embedding by position; the first R columns
            of q and k_new turn.
        rope_sin: [positions,R/2]. Its sines.
        rope_positions: [rows]. The position of each of Tq rows, or of the first row of each of B
            sequences; without it a row stands where its key does.
        k_scale: [k_scales] or [P,page,HK]. What the codes of k_cache are multiplied by: one number,
            one for each of HK heads, or one for each row of a page and head, which is written with
            new keys. It is only read unless k_new is given.
        v_scale: [v_scales] or [P,page,HK]. The same of v_cache. It is only read unless v_new is
            given.
        captures: Up to four arrays of numbers that mods read: captures.get<0>(i) and so on.
        softmax_scale: Scores are multiplied by it. Allowed: >0, None: D^-0.5.
        causal: 1: a row sees no key after its own token; the last row and the last key are one
            token.
        window_left: How many keys back a row sees; -1: all. Allowed: -1, >=0.
        window_right: How many keys ahead a row sees; -1: all. causal overrides it. Allowed: -1,
            >=0.
        softcap: Scores become softcap * tanh(score / softcap). Allowed: 0, >0.
        deterministic: Accepted as flash_attention has it: with 0 results repeat bit for bit too.
        score_mod: Device text that changes scores, after softcap and ALiBi. Allowed: the name of a
            file, lathe.DeviceText, None.
        mask_mod: Device text that drops keys, beside causal and windows. Allowed: the name of a
            file, lathe.DeviceText, None.
        scalar_0: Mods read it as captures.scalar(0). Allowed: any number.
        scalar_1: Mods read it as captures.scalar(1). Allowed: any number.
        scalar_2: Mods read it as captures.scalar(2). Allowed: any number.
        scalar_3: Mods read it as captures.scalar(3). Allowed: any number.
        num_splits: How many splits of its keys a sequence has, computed at the same time and
            joined; 0: chosen for the device. Allowed: 0, >=0.
        key_stride: With total_seqlens: how many positions a key of the cache is behind the one
            before it; the keys between lie on other ranks. Allowed: 1, >=1.
        key_offset: With total_seqlens: the position of the cache's first key in its sequence; less
            than key_stride. Allowed: 0, >=0.
        row_format: How rows of bytes are read; e4m3_656: 512 codes of e4m3, four float32 scales of
            128 columns each, 64 bfloat16. Allowed: none, e4m3_656.
        rope_interleaved: 1: the columns of a pair that turns are neighbours; 0: they are R/2 apart.
    """
    raise NotImplementedError


def sparse_flash_attention(q: Tensor, k: Tensor, v: Tensor | None, indices: Tensor, *, scale: float,
                           q_rope: Tensor | None = None, k_rope: Tensor | None = None,
                           cu_seqlens_q: Tensor | None = None, cu_seqlens_k: Tensor | None = None,
                           q_pos: Tensor | None = None, sinks: Tensor | None = None,
                           topk_length: Tensor | None = None, k_extra: Tensor | None = None,
                           indices_extra: Tensor | None = None,
                           topk_length_extra: Tensor | None = None, over: Over | None = None,
                           block_size: int = 1, sparse_mode: int = 0,
                           index_space: Literal["sequence", "absolute"] = "sequence",
                           num_splits: int = 0, deterministic: bool | None = None,
                           sinks_in_statistics: bool = True,
                           row_format: Literal["none", "e4m3_656"] = "none"
                           ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns (out, softmax_max, softmax_sum, lse) over the keys that each row's list names.

    out can be differentiated, but for a second cache (k_extra) and rows of bytes.

    Args:
        q: [B,Sq,H,D] or [Tq,H,D]. Queries; their dtype is that of keys, values and out.
        k: [B,Sk,HK,D] or [Tk,HK,D] or [Tk,bytes]. Keys, of q's dtype; HK divides H. With row_format
            they are rows of bytes.
        v: [B,Sk,HK,DV] or [Tk,HK,DV]. Values; without them they are the first DV columns of k.
        indices: [B,Sq,HK,topk] or [Tq,HK,topk]. The list of each row; entries below 0 or out of
            range are skipped.
        scale: Scores are multiplied by it; it must be given. Allowed: >0.
        q_rope: [B,Sq,H,R] or [Tq,H,R]. More columns of the queries, for rotary embeddings; with
            k_rope.
        k_rope: [B,Sk,HK,R] or [Tk,HK,R]. More columns of the keys, for rotary embeddings; with
            q_rope.
        cu_seqlens_q: [N+1]. Offsets of packed queries.
        cu_seqlens_k: [N+1]. Offsets of packed keys.
        q_pos: [B,Sq] or [Tq]. The position of each row with sparse_mode 3; else the last row is at
            the last key.
        sinks: [H]. One more logit for each head, whose value row is 0.
        topk_length: [B,Sq] or [Tq]. How many entries of each row's lists count, at most topk; the
            others are skipped.
        k_extra: [Tx,HK,D] or [Tx,bytes]. Keys of a second cache, in the same softmax; values are
            their first DV columns.
        indices_extra: [B,Sq,HK,topk2] or [Tq,HK,topk2]. The list of each row over rows of k_extra.
        topk_length_extra: [B,Sq] or [Tq]. The same of indices_extra as topk_length.
        over: The ranks that share the sequence, lathe.torch.Ranks; each calls with its own tokens.
        block_size: How many consecutive keys an entry names; 1 with absolute entries. Allowed: 1,
            2, 4, 8, 16, 32, 64, 128.
        sparse_mode: 3: a row sees no key after its position; 0: all keys that its list names.
            Allowed: 0, 3.
        index_space: Entries count from the first key of the row's sequence, or from the first row
            of k (absolute). Allowed: sequence, absolute.
        num_splits: How many splits each list has, computed at the same time and joined; 0: chosen
            for the device. Allowed: 0, >=0.
        deterministic: 1: results and gradients repeat bit for bit, whatever other rows the call
            has. None: as torch.use_deterministic_algorithms says.
        sinks_in_statistics: 0: softmax_max, softmax_sum and lse leave the sinks out, which out
            counts.
        row_format: How rows of bytes are read; e4m3_656: 512 codes of e4m3, four float32 scales of
            128 columns each, 64 bfloat16. Allowed: none, e4m3_656.
    """
    raise NotImplementedError
