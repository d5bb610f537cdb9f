# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Small models of transformers with random weights, and their attention in float64.

The reference is written out in torch: whole scores, a mask of booleans that transformers makes,
softmax in float64, and 0 in rows that see no key.
"""
import contextlib
import sys

import torch

import lathe.compat.transformers as ours

# What models would call in place of their own functions of torch, were it installed.
PACKAGES = ("fla", "causal_conv1d", "mamba_ssm")
with contextlib.ExitStack() as hidden:
    for package in PACKAGES:
        hidden.callback(sys.modules.pop, package, None)
        if package in sys.modules:
            hidden.callback(sys.modules.__setitem__, package, sys.modules[package])
        sys.modules[package] = None
    import transformers
    import transformers.models.kimi_linear.modeling_kimi_linear
    import transformers.models.lfm2.modeling_lfm2
from transformers.masking_utils import sdpa_mask

_COMMON = dict(vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
               num_attention_heads=4, pad_token_id=0, bos_token_id=1, eos_token_id=2)
_GROUPED = dict(_COMMON, num_key_value_heads=2, head_dim=16)
_KIMI = dict(_COMMON, num_key_value_heads=4, linear_head_dim=16, linear_num_heads=4,
             q_lora_rank=None, kv_lora_rank=16, qk_nope_head_dim=16, qk_rope_head_dim=8,
             v_head_dim=16, layer_types=["linear_attention", "full_attention"],
             num_local_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
             n_shared_experts=1, n_group=1, topk_group=1)
MODELS = {
    "llama": ("LlamaConfig", _GROUPED),
    "qwen3": ("Qwen3Config", dict(_GROUPED, head_dim=24)),
    "mistral, window": ("MistralConfig", dict(_GROUPED, sliding_window=8)),
    "gemma2, softcap and windows": ("Gemma2Config", dict(
        _GROUPED, sliding_window=8, attn_logit_softcapping=5.0, query_pre_attn_scalar=16)),
    "gpt_oss, sinks and windows": ("GptOssConfig", dict(
        _GROUPED, intermediate_size=32, sliding_window=8, num_local_experts=4,
        num_experts_per_tok=2)),
    "lfm2, convolution": ("Lfm2Config", dict(
        _COMMON, num_key_value_heads=2, layer_types=["conv", "full_attention"])),
    "kimi_linear, KDA and latent attention": ("KimiLinearConfig", _KIMI),
}


def attention(module, query, key, value, attention_mask, scaling=None, softcap=None, s_aux=None,
              **unused):
    group = query.shape[1] // key.shape[1]
    q, k, v = (each.double() for each in (query, key, value))
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(2, 3) * (scaling or q.shape[-1]**-0.5)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if attention_mask is not None:
        scores = scores.masked_fill(~attention_mask, -torch.inf)
    if s_aux is not None:
        sinks = s_aux.double().view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, sinks], -1)
    weights = torch.softmax(scores, -1).nan_to_num(0.0)[..., :k.shape[2]]
    return (weights @ v).transpose(1, 2).to(query.dtype), None


def mask(*arguments, **keywords):
    keywords.update(allow_is_causal_skip=False, allow_is_bidirectional_skip=False)
    return sdpa_mask(*arguments, **keywords)


transformers.AttentionInterface.register("float64", attention)
transformers.AttentionMaskInterface.register("float64", mask)


@contextlib.contextmanager
def without_lathe():
    """Lets models call their own functions of torch."""
    ours.unregister()
    yield
    ours.register()


def make(name, implementation, dtype, seed=0):
    """Returns a model in evaluation; weights are large enough that attention tells keys apart."""
    kind, values = MODELS[name]
    config = getattr(transformers, kind)(**values)
    config._attn_implementation = implementation
    config._experts_implementation = "eager"
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "A_log" not in name:
                parameter.mul_(5)
            if "sinks" in name:
                parameter.normal_()
    return model.to(dtype)


def generate(model, ids, **keywords):
    """Returns the tokens of greedy decoding, without an end."""
    return model.generate(ids, max_new_tokens=10, do_sample=False, eos_token_id=None,
                          pad_token_id=0, **keywords)


def error(found, expected):
    found, expected = found.detach().double(), expected.detach()
    return float((found - expected).norm() / expected.norm())
