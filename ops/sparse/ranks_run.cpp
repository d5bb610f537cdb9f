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

constexpr int kKeyInputs[kSparseKeyTensors] = {of_op::k, of_op::v, of_op::k_rope};
constexpr int kGradients[kSparseKeyTensors] = {of_op::dk, of_op::dv, of_op::dk_rope};

// Calls `visit` with each other rank of the group.
template <typename Visit>
void for_peers(const KeyGather& plan, Visit visit) {
  for (int peer = 0; peer < static_cast<int>(plan.from.size()); ++peer) {
    if (peer != plan.rank) visit(peer);
  }
}

}  // namespace

SparseRankRun::SparseRankRun(const SparseOverRanks& program, const Call& call)
    : RankRun(*program.ranks.group, call),
      program_(program),
      state_(static_cast<const SparseShardState&>(*call.shard_state)),
      gather_(state_.gather),
      batch_(program.own->request().tokens ? 1 : call.extents[Dim::B]),
      kv_heads_(call.extents[Dim::HK]),
      heads_(call.extents[Dim::H]),
      inner_(call) {
  inner_.extents[program.own->request().tokens ? Dim::Tk : Dim::Sk] = gather_.keys;
}

TokenRows SparseRankRun::own_keys(int tensor) const {
  return program_.rows(call_, kKeyInputs[tensor]);
}

bool SparseRankRun::packs(int tensor) const {
  if (!program_.has_keys(tensor) || batch_ * gather_.own_keys == 0) return false;
  TokenRows rows = own_keys(tensor);
  rows.batch = 1;  // rows of the batch may lie apart
  return !rows.is_dense();
}

TokenRows SparseRankRun::sent_keys(int tensor) const {
  const TokenRows own = own_keys(tensor);
  return packs(tensor) ? own.dense_at(at(workspace_.packed[tensor])) : own;
}

TokenRows SparseRankRun::gathered_keys(int tensor) const {
  return dense_rows(at(workspace_.keys[tensor]), batch_, gather_.keys, kv_heads_,
                    program_.width(tensor));
}

TokenRows SparseRankRun::sent_gradients(int tensor) const {
  const SparseBackwardWorkspace& sums = plan_.backward.workspace;
  const int64_t of_sums[kSparseKeyTensors] = {sums.dk_sums, sums.dv_sums, 0};
  char* const data =
      program_.ranks.narrow ? at(workspace_.narrow[tensor]) : steps_workspace() + of_sums[tensor];
  return dense_rows(data, batch_, gather_.keys, kv_heads_, program_.returned_width(tensor));
}

TokenRows SparseRankRun::returned_gradients(int tensor) const {
  return dense_rows(at(workspace_.returned[tensor]), batch_, gather_.returned.back(), kv_heads_,
                    program_.returned_width(tensor));
}

Status SparseRankRun::lay_out() {
  LATHE_ASSIGN(plan_, program_.own->plan(inner_));
  WorkspaceLayout gathered, given;
  const int64_t element = program_.element();
  for (int i = 0; i < kSparseKeyTensors; ++i) {
    const int64_t columns = program_.width(i), returned = program_.returned_width(i);
    workspace_.keys[i] = gathered.add({batch_, gather_.keys, kv_heads_, columns, element});
    const int64_t packed = packs(i) ? gather_.own_keys : 0;
    workspace_.packed[i] = gathered.add({batch_, packed, kv_heads_, columns, element});
    workspace_.returned[i] = given.add(
        {batch_, gather_.returned.back(), kv_heads_, returned, program_.returned_bytes()});
    const int64_t narrow = program_.ranks.narrow ? returned : 0;
    workspace_.narrow[i] = section({batch_, gather_.keys, kv_heads_, narrow, element});
  }
  workspace_.sinks = section({program_.sums_sinks() ? group_.world() : 0, heads_, 4});
  if (program_.sums.add) workspace_.words = section({exact_sum_bytes(heads_)});
  const int64_t shared = section({std::max(gathered.total(), given.total())});
  for (const WorkspaceLayout* layout : {&gathered, &given}) LATHE_TRY(layout->status());
  for (int64_t* offsets : {workspace_.keys, workspace_.packed, workspace_.returned}) {
    for (int i = 0; i < kSparseKeyTensors; ++i) offsets[i] += shared;
  }
  reserve(plan_.total());
  return lay_out_steps();
}

Status SparseRankRun::operator()() {
  read_gathered_keys();
  return exchange_.joined(run_steps());
}

