// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One rank's share of a run: slices in, kernels, owned rows out.
#include "api/cli/execute.h"

#include <algorithm>
#include <chrono>

#include "api/cli/inputs/slices.h"

namespace lathe::cli {
namespace {

// Adds the time of a scope to a stage.
class Stopwatch {
 public:
  explicit Stopwatch(double* ms) : ms_(ms), start_(std::chrono::steady_clock::now()) {}
  ~Stopwatch() {
    const std::chrono::duration<double, std::milli> spent =
        std::chrono::steady_clock::now() - start_;
    *ms_ += spent.count();
  }

 private:
  double* ms_;
  std::chrono::steady_clock::time_point start_;
};

// Token offsets of packed sequences; empty if every row of the batch is one sequence of T tokens.
std::vector<int64_t> sequence_offsets(const TensorMap& inputs, const char* name) {
  const auto found = inputs.find(name);
  if (found != inputs.end()) return integers(found->second);
  return {};
}

// The first of some dims that the problem has; -1: none.
int64_t extent_of(const Problem& problem, std::initializer_list<const char*> dims) {
  for (const char* dim : dims) {
    const auto found = problem.extents.find(dim);
    if (found != problem.extents.end()) return found->second;
  }
  return -1;
}

}  // namespace

Shard make_shard(const Problem& problem, const TensorMap& inputs, const Ranks& ranks, int rank) {
  std::vector<int64_t> offsets = sequence_offsets(inputs, "cu_seqlens");
  if (offsets.empty()) offsets = sequence_offsets(inputs, "cu_seqlens_q");
  const std::vector<int64_t> key_offsets = sequence_offsets(inputs, "cu_seqlens_k");
  lathe_shard_options options = LATHE_SHARD_OPTIONS_INIT;
  options.world = ranks.count;
  options.rank = rank;
  options.balance = ranks.balance;
  options.length = extent_of(problem, {"T", "Sq", "Tq"});
  options.key_length = extent_of(problem, {"Sk", "Tk"});
  if (!offsets.empty()) options.cu_seqlens = offsets.data();
  if (!key_offsets.empty()) options.cu_seqlens_k = key_offsets.data();
  options.offsets = offsets.size();
  const std::vector<int64_t> bounds = chunk_bounds(problem, inputs, ranks.count);
  if (!bounds.empty()) options.bounds = bounds.data();
  return made<Shard>(lathe_shard_create_with, &options);
}

PartRun::PartRun(lathe_context* context, const Problem& problem, const Seat& seat)
    : context_(context), problem_(problem), seat_(seat), stream_(context) {}

void PartRun::prepare() {
  const Stopwatch watch(&times_.prepare);
  const ProblemHandle handle = declare(problem_);
  if (seat_.group) {
    check(lathe_problem_group(handle.get(), seat_.group,
                              LATHE_REDUCE_PARAMETER_GRADS | seat_.method));
  }
  plan_ = made<Plan>(lathe_plan_create, context_, handle.get());
}

TensorSpec PartRun::local_spec(const std::string& name, const TensorSpec& whole) const {
  TensorSpec spec = whole;
  const SplitAxis split = split_axis(problem_, name);
  if (seat_.group && split.dimension >= 0) {
    spec.shape[split.dimension] = tokens_in(seat_.of(split));
  }
  return spec;
}

void PartRun::upload(const TensorMap& inputs) {
  const Stopwatch watch(&times_.upload);
  for (const auto* specs : {&problem_.inputs, &problem_.outputs}) {
    for (const auto& [name, spec] : *specs) {
      tensors_.try_emplace(name, context_, local_spec(name, spec));
    }
  }
  for (const auto& [name, spec] : problem_.inputs) {
    const SplitAxis split = split_axis(problem_, name);
    const HostTensor& whole = inputs.at(name);
    const bool is_cut = seat_.group && split.dimension >= 0;
    tensors_.at(name).upload(is_cut ? cut(whole, split.dimension, seat_.of(split)) : whole.data,
                             stream_.get());
  }
  stream_.synchronize();
}

void PartRun::prepare_shard() {
  const Stopwatch watch(&times_.prepare);
  check(lathe_shard_prepare(seat_.shard, plan_.get()));
}

void PartRun::run() {
  const Stopwatch watch(&times_.run);
  const std::vector<const DLTensor*> slots = slots_of(plan_.get(), tensors_);
  size_t bytes = 0;
  check(lathe_plan_workspace(plan_.get(), slots.data(), seat_.shard, &bytes));
  workspace_ = std::make_unique<DeviceBytes>(context_, bytes);
  if (seat_.group) {
    check(lathe_plan_run_sharded(plan_.get(), seat_.shard, slots.data(), workspace_->data(), bytes,
                                 stream_.get()));
  } else {
    check(lathe_plan_run(plan_.get(), slots.data(), workspace_->data(), bytes, stream_.get()));
  }
  stream_.synchronize();
  if (seat_.group) check(lathe_group_error(seat_.group));
}

// The owners that lathe_plan_run_sharded names: of a sequence's first or last token, or of the
// token where an empty sequence lies. Without any token there is nothing to own: the last rank.
bool PartRun::owns_sequence(const std::vector<int64_t>& offsets, size_t n, bool first_token) const {
  const int64_t length = problem_.extents.at("T");
  if (length == 0) return seat_.rank == seat_.world - 1;
  int64_t begin = 0, end = length;
  if (!offsets.empty()) {
    begin = offsets[n];
    end = offsets[n + 1];
  }
  int64_t token = first_token ? begin : end - 1;
  if (begin == end) token = std::min(begin, length - 1);
  return holds(seat_.queries, token);
}

void PartRun::download_rows(const std::string& name, const TensorMap& inputs, HostTensor* whole) {
  const bool first_token = is_input_gradient(problem_.op, name);
  const auto offsets = sequence_offsets(inputs, "cu_seqlens");
  const size_t sequences = whole->spec.shape[0];
  const size_t bytes = sequences == 0 ? 0 : whole->data.size() / sequences;
  for (size_t n = 0; n < sequences; ++n) {
    if (!owns_sequence(offsets, n, first_token)) continue;
    tensors_.at(name).download(whole->data.data() + n * bytes, n * bytes, bytes, stream_.get());
  }
}

void PartRun::download(const TensorMap& inputs, TensorMap* outputs) {
  const Stopwatch watch(&times_.download);
  for (auto& [name, whole] : *outputs) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) continue;  // an alias, copied on the host
    const DeviceTensor& tensor = found->second;
    const SplitAxis split = split_axis(problem_, name);
    const lathe_tensor_info& info = problem_.tensors.at(name);
    if (seat_.group && split.dimension >= 0) {
      std::vector<std::byte> part(tensor.bytes());
      tensor.download(part.data(), 0, part.size(), stream_.get());
      place(part, split.dimension, seat_.of(split), &whole);
    } else if (seat_.group && std::string_view(info.dims[0]) == "N" && info.added[0] == 0) {
      download_rows(name, inputs, &whole);
    } else if (seat_.rank == 0) {
      tensor.download(whole.data.data(), 0, whole.data.size(), stream_.get());
    }
  }
}

}  // namespace lathe::cli
