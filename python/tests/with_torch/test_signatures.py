# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The functions of lathe.torch show every option: signatures, texts and defaults are the table's."""
import ast
import inspect
import typing

import pytest
import torch

import function_inputs
import lathe
import lathe.torch as lt
from lathe.torch import _functions, _operator_calls, _signatures

INNER = {"saved_forward"}  # set by a backward
FUNCTIONS = [name for name in lt.__all__ if name in lathe.operators()]
ALL = ["causal_conv1d", "causal_conv1d_update", "flash_attention", "flash_attention_decode",
       "kda", "kda_decode", "kda_recurrent", "sparse_flash_attention"]


def options_of(name):
    """Returns the options of a function: those of the operator that a caller may give."""
    return {option.name: option for option in lathe.operators()[name].options.values()
            if option.name not in INNER}


def test_these_are_all_functions():
    assert sorted(FUNCTIONS) == ALL


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_signature_has_every_option(name):
    shown = inspect.signature(getattr(lt, name)).parameters
    options = options_of(name)
    assert options.keys() <= shown.keys()
    assert not any(each.kind in (each.VAR_KEYWORD, each.VAR_POSITIONAL) for each in shown.values())
    hints = typing.get_type_hints(getattr(lt, name))
    for option in options.values():
        default, kind = shown[option.name].default, hints[option.name]
        words = option.allowed.split("|")
        if "LIST" in words:
            assert typing.get_args(kind) == (str, typing.get_args(kind)[1], type(None))
            assert typing.get_args(typing.get_args(kind)[1]) == (int,) and default is None
        elif option.type == "str" and "FILE" not in words:
            assert typing.get_args(kind) == tuple(words) and default == option.default
        elif set(words) == {"0", "1"}:
            assert kind in (bool, bool | None)
            assert default is None or default == int(option.default)
        elif default is None:
            assert type(None) in typing.get_args(kind) and not option.default.isdigit()
        elif default is not inspect.Parameter.empty:  # sparse attention's scale must be given
            assert isinstance(default, kind) and default == float(option.default)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_text_has_every_parameter(name):
    function = getattr(lt, name)
    text = " ".join(inspect.getdoc(function).split())
    table = lathe.operators()[name].tensors
    for parameter in inspect.signature(function).parameters:
        assert f" {parameter}: " in text
        if parameter in table and not parameter.startswith("out"):
            assert " ".join(table[parameter].sentence.split()) in text
    for option in options_of(name).values():
        if not option.name.startswith("output_"):  # outputs are returned here
            assert f"{option.name}: {' '.join(option.sentence.split())}" in text


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_takes_what_it_shows(name):
    """The function's own parameters, in the source, are the first that it shows."""
    source = ast.parse(inspect.getsource(_functions))
    given = next(each.args for each in source.body
                 if isinstance(each, ast.FunctionDef) and each.name == name)
    own = [each.arg for each in (*given.args, *given.kwonlyargs)]
    shown = inspect.signature(getattr(lt, name)).parameters
    assert list(shown)[:len(own)] == own
    assert [each for each, shape in shown.items() if shape.kind is shape.POSITIONAL_OR_KEYWORD] == [
        each.arg for each in given.args]
    assert given.kwarg is not None or len(own) == len(shown)
    assert inspect.signature(getattr(_signatures, name)) == inspect.signature(getattr(lt, name))


# ---- calls ---------------------------------------------------------------------------------------


def _attention(**options):
    return lt.flash_attention(**function_inputs.attention_inputs(9, torch.float32), **options)


def _kda(**options):
    inputs = function_inputs.kda_inputs(9, torch.float32)
    return lt.kda(**inputs, **{"use_gate_in_kernel": True, **options})


def _recurrent(**options):
    inputs = function_inputs.kda_inputs(9, torch.float32)
    return lt.kda_recurrent(**inputs, **{"use_gate_in_kernel": True, **options})


def _layer(**options):
    return lt.kda_decode(**function_inputs.kda_layer_inputs(3, torch.float32), **options)


def _conv(**options):
    return lt.causal_conv1d(**function_inputs.conv_inputs(9, torch.float32), **options)


def _conv_update(**options):
    given = function_inputs.conv_inputs(9, torch.float32)
    return lt.causal_conv1d_update(given["x"][:, 0].contiguous(), given["initial_state"].clone(),
                                   given["weight"], given["bias"], **options)


def _decode(**options):
    given = function_inputs.pages(9, torch.float16)
    return lt.flash_attention_decode(given["q"], given["k_cache"], given["v_cache"], given["table"],
                                     given["lengths"], **options)


def _sparse(**options):
    return lt.sparse_flash_attention(**function_inputs.sparse_inputs(9, torch.float16), scale=0.1,
                                     **options)


CALLS = {"flash_attention": _attention, "kda": _kda, "kda_recurrent": _recurrent,
         "kda_decode": _layer,
         "causal_conv1d": _conv, "causal_conv1d_update": _conv_update,
         "flash_attention_decode": _decode, "sparse_flash_attention": _sparse}


def _tensors(found):
    return [each for each in (found if isinstance(found, tuple) else (found,)) if each is not None]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_default_that_is_given_is_one_that_is_left_out(name):
    torch.manual_seed(0)
    plain = _tensors(CALLS[name]())
    shown = inspect.signature(getattr(lt, name)).parameters
    given = {option: shown[option].default for option in options_of(name)
             if shown[option].default is not inspect.Parameter.empty}
    given.pop("use_gate_in_kernel", None)  # the inputs are those of a gate
    torch.manual_seed(0)
    full = _tensors(CALLS[name](**given))
    assert len(plain) == len(full) and all(map(torch.equal, plain, full))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_unknown_option_is_refused(name):
    with pytest.raises(lathe.InvalidArgument, match="did you mean"):
        CALLS[name](**{"num_split" if "flash_attention_decode" == name or "sparse" in name else
                       "causa" if name == "flash_attention" else
                       "null_slo" if name.startswith("causal_conv1d") else "state_v_firs": 1})


def test_left_at_none_determinism_is_torchs():
    plans = _operator_calls.FLASH_ATTENTION.table
    plans.clear()
    torch.use_deterministic_algorithms(True)
    try:
        _attention(deterministic=None)
        _attention()
        _attention(deterministic=True)
        assert len(plans) == 1
        _attention(deterministic=False)
        assert len(plans) == 2
    finally:
        torch.use_deterministic_algorithms(False)
