// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Builds, verifies and times the candidates of a tuning key.
#include "api/tune/tune_plan.h"

#include <algorithm>

#include "api/boundary.h"

namespace lathe {
namespace {

// Bytes of all kernels of a plan that are not in registers.
int64_t local_bytes(const lathe_plan& plan) {
  int64_t sum = 0;
  for (const PlanKernel& kernel : plan.kernels) {
    const lathe_kernel_info info = describe(kernel);
    sum += std::max(info.spill_bytes, 0) + std::max(info.stack_bytes, 0);
  }
  return sum;
}

}  // namespace

PlanRunner::PlanRunner(TuneBench& bench, FixedChoices chosen, TuningKey tuning_key)
    : bench_(bench),
      chosen_(std::move(chosen)),
      tuning_key_(std::move(tuning_key)),
      candidates_(tuning_key_.candidates.size()) {}

Status PlanRunner::build(size_t candidate) {
  auto choices = std::make_shared<FixedChoices>(chosen_);
  choices->set(tuning_key_, tuning_key_.candidates[candidate]);
  LATHE_ASSIGN(candidates_[candidate].plan, bench_.plan(std::move(choices)));
  return inspect(candidate);
}

Status PlanRunner::inspect(size_t candidate) const {
  const lathe_plan* plan = candidates_[candidate].plan.plan.get();
  const lathe_plan* fallback = candidates_[0].plan.plan.get();
  if (candidate == 0 || !fallback) return {};
  if (std::ranges::equal(plan->kernels, fallback->kernels, {}, &PlanKernel::spec_text,
                         &PlanKernel::spec_text)) {
    return invalid("it makes the same kernels as the default");
  }
  const int64_t most = bench_.device().facts().registers_per_multiprocessor;
  for (const PlanKernel& kernel : plan->kernels) {
    const lathe_kernel_info info = describe(kernel);
    const int64_t registers = int64_t{std::max(info.registers, 0)} * info.threads;
    if (registers <= most) continue;
    return invalid(text(info.name, " needs ", registers, " registers of ", most));
  }
  const int64_t local = local_bytes(*plan);
  if (local == 0 || local_bytes(*fallback) > 0) return {};
  return invalid(text("it spills ", local, " bytes, the default none"));
}

// The estimate is the least time that the device's data sheet allows.
Status PlanRunner::worth_running(size_t candidate) const {
  if (candidate == 0 || bench_.ranks()) return {};
  lathe_estimate estimate = {};
  estimate.size = sizeof(estimate);
  if (lathe_plan_estimate(candidates_[candidate].plan.plan.get(), bench_.slots(), nullptr,
                          &estimate) != LATHE_OK ||
      estimate.microseconds <= candidates_[0].us) {
    return {};
  }
  return invalid(text("it takes at least ", estimate.microseconds,
                      " us by the data sheet, the default takes ", candidates_[0].us));
}

Status PlanRunner::verify(size_t candidate) {
  LATHE_TRY(worth_running(candidate));
  LATHE_TRY(bench_.prepare(&candidates_[candidate].plan));
  LATHE_ASSIGN(candidates_[candidate].us, bench_.run(candidates_[candidate].plan));
  LATHE_ASSIGN(auto found, bench_.read());
  if (candidate > 0) return bench_.compare(filled_, expected_, found);
  LATHE_TRY(bench_.restore());
  LATHE_ASSIGN(filled_, bench_.read());
  expected_ = std::move(found);
  return {};
}

Result<double> PlanRunner::time(size_t candidate) {
  // By the model each run takes the same.
  if (bench_.by_model()) return candidates_[candidate].us;
  return bench_.run(candidates_[candidate].plan);
}

lathe_kernel_info PlanRunner::kernel(size_t candidate) const {
  const std::string_view wanted = kernel_of(tuning_key_, tuning_key_.candidates[candidate]);
  lathe_kernel_info out = {};
  out.registers = out.smem_bytes = out.spill_bytes = out.stack_bytes = -1;
  const lathe_plan* plan = candidates_[candidate].plan.plan.get();
  if (!plan) return out;
  for (const PlanKernel& kernel : plan->kernels) {
    if (kernel.built->spec().kernel == wanted) out = describe(kernel);
  }
  return out;
}

std::string PlanRunner::compiler() const {
  const lathe_plan* plan = candidates_[0].plan.plan.get();
  if (!plan || plan->kernels.empty()) return {};
  return std::string(plan->kernels.front().built->entry->metadata.find("nvrtc").value_or(""));
}

}  // namespace lathe
