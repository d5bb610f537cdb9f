# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The table of functions is whole: every name that a module exports, every operator of torch."""
import importlib
import pkgutil

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import functions
import lathe
import lathe.compat
import lathe.torch as lt
from differences import evaluate
from lathe.torch._operator_calls import (CAUSAL_CONV1D_PARTS, CAUSAL_CONV1D_PARTS_FINAL,
                                         CAUSAL_CONV1D_POOL, FLASH_ATTENTION_DECODE, KDA_POOL,
                                         KDA_POOL_CHUNKS)
from tensors import NARROW

pytestmark = pytest.mark.usefixtures("sdpa_on_cpu")
ROWED = {(row.module, row.function) for row in functions.ROWS}


def test_every_exported_name_has_a_row_or_a_reason():
    exported = {(module, name) for module in functions.MODULES for name in module.__all__}
    assert ROWED & set(functions.REASONS) == set()
    assert ROWED | set(functions.REASONS) == exported


def test_every_module_is_looked_at():
    public = [name for _, name, _ in pkgutil.iter_modules(lathe.compat.__path__)
              if not name.startswith("_")]
    modules = {importlib.import_module(f"lathe.compat.{name}") for name in public}
    assert modules <= set(functions.MODULES)


@pytest.mark.parametrize("row", functions.ROWS, ids=str)
def test_gradients_are_where_the_table_says(row):
    """Inputs that require gradients are taken by every function; not all results have one."""
    tensors = {name: each.requires_grad_(each.is_floating_point())
               for name, each in row.inputs().items()}
    outputs = row.call(**tensors)
    if row.refusal:
        with pytest.raises(lathe.InvalidArgument, match=row.refusal):
            outputs[0].sum().backward()
        return
    found = tuple(i for i, each in enumerate(outputs) if each is not None and each.requires_grad)
    assert found == row.gradients


# ---- operators of torch.library ------------------------------------------------------------------


class _Recorder(TorchDispatchMode):
    """Keeps the arguments of lathe's operators, as they were before the call."""

    def __init__(self):
        super().__init__()
        self.calls = {}

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if operator.namespace == "lathe":
            kept = [each.detach().clone() if isinstance(each, torch.Tensor) else each
                    for each in args]
            self.calls.setdefault(operator.name(), (operator, kept))
        return operator(*args, **(kwargs or {}))


# Stand in for flex_attention while torch.compile traces it; they have no kernel.
TRACES = {"lathe::flex_like", "lathe::mod_place"}
if not NARROW:
    TRACES |= {"lathe::flash_attention_narrow"}  # and this one no tensors


def operators():
    """Returns the names of the operators that torch knows in the library "lathe"."""
    return sorted(name for name in torch._C._dispatch_get_all_op_names()
                  if name.startswith("lathe::") and name not in TRACES)


def _variants():
    """Calls the operators that rows leave out: with and without what a call changes in place."""
    inputs = functions.kda_inputs(9, torch.float32)
    for final in (False, True):
        for chunks in (False, True):
            for keeps in (False, True):
                given = {name: each.clone().requires_grad_(keeps) for name, each in inputs.items()}
                lt.kda(**given, output_final_state=final, output_chunk_states=chunks,
                       disable_recompute=keeps, use_gate_in_kernel=True)
        lt.kda_recurrent(**inputs, output_final_state=final, use_gate_in_kernel=True)
    layer = functions.kda_layer_inputs(3, torch.float32)
    lt.kda_decode(**layer, out=torch.empty(3, 2, 16))
    lt.kda_recurrent(**inputs, out=torch.empty_like(inputs["v"]), use_gate_in_kernel=True)
    rows = [inputs[name][:1] for name in ("q", "k", "v", "g", "beta")]
    pool, slots = inputs["initial_state"].clone(), torch.tensor([1], dtype=torch.int32)
    cu = torch.tensor([0, 9], dtype=torch.int32)
    for call in (KDA_POOL, KDA_POOL_CHUNKS):
        call({}, *rows, *(None,) * 11)
        call({}, *rows, None, None, None, cu, pool, slots, *(None,) * 5)
    KDA_POOL.into((), (*rows, *(None,) * 11), (torch.empty_like(rows[2]),))
    lt.kda(*rows, cu_seqlens=cu, state_pool=pool, state_indices=slots,
           out=torch.empty_like(rows[2]))
    given = functions.pages(9, torch.float16)
    caches = (given["q"], given["k_cache"], given["v_cache"], given["table"], given["lengths"])
    out, lse = lt.flash_attention_decode(*caches)
    for new in ((None, None), (given["k"], given["v"])):
        rest = (None,) * (len(FLASH_ATTENTION_DECODE.inputs) - len(caches) - len(new))
        FLASH_ATTENTION_DECODE.into((), (*caches, *new, *rest), (out, lse))
    x, weight = torch.randn(1, 9, 32), torch.randn(32, 4)
    for call, split in ((CAUSAL_CONV1D_POOL, "none"), (CAUSAL_CONV1D_PARTS, "8,24"),
                        (CAUSAL_CONV1D_PARTS_FINAL, "8,24")):
        call({"split": split}, x, weight, *(None,) * (len(call.inputs) - 2))


@pytest.fixture(scope="module")
def recorded(sdpa_on_cpu):
    """Returns, by name, each operator that the rows call and arguments of a call."""
    with _Recorder() as recorder:
        for row in functions.ROWS:
            evaluate(row, row.inputs())
        _variants()
    return recorder.calls


def test_rows_call_every_operator(recorded):
    assert set(recorded) == set(operators())


@pytest.mark.parametrize("name", operators())
def test_opcheck(name, recorded):
    operator, arguments = recorded[name]
    # opcheck multiplies tensors to compare them, and torch has no product of 8-bit floats.
    narrow = any(getattr(each, "dtype", None) == torch.float8_e4m3fn for each in arguments)
    tests = ("test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(operator, tuple(arguments), **({"test_utils": tests} if narrow else {}))
