# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""lathe.compat.fla: signatures of the peer, what is refused and in what words, registration."""
import inspect
import sys
import types

import pytest
import torch

import lathe
import lathe.compat.fla as compat
import lathe.torch


class PeersContext:
    """A context of the peer's, which knows one rank's offsets only."""

    is_cp_enabled = True


# flash-linear-attention 0.6.0, without annotations.
_SIGNATURES = {
    "chunk_kda": "(q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False, "
                 "use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False, "
                 "use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False, safe_gate=False, "
                 "lower_bound=None, disable_recompute=False, return_intermediate_states=False, "
                 "state_v_first=False, cu_seqlens=None, cu_seqlens_cpu=None, cp_context=None, "
                 "use_graph=False, max_num_seqs=None, **kwargs)",
    "fused_recurrent_kda": "(q, k, v, g, beta, A_log=None, dt_bias=None, scale=None, "
                           "initial_state=None, output_final_state=False, "
                           "use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False, "
                           "use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False, "
                           "lower_bound=None, state_v_first=False, cu_seqlens=None, **kwargs)",
    "fused_recurrent_kda_fwd": "(q, k, v, g, beta, A_log=None, dt_bias=None, initial_state=None, "
                               "scale=None, output_final_state=False, inplace_final_state=True, "
                               "state_v_first=False, cu_seqlens=None, ssm_state_indices=None, "
                               "num_accepted_tokens=None, use_qk_l2norm_in_kernel=False, "
                               "use_gate_in_kernel=False, use_beta_sigmoid_in_kernel=False, "
                               "allow_neg_eigval=False, lower_bound=None, out=None, **kwargs)",
    "causal_conv1d": "(x, weight=None, bias=None, residual=None, initial_state=None, "
                     "output_final_state=False, activation=None, backend='triton', "
                     "cu_seqlens=None, cu_seqlens_cpu=None, chunk_indices=None, cp_context=None, "
                     "**kwargs)",
    "causal_conv1d_update": "(x, cache, residual=None, weight=None, bias=None, activation=None)",
    "ShortConvolution": "(hidden_size, kernel_size, bias=False, activation='silu', "
                        "backend='triton', device=None, dtype=None, **kwargs)",
    "ShortConvolution.forward": "(self, x, residual=None, mask=None, cache=None, "
                                "output_final_state=False, cu_seqlens=None, chunk_indices=None, "
                                "**kwargs)",
    "ShortConvolution.step": "(self, x, residual, cache, output_final_state=False, "
                             "cu_seqlens=None)",
}


@pytest.mark.parametrize("name", _SIGNATURES)
def test_signature(name):
    function = compat
    for part in name.split("."):
        function = getattr(function, part)
    found = inspect.signature(function)
    plain = [each.replace(annotation=each.empty) for each in found.parameters.values()]
    shown = found.replace(parameters=plain, return_annotation=inspect.Signature.empty)
    assert str(shown) == _SIGNATURES[name]


def made(B=1, T=4, H=1, HV=1, K=16, V=16, dtype=torch.float32):
    return {"q": torch.ones(B, T, H, K, dtype=dtype), "k": torch.ones(B, T, H, K, dtype=dtype),
            "v": torch.ones(B, T, HV, V, dtype=dtype), "g": torch.zeros(B, T, HV, K, dtype=dtype),
            "beta": torch.ones(B, T, HV, dtype=dtype)}


_OFFSETS = torch.tensor([0, 2, 4])
_STATES = torch.zeros(1, 1, 16, 16)


@pytest.mark.parametrize("error,words,options", [
    (TypeError, "unexpected keyword argument 'head_first'", {"head_first": True}),
    (lathe.Unsupported, "cp_context was made by fla", {"cp_context": PeersContext()}),
    (ValueError, "`chunk_size` must be either 32 or 64, but it is 16", {"chunk_size": 16}),
    (ValueError, "A_log is None", {"use_gate_in_kernel": True}),
    (ValueError, "lower_bound is None; safe_gate",
     {"use_gate_in_kernel": True, "safe_gate": True, "A_log": torch.zeros(1)}),
    (ValueError, "lower_bound is -7.0; safe_gate",
     {"use_gate_in_kernel": True, "safe_gate": True, "lower_bound": -7.0}),
    (lathe.Unsupported, "lower_bound is -7.0; allowed is -5 <= lower_bound < 0",
     {"use_gate_in_kernel": True, "lower_bound": -7.0}),
    (ValueError, "allow_neg_eigval is True", {"allow_neg_eigval": True}),
    (ValueError, "initial_state has 1 states, but cu_seqlens has 2",
     {"cu_seqlens": _OFFSETS, "initial_state": _STATES}),
    (AssertionError, "cu_seqlens has 2 sequences; max_num_seqs is 5",
     {"cu_seqlens": _OFFSETS, "use_graph": True, "max_num_seqs": 5}),
    (AssertionError, "initial_state has dtype torch.float16", {"initial_state": _STATES.half()}),
    (AssertionError, "inference_mode", {"return_intermediate_states": True}),
    (ValueError, "state_v_first and transpose_state_layout are both given",
     {"state_v_first": True, "transpose_state_layout": True}),
])
def test_chunk_kda_refuses(error, words, options):
    with pytest.raises(error, match=words):
        compat.chunk_kda(**made(), **options)


