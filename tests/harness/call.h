// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A Call is one call of any operator through lathe.h, with tensors, options and mods by name. An
// Answer is what came out, and what the call took. Every family's case becomes one of these.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "tests/harness/far_tensor.h"
#include "tests/harness/session.h"

namespace apitest {

using Values = std::vector<double>;
using Outputs = std::map<std::string, Values>;

struct CallTensor {
  lathe_dtype dtype = LATHE_F32;
  std::vector<int64_t> shape;
  Values values;         // empty: an output
  bool changed = false;  // in and out
  Placement placement = {};
  // These strides, in elements, are for rows that lie too far apart for memory to be there between
  // them.
  std::vector<int64_t> strides = {};
  const DLTensor* at = nullptr;  // another call's tensor in its place, of as many elements
};

struct Call {
  std::string op = "flash_attention";
  std::map<std::string, CallTensor> tensors;
  std::map<std::string, std::string> options, texts;
  // Maps a kernel to the tile that it must have, "m=64 n=64 stages=2 warps=4", in place of the
  // default, or to another implementation of its step, "kernel=causal_conv1d_update_row warps=4".
  // Only programs that link tests/harness/tiles.cpp can name tiles.
  std::map<std::string, std::string> tiles;
  int alignment = 0;           // of lathe_problem_alignment; 0: the default
  std::set<std::string> open;  // dims that are not declared, beside those that vary anyway
  // If true, all extents are declared; otherwise those that vary from call to call are not.
  bool fixed = false;

  void put(const std::string& name, lathe_dtype dtype, std::vector<int64_t> shape, Values values,
           const Placement& placement = {}) {
    tensors[name] = {dtype, std::move(shape), std::move(values), false, placement};
  }
  // Normal values, rounded to the type.
  void draw(const std::string& name, lathe_dtype dtype, std::vector<int64_t> shape, uint32_t seed);
  void want(const std::string& name, lathe_dtype dtype, std::vector<int64_t> shape,
            const Placement& placement = {}) {
    tensors[name] = {dtype, std::move(shape), {}, false, placement};
  }
  void set(const std::string& option, double value);  // every digit of it
  void set(const std::string& option, int64_t value) { options[option] = std::to_string(value); }
  // Gives all 16-bit tensors, which are those with strides, this placement.
  void place(const Placement& placement);
  static size_t count(const std::vector<int64_t>& shape) {
    return static_cast<size_t>(
        std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()));
  }
};

// Draws normal values, rounded to the type.
Values random_values(lathe_dtype dtype, int64_t count, uint32_t seed);
// Returns the dims of a tensor of that rank, as the operator's table has them: {"B", "Sq", "H",
// "D"}.
std::vector<std::string> dims_of(const std::string& op, const std::string& tensor, size_t rank);
Problem declare(const Call& call);

struct Kernel {
  std::string spec;  // canonical text
  int registers = 0, spill_bytes = 0, stack_bytes = 0;
};

struct Answer {
  Outputs outputs;
  std::vector<Kernel> kernels;           // of the plan
  std::vector<nlohmann::json> launches;  // in order, as the simulator counted them
  std::vector<std::string> findings;     // of the simulator's checkers
  uint64_t compiled = 0;                 // kernels that no cache had
  std::string error;                     // of a run in another process: what it threw

  const Values& at(const std::string& name) const { return outputs.at(name); }
  uint64_t total(const std::string& counter) const;  // over the launches
  // Returns the spec text of the kernel, or "" if the plan has none of that name.
  std::string spec(const std::string& kernel) const;
};

// A Seat is the group and the rank's shard that a call runs with; both are null on one device.
struct Seat {
  lathe_group* group = nullptr;
  lathe_shard* shard = nullptr;
  unsigned flags = 0;
  void* stream = nullptr;  // in place of one of the call's own
  bool prepared = true;    // by lathe_shard_prepare
};

// A PlannedCall is a call with its plan and its tensors on the device, for any number of runs.
class PlannedCall {
 public:
  PlannedCall(lathe_context* context, const Call& call, const Seat& seat = {});
  // Fills outputs with poison, gives tensors that a run changes their values again and, behind a
  // run, fills the workspace with poison, too.
  void reset();
  // Uploads other values for an input, until the next upload.
  void upload(const std::string& name, const Values& values);
  void enqueue();
  void synchronize();
  void run() { reset(), enqueue(), synchronize(); }
  // Puts another tensor in the place of the call's own, which the caller fills and reads.
  void replace(const std::string& name, const DLTensor* tensor);
  // Returns everything that a run writes. Throws if it wrote outside the tensors.
  Outputs outputs() const;
  std::vector<Kernel> kernels() const;
  lathe_estimate estimate() const;
  size_t workspace_bytes() const { return workspace_->bytes(); }
  uint64_t compiled() const { return compiled_; }
  lathe_plan* plan() const { return plan_.get(); }
  void* stream() const { return seat_.stream ? seat_.stream : stream_.get(); }
  // Returns the tensor on the device.
  const DLTensor* dl(const std::string& name) const;

 private:
  void make_plan(const Call& call);
  void add(const std::string& name, const CallTensor& given);

  lathe_context* context_;
  const Call call_;
  const Seat seat_;
  Stream stream_;
  Plan plan_;
  uint64_t compiled_ = 0;
  bool used_ = false;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, FarTensor> far_tensors_;
  std::map<std::string, DLTensor> views_;  // of other calls' tensors
  std::vector<const DLTensor*> slots_;
  std::unique_ptr<Memory> workspace_;
};

// Runs a call once; throws what the library answers.
Answer execute(lathe_context* context, const Call& call);
Answer execute(PlannedCall& planned);
// The same by `run`, which resets the call, launches it in its own way, and waits.
Answer execute(PlannedCall& planned, const std::function<void()>& run);
// Joins the answers of two plans: a forward, and a backward that reads its results.
Answer joined(Answer first, const Answer& second);

// Has a problem's tiles chosen as named; set in programs that link tests/harness/tiles.cpp.
using ChooseTiles = void (*)(lathe_problem* problem,
                             const std::map<std::string, std::string>& tiles);
extern ChooseTiles choose_tiles;

}  // namespace apitest
