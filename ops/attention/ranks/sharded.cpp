// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The plan of flash_attention over ranks: its parts, what it makes of a shard, its checks.
#include "ops/attention/ranks/sharded.h"

#include <charconv>
#include <iterator>
#include <utility>

#include "codegen/base/invalid.h"
#include "ops/attention/ranks/sharded_run.h"
#include "ops/row_kernels.h"

namespace lathe {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 30;  // positions are added in 32 bits
constexpr int64_t kPairWords = sizeof(PairRow) / sizeof(int32_t);

Status unsupported(std::string what) { return Status(Code::unsupported, std::move(what)); }

// What each step takes as the whole does: options, texts and what they read.
Status copy_scores(const lathe_problem& from, const AttentionRequest& request, lathe_problem& to) {
  for (const char* name : {"softmax_scale", "causal", "window_left", "window_right", "softcap",
                           "scalar_0", "scalar_1", "scalar_2", "scalar_3", "sm_margin"}) {
    LATHE_TRY(set_option(to, name, from.option(name)));
  }
  to.snippets = from.snippets;
  to.first_head = from.first_head;
  static constexpr const char* kCaptures[] = {"capture_0", "capture_1", "capture_2", "capture_3"};
  for (size_t i = 0; i < std::size(kCaptures); ++i) {
    if (request.captured[i] < 0) continue;
    const Declared& capture = from.tensors[request.captured[i]];
    LATHE_TRY(declare(to, kCaptures[i], capture.dtype, {capture.extents[0]}));
  }
  return {};
}

struct Widths {
  Dtype element;
  int64_t heads, kv_heads, key, value;  // kUnknown heads vary
  bool slopes, slope_rows, pair_batch;
};

// q, k, v and pairs of a step; batches of one are packed rows.
Status declare_step(lathe_problem& p, const Widths& w) {
  const int64_t any = kUnknown;
  LATHE_TRY(declare(p, "q", w.element, {any, any, w.heads, w.key}));
  LATHE_TRY(declare(p, "k", w.element, {any, any, w.kv_heads, w.key}));
  LATHE_TRY(declare(p, "v", w.element, {any, any, w.kv_heads, w.value}));
  LATHE_TRY(declare(p, "pairs", Dtype::i32, {any, kPairWords}));
  if (w.pair_batch) LATHE_TRY(declare(p, "pair_batch", Dtype::i32, {any}));
  if (!w.slopes) return {};
  if (w.slope_rows) return declare(p, "alibi_slopes", Dtype::f32, {any, w.heads});
  return declare(p, "alibi_slopes", Dtype::f32, {w.heads});
}

Status declare_forward(lathe_problem& p, const Widths& w) {
  const int64_t any = kUnknown;
  LATHE_TRY(declare_step(p, w));
  LATHE_TRY(declare(p, "out", Dtype::f32, {any, any, w.heads, w.value}));
  return declare(p, "lse", Dtype::f32, {any, w.heads, any});
}

Status declare_gradients(lathe_problem& p, const Widths& w) {
  const int64_t any = kUnknown;
  LATHE_TRY(declare_step(p, w));
  LATHE_TRY(declare(p, "dout", w.element, {any, any, w.heads, w.value}));
  LATHE_TRY(declare(p, "lse", Dtype::f32, {any, w.heads, any}));
  LATHE_TRY(declare(p, "delta", Dtype::f32, {any, w.heads, any}));
  LATHE_TRY(declare(p, "dq", Dtype::f32, {any, any, w.heads, w.key}));
  LATHE_TRY(declare(p, "dk", Dtype::f32, {any, any, w.kv_heads, w.key}));
  return declare(p, "dv", Dtype::f32, {any, any, w.kv_heads, w.value});
}

Status declare_finish(lathe_problem& p, const Widths& w, bool sinks) {
  const int64_t any = kUnknown;
  LATHE_TRY(declare(p, "out", Dtype::f32, {any, any, w.heads, w.value}));
  LATHE_TRY(declare(p, "lse", Dtype::f32, {any, w.heads, any}));
  if (sinks) LATHE_TRY(declare(p, "sinks", Dtype::f32, {w.heads}));
  if (w.element == Dtype::f32) return {};
  return declare(p, "rounded", w.element, {any, any, w.heads, w.value});
}

Status declare_delta(lathe_problem& p, const Widths& w, const AttentionProblem& asked) {
  const int64_t any = kUnknown;
  LATHE_TRY(declare(p, "out", w.element, {any, any, w.heads, w.value}));
  LATHE_TRY(declare(p, "dout", w.element, {any, any, w.heads, w.value}));
  LATHE_TRY(declare(p, "lse", Dtype::f32, {any, w.heads, any}));
  if (asked.dlse) LATHE_TRY(declare(p, "dlse", Dtype::f32, {any, w.heads, any}));
  if (asked.dsinks) {
    LATHE_TRY(declare(p, "sinks", Dtype::f32, {w.heads}));
    LATHE_TRY(declare(p, "dsinks", Dtype::f32, {w.heads}));
  }
  return declare(p, "delta", Dtype::f32, {any, w.heads, any});
}

Status check_covered(const lathe_problem& problem, const AttentionRequest& request) {
  const char* over = " over a group of ranks";
  if (request.alibi_rows && request.problem.packed) {
    return unsupported(text("alibi_slopes of [B,H] with cu_seqlens_q have no kernels", over,
                            "; allowed are [H], or [B,H] without cu_seqlens_q"));
  }
  const std::string heads = problem.option("gather_heads");
  if (heads != "0" && !(problem.group_flags & LATHE_ALLGATHER)) {
    return invalid(text("option gather_heads is ", heads,
                        "; allowed is 0, but with the group's flag LATHE_ALLGATHER (2)"));
  }
  if (heads != "0" && !request.problem.snippets.empty()) {
    return unsupported(text("option gather_heads is ", heads,
                            "; allowed is 0 with score_mod or mask_mod, which see all heads"));
  }
  if (problem.group_flags & (LATHE_DISPATCH | LATHE_EXCHANGE_HEADS)) {
    return unsupported(
        text("group flags are ", problem.group_flags,
             "; flash_attention takes 0 or LATHE_ALLGATHER (2), with LATHE_REDUCE_PARAMETER_GRADS "
             "(1) and LATHE_NARROW_GRADIENTS (16)"));
  }
  return {};
}

}  // namespace

