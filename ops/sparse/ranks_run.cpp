// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs the launches and messages of sparse_flash_attention on one rank of several.
//
//   stream:   pack | own keys, delta | forward | rows of the backward | finish |        | join
//   exchange:      | others' keys ...|                                         | return |
//
// The keys must be there before the first list is read, because any entry may name any key. Only
// work that reads no gathered key runs beside the gathering: copies of the rank's own keys and, in
// a call with a backward alone, delta and the zeroing of sums. The backward of a call reuses the
// keys that its forward gathered.
#include "ops/fill.h"
#include "ops/sparse/ranks.h"

namespace lathe {
namespace {

namespace of_op = sparse_attention;

constexpr int kGradients[SparseOverRanks::kKeyTensors] = {of_op::dk, of_op::dv, of_op::dk_rope};

// Describes rows of keys or of their gradients, [batch, tokens]. The tokens of a batch row are
// contiguous.
struct KeyRows {
  char* data = nullptr;
  int64_t row_bytes = 0, batch = 0, batch_bytes = 0;

  char* at(int64_t row) const { return data + row * row_bytes; }
  Transfer transfer(int peer, int64_t row, int64_t tokens) const {
    return {peer, at(row), static_cast<size_t>(tokens * row_bytes), batch,
            static_cast<size_t>(batch_bytes)};
  }
};

// Calls `visit` with each other rank of the group.
template <typename Visit>
void for_peers(const KeyGather& plan, Visit visit) {
  for (int peer = 0; peer < static_cast<int>(plan.from.size()); ++peer) {
    if (peer != plan.rank) visit(peer);
  }
}

// Copies the rank's own keys to where the gathered ones lie.
Status copy_own(const Driver& driver, const KeyGather& plan, const KeyRows& own,
                const KeyRows& gathered, CUstream stream) {
  const auto address = [](const char* data) { return reinterpret_cast<CUdeviceptr>(data); };
  for (const KeyPiece& piece : plan.from[plan.rank]) {
    const auto bytes = static_cast<size_t>(piece.tokens * own.row_bytes);
    for (int64_t b = 0; bytes > 0 && b < own.batch; ++b) {
      LATHE_TRY(check(driver,
                      driver.cuMemcpyDtoDAsync(
                          address(gathered.at(piece.at_reader) + b * gathered.batch_bytes),
                          address(own.at(piece.at_owner) + b * own.batch_bytes), bytes, stream),
                      "cuMemcpyDtoDAsync"));
    }
  }
  return {};
}

}  // namespace

// Puts the gathered keys in place of the caller's.
void SparseOverRanks::place(const Call& call, SparseRankPlan* run) const {
  const bool tokens = own_->request().tokens;
  const size_t token = tokens ? 0 : 1;
  run->call.workspace = call.workspace + run->offsets.own;
  for (int i = 0; i < kKeyTensors; ++i) {
    if (!has_keys(i)) continue;
    Tensor& keys = run->call.tensors[kInputs[i]];
    keys.data = call.workspace + run->offsets.keys[i];
    keys.extent[token] = run->gather().keys;
    keys.stride[token + 1] = width(i), keys.stride[token] = run->kv_heads * width(i);
    if (!tokens) keys.stride[0] = run->gather().keys * keys.stride[1];
  }
}

// Own keys with gaps between rows or heads become rows that lie densely.
Status SparseOverRanks::pack(const Call& call, const SparseRankPlan& run, int tensor) const {
  const TokenRows own = rows_of(call.tensors[kInputs[tensor]], own_->request().tokens);
  return copy_rows(pack_, own, own.dense_at(call.workspace + run.offsets.dense[tensor]), own,
                   {nullptr, own.tokens}, element(), call.stream);
}

// Posts the keys that travel, and copies the rank's own keys meanwhile.
Status SparseOverRanks::gather(const Call& call, const SparseRankPlan& run,
                               Exchange* exchange) const {
  const KeyGather& plan = run.gather();
  HopMessages& messages = run.state.messages;
  messages.clear();
  KeyRows own[kKeyTensors], gathered[kKeyTensors];
  for (int i = 0; i < kKeyTensors; ++i) {
    if (!has_keys(i)) continue;
    const Tensor& keys = call.tensors[kInputs[i]];
    const int64_t row = run.kv_heads * width(i) * element();
    gathered[i] = {call.workspace + run.offsets.keys[i], row, run.batch, plan.keys * row};
    own[i] = {keys.data, row, run.batch, run.batch > 1 ? keys.stride[0] * element() : 0};
    if (packs(call, run, i)) {
      LATHE_TRY(pack(call, run, i));
      own[i].data = call.workspace + run.offsets.dense[i];
      own[i].batch_bytes = plan.own_keys * row;
    }
    for_peers(plan, [&](int peer) {
      for (const KeyPiece& piece : plan.from[peer]) {
        messages.receives.push_back(gathered[i].transfer(peer, piece.at_reader, piece.tokens));
      }
      for (const KeyPiece& piece : plan.to[peer]) {
        messages.sends.push_back(own[i].transfer(peer, piece.at_owner, piece.tokens));
      }
    });
  }
  LATHE_TRY(exchange->post(messages.hop("the gathering of keys")));
  const Driver& driver = ranks_.group->device().driver();
  for (int i = 0; i < kKeyTensors; ++i) {
    LATHE_TRY(copy_own(driver, plan, own[i], gathered[i], call.stream));
  }
  return {};
}

// Writes dsinks to the caller's tensor or among those of all ranks, and makes narrow gradients.
Status SparseOverRanks::finish(const Call& call, const SparseRankPlan& run) const {
  SparseBackwardFinishParams p = own_->finish_params(run.call, run.launch);
  if (sums_sinks()) {
    p.dsinks = call.workspace + run.offsets.sinks + ranks_.group->rank() * run.heads * 4;
  }
  if (!ranks_.narrow) {
    p.dk_blocks = p.dv_blocks = 0;
    return own_->run_finish(p, call.stream);
  }
  const auto place = [&](int tensor, void** data, long long* batch, long long* token,
                         long long* head) {
    *data = returned_width(tensor) > 0 ? call.workspace + run.offsets.narrow[tensor] : nullptr;
    *head = width(tensor), *token = run.kv_heads * *head, *batch = run.gather().keys * *token;
  };
  place(0, &p.dk, &p.dk_batch_stride, &p.dk_token_stride, &p.dk_head_stride);
  place(1, &p.dv, &p.dv_batch_stride, &p.dv_token_stride, &p.dv_head_stride);
  place(2, &p.dk_rope, &p.dk_rope_batch_stride, &p.dk_rope_token_stride, &p.dk_rope_head_stride);
  return own_->run_finish(p, call.stream);
}

// Posts the gradients' way home, and this rank's part of dsinks to all others.
Status SparseOverRanks::give_back(const SparseRankPlan& run, Exchange* exchange) const {
  const KeyGather& plan = run.gather();
  HopMessages& messages = run.state.messages;
  messages.clear();
  char* const workspace = run.call.workspace - run.offsets.own;
  const SparseBackwardWorkspace& sums = run.launch.backward.workspace;
  const int64_t of_sums[kKeyTensors] = {sums.dk_sums, sums.dv_sums, 0};
  for (int i = 0; i < kKeyTensors; ++i) {
    const int64_t row = run.kv_heads * returned_width(i) * returned_bytes();
    char* const data =
        ranks_.narrow ? workspace + run.offsets.narrow[i] : run.call.workspace + of_sums[i];
    const KeyRows gathered{data, row, run.batch, plan.keys * row};
    const KeyRows returned{workspace + run.offsets.returned[i], row, run.batch,
                           plan.returned.back() * row};
    for_peers(plan, [&](int peer) {
      int64_t next = plan.returned[peer];
      for (const KeyPiece& piece : plan.to[peer]) {
        messages.receives.push_back(returned.transfer(peer, next, piece.tokens));
        next += piece.tokens;
      }
      for (const KeyPiece& piece : plan.from[peer]) {
        messages.sends.push_back(gathered.transfer(peer, piece.at_reader, piece.tokens));
      }
    });
  }
  const KeyRows sinks{workspace + run.offsets.sinks, sums_sinks() ? run.heads * 4 : 0, 1};
  for_peers(plan, [&](int peer) {
    messages.receives.push_back(sinks.transfer(peer, peer, 1));
    messages.sends.push_back(sinks.transfer(peer, plan.rank, 1));
  });
  return exchange->post(messages.hop("the return of key gradients"));
}

SparseJoinParams SparseOverRanks::join_params(const Call& call, const SparseRankPlan& run) const {
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
    t.returned = call.workspace + run.offsets.returned[returned];
    t.returned_width = returned_width(returned), t.returned_column = ranks_.narrow ? 0 : column;
    t.out = out.data;
    put_strides(attention_strides(out, own_->request().tokens), &t.batch_stride, &t.token_stride,
                &t.head_stride);
    t.width = width(i);
    t.blocks = static_cast<int>(sparse_join_blocks(*join_, rows, t.width));
  }
  p.sources = run.state.sources;
  p.dsinks_parts = call.workspace + run.offsets.sinks;
  p.dsinks = call.tensors[of_op::dsinks].data;
  p.gathered = run.gather().keys, p.received = run.gather().returned.back();
  p.batches = static_cast<int>(run.batch), p.keys = static_cast<int>(run.gather().own_keys);
  p.kv_heads = static_cast<int>(run.kv_heads);
  p.heads = sums_sinks() ? static_cast<int>(run.heads) : 0;
  p.world = ranks_.group->world(), p.rank = ranks_.group->rank();
  return p;
}

