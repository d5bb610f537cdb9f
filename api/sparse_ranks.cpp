// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The launches and messages of sparse_flash_attention on one rank of several.
//
//   stream:   prepare (saved forward) | forward | rows of the backward | finish |         | join
//   exchange: keys ...................|                                         | return .|
//
// The keys must be there before the first list is read, for any entry may name any of them: beside
// their gathering runs only what reads none, delta and the zeroing of sums. What a forward has
// gathered the backward of the same call finds.
#include "api/sparse_ranks.h"

#include <algorithm>

#include "api/attention_params.h"
#include "api/boundary.h"
#include "codegen/kernels/sparse_ranks.h"
#include "templates/params/sparse_ranks.h"

namespace lathe {
namespace {

namespace of_op = sparse_attention;

constexpr int kKeyTensors = 3;  // k, v and k_rope, or their gradients
constexpr int kInputs[kKeyTensors] = {of_op::k, of_op::v, of_op::k_rope};
constexpr int kGradients[kKeyTensors] = {of_op::dk, of_op::dv, of_op::dk_rope};

class SparseOverRanks final : public Work {
 public:
  SparseOverRanks(std::unique_ptr<SparseWork> own, const SparseGroup& ranks);

  const std::vector<KernelSpec>& specs() const override { return specs_; }
  void bind(const std::vector<PlanKernel>& kernels) override;
  Result<std::unique_ptr<const Prepared>> prepare(const lathe_shard& shard) const override;
  Result<size_t> workspace_bytes(const Call& call) const override;
  Result<Estimate> estimate(const Call& call) const override;
  Status run(const Call& call) const override;

 private:
  // Offsets in the workspace. The gathered keys and what returns of their gradients take turns.
  struct Room {
    int64_t keys[kKeyTensors] = {};      // gathered
    int64_t returned[kKeyTensors] = {};  // gradients of other ranks' rows
    int64_t narrow[kKeyTensors] = {};    // gradients of gathered keys, in the keys' type
    int64_t sinks = 0;                   // float32 [world, H]
    int64_t own = 0;                     // the work of one device
    size_t total = 0;
  };
  // One run.
  struct Run {
    const SparsePrepared& prepared;
    int64_t batch = 0, kv_heads = 0, heads = 0;
    Call call;  // of the work of one device, on the gathered keys
    SparseWork::Launch launch;
    Room room;
    const KeyGather& gather() const { return prepared.gather; }
  };
  const SparseProblem& problem() const { return own_->problem(); }
  const SparseGradients& wanted() const { return own_->request().gradients; }
  bool wants_keys() const { return wanted().dk || wanted().dv; }
  bool sums_sinks() const { return wanted().dsinks && ranks_.reduce_sinks; }
  bool joins() const { return wants_keys() || sums_sinks(); }
  int width(int tensor) const {
    return std::array{problem().head_dim, problem().value_dim, problem().rope_dim}[tensor];
  }
  bool has_keys(int tensor) const {
    return tensor == 0 || (tensor == 1 ? !problem().values_in_keys : problem().rope_dim > 0);
  }
  // Sums of gradients, as the rows of one device leave them: of k and k_rope together, and of v.
  int sum_width(int tensor) const {
    if (tensor == 0 && wanted().dk) return problem().head_dim + problem().rope_dim;
    return tensor == 1 && wanted().dv ? problem().value_dim : 0;
  }
  // Columns of a key's row that travel: of sums, or narrow of each tensor.
  int returned_width(int tensor) const {
    if (!ranks_.narrow) return sum_width(tensor);
    const bool asked = tensor == 1 ? wanted().dv : wanted().dk;
    return asked && has_keys(tensor) ? width(tensor) : 0;
  }
  int64_t returned_bytes() const { return ranks_.narrow ? bytes_of(problem().element) : 4; }

  Result<Run> plan_run(const Call& call) const;
  Status check_call(const Call& call, const SparsePrepared& prepared) const;
  Result<Room> lay_out(const Run& run) const;
  void place(const Call& call, Run* run) const;
  Status run_steps(const Call& call, const Run& run) const;
  Status gather(const Call& call, const Run& run) const;
  Status finish(const Call& call, const Run& run) const;
  Status give_back(const Run& run) const;
  Status join(const Call& call, const Run& run) const;
  SparseJoinParams join_params(const Call& call, const Run& run) const;

