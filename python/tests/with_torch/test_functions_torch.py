# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""What torch does around every function of the table: views, hooks, threads, transforms."""
import re
import threading

import pytest
import torch
from torch.autograd import forward_ad
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import functions
import lathe
import lathe.torch as lt
from differences import evaluate, leaves, same, upstream
from lathe.compat import sdpa

pytestmark = pytest.mark.usefixtures("sdpa_on_cpu")
each_row = pytest.mark.parametrize("row", functions.ROWS, ids=str)
differentiable = pytest.mark.parametrize("row", functions.DIFFERENTIABLE, ids=str)
pairs = pytest.mark.parametrize(
    "row", [row for row in functions.DIFFERENTIABLE if len(row.gradients) == 2], ids=str)


def ups_of(row, tensors):
    return upstream([row.call(**tensors)[i] for i in row.gradients])


# ---- views ---------------------------------------------------------------------------------------


def transposed(tensor):
    return tensor.mT.contiguous().mT if tensor.dim() > 1 else tensor


def sliced(tensor):
    return torch.stack([tensor, torch.zeros_like(tensor)], -1).flatten(-2)[..., ::2]


def between(tensor):
    """Returns rows that are contiguous and lie between others."""
    room = torch.zeros_like(tensor[..., :1]).expand(*tensor.shape[:-1], 16)
    return torch.cat([room, tensor, room], -1)[..., 16:-16]


def expanded(tensor):
    return tensor[:1].expand_as(tensor) if tensor.is_floating_point() else tensor


LAYOUTS = (transposed, sliced, between, expanded)


def changed(row):
    """Returns the inputs of a row that are changed in place: they may not be just any view."""
    return () if row.gradients else ("k_cache", "v_cache", "pool", "initial_state")


@each_row
@pytest.mark.parametrize("shift", (0, 2))
def test_inputs_that_are_views(row, shift):
    """Neighbours have different layouts; the values are those of contiguous copies."""
    def laid(contiguous):
        def call(**tensors):
            views = {}
            for i, (name, each) in enumerate(tensors.items()):
                if name not in changed(row):
                    each = LAYOUTS[(i + shift) % len(LAYOUTS)](each)
                views[name] = each.contiguous() if contiguous else each
            return row.call(**views)
        return call

    tensors = row.inputs()
    same(evaluate(row, tensors, laid(False)), evaluate(row, tensors, laid(True)))


@differentiable
def test_upstream_gradients_that_are_views(row):
    tensors = row.inputs()
    ups = ups_of(row, tensors)
    for layout in LAYOUTS:
        views = [layout(each) for each in ups]
        wanted = evaluate(row, tensors, given=[each.contiguous() for each in views])
        same(evaluate(row, tensors, given=views), wanted)
    ones = [torch.ones((), dtype=each.dtype).expand_as(each) for each in ups]
    wanted = evaluate(row, tensors, given=[each.contiguous() for each in ones])
    same(evaluate(row, tensors, given=ones), wanted)


# ---- which gradients are asked for ---------------------------------------------------------------


@pairs
def test_an_output_that_is_not_used(row):
    tensors = row.inputs()
    first, second = ups_of(row, tensors)
    zeros = [torch.zeros_like(each) for each in (first, second)]
    same(evaluate(row, tensors, given=[first, None]),
         evaluate(row, tensors, given=[first, zeros[1]]))
    same(evaluate(row, tensors, given=[None, second]),
         evaluate(row, tensors, given=[zeros[0], second]))


@differentiable
def test_one_input_that_requires_a_gradient(row):
    tensors = row.inputs()
    _, wanted = evaluate(row, tensors)
    for name in wanted:
        given = leaves(tensors)
        for other, each in given.items():
            each.requires_grad_(other == name)
        outputs = row.call(**given)
        chosen = [outputs[i] for i in row.gradients]
        used = [pair for pair in zip(chosen, upstream(chosen)) if pair[0].requires_grad]
        torch.autograd.backward(*zip(*used))
        same(([], {name: given[name].grad}), ([], {name: wanted[name]}))


