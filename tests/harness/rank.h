// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Ranks are threads with a context each. This file says what each of them has of the tokens of a
// call.
#pragma once

#include <functional>
#include <map>

#include "tests/harness/call.h"

namespace apitest {

// Intervals are those of tokens that a rank holds, begin and end.
using Intervals = std::vector<std::pair<int64_t, int64_t>>;

struct Ranks {
  int world = 1;
  lathe_balance balance = LATHE_BALANCE_NONE;
  unsigned flags = 0;           // of lathe_problem_group
  std::vector<int64_t> bounds;  // where the caller cuts; empty: even parts
  int64_t block_size = 3;       // of LATHE_BALANCE_PTRR
  bool offsets = true;          // the shard is told those of packed sequences
  int runs = 1;                 // of the same plan and shard, one after another: all alike
  bool graph = false;           // captured once, then launched
  // For a dim that is cut with the tokens, such as chunks of them, this says how many entries each
  // rank has.
  std::map<std::string, std::vector<int64_t>> counts = {};
  // The same, where a rank's entries are not one run of them.
  std::map<std::string, std::vector<Intervals>> entries = {};
  std::vector<Intervals> ranges = {};  // of each rank, in place of a balance; empty: none
  int64_t capacity_tokens = 0, capacity_pieces = 0;  // of the shards
  std::string text() const;
};

// Returns the first dimension of a tensor that is one of these dims; -1 if none is.
int dimension_of(const Call& call, const std::string& name, const std::vector<std::string>& dims);
// These dims count tokens of queries; operators with one axis call it T.
extern const std::vector<std::string> kQueryDims;
// Returns the tokens of the whole axis, -1 where no tensor has that axis.
int64_t length_of(const Call& call, const std::vector<std::string>& dims);
// Calls `copy(whole, local, count)` with offsets of neighbouring elements. The local tensor has as
// many entries along the axis as the intervals, or `rows`, of which those are the first.
using CopyPiece = std::function<void(int64_t whole, int64_t local, int64_t count)>;
void each_piece(const std::vector<int64_t>& shape, int axis, const Intervals& intervals,
                const CopyPiece& copy, int64_t rows = 0);

// A Rank is one rank of a group, with a context of its own and its shard of the tokens of a call.
class Rank {
 public:
  Rank(const Call& call, const Ranks& ranks, int number, const char* id);
  int number() const { return number_; }
  lathe_context* context() const { return context_.get(); }
  Seat seat(void* stream = nullptr) const { return {group_.get(), shard_.get(), flags_, stream}; }
  void abort() { (void)lathe_group_abort(group_.get()); }
  // Returns how many rows a tensor has along an axis of tokens; 0: as many as the rank has tokens.
  int64_t rows() const { return capacity_; }
  // Gives the shard the layout of another call and other ranks, of the same capacity.
  void update(const Call& call, const Ranks& ranks, void* stream);
  // Returns this rank's part of a call with the same tokens, and of values of one of its tensors.
  Call part(const Call& whole) const;
  // With a capacity, rows behind the rank's tokens are NaN.
  Values part(const Call& whole, const std::string& name, const Values& values) const;
  // An Axis says, by the axis of a tensor, which entries this rank has. A `dimension` of -1 means
  // that the tensor has no such axis.
  struct Axis {
    int dimension = -1;
    Intervals held;
  };
  Axis axis_of(const Call& whole, const std::string& name) const;

  Intervals queries, keys;

 private:
  int number_;
  unsigned flags_;
  int64_t capacity_;  // tokens; 0: none
  Context context_;
  Group group_;
  Shard shard_;
  std::map<std::string, Intervals> counted_;  // by dim, of Ranks::counts
};

// Makes the ranks of a call, in threads: their groups meet.
std::vector<std::unique_ptr<Rank>> make_ranks(const Call& call, const Ranks& ranks);
// Runs `body` for each number in a thread of its own. Throws the first failure in time; a rank that
// throws ends its group, or the others would wait for it.
void each_rank(std::vector<std::unique_ptr<Rank>>* ranks, const std::function<void(size_t)>& body);
// Each rank runs `body` in a thread of its own. Throws the first failure in time: the others are
// ranks that miss a partner.
void on_ranks(const Call& call, const Ranks& ranks, const std::function<void(Rank&)>& body);

}  // namespace apitest