AttentionSharded::AttentionSharded(const AttentionRequest& request, Group* group, unsigned flags)
    : request_(request), group_(group), flags_(flags) {}

Status AttentionSharded::make_parts(const lathe_problem& problem, const DeviceFacts& facts) {
  const AttentionProblem& asked = request_.problem;
  const Widths widths = {asked.element,       request_.promised.heads, request_.promised.kv_heads,
                         asked.head_dim,      asked.value_dim,         asked.alibi,
                         request_.alibi_rows, names_sequences()};
  const auto step = [&](const char* op, auto declare_tensors, const char* option,
                        std::unique_ptr<Part>* part) -> Status {
    LATHE_ASSIGN(*part, Part::make(op, facts, [&](lathe_problem& p) -> Status {
      LATHE_TRY(declare_tensors(p, widths));
      LATHE_TRY(copy_scores(problem, request_, p));
      if (find_option(*p.op, "deterministic") >= 0) {
        LATHE_TRY(set_option(p, "deterministic", problem.option("deterministic")));
      }
      return option ? set_option(p, option, "1") : Status();
    }));
    return {};
  };
  if (asked.forward) {
    LATHE_TRY(step("flash_attention_block", declare_forward, "first", &first_));
    LATHE_TRY(step("flash_attention_block", declare_forward, nullptr, &next_));
    if (asked.sinks || asked.element != Dtype::f32) {
      LATHE_ASSIGN(finish_, Part::make("lse_merge", facts, [&](lathe_problem& p) {
                     return declare_finish(p, widths, asked.sinks);
                   }));
    }
  }
  if (backward()) {
    LATHE_ASSIGN(delta_, Part::make("flash_attention_delta", facts, [&](lathe_problem& p) {
                   return declare_delta(p, widths, asked);
                 }));
  }
  if (asked.backward) {
    const char* op = "flash_attention_block_bwd";
    LATHE_TRY(step(op, declare_gradients, "first", &gradients_first_));
    LATHE_TRY(step(op, declare_gradients, "first_keys", &gradients_next_));
  }
  for (const auto* part :
       {&first_, &next_, &finish_, &delta_, &gradients_first_, &gradients_next_}) {
    add(part->get());
  }
  add_kernels();
  return {};
}

