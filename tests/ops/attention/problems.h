// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Problems of flash_attention that tests declare, as they are or with a change.
#pragma once

#include "tests/harness/support.h"

namespace test {

inline const std::vector<Declaration> kBatched = {{"q", LATHE_BF16, {-1, -1, 8, 64}},
                                                  {"k", LATHE_BF16, {-1, -1, 2, 64}},
                                                  {"v", LATHE_BF16, {-1, -1, 2, 128}},
                                                  {"out", LATHE_BF16, {-1, -1, 8, 128}},
                                                  {"lse", LATHE_F32, {-1, 8, -1}}};
inline const std::vector<Declaration> kPacked = {
    {"q", LATHE_F16, {-1, 8, 64}},     {"k", LATHE_F16, {-1, 2, 64}},
    {"v", LATHE_F16, {-1, 2, 128}},    {"cu_seqlens_q", LATHE_I64, {-1}},
    {"cu_seqlens_k", LATHE_I64, {-1}}, {"out", LATHE_F16, {-1, 8, 128}},
    {"lse", LATHE_F32, {8, -1}}};

inline const std::vector<Declaration> kBackward = [] {
  std::vector<Declaration> all = kBatched;
  all.push_back({"dout", LATHE_BF16, {-1, -1, 8, 128}});
  all.push_back({"dq", LATHE_BF16, {-1, -1, 8, 64}});
  all.push_back({"dk", LATHE_BF16, {-1, -1, 2, 64}});
  all.push_back({"dv", LATHE_BF16, {-1, -1, 2, 128}});
  return all;
}();

}  // namespace test
