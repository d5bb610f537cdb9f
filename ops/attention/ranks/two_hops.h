// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs attention in two hops: one takes the inputs to the ranks that compute with them, one brings
// the results home. Dispatch and exchanged heads differ in what goes where.
#pragma once

#include "ops/attention/run.h"
#include "ops/row_copies.h"

namespace lathe {

// Describes a tensor that is cut along the tokens, and travels.
struct HopTensor {
  int tensor = 0;
  bool keys = false;             // has the tokens and heads of keys
  bool per_row = false;          // float32 [B, H, tokens]: one number a row
  bool is_input = true;          // goes out; else a result, which comes home
  int64_t width = 1, bytes = 4;  // columns of a head, and bytes of one

  bool is_key_gradient() const { return keys && !is_input; }
};
// Lists those that the problem declares, in the order of messages: gradients of keys last.
std::vector<HopTensor> hop_tensors(const lathe_problem& problem, const AttentionProblem& asked);

// Describes one tensor's hop in a call. Its rows are at home on the rank that owns them, and away
// on the rank that computes with them. The lists of the route say which row goes where.
struct TensorHop {
  const HopTensor* tensor = nullptr;
  const RowRoute* route = nullptr;
  int64_t batch = 1, heads = 0;
  int64_t home_tokens = 0, away_tokens = 0;
  int64_t parts = 1;                          // shares of the heads, one after another where away
  char *home = nullptr, *away = nullptr;      // compact rows
  char *sent = nullptr, *received = nullptr;  // packed, where the route lists rows
  char* dense = nullptr;                      // of per-row numbers: away, as steps take them
  bool direct = false;  // home are the caller's rows, which are compact; else a copy of them

  char* from() const { return tensor->is_input ? home : away; }
  char* to() const { return tensor->is_input ? away : home; }
  // Returns the bytes of `tokens` rows.
  int64_t bytes(int64_t tokens) const {
    return tokens * batch * heads * tensor->width * tensor->bytes;
  }
  // Returns compact rows: token after token, each with all rows of the batch and all `heads`.
  RowCopier::Side compact(char* data, const DeviceTable* index = nullptr) const;
  // Returns per-row numbers of a part in the layout of the steps: [batch, heads, tokens].
  RowCopier::Side dense_side(int64_t part = 0) const;
  // Returns where a part's rows are away.
  char* away_part(int64_t part) const { return away + part * bytes(away_tokens); }
  char* dense_part(int64_t part) const { return dense + part * bytes(away_tokens); }
  Status copy(RowCopier* copies, const RowCopier::Side& source, const RowCopier::Side& target,
              int64_t count) const {
    return copies->add(source, target, count, batch, heads);
  }
  // Runs before the hop: turns the steps' dense results into rows, and packs rows that are listed.
  Status pack(RowCopier* turned, RowCopier* packed) const;
  // Copies the rows that stay on this rank.
  Status copy_own(RowCopier* copies) const;
  // Runs after the hop: scatters packed data to its rows, and makes inputs dense.
  Status unpack(RowCopier* scattered, RowCopier* turned) const;
  RowTransfer transfer() const;
};

// Holds what follows from a shard's lengths, for either method.
class TwoHopState : public ShardState {
 public:
  RankCopies dsinks;             // every rank's to all others, in rows by rank
  mutable HopMessages messages;  // each run fills these

  // Lists the messages of dsinks, a row for each of `shares`, and makes space for `others` beside
  // them.
  void add_dsinks(int rank, int world, int64_t shares, size_t others);
};

// The base of both methods' runs. It knows the hops of a call's tensors and the workspace.
class TwoHopRun : public RankRun {
 public:
  Status operator()();

 protected:
  using Side = RowCopier::Side;
  // The methods' names, in messages of errors.
  struct Names {
    const char *out, *home;
  };

  TwoHopRun(Group& group, const RowKernels& kernels, std::span<const HopTensor> tensors,
            const TwoHopState& state, bool packed, const Names& names, const Call& call)
      : RankRun(group, call),
        kernels_(kernels),
        tensors_(tensors),
        two_hops_(state),
        packed_(packed),
        names_(names) {}
  ~TwoHopRun() = default;

  // A method has these functions.
  virtual Status pack_inputs() const = 0;
  virtual Status compute() const = 0;
  virtual Status pack_results() const = 0;
  virtual Status unpack_results() const = 0;

  char* add_section(std::initializer_list<int64_t> factors) { return at(section(factors)); }
  char* add_rows(const TensorHop& hop, int64_t tokens, int64_t groups = 1) {
    return add_section(
        {groups, tokens, hop.batch, hop.heads, hop.tensor->width, hop.tensor->bytes});
  }
  RowCopier copier() const { return RowCopier(kernels_, call_.stream); }
  // Returns the caller's tensor as a side of a copy.
  Side local(const HopTensor& each) const;
  // Calls add(hop, &first, &second) for each input, or each result, and launches the copies that
  // were added: a copy of `second` may read the output of one of `first`.
  template <typename Add>
  Status copy_all(bool inputs, Add add) const {
    RowCopier first = copier(), second = copier();
    for (const HopTensor& each : tensors_) {
      if (each.is_input == inputs) LATHE_TRY(add(hops_[each.tensor], &first, &second));
    }
    LATHE_TRY(first.launch());
    return second.launch();
  }

  const RowKernels& kernels_;
  const std::span<const HopTensor> tensors_;
  const TwoHopState& two_hops_;
  const bool packed_;
  const Names names_;
  std::array<TensorHop, attention::count> hops_;  // by tensor
  RowTransfer dsinks_transfer_;                   // goes home with the results, if it has copies

 private:
  Status exchange(bool inputs);
};

}  // namespace lathe
