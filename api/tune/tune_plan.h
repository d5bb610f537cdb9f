// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Candidates as whole plans on a device: what the race's steps are there.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/plan.h"
#include "api/tune/tune_choices.h"
#include "api/tune/tune_compare.h"
#include "api/tune/tune_race.h"

namespace lathe {

// Runs plans on the caller's tensors, those that a run writes replaced by copies with guards around
// them: the caller's are only read. All tuning keys of one tuning share it.
class TuneBench {
 public:
  // `options`: those of the tuning.
  TuneBench(lathe_context& context, const lathe_problem& problem,
            const lathe_tune_options& options);
  ~TuneBench();
  TuneBench(const TuneBench&) = delete;
  TuneBench& operator=(const TuneBench&) = delete;
  // `given`: a tensor for each of the slots.
  Status open(const std::vector<Slot>& slots, const DLTensor* const* given);

  struct Plan {
    std::unique_ptr<lathe_plan, void (*)(lathe_plan*)> plan{nullptr, lathe_plan_destroy};
    size_t workspace_bytes = 0;  // known once it is prepared
  };
  Result<Plan> plan(std::shared_ptr<const Choices> choices) const;
  // Before the first run; over ranks, by all of them: makes what the plan needs of the shard.
  Status prepare(Plan* plan);
  // Runs once and returns microseconds. TIMEOUT if the run takes more than its time.
  Result<double> run(const Plan& plan);

  // Outputs and guards hold a pattern (not a number, in floats), what is in and out its first
  // value. Enqueued.
  Status restore() const;
  // Returns the bytes of every output with its guards, when they are here.
  Result<std::vector<std::string>> read() const;
  // Returns INVALID_ARGUMENT with the first that differs.
  Status compare(const std::vector<std::string>& filled, const std::vector<std::string>& expected,
                 const std::vector<std::string>& found) const;

  const Device& device() const { return *context_.device; }
  const DLTensor* const* slots() const { return pointers_.data(); }
  bool by_model() const { return context_.kind == LATHE_DEVICE_SIM; }
  bool ranks() const { return shard_ != nullptr; }
  // Returns why nothing can be run any more; empty if runs can go on.
  const std::string& lost() const { return lost_; }

 private:
  struct Memory {
    CUdeviceptr at = 0;
    size_t bytes = 0;
  };
  struct Output {
    OutputLayout layout;
    Memory memory;
    CUdeviceptr original = 0;  // of what is in and out
  };
  // Gives at least so many bytes; what was there before is lost if it was less.
  Status reserve(size_t bytes, Memory* memory) const;
  Status replace(const Slot& slot, DLTensor* tensor);
  Status launch(const Plan& plan);
  Status wait();

  lathe_context& context_;
  lathe_problem problem_;
  const lathe_tune_options options_;
  const double seconds_;
  std::unique_ptr<lathe_shard> shard_;  // a copy, so that the caller's keeps no trace of trials
  std::vector<DLTensor> tensors_;
  std::vector<const DLTensor*> pointers_;
  std::vector<Output> outputs_;
  Memory workspace_;
  Memory flush_;  // written to empty the L2 cache
  CUstream stream_ = nullptr;
  CUevent begin_ = nullptr, end_ = nullptr;
  std::string lost_;
};

// The candidates of one tuning key.
class PlanRunner : public TuneRunner {
 public:
  // `chosen`: of tuning keys that were decided before.
  PlanRunner(TuneBench& bench, FixedChoices chosen, TuningKey tuning_key);

  Status build(size_t candidate) override;
  Status verify(size_t candidate) override;
  Result<double> time(size_t candidate) override;

  // Describes the kernel that the tuning key is about; its resources are -1 if there is none.
  lathe_kernel_info kernel(size_t candidate) const;
  // Returns "nvrtc 13.0 ...", the compiler that made the kernels.
  std::string compiler() const;

 private:
  struct Candidate {
    TuneBench::Plan plan;
    double us = 0;  // of the run that was compared
  };
  Status inspect(size_t candidate) const;
  Status worth_running(size_t candidate) const;

  TuneBench& bench_;
  FixedChoices chosen_;
  TuningKey tuning_key_;
  std::vector<Candidate> candidates_;
  std::vector<std::string> filled_, expected_;
};

}  // namespace lathe
