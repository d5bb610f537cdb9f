# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""torch.func.vmap over lathe's functions gives what one call for each slice gives: bit for bit."""
import pytest
import torch
from torch.func import vmap

import functions
import lathe
import lathe.torch as lt

LOOPED = "called for each slice of vmap"


def randn(*shape, dtype=torch.float16):
    return torch.randn(shape, dtype=dtype)


def offsets(*lengths):
    return torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)


def check(function, inputs, in_dims, loops=False):
    """Compares vmap with a loop; loops: whether vmap makes one call for each slice too."""
    size = next(each.shape[dim] for each, dim in zip(inputs, in_dims) if dim is not None)
    lt.stats(reset=True)
    found = vmap(function, in_dims=in_dims)(*inputs)
    assert (LOOPED in lt.stats()) == loops
    for slice in range(size):
        wanted = function(*(each if dim is None else each.select(dim, slice)
                            for each, dim in zip(inputs, in_dims)))
        for mine, theirs in zip(found, wanted):
            assert torch.equal(mine[slice], theirs), slice


def attention(**options):
    return lambda q, k, v: lt.flash_attention(q, k, v, **options)


@pytest.mark.parametrize("in_dims", ((0, 0, 0), (1, 0, 2), (0, None, None), (None, 0, 0)), ids=str)
def test_attention_is_one_call(in_dims):
    shapes = ((2, 9, 4, 16), (2, 12, 2, 16), (2, 12, 2, 24))
    inputs = []
    for shape, dim in zip(shapes, in_dims):
        shape = list(shape)
        if dim is not None:
            shape.insert(dim, 3)
        inputs.append(randn(*shape))
    check(attention(causal=True, window_left=5), inputs, in_dims)


def test_vmap_within_vmap():
    q = randn(2, 3, 2, 8, 2, 16)
    found = vmap(vmap(attention()))(q, q, q)[0]
    flat = q.flatten(0, 2)
    assert torch.equal(found.flatten(0, 2), lt.flash_attention(flat, flat, flat)[0])


def test_sinks_of_each_slice_are_a_call_of_each():
    q, sinks = randn(3, 2, 8, 2, 16), torch.randn(3, 2)
    check(lambda q, s: lt.flash_attention(q, q, q, sinks=s), (q, sinks), (0, 0), loops=True)
    check(lambda q, s: lt.flash_attention(q, q, q, sinks=s), (q, sinks[0]), (0, None))


def test_packed_sequences_are_a_call_of_each():
    q = randn(3, 10, 2, 16)
    cu = torch.stack([offsets(4, 6), offsets(10, 0), offsets(1, 9)])
    check(lambda q, cu: lt.flash_attention(q, q, q, cu_seqlens_q=cu, cu_seqlens_k=cu, causal=True),
          (q, cu), (0, 0), loops=True)


def test_a_mod_reads_the_row_of_its_slice():
    """A mod that reads the index in B means that of a slice, as it would in a loop."""
    q = randn(3, 2, 8, 2, 16)
    text = "__device__ float score_mod(float score, int batch, int, int, int kv_idx) " \
           "{ return score + batch * (kv_idx % 3); }"
    check(attention(score_mod=text), (q, q, q), (0, 0, 0), loops=True)


def test_absolute_lists_count_from_the_keys_of_their_slice():
    q, k = randn(3, 2, 4, 2, 64), randn(3, 2, 8, 1, 64)
    lists = torch.randint(0, 16, (3, 2, 4, 1, 4), dtype=torch.int32)
    for space in ("absolute", "sequence"):
        check(lambda q, k, i: lt.sparse_flash_attention(q, k, k, i % (16 if space[0] == "a" else 8),
                                                        scale=0.1, index_space=space),
              (q, k, lists), (0, 0, 0), loops=space == "absolute")


def test_positions_that_slices_share():
    q, cache, angle = randn(2, 2, 2, 4, 16), randn(4, 8, 2, 16), torch.randn(32, 4)
    table = torch.tensor([[1, 2], [3, 0]], dtype=torch.int32)
    lengths = torch.tensor([9, 12], dtype=torch.int32)
    for in_dims in ((0, None), (0, 0)):
        positions = torch.tensor([3, 20] if in_dims[1] is None else [[3, 20], [9, 5]]).int()
        check(lambda q, positions: lt.flash_attention_decode(
            q, cache, cache, table, lengths, rope_cos=angle.cos(), rope_sin=angle.sin(),
            rope_positions=positions), (q, positions), in_dims)


