// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A plan tells about itself: kernels, texts, estimates.
#include <charconv>

#include "api/boundary.h"
#include "api/plan.h"
#include "codegen/launch_shape.h"

namespace lathe {
namespace {

int number(const Entry& entry, const char* name) {
  const std::string_view digits = entry.metadata.find(name).value_or("");
  int value = -1;
  const char* end = digits.data() + digits.size();
  return std::from_chars(digits.data(), end, value).ptr == end ? value : -1;
}

int sum(int a, int b) { return a < 0 || b < 0 ? -1 : a + b; }

Status check_index(const lathe_plan* plan, size_t index) {
  LATHE_TRY(require(plan, "plan"));
  if (index < plan->kernels.size()) return {};
  return invalid(text("kernel index is ", index, "; the plan has ", plan->kernels.size(),
                      " kernels, counted from 0"));
}

lathe_estimate summarise(const Estimate& estimate, const DeviceFacts& facts) {
  const Prediction prediction = predict(estimate.cost, estimate.launches, facts);
  return {.launches = estimate.launches,
          .bytes = estimate.cost.bytes,
          .minimum_bytes = estimate.cost.minimum_bytes,
          .flops = estimate.cost.flops,
          .microseconds = prediction.microseconds,
          .bound = prediction.bound,
          .tensor_ops = estimate.cost.tensor_ops,
          .memory_microseconds = prediction.memory_microseconds,
          .tensor_microseconds = prediction.tensor_microseconds,
          .gpu = facts.gpu.c_str(),
          .chain_microseconds = prediction.chain_microseconds,
          .exchanges = estimate.exchanges,
          .exchange_bytes = estimate.exchange_bytes};
}

// The text is lent for as long as the plan is there.
Result<const std::string*> ptx_of(const lathe_plan& plan, size_t index) {
  const BuiltKernel& built = *plan.kernels[index].built;
  const std::lock_guard<std::mutex> lock(plan.mutex);
  std::shared_ptr<const Entry>& entry = plan.whole[index];
  if (!entry) {
    LATHE_ASSIGN(entry, plan.context->registry->whole(built));
  }
  return &entry->ptx;
}

}  // namespace

lathe_kernel_info describe(const PlanKernel& kernel) {
  const Entry& entry = *kernel.built->entry;
  const KernelSpec& spec = kernel.built->spec();
  return {.name = spec.kernel.c_str(),
          .spec = kernel.spec_text.c_str(),
          .key = kernel.key_hex.c_str(),
          .from = word(kernel.built->origin),
          .threads = spec.threads,
          .registers = number(entry, "registers"),
          .smem_bytes = sum(spec.smem_bytes, number(entry, "smem_static")),
          .spill_bytes = sum(number(entry, "spill_stores"), number(entry, "spill_loads")),
          .stack_bytes = number(entry, "stack_bytes"),
          .compile_ms = static_cast<double>(number(entry, "compile_ms"))};
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
    const BuiltKernel& built = *plan->kernels[index].built;
    const std::string* ptx = nullptr;
    if (which == LATHE_TEXT_PTX) {
      LATHE_ASSIGN(ptx, ptx_of(*plan, index));
    }
    const std::string* found = which == LATHE_TEXT_SOURCE ? &built.unit()
                               : which == LATHE_TEXT_PTX  ? ptx
                               : which == LATHE_TEXT_KEY  ? &built.entry->key.text
                                                          : nullptr;
    if (!found) {
      return invalid(text("which is ", static_cast<int>(which),
                          "; allowed are LATHE_TEXT_SOURCE, _PTX and _KEY (0 to 2)"));
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