void AttentionSharded::add_kernels() {
  constexpr int kVectorBytes = 16, kVector = 4;  // rows are multiples of 8 elements
  add(copy_rows_spec(RowIndex::none, kVectorBytes), &copy_rows_);
  if (!request_.problem.backward) return;
  if (!gathers()) add(add_rows_spec(travelling(), travelling()), &add_rows_);
  add(sum_parts_spec(travelling(), request_.problem.element, kVector), &sum_parts_);
}

Result<std::unique_ptr<Work>> AttentionSharded::make(const lathe_problem& problem,
                                                     const AttentionRequest& request,
                                                     const DeviceFacts& facts, Group* group,
                                                     unsigned flags) {
  std::unique_ptr<AttentionSharded> work(new AttentionSharded(request, group, flags));
  const std::string heads = problem.option("gather_heads");
  std::from_chars(heads.data(), heads.data() + heads.size(), work->gather_heads_);
  LATHE_TRY(work->make_parts(problem, facts));
  return std::unique_ptr<Work>(std::move(work));
}

Result<std::unique_ptr<const Prepared>> AttentionSharded::prepare(const lathe_shard& shard) const {
  const Layout& layout = shard.layout;
  const AttentionProblem& asked = request_.problem;
  if (layout.packed != asked.packed) {
    return invalid(text("the shard was made with", layout.packed ? "" : "out",
                        " cu_seqlens, but the problem has ", asked.packed ? "" : "no ",
                        "cu_seqlens_q; allowed are both or neither (lathe_shard_create_with)"));
  }
  for (const auto& [axis, tokens] :
       {std::pair("queries", layout.length), std::pair("keys", layout.key_length)}) {
    if (tokens <= kMostTokens) continue;
    return unsupported(
        text("the shard has ", tokens, " tokens of ", axis, "; allowed are 0 to ", kMostTokens));
  }
  const bool positions = asked.alibi || !asked.snippets.empty();
  const VisibleRange visible{request_.window_left, request_.window_right, positions};
  LATHE_ASSIGN(AttentionRounds rounds,
               attention_rounds(layout, shard.rank,
                                gathers() ? Rotation::allgather : Rotation::ring, visible));
  return AttentionTables::make(group_->device(), layout, std::move(rounds), names_sequences());
}

Status AttentionSharded::check(const Call& call) const {
  if (call.prepared == nullptr) {
    return invalid("the shard was not prepared for this plan: call lathe_shard_prepare first");
  }
  LATHE_TRY(check_heads(call.extents[Letter::H], call.extents[Letter::HK]));
  const auto& tables = static_cast<const AttentionTables&>(*call.prepared);
  const int64_t found = call.extents[Letter::N];
  if (!request_.problem.packed || found == tables.sequences()) return {};
  return invalid(text("cu_seqlens_q has ", found, " sequences, but the shard was made for ",
                      tables.sequences()));
}

Result<size_t> AttentionSharded::workspace_bytes(const Call& call) const {
  LATHE_TRY(check(call));
  AttentionRankRun run(*this, call);
  LATHE_TRY(run.lay_out());
  return run.places().total;
}

Result<Estimate> AttentionSharded::estimate(const Call& call) const {
  LATHE_TRY(check(call));
  AttentionRankRun run(*this, call);
  LATHE_TRY(run.lay_out());
  return run.estimate();
}

Status AttentionSharded::run(const Call& call) const {
  LATHE_TRY(check(call));
  AttentionRankRun run(*this, call);
  LATHE_TRY(run.lay_out());
  LATHE_TRY(call.check_workspace(static_cast<int64_t>(run.places().total)));
  if (request_.problem.forward) LATHE_TRY(run.forward());
  return backward() ? run.backward() : Status();
}

Result<std::unique_ptr<Work>> make_attention_sharded(const lathe_problem& problem,
                                                     const Extents& promised,
                                                     const DeviceFacts& facts, Group* group) {
  LATHE_ASSIGN(const AttentionRequest request, attention_request(problem, promised));
  LATHE_TRY(check_covered(problem, request));
  return AttentionSharded::make(problem, request, facts, group, problem.group_flags);
}

}  // namespace lathe
