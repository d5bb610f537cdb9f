# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Gradients against differences, and what the tests of functions.py's rows share."""
import torch

_STEP = 1e-2  # relative to the input: the result's rounding is far below it, and so is its square


def upstream(outputs, seed=5):
    """Returns a gradient for each output, the same ones at every call."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(each.shape, generator=generator).to(each.dtype) for each in outputs]


def leaves(tensors):
    """Returns tensors of their own that require gradients; strides are kept."""
    return {name: each.detach().clone().requires_grad_(each.is_floating_point())
            for name, each in tensors.items()}


def evaluate(row, tensors, call=None, given=None, gradients=None):
    """Returns (outputs, gradients by name) of a row's call on leaves made of tensors.

    given: upstream gradients in place of upstream()'s; None among them: the output is not used.
    """
    tensors = leaves(tensors) if gradients is None else tensors
    outputs = (call or row.call)(**tensors)
    chosen = [outputs[i] for i in row.gradients]
    if chosen:
        pairs = zip(chosen, upstream(chosen) if given is None else given)
        pairs = [(output, up) for output, up in pairs if up is not None]
        torch.autograd.backward(*zip(*pairs))
    found = gradients if gradients is not None else tensors
    return ([each.detach() for each in outputs if each is not None],
            {name: each.grad for name, each in found.items() if each.requires_grad})


def same(found, wanted, bound=1e-6):
    """Asserts that two results of evaluate() are equal up to a relative error."""
    assert len(found[0]) == len(wanted[0])
    pairs = [*((str(i), *pair) for i, pair in enumerate(zip(found[0], wanted[0]))),
             *((f"gradient of {name}", found[1][name], each) for name, each in wanted[1].items())]
    for name, one, other in pairs:
        assert (one is None) == (other is None), name
        if other is not None:
            assert one.shape == other.shape and one.dtype == other.dtype, name
            error = relative_error(one, other)
            assert error <= bound, f"{name}: {error:.2g} is over {bound:.2g}"


def relative_error(found, wanted):
    """Returns the root of the mean square error, relative to that of what is wanted."""
    found, wanted = found.detach().double(), wanted.detach().double()
    kept = wanted.isfinite()
    assert torch.equal(found[~kept], wanted[~kept]), "infinities differ"
    found, wanted = found[kept], wanted[kept]
    scale = wanted.square().mean().sqrt().item() if wanted.numel() else 0.0
    error = (found - wanted).square().mean().sqrt().item() if wanted.numel() else 0.0
    return error / scale if scale > 0 else error


def _loss(call, tensors, ups):
    with torch.no_grad():
        outputs = call(**tensors)
    return sum((output.double() * up.double()).sum().item() for output, up in zip(outputs, ups))


def _directions(gradient, generator, count):
    """Yields steps with elements about 1: the gradient, which finds a factor, and random signs.

    The mean square of <e, signs> is |e|^2 for any e, so signs find a term that is missing.
    """
    norm = gradient.norm()
    if norm > 0:
        yield (gradient * (gradient.numel()**0.5 / norm)).clamp(-3, 3)
    for _ in range(count):
        yield torch.randint(0, 2, gradient.shape, generator=generator).double() * 2 - 1


def errors(call, tensors, gradients, ups, directions=2):
    """Returns by name how far gradients are from central differences, relative to the gradient.

    call(**tensors) returns the outputs whose upstream gradients are ups. Per input this is the
    larger of two errors: along the gradient, and the root of the mean square over random signs.
    """
    found = {}
    generator = torch.Generator().manual_seed(3)
    for name, gradient in gradients.items():
        gradient, given = gradient.double(), tensors[name]
        step = _STEP * max(given.double().square().mean().sqrt().item(), 1e-3)
        off = []
        for signs in _directions(gradient, generator, directions):
            both = [{**tensors, name: (given.double() + side * step * signs).to(given.dtype)}
                    for side in (1, -1)]
            moved = both[0][name].double() - both[1][name].double()  # as it was rounded
            difference = _loss(call, both[0], ups) - _loss(call, both[1], ups)
            wanted = (gradient * moved).sum().item()
            off.append((difference - wanted) / (2 * step))
        along, signs = off[:-directions], off[-directions:]
        norm = gradient.norm().item()
        worst = max((sum(each * each for each in signs) / len(signs))**0.5,
                    *(abs(each) / gradient.numel()**0.5 for each in along), 0.0)
        found[name] = worst / norm if norm > 0 else worst
    return found