Status SparseOverRanks::join(const Call& call, const SparseRankPlan& run) const {
  const SparseJoinParams p = join_params(call, run);
  int64_t blocks = sparse_join_sinks_blocks(*join_, p.heads);
  for (const SparseJoinTensor& tensor : p.tensors) blocks += tensor.blocks;
  return join_.launch(blocks, &p, call.stream);
}

Status SparseOverRanks::run_steps(const Call& call, const SparseRankPlan& run,
                                  Exchange* exchange) const {
  const bool forward = problem().forward, backward = own_->has_backward();
  LATHE_TRY(gather(call, run, exchange));
  if (!forward && backward) LATHE_TRY(own_->run_prepare(run.call, run.launch));
  LATHE_TRY(exchange->arrive());
  LATHE_TRY(own_->run_forward(run.call, run.launch, &run.state.places));
  if (!backward) return {};
  if (forward) LATHE_TRY(own_->run_prepare(run.call, run.launch));
  LATHE_TRY(own_->run_backward(run.call, run.launch, &run.state.places));
  LATHE_TRY(finish(call, run));
  if (!joins()) return {};
  LATHE_TRY(give_back(run, exchange));
  LATHE_TRY(exchange->arrive());
  return join(call, run);
}

Status SparseOverRanks::launch(const Call& call, SparseRankPlan& run) const {
  place(call, &run);
  Exchange exchange(*ranks_.group, call.stream);
  return exchange.joined(run_steps(call, run, &exchange));
}

}  // namespace lathe
