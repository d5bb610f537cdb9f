// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A HaloWorld has all ranks of one cut, with the kernels that templates/params/conv.h describes
// played on the CPU. A row is one integer that says what it is; a gradient row says which rank and
// row it came from.
#pragma once

#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "collective/plans/conv_halo.h"
#include "tests/collective/fakes.h"

using Row = int64_t;
constexpr Row kZero = 0, kGarbage = -999999;
inline Row token_row(int64_t position) { return 1000 + position; }
inline Row slot_row(int64_t sequence, int64_t slot) { return -(sequence * 16 + slot) - 1; }
inline Row gradient_row(int rank, int row) { return 100000 + rank * 16 + row; }

class HaloWorld {
 public:
  HaloWorld(std::vector<int64_t> cu_seqlens, lathe::Partition partition, int width);
  explicit HaloWorld(std::mt19937& random);
  ~HaloWorld();
  HaloWorld(const HaloWorld&) = delete;

  int size() const { return cut.world(); }
  std::string words() const;

  // These functions run the host code of all ranks, one after another.
  void forward();
  void backward();
  void forward_then_backward();  // one exchange of rows for both

  // Returns the rows that the boundary must find: none if the rank's shard is empty or begins with
  // a sequence.
  std::vector<Row> expected_halo(int rank) const;
  // Sums maps (rank, row it belongs to) to the rows that are added, in this order.
  using Sums = std::map<std::pair<int, Row>, std::vector<Row>>;
  Sums expected_sums() const;

  std::vector<int64_t> cu;
  lathe::Partition cut;
  int width;
  std::vector<fakes::Rank> ranks;
  std::vector<std::shared_ptr<lathe::Group>> groups;
  std::vector<lathe::HaloPlan> plans;
  std::vector<std::vector<Row>> seen_halo;
  Sums added;

 private:
  struct Buffers {
    std::vector<Row> tail, rows, halo, dhalo, gradients;
  };
  // A step carries a Play as its user data.
  struct Play {
    HaloWorld* world;
    int rank;
    const char* name;
    void (HaloWorld::*effect)(int rank);
  };

  void set_up();
  bool goes_on(int rank) const;  // the part's first sequence began on an earlier rank
  int64_t sequence_at(int64_t position) const;
  lathe::Step step(int rank, const char* name, void (HaloWorld::*effect)(int rank));
  lathe::HaloBuffers rows_of(int rank);
  lathe::HaloBuffers gradients_of(int rank);
  void finish(int rank);

  void pack(int rank);
  void join(int rank);
  void forward_boundary(int rank);
  void backward_boundary(int rank);
  void add(int rank);
  void spoil(int rank);
  void nothing(int) {}

  std::vector<Buffers> buffers_;
  std::deque<Play> plays_;
};
