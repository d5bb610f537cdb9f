// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs a problem on host tensors: alone, or cut along their tokens over ranks that are threads.
#pragma once

#include "api/cli/problem.h"
#include "api/cli/reports/report.h"

namespace lathe::cli {

// Milliseconds on the host's clock, of the slowest rank.
struct StageTimes {
  double prepare = 0, upload = 0, run = 0, download = 0;
};
LATHE_JSON_OBJECT(StageTimes, prepare, upload, run, download)

// [begin, end) of tokens, in the order of a rank's buffer.
using Intervals = std::vector<std::pair<int64_t, int64_t>>;

// How many ranks there are, how keys travel, which tokens each rank holds.
struct Ranks {
  int count = 0;        // 0: alone, without a group
  unsigned method = 0;  // flags of lathe_problem_group
  lathe_balance balance = LATHE_BALANCE_NONE;
  std::vector<Intervals> ranges = {};  // of each rank; empty: as the balance says
};

// A rank's place: its group (null: alone) and which tokens are its own.
struct Seat {
  Group group;
  Shard shard;
  int rank = 0, world = 1;
  unsigned method = 0;
  Intervals queries, keys, chunks;
};

// One rank's share of a run. The steps are called in this order, once each.
class PartRun {
 public:
  PartRun(lathe_context* context, const Problem& problem, Seat seat = {})
      : context_(context),
        problem_(problem),
        seat_(std::move(seat)),
        stream_(make_stream(context)) {}

  void prepare();                        // compiles or loads
  void upload(const TensorMap& inputs);  // what is not among them holds anything
  void prepare_shard();                  // over ranks; every rank calls it
  void run();                            // returns when the device has finished
  // Writes what this rank owns of each output into the whole tensors.
  void download(const TensorMap& inputs, TensorMap* outputs);

  const lathe_plan* plan() const { return plan_.get(); }
  const StageTimes& times() const { return times_; }
  // Ends the waiting of the other ranks for this one.
  void abort() { lathe_group_abort(seat_.group.get()); }

 private:
  // The dimension in which a tensor is cut over the ranks, and what this rank holds there; below 0:
  // it is not cut.
  std::pair<int, const Intervals*> cut_of(const std::string& name) const;
  bool owns_sequence(const std::vector<int64_t>& offsets, size_t n, bool first_token) const;
  void download_rows(const std::string& name, const TensorMap& inputs, HostTensor* whole);

  lathe_context* context_;
  const Problem& problem_;
  Seat seat_;
  Stream stream_;
  Plan plan_;
  std::map<std::string, DeviceTensor> tensors_;
  DeviceBytes workspace_;
  StageTimes times_;
};

// Every input of `problem` must be among `inputs`. `report` gets the kernels even if the run fails.
TensorMap execute(lathe_context* context, const Problem& problem, const TensorMap& inputs,
                  const Ranks& ranks, Report* report, StageTimes* times);

}  // namespace lathe::cli
