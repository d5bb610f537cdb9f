# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Models of transformers on lathe by register(), against the same models in float64."""
import os

import pytest
import torch
from torch._dynamo.utils import counters

pytest.importorskip("transformers", reason="transformers is not installed: "
                                           "tests/peers/install.sh installs it")

import transformers
from transformers.masking_utils import create_masks_for_generate

import lathe.compat.transformers as ours
from lathe import Plan
from lathe.torch import _calls
from transformers_models import MODELS, error, generate, make, without_lathe

TOKENS = 21
EXACT = 3e-6  # what norms and rotary embeddings in float32 leave, with and without lathe
thorough = pytest.mark.skipif(
    not os.environ.get("LATHE_THOROUGH"),
    reason="inductor compiles C++ for minutes: LATHE_THOROUGH=1 runs it")


@pytest.fixture(scope="module", autouse=True)
def registered():
    ours.register()
    yield
    ours.unregister()


def tokens(batch=2):
    return torch.randint(3, 97, (batch, TOKENS), generator=torch.Generator().manual_seed(1))


def padding(side):
    mask = torch.ones(2, TOKENS, dtype=torch.int64)
    mask[0, slice(0, 5) if side == "left" else slice(-5, None)] = 0
    return mask


PARTS = (7, 10, 4)


def packed():
    positions = torch.cat([torch.arange(n) for n in PARTS])[None]
    return {"position_ids": positions, "use_cache": False}


@torch.no_grad()
def apart(model):
    """Returns the logits of packed sequences, computed one by one."""
    return torch.cat([model(part).logits for part in tokens(1).split(PARTS, 1)], 1)


LAYOUTS = {
    "whole": (2, lambda: {}),
    "left": (2, lambda: {"attention_mask": padding("left")}),
    "right": (2, lambda: {"attention_mask": padding("right")}),
    "packed": (1, packed),
}


def is_recurrent(name):
    return name.startswith(("lfm2", "kimi"))


@torch.no_grad()
def logits(model, layout):
    """Returns the logits of the tokens that are no padding."""
    batch, arguments = LAYOUTS[layout]
    given = arguments()
    found = model(tokens(batch), **given).logits
    assert not found.isnan().any()
    mask = given.get("attention_mask")
    return found if mask is None else found[mask.bool()]


@pytest.mark.parametrize("name", MODELS)
def test_logits(name):
    layouts = [each for each in LAYOUTS if each != "packed" or not is_recurrent(name)]
    with without_lathe():
        reference = make(name, "float64", torch.float64)
        expected = {layout: apart(reference) if layout == "packed" else logits(reference, layout)
                    for layout in layouts}
        plain = make(name, "eager", torch.bfloat16)
        whole = logits(plain, "whole")
    exact, narrow = make(name, "lathe", torch.float32), make(name, "lathe", torch.bfloat16)
    for layout in layouts:
        assert error(logits(exact, layout), expected[layout]) < EXACT, layout
    bound = 1.5 * error(whole, expected["whole"]) + 1e-3
    assert error(logits(narrow, "whole"), expected["whole"]) < bound


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", MODELS)
def test_generate(name, cache):
    given = [{}, {"attention_mask": padding("left")}]
    with without_lathe():
        plain = make(name, "eager", torch.float32)
        expected = [generate(plain, tokens(), **each) for each in given]
    model = make(name, "lathe", torch.float32)
    for each, wanted in zip(given, expected):
        found = generate(model, tokens(), cache_implementation=cache, **each)
        assert torch.equal(found, wanted), each


@pytest.mark.parametrize("name", [each for each in MODELS if not is_recurrent(each)])
def test_steps_of_decoding_in_bfloat16(name):
    """The kernels that decode, padded: logits of each step, given the same tokens."""
    with without_lathe():
        reference, plain = make(name, "float64", torch.float64), make(name, "eager", torch.bfloat16)
        expected, eager = steps(reference), steps(plain)
    found = steps(make(name, "lathe", torch.bfloat16))
    assert error(found, expected) < 1.5 * error(eager, expected) + 1e-3