def test_kda_and_its_states():
    q, k, v = (randn(3, 1, 70, 2, 32) for _ in range(3))
    g, beta = -torch.rand(3, 1, 70, 2, 32), torch.rand(3, 1, 70, 2)
    state = torch.randn(3, 1, 2, 32, 32)
    check(lambda *inputs: lt.kda(*inputs[:5], initial_state=inputs[5],
                                 output_final_state=True, use_qk_l2norm_in_kernel=True)[:2],
          (q, k, v, g, beta, state), (0,) * 6)
    check(lambda *inputs: lt.kda_recurrent(*inputs[:5], initial_state=inputs[5],
                                           output_final_state=True,
                                           use_qk_l2norm_in_kernel=True),
          (q, k, v, g, beta, state), (0,) * 6)


def test_convolution_with_weights_of_one_and_of_each():
    x, weight = torch.randn(3, 2, 9, 8), torch.randn(3, 8, 4)
    check(lambda x, w: lt.causal_conv1d(x, w, activation="silu")[:1], (x, weight[0]), (0, None))
    check(lambda x, w: lt.causal_conv1d(x, w)[:1], (x, weight), (0, 0), loops=True)


# ---- changes in place ----------------------------------------------------------------------------


def test_states_are_changed_in_place():
    x, weight = torch.randn(3, 2, 8), torch.randn(8, 4)
    state = torch.randn(3, 2, 8, 4)
    mine, theirs = state.clone(), state.clone()
    lt.stats(reset=True)
    found = vmap(lt.causal_conv1d_update, in_dims=(0, 0, None))(x, mine, weight)
    for slice in range(3):
        assert torch.equal(found[slice], lt.causal_conv1d_update(x[slice], theirs[slice], weight))
    assert LOOPED not in lt.stats()
    assert torch.equal(mine, theirs) and not torch.equal(mine, state)
    between = state.movedim(0, 1).contiguous()  # slices that lie between one another
    with pytest.raises(lathe.InvalidArgument, match="state has strides .*without gaps"):
        vmap(lt.causal_conv1d_update, in_dims=(0, 1, None))(x, between, weight)


def test_a_state_that_slices_would_share_is_refused():
    x, state, weight = torch.randn(3, 2, 8), torch.randn(2, 8, 4), torch.randn(8, 4)
    before = state.clone()
    with pytest.raises(lathe.Unsupported, match="state is changed in place .* has no dimension of"):
        vmap(lt.causal_conv1d_update, in_dims=(0, None, None))(x, state, weight)
    assert torch.equal(state, before)


def test_a_cache_is_shared_where_nothing_is_appended():
    q, cache, new = randn(3, 2, 1, 4, 16), randn(6, 8, 2, 16), randn(3, 2, 1, 2, 16)
    table = torch.randperm(6, dtype=torch.int32).view(2, 3)
    lengths = torch.tensor([[5, 20], [1, 24], [8, 9]], dtype=torch.int32)
    check(lambda q, n: lt.flash_attention_decode(q, cache, cache, table, n), (q, lengths), (0, 0))
    with pytest.raises(lathe.Unsupported, match="k_cache is changed in place"):
        vmap(lambda q, k: lt.flash_attention_decode(q, cache, cache.clone(), table, lengths[0],
                                                    k_new=k, v_new=k))(q, new)


def test_an_output_that_is_given():
    q, k, v = (randn(3, 1, 4, 2, 32) for _ in range(3))
    g, beta, out = -torch.rand(3, 1, 4, 2, 32), torch.rand(3, 1, 4, 2), torch.zeros_like(q)
    vmap(lambda *inputs: lt.kda_recurrent(*inputs[:5], out=inputs[5])[0])(q, k, v, g, beta, out)
    for slice in range(3):
        wanted = lt.kda_recurrent(q[slice], k[slice], v[slice], g[slice], beta[slice])[0]
        assert torch.equal(out[slice], wanted)


# ---- gradients -----------------------------------------------------------------------------------


def test_gradients_within_and_through_vmap_are_refused():
    q = randn(3, 2, 8, 2, 16)

    def loss(q):
        return lt.flash_attention(q, q, q)[0].float().sum()

    with pytest.raises(lathe.Unsupported, match="differentiated by torch.func"):
        vmap(torch.func.grad(loss))(q)
    with pytest.raises(lathe.Unsupported, match="differentiated by torch.func"):
        vmap(loss)(q.requires_grad_())


def test_batched_upstream_gradients_are_refused():
    q = randn(2, 8, 2, 16).requires_grad_()
    out = lt.flash_attention(q, q, q)[0]
    with pytest.raises(lathe.Unsupported, match="batched .*call backward once for each"):
        torch.autograd.grad(out, q, torch.ones(3, *out.shape, dtype=out.dtype),
                            is_grads_batched=True)