@pytest.mark.parametrize("error,words,shapes", [
    (AssertionError, "K, the width of q and k, is 260", {"K": 260}),
    (lathe.Unsupported, "V, the width of v, is 260; allowed are multiples of 4", {"V": 260}),
    (lathe.Unsupported, "K, the width of q and k, is 18; allowed are multiples of 4", {"K": 18}),
    (lathe.Unsupported, "q has dtype float64; allowed are float32, float16",
     {"dtype": torch.double}),
    (AssertionError, "v has 3 heads; they must be a multiple of q's, 2", {"H": 2, "HV": 3}),
])
def test_chunk_kda_refuses_tensors(error, words, shapes):
    with pytest.raises(error, match=words):
        compat.chunk_kda(**made(**shapes))


def test_packed_sequences_have_one_row():
    for function in (compat.chunk_kda, compat.fused_recurrent_kda):
        with pytest.raises(ValueError, match="the batch is 2; with cu_seqlens it must be 1"):
            function(**made(B=2), cu_seqlens=_OFFSETS)


def test_the_old_name_of_the_state_layout():
    tensors = made(V=32)
    for function in (compat.chunk_kda, compat.fused_recurrent_kda):
        with pytest.warns(DeprecationWarning, match="its name is state_v_first"):
            final = function(**tensors, output_final_state=True, transpose_state_layout=True)[1]
        assert final.shape == (1, 1, 32, 16)


def test_lower_bound_without_the_gate_is_ignored():
    wanted = compat.chunk_kda(**made())[0]
    assert torch.equal(compat.chunk_kda(**made(), lower_bound=-9.0)[0], wanted)


@pytest.mark.parametrize("error,words,options", [
    (TypeError, "unexpected keyword argument 'x'", {"x": 1}),
    (AssertionError, "inplace_final_state needs it", {}),
    (lathe.Unsupported, "ssm_state_indices are given; allowed is True",
     {"inplace_final_state": False, "ssm_state_indices": torch.zeros(1, dtype=torch.int32)}),
    (lathe.Unsupported, "initial_state has dtype float16 and is changed in place",
     {"initial_state": _STATES.half()}),
    (lathe.Unsupported, "beta has shape \\(1, 4, 1, 16\\), one for each channel",
     {"inplace_final_state": False, "beta": torch.ones(1, 4, 1, 16)}),
    (AssertionError, "out has shape", {"inplace_final_state": False, "out": torch.ones(3)}),
])
def test_fused_recurrent_kda_fwd_refuses(error, words, options):
    with pytest.raises(error, match=words):
        compat.fused_recurrent_kda_fwd(**{**made(), **options})


@pytest.mark.parametrize("error,words,options", [
    (TypeError, "unexpected keyword argument 'strides'", {"strides": 1}),
    (ValueError, "backend is 'gpu'; allowed are triton, cuda, mix", {"backend": "gpu"}),
    (lathe.Unsupported, "activation is 'relu'; allowed are None, 'silu' and 'swish'",
     {"activation": "relu"}),
    (lathe.Unsupported, "seq_idx is given without cu_seqlens",
     {"seq_idx": torch.zeros(1, 4, dtype=torch.int32)}),
    (lathe.Unsupported, "cp_context was made by fla", {"cp_context": PeersContext()}),
    (ValueError, "weight is None", {"weight": None}),
])
def test_causal_conv1d_refuses(error, words, options):
    with pytest.raises(error, match=words):
        compat.causal_conv1d(torch.ones(1, 4, 8), **{"weight": torch.ones(8, 4), **options})


def test_update_and_layer_refuse():
    with pytest.raises(ValueError, match="x has shape \\(3, 2, 8\\)"):
        compat.causal_conv1d_update(torch.ones(3, 2, 8), torch.ones(3, 8, 4),
                                    weight=torch.ones(8, 4))
    with pytest.raises(ValueError, match="backend is 'mix'; allowed are cuda and triton"):
        compat.ShortConvolution(8, 4, backend="mix")
    with pytest.raises(AssertionError, match="activation is 'relu'"):
        compat.ShortConvolution(8, 4, activation="relu")
    with pytest.raises(TypeError, match="unexpected keyword argument 'groups'"):
        compat.ShortConvolution(8, 4, groups=1)
    with pytest.warns(UserWarning, match="use_fast_conv1d"):
        compat.ShortConvolution(8, 4, use_fast_conv1d=True)


# ---- registration, with what stands in for the peer ---------------------------------------------


class _Backend:
    """What the peer's classes of backends derive from."""

    verifier = implementation = None


@pytest.fixture
def packages(monkeypatch):
    """Returns a function that puts a module into sys.modules for the time of a test."""
    def put(name, **members):
        module = types.ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)

    monkeypatch.delenv("FLA_DISABLE_BACKEND_DISPATCH", raising=False)
    put("fla", __path__=[])
    return put