@torch.no_grad()
def steps(model, count=4):
    ids, mask = tokens(), padding("left")
    begin = TOKENS - count
    out = model(ids[:, :begin], attention_mask=mask[:, :begin], use_cache=True)
    found = [out.logits[:, -1]]
    for at in range(begin, TOKENS):
        positions = mask[:, :at + 1].sum(-1, keepdim=True) - 1
        out = model(ids[:, at:at + 1], attention_mask=mask[:, :at + 1], position_ids=positions,
                    past_key_values=out.past_key_values)
        found.append(out.logits[:, -1])
    return torch.stack(found)


def test_gradients():
    name = "gpt_oss, sinks and windows"
    given = {"labels": tokens(), "attention_mask": padding("left")}
    with without_lathe():
        reference = make(name, "float64", torch.float64).train()
        reference(tokens(), **given).loss.backward()
    model = make(name, "lathe", torch.float32).train()
    model(tokens(), **given).loss.backward()
    checked = 0
    for (which, wanted), found in zip(reference.named_parameters(), model.parameters()):
        if wanted.grad is not None and wanted.grad.norm() > 0:
            assert error(found.grad, wanted.grad) < 3e-5, which
            checked += "sinks" in which or "k_proj" in which
    assert checked >= 4


@pytest.mark.parametrize("name", ["mistral, window", "gpt_oss, sinks and windows",
                                  "kimi_linear, KDA and latent attention"])
def test_twenty_steps_make_no_plan(name, monkeypatch):
    """A plan is what looks for kernels and compiles them; the first steps make all there are."""
    made = []
    monkeypatch.setattr(_calls, "Plan", lambda *arguments: made.append(1) or Plan(*arguments))
    _calls.forget_plans()
    model, ids = make(name, "lathe", torch.bfloat16), tokens()
    with torch.no_grad():
        out = model(ids, use_cache=True)
        for step in range(24):
            out = model(ids[:, :1], past_key_values=out.past_key_values)
            if step == 3:
                assert made
                made.clear()
    assert made == []


@torch.no_grad()
def compiled_error(name, backend):
    """Returns the worst error of compiled forwards."""
    model = make(name, "lathe", torch.float32)
    compiled = torch.compile(model, backend=backend)
    worst = 0.0
    for layout in LAYOUTS:
        if layout != "packed" or not is_recurrent(name):
            worst = max(worst, error(logits(compiled, layout), logits(model, layout).double()))
    return worst


@pytest.mark.skipif(torch.__version__.startswith("2.6."), reason="torch 2.6's dynamo resumes a "
                    "decorator of transformers without its globals: NameError: name 'torch'")
@torch.no_grad()
def test_compiled_steps_make_two_graphs():
    """One for each of the two kinds of mask that a static cache has, whatever the length."""
    torch._dynamo.reset()
    counters.clear()
    model = make("mistral, window", "lathe", torch.float32)
    compiled = torch.compile(model, backend="aot_eager")
    caches = [transformers.StaticCache(config=model.config, max_cache_len=64) for _ in range(2)]
    ids = tokens()
    for cache in caches:
        model(ids, past_key_values=cache)
    for step in range(8):
        found = []
        for run, cache in zip((compiled, model), caches):
            mask = create_masks_for_generate(
                config=model.config, inputs_embeds=torch.empty(2, 1, 0), attention_mask=None,
                past_key_values=cache)
            position = torch.full((2, 1), TOKENS + step)
            found.append(run(ids[:, :1], attention_mask=mask, position_ids=position,
                             past_key_values=cache).logits)
        assert error(found[0], found[1].double()) < EXACT
    assert counters["stats"]["unique_graphs"] <= 2 and not counters["graph_break"]


@pytest.mark.parametrize("name", ["gemma2, softcap and windows"])
def test_compiled_graphs(name):
    torch._dynamo.reset()
    assert compiled_error(name, "aot_eager") < EXACT


@thorough
@pytest.mark.parametrize("name", MODELS)
def test_compiled(name):
    torch._dynamo.reset()
    assert compiled_error(name, "inductor") < EXACT
