// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A plan tells about itself: kernels, texts, estimates.
#include <algorithm>

#include "api/boundary.h"
#include "api/plan.h"
#include "cache/report.h"
#include "codegen/launch_shape.h"

namespace lathe {
namespace {

// An entry may come from somebody else: its numbers must not overflow.
int sum(int a, int b) {
  if (a < 0 || b < 0) return -1;
  return static_cast<int>(std::min<int64_t>(int64_t{a} + b, INT32_MAX));
}

Status check_index(const lathe_plan* plan, size_t index) {
  LATHE_TRY(require(plan, "plan"));
  if (index < plan->kernels.size()) return {};
  return invalid(text("kernel index is ", index, "; the plan has ", plan->kernels.size(),
                      " kernels, counted from 0"));
}

lathe_estimate summarise(const Estimate& estimate, const DeviceFacts& facts) {
  const DataSheetBound bound = data_sheet_bound(estimate.cost, estimate.launches, facts);
  return {.launches = estimate.launches,
          .bytes = estimate.cost.bytes,
          .minimum_bytes = estimate.cost.minimum_bytes,
          .flops = estimate.cost.flops,
          .microseconds = bound.microseconds,
          .bound = bound.bound,
          .tensor_ops = estimate.cost.tensor_ops,
          .memory_microseconds = bound.memory_microseconds,
          .tensor_microseconds = bound.tensor_microseconds,
          .gpu = facts.gpu.c_str(),
          .exchanges = estimate.exchanges,
          .exchange_bytes = estimate.exchange_bytes};
}

// The code is lent for as long as the plan is there.
Result<const Entry*> whole_entry(const lathe_plan& plan, size_t index) {
  const BuiltKernel& built = *plan.kernels[index].built;
  const std::lock_guard<std::mutex> lock(plan.mutex);
  std::shared_ptr<const Entry>& entry = plan.whole[index];
  if (!entry) {
    LATHE_ASSIGN(entry, plan.context->registry->whole(built));
  }
  return entry.get();
}

const std::string* remarks_of(const lathe_plan& plan, size_t index) {
  const std::lock_guard<std::mutex> lock(plan.mutex);
  const auto [found, first] = plan.remarks.try_emplace(index);
  if (!first) return &found->second;
  const auto remarks = report_of(plan.kernels[index].built->entry->metadata).remarks;
  if (!remarks) found->second = "?";
  for (const Remark& each : remarks.value_or(std::vector<Remark>())) {
    found->second += text(each.code, "\t", is_loss(each) ? "loss" : "note", "\t", each.lines, "\t",
                          each.text, "\n");
  }
  return &found->second;
}

// Returns null for a text that there is not.
Result<const std::string*> text_of(const lathe_plan& plan, size_t index, lathe_text which) {
  const BuiltKernel& built = *plan.kernels[index].built;
  switch (which) {
    case LATHE_TEXT_SOURCE:
      return &built.unit();
    case LATHE_TEXT_KEY:
      return &built.entry->key.text;
    case LATHE_TEXT_REMARKS:
      return remarks_of(plan, index);
    case LATHE_TEXT_PTX:
    case LATHE_TEXT_CUBIN: {
      LATHE_ASSIGN(const Entry* whole, whole_entry(plan, index));
      return which == LATHE_TEXT_PTX ? &whole->ptx : &whole->cubin;
    }
  }
  return static_cast<const std::string*>(nullptr);
}

}  // namespace

lathe_kernel_info describe(const PlanKernel& kernel) {
  const CompileReport report = report_of(kernel.built->entry->metadata);
  const KernelSpec& spec = kernel.built->spec();
  return {.name = spec.kernel.c_str(),
          .spec = kernel.spec_text.c_str(),
          .key = kernel.key_hex.c_str(),
          .from = word(kernel.built->origin),
          .threads = spec.threads,
          .registers = report.registers,
          .smem_bytes = sum(spec.smem_bytes, report.smem_static),
          .spill_bytes = sum(report.spill_stores, report.spill_loads),
          .stack_bytes = report.stack_bytes,
          .compile_ms = report.milliseconds,
          .family = spec.family,
          .family_reason = kernel.family_reason.c_str()};
}

}  // namespace lathe

using namespace lathe;

extern "C" {

size_t lathe_plan_kernel_count(const lathe_plan* plan) { return plan ? plan->kernels.size() : 0; }

lathe_status lathe_plan_kernel(const lathe_plan* plan, size_t index, lathe_kernel_info* out) {
  return boundary([&]() -> Status {
    LATHE_TRY(check_index(plan, index));
    return give_sized(describe(plan->kernels[index]), out);
  });
}

lathe_status lathe_plan_kernel_text(const lathe_plan* plan, size_t index, lathe_text which,
                                    const char** out, size_t* size) {
  return boundary([&]() -> Status {
    LATHE_TRY(check_index(plan, index));
    LATHE_TRY(require(out, "out"));
    LATHE_ASSIGN(const std::string* found, text_of(*plan, index, which));
    if (!found) {
      return invalid(text("which is ", static_cast<int>(which),
                          "; allowed are LATHE_TEXT_SOURCE to LATHE_TEXT_CUBIN (0 to 4)"));
    }
    *out = found->c_str();
    if (size) *size = found->size();
    return {};
  });
}

lathe_status lathe_plan_estimate(const lathe_plan* plan, const DLTensor* const* slots,
                                 const lathe_shard* shard, lathe_estimate* out) {
  return boundary({{plan, "plan"}}, [&]() -> Status {
    Call call;
    LATHE_TRY(prepare_call(*plan, shard, slots, Checks::shapes, &call));
    LATHE_ASSIGN(const Estimate estimate, plan->executor->estimate(call));
    return give_sized(summarise(estimate, plan->context->facts), out);
  });
}

}  // extern "C"
