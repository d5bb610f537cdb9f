# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""What lathe.compat's attention refuses, saying what to do; what it takes and ignores."""
import pytest
import torch

import lathe
from lathe.compat import flash_attn, flash_attn_3, flash_attn_4, vllm

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
