// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The element types, and the one table of their names and sizes.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace lathe {

enum class Dtype : int { f32, f16, bf16, i32, i64, f8_e4m3, u8 };

struct DtypeInfo {
  Dtype dtype;
  const char* word;         // in specs, options, messages
  const char* device_type;  // in templates/common/types.cuh
  int bytes;
};

inline constexpr DtypeInfo kDtypes[] = {
    {Dtype::f32, "f32", "f32", 4},         {Dtype::f16, "f16", "f16", 2},
    {Dtype::bf16, "bf16", "bf16", 2},      {Dtype::i32, "i32", "int", 4},
    {Dtype::i64, "i64", "long long", 8},   {Dtype::f8_e4m3, "f8_e4m3", "unsigned char", 1},
    {Dtype::u8, "u8", "unsigned char", 1},
};

// DLPack's code of float8_e4m3fn, which older headers do not name.
inline constexpr int kDLFloat8E4m3 = 10;

inline constexpr const DtypeInfo& info(Dtype dtype) { return kDtypes[static_cast<int>(dtype)]; }
inline constexpr const char* word(Dtype dtype) { return info(dtype).word; }
inline constexpr int bytes_of(Dtype dtype) { return info(dtype).bytes; }

}  // namespace lathe
