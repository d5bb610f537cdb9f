// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Builds, runs and times candidates.
#include "api/tune/tune_plan.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "api/boundary.h"

namespace lathe {
namespace {

// Returns what an exported function reports as a Status again.
Status status_of_call(lathe_status status) {
  if (status == LATHE_OK) return {};
  return Status(static_cast<Code>(status), lathe_last_error());
}

lathe_kernel_info info_of(const lathe_plan* plan, size_t index) {
  lathe_kernel_info info = {};
  info.size = sizeof(info);
  (void)lathe_plan_kernel(plan, index, &info);
  return info;
}

// Bytes of all kernels of a plan that are not in registers.
int64_t local_bytes(const lathe_plan* plan) {
  int64_t sum = 0;
  for (size_t i = 0; i < lathe_plan_kernel_count(plan); ++i) {
    const lathe_kernel_info info = info_of(plan, i);
    sum += std::max(info.spill_bytes, 0) + std::max(info.stack_bytes, 0);
  }
  return sum;
}

std::vector<std::string> spec_texts(const lathe_plan& plan) {
  std::vector<std::string> texts;
  for (const PlanKernel& kernel : plan.kernels) texts.push_back(kernel.spec_text);
  return texts;
}

}  // namespace

Result<std::unique_ptr<TuneBench>> TuneBench::make(lathe_context& context,
                                                   const lathe_problem& problem,
                                                   const DLTensor* const* slots,
                                                   const lathe_shard* shard, double seconds,
                                                   bool flush, bool by_model) {
  std::unique_ptr<TuneBench> bench(new TuneBench(context, problem));
  bench->seconds_ = seconds;
  bench->by_model_ = by_model;
  LATHE_TRY(bench->open(slots, shard, flush));
  return bench;
}

Status TuneBench::open(const DLTensor* const* slots, const lathe_shard* shard, bool flush) {
  const Driver& driver = device().driver();
  LATHE_ASSIGN(const Resolved resolved, declared_by(problem_));
  LATHE_ASSIGN(tensors_, TuneTensors::make(device(), problem_, make_slots(resolved), slots));
  if (shard) {
    shard_ = std::make_unique<lathe_shard>();
    shard_->layout = shard->layout, shard_->rank = shard->rank;
  }
  LATHE_TRY(
      check(driver, driver.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate"));
  LATHE_TRY(check(driver, driver.cuEventCreate(&begin_, CU_EVENT_DEFAULT), "cuEventCreate"));
  LATHE_TRY(check(driver, driver.cuEventCreate(&end_, CU_EVENT_DEFAULT), "cuEventCreate"));
  if (flush && device().facts().l2_bytes > 0) {
    LATHE_TRY(flush_.reserve(2 * static_cast<size_t>(device().facts().l2_bytes)));
  }
  return {};
}

TuneBench::~TuneBench() {
  if (!lost_.empty()) {
    workspace_.abandon(), flush_.abandon();
    if (tensors_) tensors_->abandon();
    return;
  }
  const Driver& driver = device().driver();
  if (begin_) (void)driver.cuEventDestroy(begin_);
  if (end_) (void)driver.cuEventDestroy(end_);
  if (stream_) (void)driver.cuStreamDestroy(stream_);
}

Result<TuneBench::Plan> TuneBench::plan(std::shared_ptr<const Choices> choices) const {
  lathe_problem trial = problem_;
  trial.choices = std::move(choices);
  lathe_plan* raw = nullptr;
  LATHE_TRY(status_of_call(lathe_plan_create(&raw, &context_, &trial)));
  Plan out;
  out.plan.reset(raw);
  if (shard_) return out;  // its workspace is known once the shard is prepared
  LATHE_TRY(
      status_of_call(lathe_plan_workspace(raw, tensors_->slots(), nullptr, &out.workspace_bytes)));
  return out;
}

Status TuneBench::prepare(Plan* plan) {
  if (!lost_.empty()) return Status(Code::timeout, lost_);
  if (!shard_) return {};
  LATHE_TRY(status_of_call(lathe_shard_prepare(shard_.get(), plan->plan.get())));
  return status_of_call(lathe_plan_workspace(plan->plan.get(), tensors_->slots(), shard_.get(),
                                             &plan->workspace_bytes));
}

Status TuneBench::launch(const Plan& plan) {
  const Driver& driver = device().driver();
  LATHE_TRY(workspace_.reserve(plan.workspace_bytes));
  if (flush_.bytes() > 0) {
    LATHE_TRY(check(driver, driver.cuMemsetD8Async(flush_.at(), 0, flush_.bytes(), stream_),
                    "cuMemsetD8Async"));
  }
  LATHE_TRY(check(driver, driver.cuEventRecord(begin_, stream_), "cuEventRecord"));
  const lathe_plan* what = plan.plan.get();
  LATHE_TRY(status_of_call(shard_ ? lathe_plan_run_sharded(what, shard_.get(), tensors_->slots(),
                                                           workspace_.pointer(),
                                                           plan.workspace_bytes, stream_)
                                  : lathe_plan_run(what, tensors_->slots(), workspace_.pointer(),
                                                   plan.workspace_bytes, stream_)));
  return check(driver, driver.cuEventRecord(end_, stream_), "cuEventRecord");
}

// A kernel cannot be stopped: one that is late is out, and one that does not end by ten times its
// time ends the tuning.
Status TuneBench::wait() {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const Driver& driver = device().driver();
  auto pause = std::chrono::microseconds(20);
  double passed = 0;
  for (;;) {
    const CUresult state = driver.cuEventQuery(end_);
    passed = std::chrono::duration<double>(Clock::now() - begin).count();
    if (state == CUDA_SUCCESS) break;
    if (state != CUDA_ERROR_NOT_READY) return check(driver, state, "cuEventQuery");
    if (passed > 10 * seconds_) {
      lost_ = text("a run did not end within ", 10 * seconds_, " s; the device is not usable");
      return Status(Code::timeout, lost_);
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(1000));
  }
  if (passed <= seconds_) return {};
  return Status(Code::timeout, text("a run took ", passed, " s; allowed are ", seconds_));
}

Result<double> TuneBench::run(const Plan& plan) {
  if (!lost_.empty()) return Status(Code::timeout, lost_);
  LATHE_TRY(tensors_->restore(stream_));
  LATHE_TRY(launch(plan));
  LATHE_TRY(wait());
  float milliseconds = 0;
  const Driver& driver = device().driver();
  LATHE_TRY(
      check(driver, driver.cuEventElapsedTime(&milliseconds, begin_, end_), "cuEventElapsedTime"));
  return 1e3 * static_cast<double>(milliseconds);
}

PlanRunner::PlanRunner(TuneBench& bench, const DeviceFacts& facts, FixedChoices chosen,
                       TuningKey tuning_key)
    : bench_(bench), facts_(facts), chosen_(std::move(chosen)), tuning_key_(std::move(tuning_key)) {
  candidates_.resize(tuning_key_.candidates.size());
}

Status PlanRunner::build(size_t candidate) {
  auto choices = std::make_shared<FixedChoices>(chosen_);
  choices->set(tuning_key_, tuning_key_.candidates[candidate]);
  LATHE_ASSIGN(candidates_[candidate].plan, bench_.plan(std::move(choices)));
  candidates_[candidate].built = true;
  return inspect(candidate);
}

Status PlanRunner::inspect(size_t candidate) const {
  if (candidate == 0 || !candidates_[0].built) return {};
  const lathe_plan* plan = candidates_[candidate].plan.plan.get();
  const lathe_plan* fallback = candidates_[0].plan.plan.get();
  if (spec_texts(*plan) == spec_texts(*fallback)) {
    return invalid("it makes the same kernels as the default");
  }
  for (size_t i = 0; i < lathe_plan_kernel_count(plan); ++i) {
    const lathe_kernel_info info = info_of(plan, i);
    const int64_t registers = int64_t{std::max(info.registers, 0)} * info.threads;
    if (registers > facts_.registers_per_multiprocessor) {
      return invalid(text(info.name, " needs ", registers, " registers of ",
                          facts_.registers_per_multiprocessor));
    }
  }
  const int64_t local = local_bytes(plan);
  if (local == 0 || local_bytes(fallback) > 0) return {};
  return invalid(text("it spills ", local, " bytes, the default none"));
}

// The prediction is what the device could do at best.
Status PlanRunner::worth_running(size_t candidate) const {
  if (candidate == 0 || bench_.ranks()) return {};
  lathe_estimate estimate = {};
  estimate.size = sizeof(estimate);
  if (lathe_plan_estimate(candidates_[candidate].plan.plan.get(), bench_.tensors().slots(), nullptr,
                          &estimate) != LATHE_OK ||
      estimate.microseconds <= candidates_[0].us) {
    return {};
  }
  return invalid(text("predicted to take ", estimate.microseconds,
                      " us at best, the default takes ", candidates_[0].us));
}

Status PlanRunner::verify(size_t candidate) {
  LATHE_TRY(worth_running(candidate));
  LATHE_TRY(bench_.prepare(&candidates_[candidate].plan));
  LATHE_ASSIGN(candidates_[candidate].us, bench_.run(candidates_[candidate].plan));
  const CUstream stream = bench_.stream();
  LATHE_ASSIGN(auto found, bench_.tensors().read(stream));
  if (candidate > 0) return bench_.tensors().compare(filled_, expected_, found);
  LATHE_TRY(bench_.tensors().restore(stream));
  LATHE_ASSIGN(filled_, bench_.tensors().read(stream));
  expected_ = std::move(found);
  return {};
}

Result<double> PlanRunner::time(size_t candidate) {
  // By the model each run takes the same.
  if (bench_.by_model()) return candidates_[candidate].us;
  return bench_.run(candidates_[candidate].plan);
}

TuneResources PlanRunner::resources(size_t candidate) const {
  TuneResources out;
  const lathe_plan* plan = candidates_[candidate].plan.plan.get();
  for (size_t i = 0; plan && i < lathe_plan_kernel_count(plan); ++i) {
    const lathe_kernel_info info = info_of(plan, i);
    if (info.name != kernel_of(tuning_key_, tuning_key_.candidates[candidate])) continue;
    out = {info.registers, info.smem_bytes, info.spill_bytes, info.stack_bytes};
  }
  return out;
}

std::string PlanRunner::compiler() const {
  const lathe_plan* plan = candidates_[0].plan.plan.get();
  if (!plan || plan->kernels.empty()) return {};
  return std::string(plan->kernels.front().built->entry->metadata.find("nvrtc").value_or(""));
}

}  // namespace lathe
