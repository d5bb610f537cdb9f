# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""lathe.compat.torch_cp on four ranks that are threads, against attention on one rank."""
import inspect

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

import lathe
import lathe.torch as lt
from lathe.compat import torch_cp
from threads import over_ranks

WORLD = 4


class Mesh:
    """As much of a DeviceMesh as context parallelism asks for: threads cannot share a real one."""

    def size(self):
        return dist.get_world_size()

    def get_group(self):
        return dist.group.WORLD


def whole(length, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn((1, 2, length, 32), generator=generator).half() for _ in range(4)]


def error(found, wanted):
    return ((found - wanted).double().pow(2).mean() / wanted.double().pow(2).mean()).sqrt().item()


@pytest.mark.parametrize("length, rotate", [(128, "allgather"), (128, "alltoall"),
                                            (99, "allgather")])
def test_attention_forward_and_backward(length, rotate):
    q, k, v, dout = whole(length)
    exact = [each.double().requires_grad_() for each in (q, k, v)]
    wanted = F.scaled_dot_product_attention(*exact, is_causal=True)
    wanted.backward(dout.double())
    wanted = [wanted.detach(), *(each.grad for each in exact)]

    def work(rank):
        buffers = [each.clone() for each in (q, k, v, dout)]
        with torch_cp.context_parallel(Mesh(), buffers=buffers, buffer_seq_dims=[2] * 4,
                                       no_restore_buffers={buffers[3]}):
            local = [each.detach().clone().requires_grad_() for each in buffers[:3]]
            out = F.scaled_dot_product_attention(*local, is_causal=True)
            out.backward(buffers[3])
            parts = [out.detach(), *(each.grad for each in local)]
        assert all(torch.equal(*pair) for pair in zip(buffers[:3], (q, k, v))), "not restored"
        assert buffers[3].shape[2] < length
        return torch_cp.context_parallel_unshard(Mesh(), parts, [2] * 4)

    before = F.scaled_dot_product_attention
    torch_cp.set_rotate_method(rotate)
    try:
        results = over_ranks(WORLD, work)
    finally:
        torch_cp.set_rotate_method("allgather")
    assert F.scaled_dot_product_attention is before
    for found in results:
        assert max(error(*pair) for pair in zip(found, wanted)) < 3e-3


def test_ranks_in_any_layout_take_the_place_of_a_mesh():
    """A table of uneven ranges, one rank without tokens: the same Ranks as of the other layers."""
    length = 99
    table = [[(0, 7), (60, 99)], [(7, 20)], [], [(20, 60)]]
    q, k, v, dout = whole(length)
    exact = [each.double().requires_grad_() for each in (q, k, v)]
    wanted = F.scaled_dot_product_attention(*exact, is_causal=True)
    wanted.backward(dout.double())
    wanted = [wanted.detach(), *(each.grad for each in exact)]

    def work(rank):
        over = lt.Ranks(None, length, ranges=table)
        buffers = [each.clone() for each in (q, k, v, dout)]
        with torch_cp.context_parallel(over, buffers=buffers, buffer_seq_dims=[2] * 4):
            assert buffers[0].shape[2] == sum(last - first for first, last in table[rank])
            local = [each.detach().clone().requires_grad_() for each in buffers[:3]]
            out = F.scaled_dot_product_attention(*local, is_causal=True)
            out.backward(buffers[3])
            parts = [out.detach(), *(each.grad for each in local)]
        assert all(torch.equal(*pair) for pair in zip(buffers, (q, k, v, dout))), "not restored"
        with pytest.raises(lathe.InvalidArgument, match="has 98 tokens; the Ranks were made for 99"):
            torch_cp._context_parallel_shard(over, [q[:, :, :98]], [2])
        with pytest.raises(lathe.InvalidArgument, match="load_balancer is given beside Ranks"):
            torch_cp.context_parallel_unshard(over, parts, [2] * 4, torch_cp._LoadBalancer())
        with pytest.raises(lathe.Unsupported, match="made of lathe's group"):
            torch_cp.context_parallel_unshard(lt.Ranks(lt.group(), length), parts[:1], [2])
        return torch_cp.context_parallel_unshard(over, parts, [2] * 4)

    for found in over_ranks(WORLD, work):
        assert max(error(*pair) for pair in zip(found, wanted)) < 3e-3


def test_shard_and_unshard_are_inverse():
    x = torch.arange(2 * 48).reshape(2, 48)
    balancers = [None, torch_cp._HeadTailLoadBalancer(48, WORLD, "cpu"),
                 torch_cp._PerDocumentHeadTailLoadBalancer([[16, 32], [48]], WORLD, "cpu")]

    def work(rank):
        for balancer in balancers:
            (part,) = torch_cp._context_parallel_shard(Mesh(), [x], [1], balancer)
            assert part.shape == (2, 12)
            order = balancer or torch_cp._LoadBalancer()
            if balancer is None:
                order._generate_indices = lambda restore=False: None
            (back,) = torch_cp.context_parallel_unshard(Mesh(), [part], [1], order)
            assert torch.equal(back, x)
        return part

    over_ranks(WORLD, work)


def test_refusals():
    q, k, v, _ = whole(64)

    def work(rank):
        with torch_cp.context_parallel(Mesh(), buffers=[q.clone()], buffer_seq_dims=[2]):
            part = q[:, :, :16]
            with pytest.raises(lathe.Unsupported, match="attn_mask"):
                F.scaled_dot_product_attention(part, part, part, torch.ones(16, 16))
            with pytest.raises(lathe.Unsupported, match="dropout_p is 0.5; allowed is 0"):
                F.scaled_dot_product_attention(part, part, part, dropout_p=0.5)
            with pytest.raises(lathe.InvalidArgument, match="query has 64"):
                F.scaled_dot_product_attention(q, q, q)
        with pytest.raises(ValueError, match="subset"):
            with torch_cp.context_parallel(Mesh(), buffers=[q], buffer_seq_dims=[2],
                                           no_restore_buffers={k}):
                pass
        # A balancer's order of fewer tokens would leave some out, one of more name none.
        for other in (q[:, :, :32], torch.cat([q, q], 2)):
            with pytest.raises(lathe.InvalidArgument, match="balancer orders 64 tokens, but dim"):
                with torch_cp.context_parallel(Mesh(), buffers=[q.clone(), other.clone()],
                                               buffer_seq_dims=[2, 2]):
                    pass

    over_ranks(2, lambda rank: None)
    over_ranks(WORLD, work)
    with pytest.raises(NotImplementedError):
        torch_cp.set_rotate_method("ring")


def test_signatures():
    assert str(inspect.signature(torch_cp.context_parallel)).startswith("(mesh: 'Any', *, buffers")
    assert list(inspect.signature(torch_cp.context_parallel_unshard).parameters) == [
        "mesh", "buffers", "seq_dims", "load_balancer"]
    assert list(inspect.signature(torch_cp._context_parallel_shard).parameters) == [
        "mesh", "buffers", "seq_dims", "load_balancer"]
