# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The table of the package's functions: one row, or a reason, for each name that a module exports.

A row makes tiny inputs by name, calls the function with them, and says which outputs have
gradients. The tests of with_torch/test_functions_*.py run every row, so a new function needs a row
here and nothing else; test_functions_table.py finds a name that has neither a row nor a reason.
"""
import torch

import lathe.flex
import lathe.torch as lt
import functions_serving
from function_inputs import (attention_inputs, channels_last, conv_inputs, heads_first, kda_inputs,
                             kda_layer_inputs, mla_inputs, offsets, only, packed_inputs, pages,
                             pool_inputs, rows_inputs, sparse_exact, sparse_inputs)
from function_row import Row
from lathe.compat import (causal_conv1d, fla, flash_attn, flash_attn_3, flash_attn_4, flash_mla,
                          sdpa, sglang, torch_cp, transformers, vllm, vllm_conv, vllm_glm,
                          vllm_kda)

MODULES = (lt, lathe.flex, causal_conv1d, fla, flash_attn, flash_attn_3, flash_attn_4, flash_mla,
           sdpa, sglang, torch_cp, transformers, vllm, vllm_conv, vllm_glm, vllm_kda)


def _tuple(found):
    return found if isinstance(found, tuple) else (found,)


# ---- lathe.torch and lathe.flex ------------------------------------------------------------------


def _decode(function, **names):
    """Returns a call of a function over pages, to copies of which k and v are appended."""
    def call(q, k_cache, v_cache, table, lengths, k, v):
        k_cache, v_cache = k_cache.detach().clone(), v_cache.detach().clone()
        given = {"q": q, "k_cache": k_cache, "v_cache": v_cache, "block_table": table,
                 "cache_seqlens": lengths, "k": k, "v": v, "causal": True}
        found = function(**{names.get(name, name): each for name, each in given.items()})
        return (*_tuple(found), k_cache, v_cache)
    return call


def _recurrent(function):
    """Returns a call with a pool of states in which the sequences have slots."""
    def call(q, k, v, g, beta, initial_state):
        pool = initial_state.detach().repeat(2, 1, 1, 1)
        slots = torch.tensor([3, 0], dtype=torch.int32)
        cu = torch.tensor([0, q.shape[1], 2 * q.shape[1]], dtype=torch.int32)
        rows = [each.reshape(1, -1, *each.shape[2:]) for each in (q, k, v, g, beta)]
        return function(rows, pool, slots, cu), pool
    return call


def _conv_update(x, weight, bias, residual, initial_state):
    state = initial_state.detach().clone()
    return lt.causal_conv1d_update(x[:, 0], state, weight, bias, residual=residual[:, 0],
                                   activation="silu"), state


def _conv_update_slots(x, weight, bias, residual, initial_state):
    """Three tokens of each sequence, over a pool in which the sequences have slots."""
    pool = initial_state.detach().repeat(2, 1, 1)
    slots = torch.tensor([3, 0], dtype=torch.int32)[:len(x)]
    return lt.causal_conv1d_update(x[:, :3], pool, weight, bias, residual=residual[:, :3],
                                   state_indices=slots, activation="silu"), pool


def _conv_pool(x, weight, bias, residual, initial_state, **given):
    """Packed sequences over a pool in which they have slots and one has another to read."""
    pool = initial_state.detach().repeat(2, 1, 1)
    cu = torch.tensor([0, x.shape[1], 2 * x.shape[1]], dtype=torch.int32)
    slots = torch.tensor([3, 0], dtype=torch.int32)
    y, _ = lt.causal_conv1d(x.reshape(1, -1, x.shape[2]), weight, bias, cu_seqlens=cu,
                            residual=residual.reshape(1, -1, x.shape[2]), state_pool=pool,
                            state_indices=slots, source_indices=slots - 1, activation="silu",
                            **given)
    return (*_tuple(y), pool)


def _layer(state_pool, conv_pool, **given):
    pools = {name: each.detach().clone(memory_format=torch.contiguous_format)
             for name, each in (("state_pool", state_pool), ("conv_pool", conv_pool))}
    return lt.kda_decode(**given, **pools, use_qk_l2norm_in_kernel=True), *pools.values()


_BIAS = torch.linspace(-1, 1, 4)


def _score_mod(score, b, h, q, k):
    return torch.tanh(score + _BIAS[h]) + 0.01 * (q - k)


_FLOAT = ("q", "k", "v", "g", "beta", "initial_state")
_KDA = {"use_qk_l2norm_in_kernel": True, "use_gate_in_kernel": True,
        "use_beta_sigmoid_in_kernel": True}

TORCH = (
    Row(lt, "flash_attention", lambda n, t: attention_inputs(n, t, sinks="sinks"),
        lambda **t: lt.flash_attention(**t, causal=True, window_left=6, softcap=3.0), (0, 1)),
    Row(lt, "flash_attention", rows_inputs,
        lambda **t: lt.flash_attention(**t, cu_seqlens_q=offsets(len(t["q"]) // 2),
                                       cu_seqlens_k=offsets(len(t["q"]) // 2)), (0, 1), "packed"),
    Row(lt, "flash_attention_decode", pages,
        _decode(lt.flash_attention_decode, k="k_new", v="v_new"), full=None),
    Row(lt, "sparse_flash_attention", sparse_inputs,
        lambda **t: lt.sparse_flash_attention(**t, scale=0.2), (0,), full=None,
        exact=sparse_exact),
    Row(lt, "kda", kda_inputs,
        lambda **t: lt.kda(**t, output_final_state=True, **_KDA)[:2], (0, 1), half=torch.bfloat16),
    Row(lt, "kda", kda_inputs,
        lambda **t: lt.kda(**t, output_final_state=True, output_chunk_states=True,
                           disable_recompute=True, use_gate_in_kernel=True), (0, 1), "states"),
    Row(lt, "kda", only(kda_inputs, *_FLOAT[:5]),
        lambda **t: (lt.kda(**t, output_chunk_states=True)[::2]), (0,), "chunks"),
    Row(lt, "kda", only(kda_inputs, *_FLOAT[:5]), lambda **t: lt.kda(**t)[:1], (0,), "plain"),
    Row(lt, "kda_recurrent", kda_inputs,
        lambda **t: lt.kda_recurrent(**t, output_final_state=True, **_KDA)),
    Row(lt, "kda_recurrent", only(kda_inputs, *_FLOAT), _recurrent(
        lambda rows, pool, slots, cu: lt.kda_recurrent(
            *rows, state_pool=pool, state_indices=slots, cu_seqlens=cu)[0]), what="pool"),
    Row(lt, "kda", only(kda_inputs, *_FLOAT), _recurrent(
        lambda rows, pool, slots, cu: lt.kda(
            *rows, state_pool=pool, state_indices=slots, cu_seqlens=cu)[0]), what="pool"),
    Row(lt, "kda_decode", kda_layer_inputs, _layer),
    Row(lt, "causal_conv1d", conv_inputs,
        lambda **t: lt.causal_conv1d(**t, activation="silu", output_final_state=True), (0, 1)),
    Row(lt, "causal_conv1d", conv_inputs, _conv_pool, what="pool"),
    Row(lt, "causal_conv1d", conv_inputs,
        lambda **t: _conv_pool(**t, split=(8, 24)), what="pool, parts"),
    Row(lt, "causal_conv1d", conv_inputs,
        lambda **t: (lambda y, last: (*y, last))(*lt.causal_conv1d(
            **t, split="16,16", output_final_state=True)), (0, 1, 2), "parts"),
    Row(lt, "causal_conv1d_update", conv_inputs, _conv_update),
    Row(lt, "causal_conv1d_update", conv_inputs, _conv_update_slots, what="slots"),
    Row(lathe.flex, "flex_attention", heads_first,
        lambda q, k, v: lathe.flex.flex_attention(q, k, v, _score_mod, return_lse=True), (0, 1)),
)

# ---- fla and causal_conv1d -----------------------------------------------------------------------


_LAYER = fla.ShortConvolution(32, 4, bias=True)


def _short(x, weight, bias, residual, initial_state):
    parameters = {"weight": weight.unsqueeze(1), "bias": bias}
    return torch.func.functional_call(_LAYER, parameters, (x, residual, None, initial_state, True))


def _fla_update(x, weight, bias, residual, initial_state):
    return fla.causal_conv1d_update(x[:, :1], initial_state.detach().clone(), residual[:, :1],
                                    weight, bias, "silu")


def _conv_seq_idx(x, weight, bias):
    numbers = (torch.arange(x.shape[2]) // 4).repeat(2, 1).int()
    return causal_conv1d.causal_conv1d_fn(x, weight, bias, numbers, activation="silu"),


def _peer_update(x, weight, bias, initial_state):
    pool = torch.cat([initial_state, initial_state]).detach()
    return causal_conv1d.causal_conv1d_update(
        x, pool, weight, bias, "silu",
        conv_state_indices=torch.tensor([3, -1], dtype=torch.int32)), pool


FLA = (
    Row(fla, "chunk_kda", kda_inputs,
        lambda **t: fla.chunk_kda(**t, output_final_state=True, state_v_first=True, **_KDA), (0, 1),
        half=torch.bfloat16),
    Row(fla, "fused_recurrent_kda", kda_inputs,
        lambda **t: fla.fused_recurrent_kda(**t, output_final_state=True, **_KDA)),
    Row(fla, "fused_recurrent_kda_fwd", only(kda_inputs, *_FLOAT), _recurrent(
        lambda rows, pool, slots, cu: fla.fused_recurrent_kda_fwd(
            *rows, initial_state=pool, ssm_state_indices=slots, cu_seqlens=cu,
            out=torch.empty_like(rows[2]))[0])),
    Row(fla, "causal_conv1d", conv_inputs,
        lambda **t: fla.causal_conv1d(**t, activation="silu", output_final_state=True), (0, 1)),
    Row(fla, "causal_conv1d_update", conv_inputs, _fla_update),
    Row(fla, "ShortConvolution", conv_inputs, _short, (0, 1)),
)
CONV = (
    Row(causal_conv1d, "causal_conv1d_fn", channels_last,
        lambda x, weight, bias, initial_state: causal_conv1d.causal_conv1d_fn(
            x, weight, bias, None, initial_state, True, activation="silu"), (0, 1)),
    Row(causal_conv1d, "causal_conv1d_fn", only(channels_last, "x", "weight", "bias"),
        _conv_seq_idx, (0,), "seq_idx"),
    Row(causal_conv1d, "causal_conv1d_update", channels_last, _peer_update),
    Row(causal_conv1d, "causal_conv1d_varlen_states", only(rows_inputs, "q"),
        lambda q: (causal_conv1d.causal_conv1d_varlen_states(
            q.flatten(1), offsets(len(q) // 2), 3),)),
    Row(vllm_conv, "causal_conv1d_fn", pool_inputs,
        lambda x, pool, weight, bias, slots: _with(pool, lambda pool: vllm_conv.causal_conv1d_fn(
            x, weight, bias, pool, offsets(x.shape[1] // 2), slots))),
    Row(vllm_conv, "causal_conv1d_update", pool_inputs,
        lambda x, pool, weight, bias, slots: _with(
            pool, lambda pool: vllm_conv.causal_conv1d_update(
                x[:, :3].t(), pool, weight, bias, True, slots))),
)


def _with(changed, function):
    """Returns what a function returns, and the copy of a tensor that it changed."""
    changed = changed.detach().clone()
    return (*_tuple(function(changed)), changed)


# ---- attention by the peers' names ---------------------------------------------------------------


def _varlen(function, last=True, **options):
    """Returns a call of a function on packed sequences. last: the maximal lengths are asked for."""
    def call(**t):
        rows = (t["q"] if "q" in t else t["packed"]).shape[0]
        cu = offsets(rows // 2)
        lengths = (rows, rows) if last else ()
        return _tuple(function(**t, cu_seqlens_q=cu, cu_seqlens_k=cu, **dict(
            zip(("max_seqlen_q", "max_seqlen_k"), lengths)), **options))
    return call


def _called(function, **options):
    return lambda **t: _tuple(function(**t, **options))


_Q = only(packed_inputs(3), "packed")
ATTENTION = (
    Row(flash_attn, "flash_attn_func", attention_inputs,
        _called(flash_attn.flash_attn_func, causal=True, deterministic=True,
                alibi_slopes=torch.tensor([0.1, 0.2, 0.0, 0.3])), (0,)),
    Row(flash_attn, "flash_attn_func", lambda n, t: attention_inputs(n, t, width=20),
        _called(flash_attn.flash_attn_func), (0,), "odd"),
    Row(flash_attn, "flash_attn_kvpacked_func", packed_inputs(2),
        lambda q, packed: (flash_attn.flash_attn_kvpacked_func(q, packed, causal=True),), (0,)),
    Row(flash_attn, "flash_attn_qkvpacked_func", _Q,
        lambda packed: (flash_attn.flash_attn_qkvpacked_func(packed, softcap=2.0),), (0,)),
    Row(flash_attn, "flash_attn_varlen_func", rows_inputs,
        _varlen(flash_attn.flash_attn_varlen_func, causal=True), (0,)),
    Row(flash_attn, "flash_attn_varlen_kvpacked_func", packed_inputs(2, rows=True),
        lambda q, packed: _varlen(flash_attn.flash_attn_varlen_kvpacked_func)(q=q, kv=packed),
        (0,)),
    Row(flash_attn, "flash_attn_varlen_qkvpacked_func", only(packed_inputs(3, True), "packed"),
        lambda packed: (flash_attn.flash_attn_varlen_qkvpacked_func(
            packed, offsets(len(packed) // 2), len(packed)),), (0,)),
    Row(flash_attn, "flash_attn_with_kvcache", pages,
        _decode(flash_attn.flash_attn_with_kvcache), full=None),
    Row(flash_attn_3, "flash_attn_func", lambda n, t: attention_inputs(n, t, sinks="s_aux"),
        _called(flash_attn_3.flash_attn_func, window_size=(5, 2)), (0,)),
    Row(flash_attn_3, "flash_attn_qkvpacked_func", _Q,
        lambda packed: (flash_attn_3.flash_attn_qkvpacked_func(
            packed.flatten(2, 3), causal=True, num_heads_q=2),), (0,)),
    Row(flash_attn_3, "flash_attn_varlen_func", rows_inputs,
        _varlen(flash_attn_3.flash_attn_varlen_func, seqused_q=torch.tensor([3, 0, 5]).int(),
                seqused_k=torch.tensor([4, 0, 8]).int()), (0,)),
    Row(flash_attn_3, "flash_attn_with_kvcache", pages,
        _decode(flash_attn_3.flash_attn_with_kvcache, block_table="page_table"), full=None),
    Row(flash_attn_4, "flash_attn_func",
        lambda n, t: attention_inputs(n, t, sinks="learnable_sink"),
        _called(flash_attn_4.flash_attn_func, return_lse=True), (0, 1)),
    Row(flash_attn_4, "flash_attn_varlen_func",
        lambda n, t: rows_inputs(n, t, sinks="learnable_sink"),
        _varlen(flash_attn_4.flash_attn_varlen_func, return_lse=True), (0, 1)),
    Row(vllm, "flash_attn_varlen_func", lambda n, t: rows_inputs(n, t, sinks="s_aux"),
        _varlen(vllm.flash_attn_varlen_func, causal=True, return_softmax_lse=True), (0, 1)),
    Row(vllm, "flash_attn_varlen_func", rows_inputs,
        lambda **t: _with(torch.zeros(t["q"].shape, dtype=t["q"].dtype), lambda out: _varlen(
            vllm.flash_attn_varlen_func, out=out)(**t)), what="out"),
    *(Row(vllm, "flash_attn_varlen_func", pages,
          lambda q, k_cache, v_cache, table, lengths, k, v, n=n: _with(
              torch.zeros(2 * n, 4, 32, dtype=q.dtype), lambda out: vllm.flash_attn_varlen_func(
                  q[:, :n].flatten(0, 1), k_cache, v_cache, n, torch.arange(3).int() * n, 16,
                  seqused_k=lengths, block_table=table, out=out)), what=f"pages, {n} each",
          full=None) for n in (1, 2)),
    Row(flash_mla, "flash_mla_sparse_fwd", mla_inputs,
        lambda q, kv, indices, sink: flash_mla.flash_mla_sparse_fwd(
            q, kv, indices, 0.05, attn_sink=sink), full=None),
    Row(flash_mla, "flash_mla_with_kvcache", mla_inputs,
        lambda q, kv, indices, sink: flash_mla.flash_mla_with_kvcache(
            q[:2].unsqueeze(1), kv.unflatten(0, (2, 8)), torch.tensor([[1], [0]]).int(),
            torch.tensor([5, 8]).int(), 512, flash_mla.FlashMLASchedMeta()), full=None),
    Row(sdpa, "register", heads_first,
        lambda q, k, v: (torch.ops.aten._scaled_dot_product_flash_attention(q, k, v)[0],), (0,)),
    Row(sdpa, "register", rows_inputs,
        lambda q, k, v: (torch.ops.aten._flash_attention_forward(
            q, k, v, offsets(len(q) // 2), offsets(len(q) // 2), len(q), len(q), 0.0, True,
            False)[0],), (0,), "varlen"),
)

def _packed_decode(q, k, v, g, beta, initial_state):
    """The first token of each sequence, in a pool with a null block; K3's call."""
    heads = v.shape[2]
    mixed = torch.cat([q[:, 0].repeat_interleave(heads // q.shape[2], 1).flatten(1),
                       k[:, 0].repeat_interleave(heads // k.shape[2], 1).flatten(1),
                       v[:, 0].flatten(1)], 1)
    rate, bias = torch.linspace(-1, 1, heads), torch.zeros(heads * q.shape[3])
    pool = initial_state.detach().repeat(2, 1, 1, 1).transpose(2, 3).contiguous()
    return vllm_kda.fused_recurrent_kda_packed_decode(
        mixed, g[:, 0][None], beta[:, 0][None], rate, bias, -4.0, pool,
        torch.tensor([3, 0], dtype=torch.int32))


ADAPTERS = (
    Row(vllm_kda, "fused_recurrent_kda_packed_decode", only(kda_inputs, *_FLOAT), _packed_decode),
    Row(vllm_kda, "fused_recurrent_kda", only(kda_inputs, *_FLOAT), _recurrent(
        lambda rows, pool, slots, cu: vllm_kda.fused_recurrent_kda(
            *(each.repeat_interleave(2, 2) if i < 2 and each.shape[2] != rows[2].shape[2] else each
              for i, each in enumerate(rows)), torch.zeros(rows[2].shape[2]), None, -4.0,
            pool.transpose(2, 3).contiguous(), cu, slots)[0])),
    Row(vllm_glm, "fused_recurrent_kda", only(kda_inputs, *_FLOAT), _recurrent(
        lambda rows, pool, slots, cu: vllm_glm.fused_recurrent_kda(
            *rows, initial_state=pool.transpose(2, 3).contiguous(), cu_seqlens=cu,
            ssm_state_indices=slots)[0])),
)

SERVING = functions_serving.ROWS
ROWS = (*ADAPTERS, *TORCH, *SERVING, *FLA, *CONV, *ATTENTION)
DIFFERENTIABLE = tuple(row for row in ROWS if row.gradients)

# ---- names without a row -------------------------------------------------------------------------

_NO_TENSORS = "computes no tensor"
_RANKS = "computes over ranks: test_functions_gradients.py has the differences of these"
_SERVED = "test_vllm_kda.py compares it with float64"
_SGLANG = "test_sglang.py compares it with float64"
_OWN = "makes operators of a user's own kernels: test_own_kernels.py"
_METADATA = "returns an empty tensor; test_attention_refusals.py calls it"
REASONS = {
    (lt, "kernel"): _OWN, (lt, "TorchKernel"): _OWN,
    (lt, "Call"): "is what the functions are made of",
    (lt, "Ranks"): _RANKS, (lt, "group"): _RANKS, (lt, "options_of"): _NO_TENSORS,
    (lt, "simulated"): _NO_TENSORS, (lt, "stats"): _NO_TENSORS, (lt, "use_simulator"): _NO_TENSORS,
    (fla, "FLACPContext"): _NO_TENSORS, (fla, "build_cp_context"): _NO_TENSORS,
    (fla, "register"): "test_fla_interface.py calls what it registers",
    (flash_attn_3, "get_scheduler_metadata"): _METADATA,
    (flash_mla, "FlashMLASchedMeta"): _NO_TENSORS, (flash_mla, "get_mla_metadata"): _NO_TENSORS,
    (torch_cp, "context_parallel"): _RANKS,
    (torch_cp, "context_parallel_unshard"): "moves tokens; test_torch_cp.py has its inverse",
    (torch_cp, "set_rotate_method"): _NO_TENSORS,
    (vllm, "get_scheduler_metadata"): _METADATA,
    (vllm, "fa_version_unsupported_reason"): _NO_TENSORS,
    (vllm, "is_fa_version_supported"): _NO_TENSORS,
    (vllm, "register"): "test_sglang.py has modules that it changes",
    (vllm_conv, "PAD_SLOT_ID"): _NO_TENSORS,
    **{(vllm_kda, name): _SERVED for name in vllm_kda.__all__
       if name not in ("fused_recurrent_kda", "fused_recurrent_kda_packed_decode")},
    (vllm_glm, "chunk_kda_with_fused_gate"): "test_vllm_glm.py compares it with float64",
    **{(sglang, name): _SGLANG for name in sglang.__all__},
    (transformers, "attention_forward"): "takes a model's layer; test_transformers.py calls it",
    (transformers, "register"): "test_transformers_models.py runs models that it registers for",
    (transformers, "unregister"): _NO_TENSORS,
}