# ---- autocast, checkpoints, hooks ----------------------------------------------------------------


@each_row
def test_autocast_casts_nothing(row):
    tensors = row.inputs()
    wanted = evaluate(row, tensors)
    with torch.autocast("cpu", torch.bfloat16):
        same(evaluate(row, tensors), wanted)


@differentiable
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint(row, reentrant):
    def call(**tensors):
        def run(*values):
            return row.call(**dict(zip(tensors, values)))
        return checkpoint(run, *tensors.values(), use_reentrant=reentrant)

    tensors = row.inputs()
    same(evaluate(row, tensors, call), evaluate(row, tensors))


@differentiable
def test_hooks_on_saved_tensors(row):
    """A backward reads what was saved: copies do, and the originals may change meanwhile."""
    tensors = row.inputs()
    wanted = evaluate(row, tensors)
    with saved_tensors_hooks(lambda each: each.detach().clone(), lambda each: each):
        given = leaves(tensors)
        outputs = row.call(**given)
    chosen = [outputs[i] for i in row.gradients]
    kept = [each.detach().clone() for each in outputs if each is not None]
    for each in (*given.values(), *outputs):
        if each is not None and each.is_floating_point():
            each.data.fill_(float("nan"))
    torch.autograd.backward(chosen, upstream(chosen))
    same((kept, {name: each.grad for name, each in given.items() if each.requires_grad}), wanted)


@differentiable
def test_a_graph_is_kept_for_a_second_backward(row):
    tensors = row.inputs()
    _, wanted = evaluate(row, tensors)
    given = leaves(tensors)
    outputs = row.call(**given)
    chosen = [outputs[i] for i in row.gradients]
    torch.autograd.backward(chosen, upstream(chosen), retain_graph=True)
    torch.autograd.backward(chosen, upstream(chosen))
    same(([], {name: given[name].grad for name in wanted}),
         ([], {name: 2 * each for name, each in wanted.items()}))


# ---- threads and errors --------------------------------------------------------------------------


@each_row
def test_two_threads(row):
    sizes, failures, start = (9, 12), [], threading.Barrier(2)
    inputs = [row.inputs(n) for n in sizes]
    wanted = [evaluate(row, each) for each in inputs]

    def work(which):
        try:
            start.wait()
            for _ in range(2):
                same(evaluate(row, inputs[which]), wanted[which])
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def _raise(gradient):
    raise KeyError("a hook")


def _as_integers(tensor):
    return tensor.to(torch.int32)


def _as_doubles(tensor):
    return tensor.double()


@differentiable
def test_an_error_in_a_backward_leaves_nothing_broken(row):
    tensors = row.inputs()
    wanted = evaluate(row, tensors)
    for hook, error in ((_raise, KeyError), (_as_integers, RuntimeError)):
        given = leaves(tensors)
        outputs = [row.call(**given)[i] for i in row.gradients]
        next(each for each in given.values() if each.requires_grad).register_hook(hook)
        outputs[0].register_hook(hook)
        with pytest.raises(error):
            torch.autograd.backward(outputs, upstream(outputs))
        same(evaluate(row, tensors), wanted)
    if row.module is sdpa:  # torch's own node of autograd, which checks less
        return
    with saved_tensors_hooks(lambda each: each, _as_doubles):
        outputs = [row.call(**leaves(tensors))[i] for i in row.gradients]
    with pytest.raises(RuntimeError):  # LatheError, or that of a node of torch
        torch.autograd.backward(outputs, upstream(outputs))
    same(evaluate(row, tensors), wanted)


# ---- transforms ----------------------------------------------------------------------------------

NO_TRANSFORM = "differentiated by torch.func or in forward mode; lathe has gradients by backward"
OWN = [row for row in functions.ROWS if row.module is not sdpa]


