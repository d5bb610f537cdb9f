// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Holds the table of element types, and converts elements to doubles.
#include <bit>
#include <cmath>
#include <cstring>

#include "api/cli/inputs/tensors.h"
#include "codegen/base/half.h"
#include "codegen/base/text.h"

namespace lathe::cli {
namespace {

constexpr DtypeInfo kDtypes[] = {
    {LATHE_F32, "f32", "F32", 4, {kDLFloat, 32, 1}},
    {LATHE_F16, "f16", "F16", 2, {kDLFloat, 16, 1}},
    {LATHE_BF16, "bf16", "BF16", 2, {kDLBfloat, 16, 1}},
    {LATHE_I32, "i32", "I32", 4, {kDLInt, 32, 1}},
    {LATHE_I64, "i64", "I64", 8, {kDLInt, 64, 1}},
};

uint16_t to_half(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double size = std::fabs(value);
  if (std::isnan(value)) return 0x7e00;
  if (size >= 65520.0) return sign | 0x7c00;
  // The distance between neighbours at this size; subnormals share that of the smallest normal.
  const int exponent = std::max(size == 0 ? -14 : std::ilogb(size), -14);
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(size, 10 - exponent)));
  // A carry out of the mantissa adds one to the exponent, which is what rounding up means.
  return sign | static_cast<uint16_t>(steps + ((exponent + 14) << 10));
}

uint16_t to_bf16(double value) {
  if (std::isnan(value)) return 0x7fc0;
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <typename T>
T load(const HostTensor& tensor, int64_t index) {
  T value;
  std::memcpy(&value, tensor.data.data() + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void store(HostTensor* tensor, int64_t index, T value) {
  std::memcpy(tensor->data.data() + index * sizeof(T), &value, sizeof(T));
}

}  // namespace

const DtypeInfo& info(lathe_dtype dtype) { return kDtypes[static_cast<int>(dtype)]; }

const DtypeInfo* find_dtype_word(const std::string& word) {
  for (const DtypeInfo& dtype : kDtypes) {
    if (word == dtype.word) return &dtype;
  }
  return nullptr;
}

const DtypeInfo* find_dtype_stored(const std::string& stored) {
  for (const DtypeInfo& dtype : kDtypes) {
    if (stored == dtype.stored) return &dtype;
  }
  return nullptr;
}

std::string dtype_words() { return comma_list(kDtypes, &DtypeInfo::word); }
std::string dtype_stored_names() { return comma_list(kDtypes, &DtypeInfo::stored); }

double element(const HostTensor& tensor, int64_t index) {
  switch (tensor.spec.dtype) {
    case LATHE_F32:
      return load<float>(tensor, index);
    case LATHE_F16:
      return half_value(load<uint16_t>(tensor, index));
    case LATHE_BF16:
      return std::bit_cast<float>(uint32_t{load<uint16_t>(tensor, index)} << 16);
    case LATHE_I32:
      return load<int32_t>(tensor, index);
    case LATHE_I64:
      return static_cast<double>(load<int64_t>(tensor, index));
  }
  return 0;
}

void set_element(HostTensor* tensor, int64_t index, double value) {
  switch (tensor->spec.dtype) {
    case LATHE_F32:
      return store(tensor, index, static_cast<float>(value));
    case LATHE_F16:
      return store(tensor, index, to_half(value));
    case LATHE_BF16:
      return store(tensor, index, to_bf16(value));
    case LATHE_I32:
      return store(tensor, index, static_cast<int32_t>(value));
    case LATHE_I64:
      return store(tensor, index, static_cast<int64_t>(value));
  }
}

std::vector<int64_t> integers(const HostTensor& tensor) {
  std::vector<int64_t> out(element_count(tensor.spec.shape));
  for (size_t i = 0; i < out.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    out[i] = tensor.spec.dtype == LATHE_I32 ? load<int32_t>(tensor, index)
                                            : load<int64_t>(tensor, index);
  }
  return out;
}

}  // namespace lathe::cli