Status SparseRankRun::run_steps() {
  const SparseExecutor& own = *program_.own;
  const bool forward = program_.problem().forward, backward = own.has_backward();
  LATHE_TRY(gather());
  if (!forward && backward) LATHE_TRY(own.run_prepare(inner_, plan_));
  LATHE_TRY(exchange_.arrive());
  LATHE_TRY(own.run_forward(inner_, plan_, &state_.places));
  if (!backward) return {};
  if (forward) LATHE_TRY(own.run_prepare(inner_, plan_));
  LATHE_TRY(own.run_backward(inner_, plan_, &state_.places));
  LATHE_TRY(finish());
  if (program_.sums.add) LATHE_TRY(add_sinks());
  if (!program_.joins()) return {};
  LATHE_TRY(give_back());
  LATHE_TRY(exchange_.arrive());
  return join();
}

// Puts the gathered keys in place of the caller's.
void SparseRankRun::read_gathered_keys() {
  inner_.workspace = steps_workspace();
  const size_t token = program_.own->request().tokens ? 0 : 1;
  for (int i = 0; i < kSparseKeyTensors; ++i) {
    if (!program_.has_keys(i)) continue;
    const TokenRows rows = gathered_keys(i);
    Tensor& keys = inner_.tensors[kKeyInputs[i]];
    keys.data = rows.data;
    keys.extent[token] = rows.tokens;
    keys.stride[token + 1] = rows.head_stride, keys.stride[token] = rows.token_stride;
    if (token == 1) keys.stride[0] = rows.batch_stride;
  }
}

// Packs own keys that have gaps between rows or heads, posts the keys that travel, and copies the
// rank's own keys meanwhile.
Status SparseRankRun::gather() {
  HopMessages& hop = state_.messages;
  hop.clear();
  const int64_t element = program_.element();
  for (int i = 0; i < kSparseKeyTensors; ++i) {
    if (!program_.has_keys(i)) continue;
    const TokenRows own = own_keys(i), sent = sent_keys(i), gathered = gathered_keys(i);
    if (packs(i)) {
      LATHE_TRY(
          copy_rows(program_.pack, own, sent, own, {nullptr, own.tokens}, element, call_.stream));
    }
    for_peers(gather_, [&](int peer) {
      for (const KeyPiece& piece : gather_.from[peer]) {
        hop.receives.push_back(gathered.message(peer, piece.at_reader, piece.tokens, element));
      }
      for (const KeyPiece& piece : gather_.to[peer]) {
        hop.sends.push_back(sent.message(peer, piece.at_owner, piece.tokens, element));
      }
    });
  }
  LATHE_TRY(exchange_.post(hop.hop("the gathering of keys")));
  for (int i = 0; i < kSparseKeyTensors; ++i) {
    if (program_.has_keys(i)) LATHE_TRY(copy_own(i));
  }
  return {};
}

// Copies the rank's own keys to where the gathered ones lie.
Status SparseRankRun::copy_own(int tensor) const {
  const Driver& driver = group_.device().driver();
  const TokenRows from = sent_keys(tensor), to = gathered_keys(tensor);
  for (const KeyPiece& piece : gather_.from[gather_.rank]) {
    const Transfer source = from.message(0, piece.at_owner, piece.tokens, program_.element());
    const Transfer target = to.message(0, piece.at_reader, piece.tokens, program_.element());
    for (int64_t b = 0; source.bytes > 0 && b < batch_; ++b) {
      LATHE_TRY(check(driver,
                      driver.cuMemcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(target.at(b)),
                                               reinterpret_cast<CUdeviceptr>(source.at(b)),
                                               source.bytes, call_.stream),
                      "cuMemcpyDtoDAsync"));
    }
  }
  return {};
}

// Writes dsinks to the caller's tensor or among those of all ranks, and makes narrow gradients.
Status SparseRankRun::finish() const {
  SparseBackwardFinishParams p = program_.own->finish_params(inner_, plan_);
  if (program_.sums_sinks()) p.dsinks = at(workspace_.sinks) + group_.rank() * heads_ * 4;
  if (!program_.ranks.narrow) {
    p.dk_blocks = p.dv_blocks = 0;
    return program_.own->run_finish(p, call_.stream);
  }
  const auto set = [&](int tensor, void** data, long long* batch, long long* token,
                       long long* head) {
    const TokenRows rows = sent_gradients(tensor);
    *data = rows.width > 0 ? rows.data : nullptr;
    *head = program_.width(tensor), *token = kv_heads_ * *head, *batch = gather_.keys * *token;
  };
  set(0, &p.dk, &p.dk_batch_stride, &p.dk_token_stride, &p.dk_head_stride);
  set(1, &p.dv, &p.dv_batch_stride, &p.dv_token_stride, &p.dv_head_stride);
  set(2, &p.dk_rope, &p.dk_rope_batch_stride, &p.dk_rope_token_stride, &p.dk_rope_head_stride);
  return program_.own->run_finish(p, call_.stream);
}

