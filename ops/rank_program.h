// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Holds what the programs for one call of an operator on a rank of several share. All programs have
// one form: rows are packed, an exchange carries them on its own stream, steps compute beside or
// behind the exchange, and results return. A program only says which rows, hops and steps it has.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <span>
#include <type_traits>
#include <vector>

#include "collective/exchange.h"
#include "collective/plans/layout.h"
#include "ops/executor.h"
#include "ops/row_kernels.h"

namespace lathe {

// A step of a program is an executor of one rank, if the program has that step. Its calls live on
// the stack of the outer run.
class RankStep {
 public:
  RankStep() = default;
  // `executor` was made for a request of operator `op`, whose table says what tensors are called.
  static Result<RankStep> make(const char* op, MadeExecutor executor);

  explicit operator bool() const { return executor_ != nullptr; }
  Executor& operator*() const { return *executor_; }
  Executor* operator->() const { return executor_.get(); }

  // Puts a tensor into a call: its dims become the call's extents. `strides` in elements; none:
  // contiguous. The number of extents says which of the table's shapes the tensor has.
  void put(Call* call, int tensor, const void* data, std::initializer_list<int64_t> extents,
           std::initializer_list<int64_t> strides = {}) const;

 private:
  std::unique_ptr<Executor> executor_;
  std::vector<std::array<Shape, kMaxRank + 1>> shapes_;  // by tensor and rank
};

// The base of the run of one call: its workspace, of which one section belongs to the steps, and
// its exchange. Steps run one after another, so they share that section.
class RankRun {
 public:
  int64_t total() const { return layout_.total(); }

 protected:
  RankRun(Group& group, const Call& call)
      : group_(group), call_(call), exchange_(group, call.stream) {}
  ~RankRun() = default;

  // Adds a section whose bytes are the product of `factors`, which also goes to `bytes`, and
  // returns its offset.
  int64_t section(std::initializer_list<int64_t> factors, int64_t* bytes = nullptr) {
    return layout_.add(factors, bytes);
  }
  char* at(int64_t offset) const { return call_.workspace + offset; }
  // Makes the section of the steps large enough for this call of a step, or for so many bytes.
  Status reserve(const Executor& step, const Call& call);
  void reserve(int64_t bytes) { steps_bytes_ = std::max(steps_bytes_, bytes); }
  Status lay_out_steps();
  Status layout_status() const { return layout_.status(); }
  char* steps_workspace() const { return at(steps_); }
  // Returns a call of a step without tensors.
  Call step_call() const;

  Group& group_;
  const Call& call_;
  Exchange exchange_;

 private:
  WorkspaceLayout layout_;
  int64_t steps_ = 0, steps_bytes_ = 0;
};

// Makes the executor of a program, which makes a Run for each call. Program derives from Executor;
// it has the kernels and steps, prepares shards, and has
//   Status check(const Call&) const;  refuses a call whose shard has no state, and others
// Run derives from RankRun, is made after that check, and has
//   Run(const Program&, const Call&);
//   Status lay_out();                 lays out the workspace
//   Status operator()();              runs the call
//   Result<Estimate> estimate();
template <typename Program, typename Run>
class RankExecutor final : public Program {
 public:
  using Program::Program;

  Result<size_t> workspace_bytes(const Call& call) const override {
    return with_run(call, [](Run& run) { return Result(static_cast<size_t>(run.total())); });
  }
  Status run(const Call& call) const override {
    return with_run(call, [&call](Run& run) -> Status {
      LATHE_TRY(call.check_workspace(run.total()));
      return run();
    });
  }
  Result<Estimate> estimate(const Call& call) const override {
    return with_run(call, [](Run& run) { return run.estimate(); });
  }

 private:
  template <typename F>
  std::invoke_result_t<F, Run&> with_run(const Call& call, F f) const {
    LATHE_TRY(this->check(call));
    Run run(*this, call);
    LATHE_TRY(run.lay_out());
    return f(run);
  }
};

// Runs an operator whose states go along the tokens: by one program where the ranks' shards follow
// each other, and by another one where sequences lie in pieces on any ranks.
class LayoutExecutor final : public Executor {
 public:
  LayoutExecutor(std::unique_ptr<Executor> contiguous, std::unique_ptr<Executor> pieces);

  MadeShardState prepare(const lathe_shard& shard) const override {
    return of(shard).prepare(shard);
  }
  Status check_capacity() const override { return pieces_->check_capacity(); }
  Result<size_t> workspace_bytes(const Call& call) const override {
    return of(*call.shard).workspace_bytes(call);
  }
  Status run(const Call& call) const override { return of(*call.shard).run(call); }
  Result<Estimate> estimate(const Call& call) const override {
    return of(*call.shard).estimate(call);
  }

