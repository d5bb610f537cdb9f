// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Tensors on the host and on the device, and the one table of element types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "api/lathe.h"

namespace lathe::cli {

struct DtypeInfo {
  lathe_dtype dtype;
  const char* word;    // on the command line: bf16
  const char* stored;  // in safetensors: BF16
  size_t bytes;
  DLDataType dlpack;
};
const DtypeInfo& info(lathe_dtype dtype);
const DtypeInfo* find_dtype_word(const std::string& word);
const DtypeInfo* find_dtype_stored(const std::string& stored);
std::string dtype_words();         // "f32, f16, ..."
std::string dtype_stored_names();  // "F32, F16, ..."

struct TensorSpec {
  lathe_dtype dtype = LATHE_F32;
  std::vector<int64_t> shape;
};
using Specs = std::map<std::string, TensorSpec>;
std::string shape_text(const std::vector<int64_t>& shape);  // "[1, 8, 4]"
int64_t element_count(const std::vector<int64_t>& shape);

// Tensors here are row-major and contiguous.
struct HostTensor {
  TensorSpec spec;
  std::vector<std::byte> data;
};
using TensorMap = std::map<std::string, HostTensor>;
HostTensor empty_tensor(const TensorSpec& spec);
// One element as a double; NaN and infinities as they are.
double element(const HostTensor& tensor, int64_t index);
// Rounds to the nearest, ties to even.
void set_element(HostTensor* tensor, int64_t index, double value);
// Returns the values of an I32 or I64 tensor.
std::vector<int64_t> integers(const HostTensor& tensor);

// Device memory of exactly the size of one tensor: a neighbour's bytes are never in reach, so the
// simulator sees every access past the end.
class DeviceTensor {
 public:
  DeviceTensor(lathe_context* context, const TensorSpec& spec);
  ~DeviceTensor();
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;

  const DLTensor* dlpack() const { return &tensor_; }
  size_t bytes() const { return bytes_; }
  void upload(const std::vector<std::byte>& from, void* stream);
  // Copies bytes [offset, offset + bytes) of the tensor.
  void download(std::byte* to, size_t offset, size_t bytes, void* stream) const;

 private:
  lathe_context* context_;
  TensorSpec spec_;
  std::vector<int64_t> strides_;
  size_t bytes_;
  void* data_ = nullptr;
  DLTensor tensor_{};
};

// A DLTensor on the host: without memory, for calls that read shapes only, or with that of a host
// tensor, which must outlive it.
class ShapeTensor {
 public:
  explicit ShapeTensor(const TensorSpec& spec);
  explicit ShapeTensor(const HostTensor& tensor);
  ShapeTensor(const ShapeTensor&) = delete;
  ShapeTensor& operator=(const ShapeTensor&) = delete;
  const DLTensor* dlpack() const { return &tensor_; }

 private:
  TensorSpec spec_;
  std::vector<int64_t> strides_;
  DLTensor tensor_{};
};

}  // namespace lathe::cli