// Adds up the terms of all rows, of all ranks if they are to be, in no order that shows.
Status SparseRankRun::add_sinks() const {
  ExactSum sum;
  sum.terms = steps_workspace() + plan_.backward.workspace.dsinks_parts;
  sum.rows = plan_.backward.rows, sum.row_stride = sum.columns = heads_;
  sum.words = at(workspace_.words), sum.out = call_.tensors[of_op::dsinks].data;
  return make_exact_sums(program_.sums, sum, program_.ranks.reduce_sinks ? &group_ : nullptr,
                         call_.stream);
}

// Posts the gradients' way home, and this rank's part of dsinks to all others.
Status SparseRankRun::give_back() {
  HopMessages& hop = state_.messages;
  hop.clear();
  const int64_t bytes = program_.returned_bytes();
  for (int i = 0; i < kSparseKeyTensors; ++i) {
    const TokenRows sent = sent_gradients(i), returned = returned_gradients(i);
    for_peers(gather_, [&](int peer) {
      int64_t next = gather_.returned[peer];
      for (const KeyPiece& piece : gather_.to[peer]) {
        hop.receives.push_back(returned.message(peer, next, piece.tokens, bytes));
        next += piece.tokens;
      }
      for (const KeyPiece& piece : gather_.from[peer]) {
        hop.sends.push_back(sent.message(peer, piece.at_reader, piece.tokens, bytes));
      }
    });
  }
  const TokenRows sinks =
      dense_rows(at(workspace_.sinks), 1, group_.world(), 1, program_.sums_sinks() ? heads_ : 0);
  for_peers(gather_, [&](int peer) {
    hop.receives.push_back(sinks.message(peer, peer, 1, 4));
    hop.sends.push_back(sinks.message(peer, gather_.rank, 1, 4));
  });
  return exchange_.post(hop.hop("the return of key gradients"));
}

SparseJoinParams SparseRankRun::join_params() const {
  const SparseBackwardWorkspace& sums = plan_.backward.workspace;
  SparseJoinParams p = {};
  for (int i = 0; i < kSparseKeyTensors; ++i) {
    SparseJoinTensor& t = p.tensors[i];
    const Tensor& out = call_.tensors[kGradients[i]];
    // Rotary columns are behind the others of a key, in sums; narrow they are a tensor.
    const int sum = i == 1 ? 1 : 0, column = i == 2 ? program_.problem().head_dim : 0;
    const int returned = program_.ranks.narrow ? i : sum;
    if (!out.data || program_.sum_width(sum) == 0 || !program_.has_keys(i)) continue;
    t.own = steps_workspace() + (sum == 1 ? sums.dv_sums : sums.dk_sums);
    t.own_width = program_.sum_width(sum), t.own_column = column;
    t.returned = at(workspace_.returned[returned]);
    t.returned_width = program_.returned_width(returned);
    t.returned_column = program_.ranks.narrow ? 0 : column;
    t.out = out.data;
    put_strides(attention_strides(out, program_.own->request().tokens), &t.batch_stride,
                &t.token_stride, &t.head_stride);
    t.width = program_.width(i);
    const int64_t rows = batch_ * gather_.own_keys * kv_heads_;
    t.blocks = static_cast<int>(sparse_join_blocks(*program_.join, rows, t.width));
  }
  p.sources = state_.sources;
  p.dsinks_parts = at(workspace_.sinks);
  p.dsinks = call_.tensors[of_op::dsinks].data;
  p.gathered = gather_.keys, p.received = gather_.returned.back();
  p.batches = static_cast<int>(batch_), p.keys = static_cast<int>(gather_.own_keys);
  p.kv_heads = static_cast<int>(kv_heads_);
  p.heads = program_.sums_sinks() ? static_cast<int>(heads_) : 0;
  p.world = group_.world(), p.rank = group_.rank();
  return p;
}

Status SparseRankRun::join() const {
  const SparseJoinParams p = join_params();
  int64_t blocks = sparse_join_sinks_blocks(*program_.join, p.heads);
  for (const SparseJoinTensor& tensor : p.tensors) blocks += tensor.blocks;
  return program_.join.launch(blocks, &p, call_.stream);
}

}  // namespace lathe
