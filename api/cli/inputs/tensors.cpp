// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Shapes, host tensors and their copies on the device.
#include "api/cli/inputs/tensors.h"

#include "api/cli/handles.h"

namespace lathe::cli {
namespace {

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

DLTensor describe(void* data, TensorSpec& spec, std::vector<int64_t>& strides, int ordinal) {
  DLTensor tensor{};
  tensor.data = data;
  tensor.device = {kDLCUDA, ordinal};
  tensor.ndim = static_cast<int32_t>(spec.shape.size());
  tensor.dtype = info(spec.dtype).dlpack;
  tensor.shape = spec.shape.data();
  tensor.strides = strides.data();
  tensor.byte_offset = 0;
  return tensor;
}

}  // namespace

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

DeviceTensor::DeviceTensor(lathe_context* context, const TensorSpec& spec)
    : context_(context),
      spec_(spec),
      strides_(contiguous_strides(spec.shape)),
      bytes_(element_count(spec.shape) * info(spec.dtype).bytes) {
  if (bytes_ > 0) check(lathe_malloc(context, &data_, bytes_));
  tensor_ = describe(data_, spec_, strides_,
                     told<lathe_context_info>(lathe_context_get_info, context).ordinal);
}

DeviceTensor::~DeviceTensor() {
  if (data_) lathe_free(context_, data_);
}

void DeviceTensor::upload(const std::vector<std::byte>& from, void* stream) {
  if (bytes_ == 0) return;
  check(lathe_copy_to_device(context_, data_, from.data(), bytes_, stream));
}

void DeviceTensor::download(std::byte* to, size_t offset, size_t bytes, void* stream) const {
  if (bytes == 0) return;
  check(lathe_copy_to_host(context_, to, static_cast<std::byte*>(data_) + offset, bytes, stream));
}

ShapeTensor::ShapeTensor(const TensorSpec& spec)
    : spec_(spec), strides_(contiguous_strides(spec.shape)) {
  tensor_ = describe(nullptr, spec_, strides_, 0);
}

ShapeTensor::ShapeTensor(const HostTensor& tensor) : ShapeTensor(tensor.spec) {
  tensor_.data = const_cast<std::byte*>(tensor.data.data());
  tensor_.device = {kDLCPU, 0};
}

}  // namespace lathe::cli
