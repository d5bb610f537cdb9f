// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "api/tune/tune_buffers.h"

#include "api/boundary.h"

namespace lathe {
namespace {

constexpr unsigned char kPattern = 0xff;  // not a number in every float type

std::vector<int64_t> strides_of(const DLTensor& tensor) {
  std::vector<int64_t> strides(static_cast<size_t>(tensor.ndim), 1);
  for (size_t i = strides.size(); i-- > 0;) {
    if (tensor.strides) {
      strides[i] = tensor.strides[i];
    } else if (i + 1 < strides.size()) {
      strides[i] = strides[i + 1] * tensor.shape[i + 1];
    }
  }
  return strides;
}

}  // namespace

TuneMemory::~TuneMemory() {
  if (address_ != 0) (void)device_->driver().cuMemFree(address_);
}

Status TuneMemory::reserve(size_t bytes) {
  if (bytes <= bytes_) return {};
  const Driver& driver = device_->driver();
  if (address_ != 0) LATHE_TRY(check(driver, driver.cuMemFree(address_), "cuMemFree"));
  address_ = 0, bytes_ = 0;
  LATHE_TRY(check(driver, driver.cuMemAlloc(&address_, bytes), "cuMemAlloc"));
  bytes_ = bytes;
  return {};
}

Result<std::unique_ptr<TuneTensors>> TuneTensors::make(const Device& device,
                                                       const lathe_problem& problem,
                                                       const std::vector<Slot>& slots,
                                                       const DLTensor* const* given) {
  std::unique_ptr<TuneTensors> out(new TuneTensors(device));
  out->tensors_.reserve(slots.size());
  for (const Slot& slot : slots) {
    const bool inout = problem.op->tensors[slot.tensor].role == Role::inout;
    LATHE_TRY(out->add(slot, inout, *given++));
  }
  for (const DLTensor& tensor : out->tensors_) out->pointers_.push_back(&tensor);
  return out;
}

Status TuneTensors::add(const Slot& slot, bool inout, const DLTensor* given) {
  if (!given) return invalid(text(slot.name, " is NULL, but was declared"));
  tensors_.push_back(*given);
  if (!slot.written) return {};
  Output output;
  output.layout.name = slot.name;
  output.layout.dtype = slot.dtype;
  output.layout.guard = kGuard;
  for (int i = 0; i < given->ndim; ++i) output.layout.extents.push_back(given->shape[i]);
  output.layout.strides = strides_of(*given);
  const size_t bytes = output.layout.inner_bytes();
  if (bytes == 0) return {};  // an empty tensor: nothing is written
  output.memory = std::make_unique<TuneMemory>(*device_);
  LATHE_TRY(output.memory->reserve(bytes + 2 * kGuard));
  if (inout) {
    output.original = reinterpret_cast<CUdeviceptr>(given->data) + given->byte_offset;
  }
  tensors_.back().data = reinterpret_cast<void*>(output.memory->at() + kGuard);
  tensors_.back().byte_offset = 0;
  outputs_.push_back(std::move(output));
  return {};
}

Status TuneTensors::restore(CUstream stream) const {
  const Driver& driver = device_->driver();
  for (const Output& output : outputs_) {
    const size_t inner = output.layout.inner_bytes();
    LATHE_TRY(check(
        driver, driver.cuMemsetD8Async(output.memory->at(), kPattern, inner + 2 * kGuard, stream),
        "cuMemsetD8Async"));
    if (output.original == 0) continue;
    LATHE_TRY(check(
        driver,
        driver.cuMemcpyDtoDAsync(output.memory->at() + kGuard, output.original, inner, stream),
        "cuMemcpyDtoDAsync"));
  }
  return {};
}

Result<std::vector<std::string>> TuneTensors::read(CUstream stream) const {
  const Driver& driver = device_->driver();
  std::vector<std::string> all;
  for (const Output& output : outputs_) {
    std::string bytes(output.layout.inner_bytes() + 2 * kGuard, '\0');
    LATHE_TRY(check(
        driver, driver.cuMemcpyDtoHAsync(bytes.data(), output.memory->at(), bytes.size(), stream),
        "cuMemcpyDtoHAsync"));
    LATHE_TRY(check(driver, driver.cuStreamSynchronize(stream), "cuStreamSynchronize"));
    all.push_back(std::move(bytes));
  }
  return all;
}

Status TuneTensors::compare(const std::vector<std::string>& filled,
                            const std::vector<std::string>& expected,
                            const std::vector<std::string>& found) const {
  for (size_t i = 0; i < outputs_.size(); ++i) {
    LATHE_TRY(compare_outputs(outputs_[i].layout, filled[i], expected[i], found[i]));
  }
  return {};
}

void TuneTensors::abandon() {
  for (Output& output : outputs_) output.memory->abandon();
}

}  // namespace lathe