 private:
  const Executor& of(const lathe_shard& shard) const {
    const bool parts = shard.layout.contiguous() && !shard.layout.capacity;
    return parts ? *contiguous_ : *pieces_;
  }

  const std::unique_ptr<Executor> contiguous_, pieces_;
};
// Lists the kernels of both.
MadeExecutor executor_of_layouts(MadeExecutor contiguous, MadeExecutor pieces);

// Describes rows of tokens in memory, [batch, groups, tokens, heads, width]. Strides are in
// elements, and a width is contiguous.
struct TokenRows {
  char* data = nullptr;
  int64_t batch = 1, tokens = 0, heads = 0, width = 0;
  int64_t batch_stride = 0, token_stride = 0, head_stride = 0;
  int64_t groups = 1, group_stride = 0;

  int64_t elements() const { return batch * groups * tokens * heads * width; }
  // Returns these rows without gaps, at another address.
  TokenRows dense_at(char* other) const;
  bool is_dense() const;
  // Returns the message with tokens [first, first + count) of each row of the batch, whose tokens
  // lie without gaps.
  Transfer message(int peer, int64_t first, int64_t count, int64_t element_bytes) const;
};
// Returns rows [batch, tokens, heads, width] without gaps.
TokenRows dense_rows(char* data, int64_t batch, int64_t tokens, int64_t heads, int64_t width);
// Returns the rows of an activation of a call: [B, tokens, heads, width], or packed without a
// batch.
TokenRows rows_of(const Tensor& tensor, bool packed);

// Names the tokens of one side of a copy by an index. This side has `limit` tokens.
struct TokenIndex {
  const void* rows = nullptr;  // int32, one for each token of the other side; null: as they are
  int64_t limit = 0;
};
// Copies the tokens of `walked`, which is one of the two sides, with kernel copy_rows.
Status copy_rows(const VectorSlot& kernel, const TokenRows& from, const TokenRows& to,
                 const TokenRows& walked, const TokenIndex& index, int64_t element_bytes,
                 CUstream stream);

// Returns the state that the plan made of the call's shard, or INVALID_ARGUMENT if it made none.
template <typename State>
Result<const State*> shard_state_of(const Call& call) {
  if (call.shard_state != nullptr) return static_cast<const State*>(call.shard_state);
  return invalid("the shard was not prepared for this plan: call lathe_shard_prepare first");
}
// Returns INVALID_ARGUMENT unless the shard was made with lengths exactly if the problem is packed.
// `offsets` names the tensor that packs it.
Status check_shard_form(const Layout& layout, bool packed, const char* offsets);
// Returns INVALID_ARGUMENT unless a packed call has as many sequences as the shard was made with.
Status check_shard_sequences(const Call& call, bool packed, int64_t sequences, const char* offsets);

// Holds the messages of a hop of which there may be many. It belongs to a shard's state, which
// reserves room, so a run that fills it does not allocate. A group, and so a plan and its shards,
// runs one call at a time.
struct HopMessages {
  std::vector<Transfer> sends, receives;

  void clear() { sends.clear(), receives.clear(); }
  void reserve(size_t each) { sends.reserve(each), receives.reserve(each); }
  Hop hop(const char* name, int step = 0) const { return {sends, receives, name, step}; }
};

// Returns the offsets of the pieces of all rows of a batch: those of one row, or what a launch of
// repeat_offsets makes of them in the workspace.
struct PieceOffsets {
  const KernelSlot& repeat;
  const void* row = nullptr;  // int32 [pieces + 1], on the device
  int64_t pieces = 0, tokens = 0;

  static int64_t bytes(int64_t batch, int64_t pieces) { return 4 * (batch * pieces + 1); }
  Result<const void*> of_batch(int64_t batch, char* workspace, CUstream stream) const;
};
// Returns INVALID_ARGUMENT unless the rows of a batch follow each other in memory, so that the
// tokens of all rows are one packed row. `name` names the tensor.
Status check_rows_follow(const char* name, const Tensor& tensor);

// Returns UNSUPPORTED for canonical pieces, of which a layout has as many as it is long.
Status check_pieces_capacity(bool canonical);
// Returns UNSUPPORTED unless a call over a shard with a capacity has one row: the pieces of one row
// would not end where those of the next one begin. `name` names a tensor.
Status check_one_row(const char* name, int64_t batch);

// Sets bytes of device memory to 0, on the stream.
Status clear(const Group& group, char* data, int64_t bytes, CUstream stream);

}  // namespace lathe
