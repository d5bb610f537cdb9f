// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Inner problems, their works and their calls.
#include "ops/parts.h"

#include <algorithm>
#include <cassert>

#include "ops/resolve.h"

namespace lathe {

Result<std::unique_ptr<Part>> Part::make(
    const char* op, const DeviceFacts& facts,
    const std::function<Status(lathe_problem&)>& declare_tensors) {
  lathe_problem problem;
  problem.op = find_operator(op);
  problem.options.resize(problem.op->options.size());
  LATHE_TRY(declare_tensors(problem));
  LATHE_ASSIGN(const Resolved resolved, resolve(problem));
  auto part = std::make_unique<Part>();
  for (int i = 0; i < static_cast<int>(problem.op->tensors.size()); ++i) {
    if (problem.has(i)) part->shapes_[i] = problem.shape(i);
  }
  LATHE_ASSIGN(part->work_, make_work(resolved, facts));
  return part;
}

void Part::put(Call* call, int tensor, const void* data, std::initializer_list<int64_t> extents,
               std::initializer_list<int64_t> strides) const {
  const Shape& shape = shapes_[tensor];
  assert(shape.rank == static_cast<int>(extents.size()));
  Tensor& out = call->tensors[tensor];
  out.data = static_cast<char*>(const_cast<void*>(data));
  std::copy(extents.begin(), extents.end(), out.extent.begin());
  int64_t stride = 1;
  for (int i = shape.rank - 1; i >= 0; --i) {
    call->extents[shape.dims[i].letter] = out.extent[i] - shape.dims[i].plus;
    out.stride[i] = stride;
    stride *= std::max<int64_t>(out.extent[i], 1);
  }
  if (strides.size() > 0) std::copy(strides.begin(), strides.end(), out.stride.begin());
}

Status declare(lathe_problem& problem, const char* name, Dtype dtype,
               std::initializer_list<int64_t> extents) {
  return declare(problem, name, static_cast<int>(dtype), static_cast<int>(extents.size()),
                 extents.begin());
}

Status set_option(lathe_problem& problem, const char* name, const std::string& value) {
  return set_option(&problem, name, OptionType::word, value);
}

void ComposedWork::add(const Part* part) {
  if (part == nullptr) return;
  entries_.push_back({part, nullptr});
  const auto& specs = part->work().specs();
  specs_.insert(specs_.end(), specs.begin(), specs.end());
}

void ComposedWork::add(KernelSpec spec, std::shared_ptr<const Kernel>* loaded) {
  entries_.push_back({nullptr, loaded});
  specs_.push_back(std::move(spec));
}

void ComposedWork::bind(const std::vector<PlanKernel>& kernels) {
  auto next = kernels.begin();
  for (const Entry& entry : entries_) {
    if (entry.part == nullptr) {
      *entry.loaded = (next++)->loaded;
      continue;
    }
    const auto end = next + static_cast<std::ptrdiff_t>(entry.part->work().specs().size());
    entry.part->work().bind(std::vector<PlanKernel>(next, end));
    next = end;
  }
}

}  // namespace lathe