  std::unique_ptr<SparseWork> own_;
  SparseGroup ranks_;
  std::vector<KernelSpec> specs_;
  std::shared_ptr<const Kernel> join_;
};

SparseOverRanks::SparseOverRanks(std::unique_ptr<SparseWork> own, const SparseGroup& ranks)
    : own_(std::move(own)), ranks_(ranks), specs_(own_->specs()) {
  if (!joins()) return;
  specs_.push_back(
      sparse_join_spec(problem().element, ranks_.narrow ? problem().element : Dtype::f32));
}

void SparseOverRanks::bind(const std::vector<PlanKernel>& kernels) {
  const auto own = static_cast<std::ptrdiff_t>(own_->specs().size());
  own_->bind({kernels.begin(), kernels.begin() + own});
  if (joins()) join_ = kernels.back().loaded;
}

Result<std::unique_ptr<const Prepared>> SparseOverRanks::prepare(const lathe_shard& shard) const {
  LATHE_ASSIGN(auto made, SparsePrepared::make(own_->request(), shard, ranks_.group->device()));
  return std::unique_ptr<const Prepared>(std::move(made));
}

// Rows of keys, all heads of them, must be messages as they are.
bool has_dense_rows(const Tensor& tensor, bool tokens) {
  const size_t token = tokens ? 0 : 1;
  return tensor.stride[token] == tensor.extent[token + 1] * tensor.extent[token + 2] &&
         tensor.stride[token + 1] == tensor.extent[token + 2];
}

Status SparseOverRanks::check_call(const Call& call, const SparsePrepared& prepared) const {
  if (problem().packed && call.extents[Letter::N] != prepared.sequences) {
    return invalid(text("cu_seqlens_q has N + 1 = ", call.extents[Letter::N] + 1,
                        " offsets; the shard was made with ", prepared.sequences + 1));
  }
  for (int i = 0; i < kKeyTensors; ++i) {
    const Tensor& tensor = call.tensors[kInputs[i]];
    if (!has_keys(i) || has_dense_rows(tensor, own_->request().tokens)) continue;
    const size_t token = own_->request().tokens ? 0 : 1;
    return Status(Code::unsupported,
                  text(std::array{"k", "v", "k_rope"}[i], " has a token stride of ",
                       tensor.stride[token], " and a head stride of ", tensor.stride[token + 1],
                       "; over ranks keys must lie densely, as ",
                       tensor.extent[token + 1] * tensor.extent[token + 2], " and ",
                       tensor.extent[token + 2]));
  }
  return {};
}

Result<SparseOverRanks::Run> SparseOverRanks::plan_run(const Call& call) const {
  if (!call.prepared) {
    return invalid(
        "the shard was not prepared for this plan; lathe_shard_prepare comes before workspace, run "
        "and estimate");
  }
  const bool tokens = own_->request().tokens;
  Run run{static_cast<const SparsePrepared&>(*call.prepared)};
  LATHE_TRY(check_call(call, run.prepared));
  run.batch = tokens ? 1 : call.extents[Letter::B];
  run.kv_heads = call.extents[Letter::HK], run.heads = call.extents[Letter::H];
  run.call = call;
  run.call.extents[tokens ? Letter::Tk : Letter::Sk] = run.gather().keys;
  LATHE_ASSIGN(run.launch, own_->plan_launch(run.call));
  LATHE_ASSIGN(run.room, lay_out(run));
  return run;
}

Result<SparseOverRanks::Room> SparseOverRanks::lay_out(const Run& run) const {
  const int64_t keys = run.gather().keys, returned = run.gather().returned.back();
  const int64_t element = bytes_of(problem().element);
  Room room;
  Sections all, gathered, given;
  for (int i = 0; i < kKeyTensors; ++i) {
    const int64_t columns = has_keys(i) ? width(i) : 0;
    LATHE_TRY(gathered.add({run.batch, keys, run.kv_heads, columns, element}, &room.keys[i]));
    LATHE_TRY(given.add({run.batch, returned, run.kv_heads, returned_width(i), returned_bytes()},
                        &room.returned[i]));
    const int64_t narrow = ranks_.narrow ? returned_width(i) : 0;
    LATHE_TRY(all.add({run.batch, keys, run.kv_heads, narrow, element}, &room.narrow[i]));
  }
  const int64_t world = sums_sinks() ? ranks_.group->world() : 0;
  LATHE_TRY(all.add({world, run.heads, 4}, &room.sinks));
  LATHE_TRY(all.add({run.launch.workspace()}, &room.own));
  int64_t shared = 0;
  LATHE_TRY(all.add({static_cast<int64_t>(std::max(gathered.total(), given.total()))}, &shared));
  for (int i = 0; i < kKeyTensors; ++i) room.keys[i] += shared, room.returned[i] += shared;
  room.total = all.total();
  return room;
}

// The gathered keys stand for the caller's.
void SparseOverRanks::place(const Call& call, Run* run) const {
  const bool tokens = own_->request().tokens;
  run->call.workspace = call.workspace + run->room.own;
  for (int i = 0; i < kKeyTensors; ++i) {
    if (!has_keys(i)) continue;
    Tensor& keys = run->call.tensors[kInputs[i]];
    keys.data = call.workspace + run->room.keys[i];
    const size_t token = tokens ? 0 : 1;
    keys.extent[token] = run->gather().keys;
    keys.stride[token + 1] = width(i), keys.stride[token] = run->kv_heads * width(i);
    if (!tokens) keys.stride[0] = run->gather().keys * keys.stride[1];
  }
}

Result<size_t> SparseOverRanks::workspace_bytes(const Call& call) const {
  LATHE_ASSIGN(const Run run, plan_run(call));
  return run.room.total;
}

Status SparseOverRanks::gather(const Call& call, const Run& run) const {
  std::array<GatheredTensor, kKeyTensors> tensors;
  size_t count = 0;
  const int64_t element = bytes_of(problem().element);
  for (int i = 0; i < kKeyTensors; ++i) {
    if (!has_keys(i)) continue;
    const Tensor& own = call.tensors[kInputs[i]];
    tensors[count++] = {own.data, own_->request().tokens ? 0 : own.stride[0] * element,
                        call.workspace + run.room.keys[i], run.kv_heads * width(i) * element};
  }
  return gather_keys(*ranks_.group, run.gather(), std::span(tensors).first(count), run.batch,
                     call.stream);
}

// dsinks, to where they are wanted or among those of all ranks; and narrow gradients.
Status SparseOverRanks::finish(const Call& call, const Run& run) const {
  const SparseCall of{own_->request(), run.launch.shape, run.call};
  SparseBackwardFinishParams p =
      sparse_finish_params({of, run.launch.backward, run.call.workspace});
  if (sums_sinks()) {
    p.dsinks = call.workspace + run.room.sinks + ranks_.group->rank() * run.heads * 4;
  }
  if (!ranks_.narrow) {
    p.dk_blocks = p.dv_blocks = 0;
    return own_->run_finish(p, call.stream);
  }
  const auto place = [&](int tensor, void** data, long long* batch, long long* token,
                         long long* head) {
    *data = returned_width(tensor) > 0 ? call.workspace + run.room.narrow[tensor] : nullptr;
    *head = width(tensor), *token = run.kv_heads * *head, *batch = run.gather().keys * *token;
  };
  place(0, &p.dk, &p.dk_batch_stride, &p.dk_token_stride, &p.dk_head_stride);
  place(1, &p.dv, &p.dv_batch_stride, &p.dv_token_stride, &p.dv_head_stride);
  place(2, &p.dk_rope, &p.dk_rope_batch_stride, &p.dk_rope_token_stride, &p.dk_rope_head_stride);
  return own_->run_finish(p, call.stream);
}

Status SparseOverRanks::give_back(const Run& run) const {
  char* const workspace = run.call.workspace - run.room.own;
  const SparseBackwardWorkspace& sums = run.launch.backward.workspace;
  const int64_t of_sums[kKeyTensors] = {sums.dk_sums, sums.dv_sums, 0};
  std::array<ReturnedTensor, kKeyTensors> tensors;
  size_t count = 0;
  for (int i = 0; i < kKeyTensors; ++i) {
    if (returned_width(i) == 0) continue;
    char* const gathered =
        ranks_.narrow ? workspace + run.room.narrow[i] : run.call.workspace + of_sums[i];
    tensors[count++] = {gathered, workspace + run.room.returned[i],
                        run.kv_heads * returned_width(i) * returned_bytes()};
  }
  const SharedBytes sinks{workspace + run.room.sinks, sums_sinks() ? run.heads * 4 : 0};
  return return_gradients(*ranks_.group, run.gather(), std::span(tensors).first(count), run.batch,
                          sinks, run.call.stream);
}

SparseJoinParams SparseOverRanks::join_params(const Call& call, const Run& run) const {
  const KernelSpec& spec = specs_.back();
  const SparseBackwardWorkspace& sums = run.launch.backward.workspace;
  SparseJoinParams p = {};
  for (int i = 0; i < kKeyTensors; ++i) {
    SparseJoinTensor& t = p.tensors[i];
    const Tensor& out = call.tensors[kGradients[i]];
    const int64_t rows = run.batch * run.gather().own_keys * run.kv_heads;
    // Rotary columns are behind the others of a key, in sums; narrow they are a tensor.
    const int sum = i == 1 ? 1 : 0, column = i == 2 ? problem().head_dim : 0;
    const int returned = ranks_.narrow ? i : sum;
    if (!out.data || sum_width(sum) == 0 || !has_keys(i)) continue;
    t.own = run.call.workspace + (sum == 1 ? sums.dv_sums : sums.dk_sums);
    t.own_width = sum_width(sum), t.own_column = column;
    t.returned = call.workspace + run.room.returned[returned];
    t.returned_width = returned_width(returned), t.returned_column = ranks_.narrow ? 0 : column;
    t.out = out.data;
    const AttentionStrides strides = attention_strides(out, own_->request().tokens);
    t.batch_stride = strides.batch, t.token_stride = strides.token, t.head_stride = strides.head;
    t.width = width(i);
    t.blocks = static_cast<int>(sparse_join_blocks(spec, rows, t.width));
  }
  p.sources = run.prepared.sources;
  p.dsinks_parts = call.workspace + run.room.sinks;
  p.dsinks = call.tensors[of_op::dsinks].data;
  p.gathered = run.gather().keys, p.received = run.gather().returned.back();
  p.batches = static_cast<int>(run.batch), p.keys = static_cast<int>(run.gather().own_keys);
  p.kv_heads = static_cast<int>(run.kv_heads);
  p.heads = sums_sinks() ? static_cast<int>(run.heads) : 0;
  p.world = ranks_.group->world(), p.rank = ranks_.group->rank();
  return p;
}

Status SparseOverRanks::join(const Call& call, const Run& run) const {
  const SparseJoinParams p = join_params(call, run);
  int64_t blocks = sparse_join_sinks_blocks(specs_.back(), p.heads);
  for (const SparseJoinTensor& tensor : p.tensors) blocks += tensor.blocks;
  if (blocks == 0) return {};
  return join_->launch({static_cast<unsigned>(blocks), 1, 1}, &p, call.stream);
}

Status SparseOverRanks::run_steps(const Call& call, const Run& run) const {
  const bool forward = problem().forward, backward = own_->has_backward();
  LATHE_TRY(gather(call, run));
  if (!forward && backward) LATHE_TRY(own_->run_prepare(run.call, run.launch));
  LATHE_TRY(ranks_.group->stream_after_exchange(call.stream));
  LATHE_TRY(own_->run_forward(run.call, run.launch, &run.prepared.places));
  if (!backward) return {};
  if (forward) LATHE_TRY(own_->run_prepare(run.call, run.launch));
  LATHE_TRY(own_->run_backward(run.call, run.launch, &run.prepared.places));
  LATHE_TRY(finish(call, run));
  if (!joins()) return {};
  LATHE_TRY(give_back(run));
  LATHE_TRY(ranks_.group->stream_after_exchange(call.stream));
  return join(call, run);
}

Status SparseOverRanks::run(const Call& call) const {
  LATHE_ASSIGN(Run run, plan_run(call));
  place(call, &run);
  const Status status = run_steps(call, run);
  if (status.ok()) return status;
  // The caller's stream ends after the exchange, whatever happened: a capture has no loose end.
  (void)ranks_.group->stream_after_exchange(call.stream);
  return status;
}

Result<Estimate> SparseOverRanks::estimate(const Call& call) const {
  LATHE_ASSIGN(const Run run, plan_run(call));
  LATHE_ASSIGN(Estimate out, own_->estimate(run.launch));
  if (!joins()) return out;
  const SparseBackwardLaunch& backward = run.launch.backward;
  const bool finish = ranks_.narrow ? backward.finish_blocks() > 0 : backward.dsinks_blocks > 0;
  out.launches += 1 + finish - (backward.finish_blocks() > 0);
  return out;
}

}  // namespace

Result<SparseGroup> sparse_group(const lathe_problem& problem) {
  SparseGroup out;
  if (!problem.group) return out;
  for (const auto& [flag, name] : {std::pair(LATHE_DISPATCH, "LATHE_DISPATCH"),
                                   std::pair(LATHE_EXCHANGE_HEADS, "LATHE_EXCHANGE_HEADS")}) {
    if (!(problem.group_flags & flag)) continue;
    return Status(Code::unsupported,
                  text("group flags have ", name,
                       ", but sparse_flash_attention gathers keys on every rank; allowed are "
                       "LATHE_ALLGATHER, which changes nothing, LATHE_REDUCE_PARAMETER_GRADS and "
                       "LATHE_NARROW_GRADIENTS"));
  }
  out.group = problem.group->group.get();
  out.reduce_sinks = problem.group_flags & LATHE_REDUCE_PARAMETER_GRADS;
  out.narrow = problem.group_flags & LATHE_NARROW_GRADIENTS;
  return out;
}

Result<std::unique_ptr<Work>> make_sparse_over_ranks(std::unique_ptr<SparseWork> own,
                                                     const SparseGroup& ranks) {
  return std::unique_ptr<Work>(std::make_unique<SparseOverRanks>(std::move(own), ranks));
}

}  // namespace lathe