_CONV_PARTS = ("causal_conv1d_fwd", "causal_conv1d_bwd", "causal_conv1d_update",
               "causal_conv1d_update_states")


def test_registration_of_entry_points(packages):
    taken = {}

    def register(entry_point, *, backend=None, verifier=None):
        def decorator(implementation):
            taken[entry_point] = (implementation, backend, verifier)
            return implementation
        return decorator

    packages("fla.backends", BaseBackend=_Backend, register=register)
    packages("fla.ops.kda", chunk_kda="the peer's chunk_kda")
    packages("fla.modules.causal_conv1d", **{name: f"the peer's {name}" for name in _CONV_PARTS})
    found = compat.register()
    assert found == ["chunk_kda", *_CONV_PARTS, "fused_recurrent_kda_fwd"]
    assert set(taken) == {"kda", "the peer's chunk_kda", *(f"the peer's {name}"
                                                           for name in _CONV_PARTS)}
    function, backend, takes = taken["the peer's chunk_kda"]
    assert function is compat.chunk_kda
    assert (backend.backend_type, backend.env_var, backend.default_enable) == ("lathe", "FLA_LATHE",
                                                                               True)
    assert takes(**made()) == (True, None)
    assert takes(*made().values(), 0.5) == (True, None)
    for words, arguments in (("cp_context", {"cp_context": 1}), ("does not know x", {"x": 1}),
                             ("float64", {"q": made()["q"].double()}),
                             ("lower_bound is -9", {"use_gate_in_kernel": True,
                                                    "lower_bound": -9.0})):
        takes_it, reason = takes(**{**made(), **arguments})
        assert not takes_it and (words in reason or "differ" in reason), reason
    operation = taken["kda"][0]()
    assert operation.fused_recurrent_kda_fwd is compat.fused_recurrent_kda_fwd
    assert operation.fused_recurrent_kda_fwd_verifier(**made()) == (True, None)
    assert not operation.fused_recurrent_kda_fwd_verifier(
        **made(), inplace_final_state=False, ssm_state_indices=_OFFSETS)[0]


def test_registration_of_operations(packages):
    registered = []

    class Registry:
        _registries = {"kda": types.SimpleNamespace(register=registered.append)}

        @staticmethod
        def ensure_initialized(operation):
            if operation != "kda":
                raise ImportError(operation)

    packages("fla.ops", __path__=[])
    packages("fla.ops.backends", BackendRegistry=Registry, BaseBackend=_Backend)
    packages("fla.ops.kda", __path__=[])
    packages("fla.ops.kda.fused_recurrent")
    assert compat.register() == ["chunk_kda"]
    packages("fla.ops.kda.fused_recurrent", dispatch=None)  # of the release after 0.5.2
    assert compat.register() == ["chunk_kda", "fused_recurrent_kda_fwd"]
    backend = registered[-1]
    assert backend.chunk_kda(**made())[0].shape == (1, 4, 1, 16)
    assert backend.chunk_kda_verifier(**made())[0]


def test_registration_needs_dispatch(packages, monkeypatch):
    monkeypatch.setenv("FLA_DISABLE_BACKEND_DISPATCH", "1")
    with pytest.raises(lathe.Unsupported, match="FLA_DISABLE_BACKEND_DISPATCH is 1"):
        compat.register()


def test_parts_of_a_convolution(packages):
    taken = {}
    packages("fla.backends", BaseBackend=_Backend, register=lambda entry_point, **options:
             lambda function: taken.update({entry_point: (function, options.get("verifier"))}))
    packages("fla.ops.kda", chunk_kda="chunk_kda")
    packages("fla.modules.causal_conv1d", **{name: name for name in _CONV_PARTS})
    compat.register()
    torch.manual_seed(1)
    inputs = {"x": torch.randn(2, 6, 8), "weight": torch.randn(8, 4), "bias": torch.randn(8),
              "residual": torch.randn(2, 6, 8), "initial_state": torch.randn(2, 8, 4)}
    grown = {name: each.clone().requires_grad_() for name, each in inputs.items()}
    wanted, final = compat.causal_conv1d(**grown, activation="silu", output_final_state=True)
    forward, takes = taken["causal_conv1d_fwd"]
    assert takes(**inputs, chunk_size=64, layout_fallback=True) == (True, None)
    assert not takes(**inputs, activation="relu")[0]
    y, state = forward(**inputs, activation="silu", output_final_state=True, chunk_size=64)
    assert torch.equal(y, wanted) and torch.equal(state, final)
    states, takes = taken["causal_conv1d_update_states"]
    assert takes(x=inputs["x"], state_len=4) == (True, None) and not takes(inputs["x"], 9)[0]
    assert torch.equal(states(inputs["x"], 4, inputs["initial_state"]), final)
    dy, dht = torch.randn(2, 6, 8), torch.randn(2, 8, 4)
    torch.autograd.backward([wanted, final], [dy, dht])
    backward, _ = taken["causal_conv1d_bwd"]
    found = backward(**inputs, dy=dy, dht=dht, activation="silu")
    for ours, name in zip(found, inputs):
        assert torch.equal(ours, grown[name].grad), name
