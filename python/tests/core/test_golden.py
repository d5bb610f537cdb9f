# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Every golden file through lathe.run on NumPy's arrays."""
import pytest

import golden
import lathe


@pytest.mark.parametrize("file", golden.cases("causal_conv1d", "causal_conv1d_update", "kda",
                                              "kda_recurrent", "flash_attention",
                                              "flash_attention_decode", "sparse_flash_attention"))
def test_file(file):
    case = golden.load(file)
    case.compare(lathe.run(case.op, **case.inputs, **case.options))
