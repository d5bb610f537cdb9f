// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file serves tests of what runs launch: a context on a driver table that only writes down,
// plans in it and tensors at made-up addresses, and a count of the program's allocations.
#pragma once

#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/plan.h"
#include "ops/group.h"
#include "templates/params/conv.h"
#include "tests/collective/fakes.h"
#include "tests/harness/support.h"

namespace launches {

// Counts the program's allocations, reads of the environment and opened files so far. A run adds
// none.
long allocations();

struct Launch {
  int kernel = 0;  // in the order of loading: the plan's
  CUlaunchConfig config = {};
  std::array<char, 1024> params{};
  template <typename Params>
  Params as() const {
    Params out;
    std::memcpy(&out, params.data(), sizeof(out));
    return out;
  }
};

// Notes what the driver table is asked for, in arrays of fixed size: noting must not allocate.
struct Recorder {
  int loaded = 0;
  std::function<void()> loading;  // called before each load, if there is one
  std::array<size_t, 32> params_bytes{};
  std::array<Launch, 32> launches;
  size_t count = 0;
};
inline Recorder recorder;

// A World has a context on the recording driver, a plan in it and tensors at made-up addresses.
struct World {
  test::Folder folder;
  lathe_context context;
  std::unique_ptr<lathe_group> group;
  test::Plan plan;
  std::vector<test::Array> arrays;
  std::vector<const DLTensor*> slots;

  World();
  void join(fakes::Rank* rank, int world, int index);
  void make(const test::Builder& builder);
  // Joins a group of bounds.size() - 1 ranks as `rank`, makes the problem over it and returns the
  // rank's shard of a cut at `bounds`.
  test::Shard make_rank(const test::Builder& builder, fakes::Rank* fake, int rank,
                        const std::vector<int64_t>& bounds);
  // Fills every declared tensor with the extents of the dims.
  void fill(int64_t batch, int64_t tokens, int64_t sequences, int64_t channels, int64_t width);
  // Takes all dims of the tensors and their extents: "B Tq H", {3, 100, 8}.
  void fill(const char* dims, const std::vector<int64_t>& extents);
  // Asks for the workspace, checks that it is needed, and runs with it. Adds nothing to
  // allocations(), and begins `recorder` anew.
  lathe_status run(size_t* workspace = nullptr);
  // Returns the names of the last run's kernels, in order.
  std::vector<std::string> kernels_launched() const;
  static void* address(int tensor);
  int kernel(const std::string& name) const;
  std::vector<Launch> launches_of(const std::string& name) const;
};

// Checks that each pointer of a launch's parameters is the address of its tensor.
void check_addresses(const std::vector<std::pair<const void*, int>>& places);

inline char* const kWorkspace = reinterpret_cast<char*>(uintptr_t{0x40000000});
inline constexpr CUdeviceptr kTables = 0x90000000;  // what a shard's preparation allocates
inline const auto kStream = reinterpret_cast<CUstream>(uintptr_t{0x77});

// Checks that a run without its workspace, with a byte less or out of alignment is refused and
// launches nothing. A null `shard` stands for one device.
void check_workspace_needed(const lathe_plan* plan, const lathe_shard* shard,
                            const std::vector<const DLTensor*>& slots, size_t workspace);

// Checks the run of a rank once more, with fakes that write nothing down: the run adds nothing to
// allocations().
void check_run_again(const lathe_plan* plan, const lathe_shard* shard,
                     const std::vector<const DLTensor*>& slots, size_t workspace);

// Runs a rank with its workspace, of so many bytes, and once more with fakes that write nothing
// down. Returns what the plan tells of its launches.
uint64_t run_rank(const World& world, const fakes::Rank& fake, const lathe_shard* shard,
                  size_t* workspace);

// Builds a forward and backward with states, D = 64 and W = 4.
test::Builder both_ways();

}  // namespace launches
