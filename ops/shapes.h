// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Holds shapes and dtypes that the tables of several families have.
#pragma once

#include <cstdint>

namespace lathe {

inline constexpr const char* kFloats = "f32|f16|bf16";
inline constexpr const char* kOffsets = "i32|i64";

// The attention families have these shapes: whole rows, or packed ones.
inline constexpr const char* kQueries = "B,Sq,H,D|Tq,H,D";
inline constexpr const char* kKeys = "B,Sk,HK,D|Tk,HK,D";
inline constexpr const char* kValues = "B,Sk,HK,DV|Tk,HK,DV";
inline constexpr const char* kResults = "B,Sq,H,DV|Tq,H,DV";
inline constexpr const char* kRows = "B,H,Sq|H,Tq";
// This option says that results of an earlier forward are given.
inline constexpr const char* kSavedForward = "saved_forward";

// How rows of bytes are read. e4m3_656: 512 codes of e4m3, four float32 scales of 128 columns each,
// 64 bfloat16.
enum class RowFormat { none, e4m3_656 };
inline constexpr int64_t kByteRow = 656;  // bytes of a row of e4m3_656
inline constexpr int64_t kByteRowColumns = 576, kByteRowValues = 512;
inline constexpr const char* kRowFormatSentence =
    "How rows of bytes are read; e4m3_656: 512 codes of e4m3, four float32 scales of 128 columns "
    "each, 64 bfloat16.";

}  // namespace lathe
