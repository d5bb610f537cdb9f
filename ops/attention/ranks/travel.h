// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Handles the tensors of attention that travel whole: by dispatch to other ranks, or with exchanged
// heads.
#pragma once

#include "ops/attention/run.h"
#include "ops/row_copies.h"

namespace lathe {

// A traveller is a tensor that is cut along the tokens.
struct Traveller {
  int tensor = 0;
  bool keys = false;             // has the tokens and heads of keys
  bool rows = false;             // float32 [B, H, tokens]: one number a row
  bool there = true;             // an input; else a result
  int64_t width = 1, bytes = 4;  // columns of a head, and bytes of one

  bool is_key_gradient() const { return keys && !there; }
};
// Lists the travellers that the problem declares, in the order of messages: gradients of keys last.
std::vector<Traveller> travellers_of(const lathe_problem& problem, const AttentionProblem& asked);

// A journey is one traveller's way in a call. Its rows are near on the rank that owns them, and far
// on the rank that computes with them. A hop carries the rows between both by the lists of the
// route.
struct Journey {
  const Traveller* each = nullptr;
  const RowRoute* route = nullptr;
  int64_t batch = 1, heads = 0;
  int64_t tokens = 0, arrived = 0;            // tokens that are near, and that are far
  char *near = nullptr, *far = nullptr;       // compact rows
  char *sent = nullptr, *received = nullptr;  // packed, where the route lists rows
  char* dense = nullptr;                      // of rows: far, as steps take them
  bool direct = false;  // near are the rows of the caller, which are compact; else a copy of them

  char* from() const { return each->there ? near : far; }
  char* to() const { return each->there ? far : near; }
  // Returns compact rows: token after token, each with all rows of the batch and all `heads`.
  RowCopier::Side compact(char* data, const DeviceTable* index = nullptr) const;
  // Returns per-row numbers in the layout of the steps: [batch, heads, tokens].
  RowCopier::Side dense_side() const;
  Status copy(RowCopier* copies, const RowCopier::Side& source, const RowCopier::Side& target,
              int64_t count) const {
    return copies->add(source, target, count, batch, heads);
  }
  // Runs before the hop: turns the steps' dense results into rows, and packs rows that are listed.
  Status leave(RowCopier* turned, RowCopier* packed) const;
  // Copies the rows that stay on this rank.
  Status stay(RowCopier* copies) const;
  // Runs after the hop: scatters packed data to its rows, and makes inputs dense.
  Status enter(RowCopier* scattered, RowCopier* turned) const;
  RowTransfer transfer() const;
};

// Holds what follows from a shard's lengths, for either method.
class TravelState : public ShardState {
 public:
  RankCopies shares;  // of dsinks: every rank's to all others, in rows by rank
  // These vectors hold the messages of one hop. A group runs one call at a time.
  mutable std::vector<Transfer> sends, receives;

  // Lists the shares, and makes space for `messages` of travellers beside them.
  void make_space(int rank, int world, size_t messages);
};

// The base of the methods' runs. It knows the journeys of a call and the workspace.
class TravelRun {
 public:
  int64_t total() const { return layout_.total(); }

 protected:
  using Side = RowCopier::Side;

  TravelRun(Group& group, const RowKernels& kernels, std::span<const Traveller> travellers,
            bool packed, const Call& call)
      : group_(group), kernels_(kernels), travellers_(travellers), packed_(packed), call_(call) {}

  // Returns the address of a section whose bytes are the product of `factors`.
  char* section(std::initializer_list<int64_t> factors) {
    return call_.workspace + layout_.add(factors);
  }
  char* rows(const Journey& way, int64_t tokens, int64_t groups = 1) {
    return section({groups, tokens, way.batch, way.heads, way.each->width, way.each->bytes});
  }
  // Lays out the workspace of steps, as the last section.
  Status lay_out_steps(size_t bytes);
  Call step_call() const { return lathe::step_call(call_, steps_, steps_bytes_); }

  RowCopier mover() const { return RowCopier(kernels_, call_.stream); }
  // Returns the caller's tensor as a side of a copy.
  Side local(const Traveller& each) const;
  // Calls add(journey, &first, &second) for each traveller that goes there, or home, and launches
  // the copies that were added: a copy of `second` may read the output of one of `first`.
  template <typename Add>
  Status copy_all(bool there, Add add) const {
    RowCopier first = mover(), second = mover();
    for (const Traveller& each : travellers_) {
      if (each.there == there) LATHE_TRY(add(ways_[each.tensor], &first, &second));
    }
    LATHE_TRY(first.launch());
    return second.launch();
  }
  Status enter_all(bool there) const {
    return copy_all(there, [](const Journey& way, RowCopier* scattered, RowCopier* turned) {
      return way.enter(scattered, turned);
    });
  }
  // Runs the hop there, or home. `dsinks` go along, if they have copies.
  Status exchange(bool there, const char* name, const TravelState& state,
                  const RowTransfer& dsinks = {}) const;
  Status clear(char* data, int64_t bytes) const {
    return lathe::clear(group_, data, bytes, call_.stream);
  }

  Group& group_;
  const RowKernels& kernels_;
  const std::span<const Traveller> travellers_;
  const bool packed_;
  const Call& call_;
  std::array<Journey, attention::count> ways_;  // by tensor

 private:
  WorkspaceLayout layout_;
  char* steps_ = nullptr;
  int64_t steps_bytes_ = 0;
};

}  // namespace lathe
