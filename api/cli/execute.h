// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs a problem on host tensors: alone, or cut along their tokens over ranks that are threads.
#pragma once

#include "api/cli/inputs/rotation.h"
#include "api/cli/inputs/slices.h"
#include "api/cli/problem.h"
#include "api/cli/reports/report.h"

namespace lathe::cli {

// Milliseconds on the host's clock, of the slowest rank.
struct StageTimes {
  double prepare = 0, upload = 0, run = 0, download = 0;
};

// A rank's place: its group (null: alone) and which tokens are its own.
struct Seat {
  lathe_group* group = nullptr;
  lathe_shard* shard = nullptr;
  int rank = 0, world = 1;
  unsigned method = 0;
  Intervals queries, keys, chunks;

  const Intervals& of(const SplitAxis& split) const {
    return split.chunks ? chunks : split.axis == LATHE_KEYS ? keys : queries;
  }
};

// One rank's share of a run. The steps are called in this order, once each.
class PartRun {
 public:
  PartRun(lathe_context* context, const Problem& problem, const Seat& seat);

  void prepare();  // compiles or loads
  void upload(const TensorMap& inputs);
  void prepare_shard();  // over ranks; every rank calls it
  void run();            // returns when the device has finished
  // Writes what this rank owns of each output into the whole tensors.
  void download(const TensorMap& inputs, TensorMap* outputs);

  const lathe_plan* plan() const { return plan_.get(); }
  const StageTimes& times() const { return times_; }

 private:
  TensorSpec local_spec(const std::string& name, const TensorSpec& whole) const;
  bool owns_sequence(const std::vector<int64_t>& offsets, size_t n, bool first_token) const;
  void download_rows(const std::string& name, const TensorMap& inputs, HostTensor* whole);

  lathe_context* context_;
  const Problem& problem_;
  Seat seat_;
  Stream stream_;
  Plan plan_;
  DeviceTensors tensors_;
  std::unique_ptr<DeviceBytes> workspace_;
  StageTimes times_;
};

// Returns the shard of one rank, cut as the lengths and offsets among `inputs` say.
Shard make_shard(const Problem& problem, const TensorMap& inputs, const Ranks& ranks, int rank);

// Every input of `problem` must be among `inputs`. `report` gets
// the kernels even if the run fails.
TensorMap execute(lathe_context* context, const Problem& problem, const TensorMap& inputs,
                  const Ranks& ranks, Report* report, StageTimes* times);

}  // namespace lathe::cli
