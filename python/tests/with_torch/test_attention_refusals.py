# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""What lathe.compat's attention refuses, saying what to do; what it takes and ignores."""
import math

import pytest
import torch

import lathe
from lathe.compat import flash_attn, flash_attn_3, flash_attn_4, flash_mla, vllm

Q = torch.zeros(1, 8, 2, 32, dtype=torch.float16)
ROWS = Q[0]
CU = torch.tensor([0, 8]).int()
TWO = flash_attn.flash_attn_func
THREE = flash_attn_3.flash_attn_func
FOUR = flash_attn_4.flash_attn_func


def cache(module, **more):
    return module.flash_attn_with_kvcache(Q, Q, Q, **more)


def packed(**more):
    return vllm.flash_attn_varlen_func(ROWS, ROWS, ROWS, 8, CU, 8, CU, **more)


REFUSED = {
    "dropout": (lambda: TWO(Q, Q, Q, 0.17), "dropout_p is 0.17, .*give 0.0"),
    "dropout packed": (lambda: flash_attn.flash_attn_qkvpacked_func(Q[:, :, None], 0.5), "is 0.5"),
    "dropout vllm": (lambda: packed(dropout_p=0.1), "dropout_p is 0.1"),
    "rotary": (lambda: cache(flash_attn, rotary_cos=Q[0, :, 0], rotary_sin=Q[0, :, 0]),
               r"rotary_cos is a tensor \[8, 32\] of torch.float16, .*rotate q and k before"),
    "rotary 3": (lambda: cache(flash_attn_3, rotary_sin=Q[0, :, 0]), "rotary_sin is a tensor"),
    "leftpad": (lambda: cache(flash_attn, cache_leftpad=CU[:1]), "cache_leftpad .*move the keys"),
    "qv": (lambda: THREE(Q, Q, Q, qv=Q), "qv is a tensor .*q_rope"),
    "chunk": (lambda: THREE(Q, Q, Q, attention_chunk=4), "attention_chunk is 4, .*cu_seqlens"),
    "chunk of a cache": (lambda: cache(flash_attn_3, attention_chunk=4), "attention_chunk is 4"),
    "float8": (lambda: THREE(*[Q.to(torch.float8_e4m3fn)] * 3), "q is a tensor .*float8.*bfloat16"),
    "float8 cache": (lambda: flash_attn_3.flash_attn_with_kvcache(
        Q, *[Q.to(torch.float8_e4m3fn)] * 2), "k_cache is a tensor .*float8"),
    "score_mod": (lambda: FOUR(Q, Q, Q, score_mod=max), "score_mod is .*lathe.flex"),
    "mask_mod": (lambda: FOUR(Q, Q, Q, mask_mod=max), "mask_mod is .*lathe.flex"),
    "block sparse": (lambda: FOUR(Q, Q, Q, block_sparse_tensors=(Q,)), "block_sparse_tensors is"),
    "gather": (lambda: FOUR(Q, Q, Q, gather_kv_indices=CU), "gather_kv_indices .*sparse_flash"),
    "window": (lambda: FOUR(Q, Q, Q, window_size=(-1, 5)), "left bound is -1, .*None is no bound"),
    "ranks": (lambda: packed(cp_world_size=2), "cp_world_size is 2"),
    "8-bit out": (lambda: packed(output_scale=CU), "output_scale is a tensor"),
    "gather vllm": (lambda: packed(gather_kv_indices=CU), "gather_kv_indices .*sparse_flash"),
    "gather lengths": (lambda: packed(gather_kv_valid_length=CU), "gather_kv_valid_length is"),
    "dynamic": (lambda: packed(dynamic_causal=CU), "dynamic_causal is a tensor"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    call, words = REFUSED[name]
    with pytest.raises(lathe.Unsupported, match=words) as caught:
        call()
    assert isinstance(caught.value, RuntimeError) and isinstance(caught.value, NotImplementedError)


def test_wrong_tensors():
    with pytest.raises(lathe.InvalidArgument, match="k has .*f32|k has dtype"):
        TWO(Q, Q.float(), Q)
    with pytest.raises(RuntimeError, match="alibi_slopes"):
        TWO(Q, Q, Q, alibi_slopes=torch.zeros(2, dtype=torch.float16))
    with pytest.raises(lathe.InvalidArgument, match="HK|heads|divide"):
        TWO(Q, Q[:, :, :1].expand(1, 8, 3, 32), Q[:, :, :1].expand(1, 8, 3, 32))
    with pytest.raises(lathe.InvalidArgument, match="cache_seqlens has dtype"):
        cache(flash_attn, cache_seqlens=torch.zeros(1))


PAGES = Q.view(4, 2, 2, 32)
ONE = torch.zeros(6, 1, 2, 32, dtype=torch.float16)
FEW = torch.zeros(2, dtype=torch.int32)
META = flash_mla.FlashMLASchedMeta()
LATENT = torch.zeros(2, 1, 4, 576, dtype=torch.float16)
LATENT_PAGES = torch.zeros(3, 8, 1, 576, dtype=torch.float16)


def over_pages(table, q=ONE[:2, 0], used=FEW, cu=torch.tensor([0, 1, 2]).int()):
    return vllm.flash_attn_varlen_func(q, PAGES, PAGES, 1, cu, 1, seqused_k=used,
                                       block_table=table)


def with_new(new, **more):
    return flash_attn_3.flash_attn_with_kvcache(ONE[:2], PAGES, PAGES.clone(), new, new,
                                                cache_seqlens=FEW, **more)


INVALID = {
    "list of offsets": (lambda: flash_attn.flash_attn_varlen_func(ROWS, ROWS, ROWS, [0, 8], CU, 8,
                                                                  8),
                        "cu_seqlens_q is a list; allowed is a tensor of torch: torch.as_tensor"),
    "list of offsets over pages": (lambda: over_pages(FEW[:, None], cu=[0, 1, 2]),
                                   "cu_seqlens_q is a list"),
    "array of NumPy": (lambda: TWO(Q.numpy(), Q, Q), "q is a numpy.ndarray; allowed is a tensor"),
    "array for a cache": (lambda: flash_attn.flash_attn_with_kvcache(Q, Q.numpy(), Q),
                          "k_cache is a numpy.ndarray"),
    "array for packed": (lambda: flash_attn.flash_attn_qkvpacked_func(Q[:, :, None].numpy()),
                         "qkv is a numpy.ndarray"),
    "list of lengths": (lambda: cache(flash_attn, cache_seqlens=[3]),
                        "cache_seqlens is a list; allowed is an int or a tensor of torch or None"),
    "list of sinks": (lambda: FOUR(Q, Q, Q, learnable_sink=[1.0, 2.0]), "learnable_sink is a list"),
    "list of indices": (lambda: flash_mla.flash_mla_sparse_fwd(LATENT[0], LATENT_PAGES[0], [[0]],
                                                                1.0),
                        "indices is a list"),
    "fraction of a length": (lambda: cache(flash_attn, cache_seqlens=3.5), "cache_seqlens is 3.5"),
    "length of no dimension": (lambda: cache(flash_attn, cache_seqlens=torch.tensor(3)),
                               r"cache_seqlens has shape \[\]; allowed is \[B\]"),
    "table of one dimension": (lambda: cache(flash_attn, cache_seqlens=FEW[:1], block_table=FEW),
                               r"block_table has shape \[2\]; allowed is \[B, pages"),
    "table of one dimension 3": (lambda: cache(flash_attn_3, page_table=FEW), "page_table has sha"),
    "table of one dimension, packed": (lambda: over_pages(FEW), r"block_table has shape \[2\]"),
    "table of one dimension, latent": (lambda: flash_mla.flash_mla_with_kvcache(
        LATENT, LATENT_PAGES, FEW, FEW, 512, META), r"block_table has shape \[2\]"),
    "rows of a table": (lambda: over_pages(torch.zeros(3, 1).int()),
                        "block_table has 3 sequences; allowed are as many as cu_seqlens_q has, 2"),
    "lengths of others": (lambda: over_pages(FEW[:, None], used=FEW[:1]),
                          "seqused_k has 1 sequences; .* cu_seqlens_q has, 2"),
    "lengths of others, latent": (lambda: flash_mla.flash_mla_with_kvcache(
        LATENT, LATENT_PAGES, FEW[:, None], FEW[:1], 512, META), "cache_seqlens has 1 sequences"),
    "lists of others": (lambda: flash_mla.flash_mla_with_kvcache(
        LATENT, LATENT_PAGES, None, None, 512, META, indices=torch.zeros(1, 2, 4).int()),
        r"indices has shape \[1, 2, 4\]; allowed is \[2, 1, topk\]"),
    "more sequences than rows": (lambda: flash_attn.flash_attn_with_kvcache(ONE, PAGES, PAGES),
                                 "q has 6 sequences and k_cache 4 rows; allowed are at most"),
    "more sequences than rows 3": (lambda: flash_attn_3.flash_attn_with_kvcache(ONE, PAGES, PAGES),
                                   "q has 6 sequences and k_cache 4 rows"),
    "new keys of one sequence": (lambda: with_new(ONE[:1].expand(1, 2, 2, 32)),
                                 "k has 1 sequences; allowed are as many as block_table has, 2"),
    "new keys of another width": (lambda: with_new(ONE[:2, :, :, :16].repeat(1, 2, 1, 1)),
                                  r"k has shape \[2, 2, 2, 16\].*allowed are \[2, 2, 2, 32\]"),
    "new keys of another type": (lambda: with_new(ONE[:2].repeat(1, 2, 1, 1).bfloat16()),
                                 "k has .* torch.bfloat16; allowed are .* torch.float16"),
    "packed new keys of others": (lambda: with_new(ONE[0], cu_seqlens_k_new=CU),
                                  "cu_seqlens_k_new has 1 sequences; .* block_table has, 2"),
    "softcap": (lambda: TWO(Q, Q, Q, softcap=math.nan), "softcap is nan, but must be finite"),
    "softcap of a cache": (lambda: cache(flash_attn_3, softcap=math.nan), "softcap is nan"),
    "window of one number": (lambda: TWO(Q, Q, Q, window_size=3),
                             "window_size is 3; allowed are two integers"),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid(name):
    call, words = INVALID[name]
    with pytest.raises(lathe.InvalidArgument, match=words):
        call()


def test_errors_of_others_stay():
    """An error that no argument's kind explains is handed on."""
    with pytest.raises(TypeError, match="colour"):
        TWO(Q, Q, Q, colour=1)


def test_numbers_as_tensors_and_none():
    """Servers give numbers as tensors without dimensions."""
    x = torch.randn(1, 8, 2, 32).half()
    plain = TWO(x, x, x, softmax_scale=0.25, window_size=(3, 1), softcap=2.0)
    assert torch.equal(plain, TWO(x, x, x, softmax_scale=torch.tensor(0.25), softcap=2.0,
                                  window_size=(torch.tensor(3), torch.tensor(1))))
    assert torch.equal(TWO(x, x, x), TWO(x, x, x, window_size=None, softcap=None))
    assert torch.equal(vllm.flash_attn_varlen_func(x[0], x[0], x[0], torch.tensor(8), CU, 8, CU),
                       TWO(x, x, x)[0])


def test_accepted_without_effect():
    scale = torch.ones(1, 2)
    plain = TWO(Q, Q, Q)
    for out in (THREE(Q, Q, Q, None, False, None, scale, scale, scale, num_splits=3, pack_gqa=True,
                      sm_margin=8, softcap=-1.0),
                FOUR(Q, Q, Q, num_splits=3, pack_gqa=False, aux_tensors=[])[0],
                TWO(Q, Q, Q, window_size=(None, -5), softcap=-2.0)):
        assert torch.equal(out, plain)
    assert flash_attn_3.get_scheduler_metadata(1, 8, 8, 2, 2, 32, CU).shape == (0,)
    cache(flash_attn_3, scheduler_metadata=CU, pack_gqa=True, sm_margin=1, rotary_interleaved=False)
