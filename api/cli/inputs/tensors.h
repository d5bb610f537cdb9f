// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Tensors on the host and on the device, and the one table of element types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "api/cli/handles.h"

namespace lathe::cli {

struct DtypeInfo {
  lathe_dtype dtype;
  const char* word;    // on the command line: bf16
  const char* stored;  // in safetensors: BF16
  size_t bytes;
  DLDataType dlpack;
};
inline constexpr DtypeInfo kDtypes[] = {
    {LATHE_F32, "f32", "F32", 4, {kDLFloat, 32, 1}},
    {LATHE_F16, "f16", "F16", 2, {kDLFloat, 16, 1}},
    {LATHE_BF16, "bf16", "BF16", 2, {kDLBfloat, 16, 1}},
    {LATHE_I32, "i32", "I32", 4, {kDLInt, 32, 1}},
    {LATHE_I64, "i64", "I64", 8, {kDLInt, 64, 1}},
    {LATHE_F8_E4M3, "f8_e4m3", "F8_E4M3", 1, {kDLUInt, 8, 1}},
    {LATHE_U8, "u8", "U8", 1, {kDLUInt, 8, 1}},
};
inline const DtypeInfo& info(lathe_dtype dtype) { return kDtypes[static_cast<int>(dtype)]; }
// Returns the type whose word, or whose stored name, is `name`; null if there is none.
const DtypeInfo* find_dtype(const char* DtypeInfo::*member, const std::string& name);

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
// The same of a tensor by name; empty if there is none.
std::vector<int64_t> integers(const TensorMap& tensors, const std::string& name);

// Returns what the library reads of a tensor, whose spec must outlive it; without data, calls that
// read shapes only take it.
DLTensor dlpack(const TensorSpec& spec, const void* data = nullptr, DLDevice device = {kDLCUDA, 0});

// Device memory of exactly the size of one tensor: a neighbour's bytes are never in reach, so the
// simulator sees every access past the end. It begins where its address is a multiple of
// `alignment` and of its elements, and of no more.
class DeviceTensor : public DLTensor {
 public:
  DeviceTensor(lathe_context* context, const TensorSpec& spec, int alignment = 16);

  size_t bytes() const { return bytes_; }
  void upload(const std::vector<std::byte>& from, void* stream);
  // Copies bytes [offset, offset + bytes) of the tensor.
  void download(std::byte* to, size_t offset, size_t bytes, void* stream) const;

 private:
  lathe_context* context_;
  TensorSpec spec_;
  size_t bytes_, first_;  // the first byte of it, in its memory
  DeviceBytes memory_;
};

}  // namespace lathe::cli
