// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One rank's share of a run: slices in, kernels, owned rows out.
#include "api/cli/execute.h"

#include <algorithm>
#include <chrono>
#include <cstring>

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

// Calls `copy` with the place of each run of bytes in the whole and in the part.
template <typename Copy>
void for_each_run(const TensorSpec& spec, int dimension, const Intervals& intervals, Copy copy) {
  size_t rows = 1, token_bytes = info(spec.dtype).bytes, part = 0;
  for (int i = 0; i < dimension; ++i) rows *= spec.shape[i];
  for (size_t i = dimension + 1; i < spec.shape.size(); ++i) token_bytes *= spec.shape[i];
  for (size_t row = 0; row < rows; ++row) {
    for (const auto& [begin, end] : intervals) {
      const size_t bytes = static_cast<size_t>(end - begin) * token_bytes;
      if (bytes == 0) continue;
      copy((row * spec.shape[dimension] + begin) * token_bytes, part, bytes);
      part += bytes;
    }
  }
}

int64_t tokens_in(const Intervals& intervals) {
  int64_t sum = 0;
  for (const auto& [begin, end] : intervals) sum += end - begin;
  return sum;
}

// Returns what `intervals` hold of a tensor, in their order.
std::vector<std::byte> cut(const HostTensor& whole, int dimension, const Intervals& intervals) {
  TensorSpec spec = whole.spec;
  spec.shape[dimension] = tokens_in(intervals);
  std::vector<std::byte> out = empty_tensor(spec).data;
  for_each_run(whole.spec, dimension, intervals, [&](size_t from, size_t to, size_t bytes) {
    std::memcpy(out.data() + to, whole.data.data() + from, bytes);
  });
  return out;
}

// Puts what `cut` returned where it belongs.
void place(const std::vector<std::byte>& part, int dimension, const Intervals& intervals,
           HostTensor* whole) {
  for_each_run(whole->spec, dimension, intervals, [&](size_t to, size_t from, size_t bytes) {
    std::memcpy(whole->data.data() + to, part.data() + from, bytes);
  });
}

// True for "d" + the name of an input, which is its gradient.
bool is_input_gradient(const lathe_operator_info* op, const std::string& name) {
  if (!name.starts_with('d')) return false;
  const auto* of = find_tensor(op, name.substr(1));
  return of && of->role != LATHE_OUTPUT;
}

}  // namespace

void PartRun::prepare() {
  const Stopwatch watch(&times_.prepare);
  const ProblemHandle handle = declare(problem_);
  if (seat_.group) {
    check(lathe_problem_group(handle.get(), seat_.group.get(),
                              LATHE_REDUCE_PARAMETER_GRADS | seat_.method));
  }
  plan_ = made<Plan>(lathe_plan_create, context_, handle.get());
}

std::pair<int, const Intervals*> PartRun::cut_of(const std::string& name) const {
  if (!seat_.group) return {-1, nullptr};
  const lathe_tensor_info& info = problem_.tensors.at(name);
  const bool keys = info.token_axis == LATHE_KEYS;
  return {info.token_dim, info.counts_chunks ? &seat_.chunks : keys ? &seat_.keys : &seat_.queries};
}

void PartRun::upload(const TensorMap& inputs) {
  const Stopwatch watch(&times_.upload);
  for (const auto* specs : {&problem_.inputs, &problem_.outputs}) {
    for (auto [name, spec] : *specs) {
      const auto [dimension, tokens] = cut_of(name);
      if (dimension >= 0) spec.shape[dimension] = tokens_in(*tokens);
      tensors_.try_emplace(name, context_, spec, problem_.alignment);
    }
  }
  for (const auto& [name, whole] : inputs) {
    const auto [dimension, tokens] = cut_of(name);
    tensors_.at(name).upload(dimension < 0 ? whole.data : cut(whole, dimension, *tokens),
                             stream_.get());
  }
  check(lathe_stream_synchronize(context_, stream_.get()));
}

void PartRun::prepare_shard() {
  const Stopwatch watch(&times_.prepare);
  check(lathe_shard_prepare(seat_.shard.get(), plan_.get()));
}

void PartRun::run() {
  const Stopwatch watch(&times_.run);
  const std::vector<const DLTensor*> slots = slots_of(plan_.get(), tensors_);
  size_t bytes = 0;
  check(lathe_plan_workspace(plan_.get(), slots.data(), seat_.shard.get(), &bytes));
  workspace_ = device_bytes(context_, bytes);
  if (seat_.group) {
    check(lathe_plan_run_sharded(plan_.get(), seat_.shard.get(), slots.data(), workspace_.get(),
                                 bytes, stream_.get()));
  } else {
    check(lathe_plan_run(plan_.get(), slots.data(), workspace_.get(), bytes, stream_.get()));
  }
  check(lathe_stream_synchronize(context_, stream_.get()));
  if (seat_.group) check(lathe_group_error(seat_.group.get()));
}

// The owners that lathe_plan_run_sharded names: of a sequence's first or last token, or of the
// token where an empty sequence lies. Without any token there is nothing to own: the last rank.
bool PartRun::owns_sequence(const std::vector<int64_t>& offsets, size_t n, bool first_token) const {
  const int64_t length = problem_.extents.at("T");
  if (length == 0) return seat_.rank == seat_.world - 1;
  const int64_t begin = offsets.empty() ? 0 : offsets[n];
  const int64_t end = offsets.empty() ? length : offsets[n + 1];
  const int64_t token = begin == end ? std::min(begin, length - 1) : first_token ? begin : end - 1;
  return std::ranges::any_of(
      seat_.queries, [&](const auto& each) { return each.first <= token && token < each.second; });
}

void PartRun::download_rows(const std::string& name, const TensorMap& inputs, HostTensor* whole) {
  const bool first_token = is_input_gradient(problem_.op, name);
  const auto offsets = integers(inputs, "cu_seqlens");
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
    const auto [dimension, tokens] = cut_of(name);
    const lathe_tensor_info& info = problem_.tensors.at(name);
    if (dimension >= 0) {
      std::vector<std::byte> part(tensor.bytes());
      tensor.download(part.data(), 0, part.size(), stream_.get());
      place(part, dimension, *tokens, &whole);
    } else if (seat_.group && std::string_view(info.dims[0]) == "N" && info.added[0] == 0) {
      download_rows(name, inputs, &whole);
    } else if (seat_.rank == 0) {
      tensor.download(whole.data.data(), 0, whole.data.size(), stream_.get());
    }
  }
}

}  // namespace lathe::cli
