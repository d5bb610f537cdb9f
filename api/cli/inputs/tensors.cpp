// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Shapes, elements as doubles, host tensors and their copies on the device.
#include "api/cli/inputs/tensors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "codegen/base/half.h"

namespace lathe::cli {
namespace {

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

const DtypeInfo* find_dtype(const char* DtypeInfo::*member, const std::string& name) {
  const auto* found = std::ranges::find(kDtypes, name, member);
  return found == std::end(kDtypes) ? nullptr : found;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return "[" + comma_list(shape, [](int64_t extent) { return std::to_string(extent); }) + "]";
}

int64_t element_count(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  return count;
}

HostTensor empty_tensor(const TensorSpec& spec) {
  return {spec, std::vector<std::byte>(element_count(spec.shape) * info(spec.dtype).bytes)};
}

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
    case LATHE_F8_E4M3:
      return e4m3_value(load<uint8_t>(tensor, index));
    case LATHE_U8:
      return load<uint8_t>(tensor, index);
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
    case LATHE_F8_E4M3:
      return store(tensor, index, to_e4m3(value));
    case LATHE_U8:
      return store(tensor, index, static_cast<uint8_t>(value));
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

std::vector<int64_t> integers(const TensorMap& tensors, const std::string& name) {
  const auto found = tensors.find(name);
  return found == tensors.end() ? std::vector<int64_t>() : integers(found->second);
}

DLTensor dlpack(const TensorSpec& spec, const void* data, DLDevice device) {
  return {.data = const_cast<void*>(data),
          .device = device,
          .ndim = static_cast<int32_t>(spec.shape.size()),
          .dtype = info(spec.dtype).dlpack,
          .shape = const_cast<int64_t*>(spec.shape.data()),
          .strides = nullptr,
          .byte_offset = 0};
}

DeviceTensor::DeviceTensor(lathe_context* context, const TensorSpec& spec, int alignment)
    : context_(context),
      spec_(spec),
      bytes_(element_count(spec.shape) * info(spec.dtype).bytes),
      first_(alignment >= 16 ? 0 : std::max<size_t>(alignment, info(spec.dtype).bytes)),
      memory_(device_bytes(context, first_ + bytes_)) {
  const auto about = told<lathe_context_info>(lathe_context_get_info, context);
  static_cast<DLTensor&>(*this) = dlpack(spec_, memory_.get(), {kDLCUDA, about.ordinal});
  byte_offset = first_;
}

void DeviceTensor::upload(const std::vector<std::byte>& from, void* stream) {
  if (bytes_ == 0) return;
  check(lathe_copy_to_device(context_, static_cast<std::byte*>(memory_.get()) + first_, from.data(),
                             bytes_, stream));
}

void DeviceTensor::download(std::byte* to, size_t offset, size_t bytes, void* stream) const {
  if (bytes == 0) return;
  const std::byte* from = static_cast<std::byte*>(memory_.get()) + first_ + offset;
  check(lathe_copy_to_host(context_, to, from, bytes, stream));
}

}  // namespace lathe::cli
