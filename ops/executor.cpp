// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// All executors list their kernels in the same way.
#include "ops/executor.h"

#include <charconv>

namespace lathe {

void KernelSlot::bind(const PlanKernel& kernel) {
  loaded_ = kernel.loaded;
  const std::string_view text = kernel.built->entry->metadata.find("registers").value_or("");
  int registers = 0;
  std::from_chars(text.data(), text.data() + text.size(), registers);
  if (registers > 0) registers_ = registers;
}

Status KernelSlot::encode(size_t index, const MappedTensor& tensor, TensorMap* out) const {
  return loaded_->encode(index, tensor, out);
}

Status KernelSlot::launch(const Grid& grid, const void* params, CUstream stream) const {
  return loaded_->launch(grid, params, stream);
}

void Estimate::add(const Estimate& step) {
  launches += step.launches;
  cost.minimum_bytes += step.cost.minimum_bytes;
  cost.bytes += step.cost.bytes;
  cost.flops += step.cost.flops;
  cost.tensor_ops += step.cost.tensor_ops;
}

std::vector<KernelSpec> Executor::specs() const {
  std::vector<KernelSpec> out;
  out.reserve(slots_.size());
  for (const KernelSlot* slot : slots_) out.push_back(**slot);
  return out;
}

void Executor::bind(const std::vector<PlanKernel>& kernels) {
  for (size_t i = 0; i < slots_.size(); ++i) slots_[i]->bind(kernels[i]);
}

void Executor::list(const std::vector<KernelSlot*>& slots) {
  for (KernelSlot* slot : slots) {
    if (*slot) slots_.push_back(slot);
  }
}

void Executor::list(const Executor& step) {
  slots_.insert(slots_.end(), step.slots_.begin(), step.slots_.end());
}

}  // namespace lathe
