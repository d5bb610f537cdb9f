// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Tests declare these problems of flash_attention, as they are or with a change.
#pragma once

#include "tests/harness/problems.h"

namespace test {

inline const Tensors kBatched = {{"q", LATHE_BF16, {-1, -1, 8, 64}},
                                 {"k", LATHE_BF16, {-1, -1, 2, 64}},
                                 {"v", LATHE_BF16, {-1, -1, 2, 128}},
                                 {"out", LATHE_BF16, {-1, -1, 8, 128}},
                                 {"lse", LATHE_F32, {-1, 8, -1}}};
inline const Tensors kPacked = {
    {"q", LATHE_F16, {-1, 8, 64}},     {"k", LATHE_F16, {-1, 2, 64}},
    {"v", LATHE_F16, {-1, 2, 128}},    {"cu_seqlens_q", LATHE_I64, {-1}},
    {"cu_seqlens_k", LATHE_I64, {-1}}, {"out", LATHE_F16, {-1, 8, 128}},
    {"lse", LATHE_F32, {8, -1}}};

inline const Tensors kBackward = with(kBatched, {{"dout", LATHE_BF16, {-1, -1, 8, 128}},
                                                 {"dq", LATHE_BF16, {-1, -1, 8, 64}},
                                                 {"dk", LATHE_BF16, {-1, -1, 2, 64}},
                                                 {"dv", LATHE_BF16, {-1, -1, 2, 128}}});

}  // namespace test
