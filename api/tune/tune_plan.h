// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Candidates as whole plans on a device: what the race's steps are there.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/plan.h"
#include "api/tune/tune_buffers.h"
#include "api/tune/tune_choices.h"
#include "api/tune/tune_race.h"

namespace lathe {

// All tuning keys of one tuning share this.
class TuneBench {
 public:
  static Result<std::unique_ptr<TuneBench>> make(lathe_context& context,
                                                 const lathe_problem& problem,
                                                 const DLTensor* const* slots,
                                                 const lathe_shard* shard, double seconds,
                                                 bool flush, bool by_model);
  ~TuneBench();

  struct Plan {
    std::unique_ptr<lathe_plan, void (*)(lathe_plan*)> plan{nullptr, lathe_plan_destroy};
    size_t workspace_bytes = 0;
  };
  Result<Plan> plan(std::shared_ptr<const Choices> choices) const;
  // Over ranks, by all of them: makes what the plan needs of the shard.
  Status prepare(Plan* plan);
  // Runs once and returns microseconds. TIMEOUT if the run takes more than its time.
  Result<double> run(const Plan& plan);

  const Device& device() const { return *context_.device; }
  TuneTensors& tensors() { return *tensors_; }
  CUstream stream() const { return stream_; }
  bool by_model() const { return by_model_; }
  bool ranks() const { return shard_ != nullptr; }
  // Returns why nothing can be run any more; empty if runs can go on.
  const std::string& lost() const { return lost_; }

 private:
  TuneBench(lathe_context& context, const lathe_problem& problem)
      : context_(context),
        problem_(problem),
        workspace_(*context.device),
        flush_(*context.device) {}
  Status open(const DLTensor* const* slots, const lathe_shard* shard, bool flush);
  Status launch(const Plan& plan);
  Status wait();

  lathe_context& context_;
  lathe_problem problem_;
  std::unique_ptr<lathe_shard> shard_;  // a copy, so that the caller's keeps no trace of trials
  std::unique_ptr<TuneTensors> tensors_;
  TuneMemory workspace_, flush_;
  CUstream stream_ = nullptr;
  CUevent begin_ = nullptr, end_ = nullptr;
  double seconds_ = 30;
  bool by_model_ = false;
  std::string lost_;
};

// Resources of the kernel that a tuning key is about.
struct TuneResources {
  int registers = -1, smem_bytes = -1, spill_bytes = -1, stack_bytes = -1;
};

// The candidates of one tuning key.
class PlanRunner : public TuneRunner {
 public:
  // `chosen`: of tuning keys that were decided before.
  PlanRunner(TuneBench& bench, const DeviceFacts& facts, FixedChoices chosen, TuningKey tuning_key);

  Status build(size_t candidate) override;
  Status verify(size_t candidate) override;
  Result<double> time(size_t candidate) override;

  TuneResources resources(size_t candidate) const;
  // Returns "nvrtc 13.0 ...", the compiler that made the kernels.
  std::string compiler() const;

 private:
  struct Candidate {
    TuneBench::Plan plan;
    bool built = false;
    double us = 0;  // of the run that was compared
  };
  Status inspect(size_t candidate) const;
  Status worth_running(size_t candidate) const;

  TuneBench& bench_;
  const DeviceFacts& facts_;
  FixedChoices chosen_;
  TuningKey tuning_key_;
  std::vector<Candidate> candidates_;
  std::vector<std::string> filled_, expected_;
};

}  // namespace lathe
