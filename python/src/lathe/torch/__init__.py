# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""lathe for torch: the operators as differentiable functions, in eager mode and compiled.

    import lathe.torch
    o = lathe.torch.flash_attention(q, k, v, causal=True)

On a machine without a GPU, lathe.torch.use_simulator() lets CPU tensors be computed.
"""
from typing import TYPE_CHECKING

from lathe.torch import _version
from lathe.torch import _batching, _flops, _sharding
from lathe.torch._calls import Call, options_of, stats
from lathe.torch._device import simulated, use_simulator
from lathe.torch._own import TorchKernel, kernel
from lathe.torch._ranks import Ranks, group

if TYPE_CHECKING:  # with every option, where a call has **options
    from lathe.torch._signatures import (causal_conv1d, causal_conv1d_update, flash_attention,
                                         flash_attention_decode, kda, kda_decode,
                                         kda_recurrent, sparse_flash_attention)
else:
    from lathe.torch._functions import (causal_conv1d, causal_conv1d_update, flash_attention,
                                        flash_attention_decode, kda, kda_decode,
                                        kda_recurrent, sparse_flash_attention)

_batching.install()
_flops.install()
_sharding.install()

__all__ = ["Call", "Ranks", "TorchKernel", "causal_conv1d", "causal_conv1d_update",
           "flash_attention", "flash_attention_decode", "group", "kda", "kda_decode",
           "kda_recurrent", "kernel", "options_of", "simulated", "sparse_flash_attention", "stats",
           "use_simulator"]