def of_first(row):
    """Returns (a function of a row's first input alone, that input)."""
    tensors = row.inputs()
    name = next(iter(tensors))
    return lambda each: row.call(**{**tensors, name: each})[0], tensors[name]


@pytest.mark.parametrize("row", [
    row for row in OWN if (row.module, row.function) != (
        functions.causal_conv1d, "causal_conv1d_varlen_states")], ids=str)
def test_torch_func_and_forward_mode_are_refused(row):
    function, x = of_first(row)
    with pytest.raises(lathe.Unsupported, match=NO_TRANSFORM):
        torch.func.grad(lambda each: function(each).float().sum())(x)
    with pytest.raises(lathe.Unsupported, match=NO_TRANSFORM):
        torch.func.jvp(function, (x,), (torch.ones_like(x),))
    with forward_ad.dual_level(), pytest.raises(lathe.Unsupported, match=NO_TRANSFORM):
        function(forward_ad.make_dual(x, torch.ones_like(x)))


@pytest.mark.parametrize("row", [row for row in OWN if row.gradients], ids=str)
def test_gradients_of_gradients_are_refused(row):
    function, x = of_first(row)
    x.requires_grad_()
    for loss in (lambda out: out.sum(), lambda out: out.square().sum()):
        (gradient,) = torch.autograd.grad(loss(function(x)), x, create_graph=True)
        with pytest.raises(lathe.Unsupported, match="no gradients of gradients"):
            torch.autograd.grad(gradient.sum(), x)
    out = function(x)
    with pytest.raises(lathe.Unsupported, match="batched .*; allowed is one"):
        torch.autograd.grad(out, x, torch.ones(2, *out.shape, dtype=out.dtype),
                            is_grads_batched=True)


def test_forward_mode_of_other_tensors_is_let_be():
    x, weight, state = torch.randn(2, 9, 32), torch.randn(32, 4), torch.ones(2, 32, 4)
    again, version = state.clone(), state._version
    wanted = lt.causal_conv1d(x, weight)[0], lt.causal_conv1d_update(x[:, 0], again, weight)
    with forward_ad.dual_level():
        forward_ad.make_dual(torch.ones(3), torch.ones(3))
        found = lt.causal_conv1d(x, weight)[0], lt.causal_conv1d_update(x[:, 0], state, weight)
    assert torch.equal(state, again) and state._version > version
    same((found, {}), (wanted, {}))


SHARED = re.compile("is changed in place by .* and has no dimension of vmap|"
                    "vmap: (aten::index_copy_|inplace arithmetic)")


@each_row
def test_vmap_gives_what_a_loop_gives(row):
    """The first input has slices of its own; a state or an output that they would share has none."""
    function, x = of_first(row)
    many = torch.stack([x, 2 * x, x])
    try:
        found = torch.func.vmap(function)(many)
    except RuntimeError as refusal:
        assert not row.gradients and SHARED.search(str(refusal)), refusal
        return
    same(([*found], {}), ([function(each) for each in many], {}))


# ---- changes in place ----------------------------------------------------------------------------


def test_changes_in_place_are_known_to_autograd():
    x, weight, state = torch.ones(2, 32), torch.ones(32, 4), torch.ones(2, 32, 4)
    factor = torch.ones(2, 32, 4, requires_grad=True)
    loss = (factor * state).sum()  # its backward needs the state as it was
    lt.causal_conv1d_update(x, state, weight)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    with torch.inference_mode():
        lt.causal_conv1d_update(x, torch.ones(2, 32, 4), weight)


def test_a_state_that_requires_a_gradient_is_not_changed():
    x, weight = torch.ones(2, 32), torch.ones(32, 4)
    state = torch.ones(2, 32, 4, requires_grad=True)
    with pytest.raises(lathe.Unsupported, match="state requires a gradient and is changed"):
        lt.causal_conv1d_update(x, state, weight)
    assert torch.equal(state, torch.ones(2, 32, 4))
