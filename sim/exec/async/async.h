// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Copies, and the barriers they complete on, happen at moments of their own while the warps of a
// cluster run. A copy reads its source and writes its destination somewhere between its issue and
// the wait that covers it; where, is up to Settings::async_policy and the seed. This file is part
// of the base build. Each cluster has one Async object, which one host thread uses.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/exec/launch.h"
#include "sim/exec/warp.h"
#include "sim/ptx/code.h"

namespace sim {

struct Launch;

// A Delivery is a copy that completed in a phase whose end no wait has seen.
struct Delivery {
  uint64_t phase = 0;
  Warp* warp = nullptr;
  const Inst* inst = nullptr;
  unsigned lane = 0;
};

// An Mbarrier has a phase, counts, and the number of bytes that are still to come.
struct Mbarrier {
  uint64_t phase = 0;     // completed phases
  uint64_t observed = 0;  // phases whose end some wait has seen
  uint32_t expected = 0, pending = 0;
  int64_t tx = 0;
  const Inst* birth = nullptr;    // its init
  const Warp* founder = nullptr;  // who ran it
  std::vector<Delivery> unseen;
  RaceMbarrier* race = nullptr;
};
constexpr int64_t kMostArrivals = (1 << 20) - 1;  // also of bytes

// A Piece is a run of bytes that stays together.
struct Piece {
  uint64_t from = 0;  // global address, or an offset in shared memory
  uint64_t to = 0;    // likewise
  uint32_t bytes = 0;
  uint8_t lane = 0;   // whose it is
  bool fill = false;  // no source: fill bytes are written
  bool done = false;  // written
};

// Returns text for findings: "no bytes outstanding", "16 bytes outstanding", "16 bytes more than
// expected".
std::string outstanding(int64_t tx);

enum class Path : uint8_t { global_to_shared, shared_to_global, shared_to_shared };

struct Copy {
  Path path = Path::global_to_shared;
  bool by_thread = false;  // cp.async: waited for by lane
  bool recorded = false;   // the race check knows of its writes
  bool in_group = false;   // completes by a bulk group of one lane
  bool fetched = false, landed = false, released = false;
  Atomic reduce = Atomic::none;
  Type type = Type::none;  // of a reduction's elements
  bool flush = false;      // its subnormals become zero
  uint8_t fill[8] = {};
  Warp* warp = nullptr;
  const Inst* inst = nullptr;
  unsigned lane = 0;   // the first of them
  uint32_t lanes = 0;  // that have not waited yet
  Block* source = nullptr;
  Block* target = nullptr;
  Block* barrier_block = nullptr;  // null: completes no mbarrier
  uint32_t barrier = 0, barrier_bytes = 0;
  uint32_t group[32] = {};
  std::vector<Piece> pieces;
  std::vector<uint8_t> data, defined;  // after the fetch; one byte each
  uint64_t fetch_at = 0, land_at = 0;  // in instructions of the cluster
  bool waited = false;                 // for its destination, by its lane
  bool arrives = false;                // no copy: a delayed cp.async.mbarrier.arrive
};

class Async {
 public:
  Async(Cluster* cluster, const Launch& launch);
  void start();

  // These functions handle mbarriers. `offset` is within the block's shared memory. They return
  // false or null if a finding was reported.
  Mbarrier* find(Block& block, uint32_t offset);
  bool init(Warp& w, const Inst& i, unsigned lane, Block& block, uint32_t offset, uint32_t count);
  bool inval(Warp& w, const Inst& i, unsigned lane, Block& block, uint32_t offset);
  bool expect(Warp& w, const Inst& i, unsigned lane, Block& block, uint32_t offset, int64_t bytes);
  // Ends the mbarriers in these bytes, which something else has been written to.
  void end_overwritten(Block& block, uint32_t offset, uint32_t bytes);
  // `state` receives what the instruction returns.
  bool arrive(Warp& w, const Inst& i, unsigned lane, Block& block, uint32_t offset, uint32_t count,
              bool drop, bool may_complete, uint64_t* state);
  // A wait has seen that all phases so far are over.
  void observe(Mbarrier& m);
  bool add_pending(Warp& w, const Inst& i, unsigned lane, Block& block, uint32_t offset);

  // These functions handle copies.
  void issue(std::unique_ptr<Copy> copy);
  void commit(Warp& w, uint32_t exec, bool bulk);
  // Completes all but the `newest` groups of each lane; with `everything`, uncommitted ones too.
  bool wait_copies(Warp& w, uint32_t exec, const uint32_t* newest, bool everything);
  bool wait_bulk(Warp& w, uint32_t exec, const uint32_t* newest, bool read_only);
  // Returns a copy that is writing, or may still read, some of these bytes of the block, and for
  // which of its lanes; null if there is none.
  const Copy* find_copy(const Block& block, uint32_t offset, uint32_t bytes, bool writes,
                        unsigned* lane) const;
  uint32_t group_of(const Warp& w, unsigned lane, bool bulk) const;

  // The scheduler calls this; the cluster has executed `executed` instructions so far.
  void tick(uint64_t executed);
  // Lands something because nothing can run. Returns false if nothing is under way.
  bool land_one();
  // All warps of a block have ended; `last` is one of them.
  bool block_ends(Block& block, Warp& last);
  void finish();

 private:
  struct Groups {
    uint32_t copies[32] = {}, bulk[32] = {};  // numbers of the groups that are open
  };

  void look_at_marks(const Copy& c) const;
  // Says whether anything may still read these bytes.
  bool is_source(const Block& block, uint32_t offset, uint32_t bytes) const;
  bool fetch(Copy& c);
  bool land(Copy& c, uint32_t lanes);
  bool deliver(Copy& c, Piece& p, size_t at);
  bool complete_tx(Copy& c);
  void report_unseen(const Mbarrier& m, uint32_t offset);
  void release(Copy& c, uint32_t lanes);
  bool test(Mbarrier& m);
  void watch_issue(const Copy& c);
  void watch_landed(Copy& c, RaceMbarrier* barrier);
  void watch_waited(Copy& c, uint32_t lanes, bool read_only);
  void show(Block& block, uint32_t offset, const Mbarrier& m);
  bool settle(Copy& c, uint32_t lanes);
  bool settle_arrival(Copy& c);
  void sweep();
  void drop_copies();
  Groups& groups(const Warp& w);
  const Groups& groups(const Warp& w) const;

  Cluster* cluster_;
  const Launch& launch_;
  std::vector<std::map<uint32_t, Mbarrier>> mbarriers_;  // by rank
  std::vector<Groups> groups_;                           // by warp of the cluster
  std::vector<std::unique_ptr<Copy>> copies_;            // in order of issue
  // These copies are done, but nobody has waited for more than their sources: the bytes that they
  // wrote are not yet visible.
  std::vector<std::unique_ptr<Copy>> unseen_;
  uint64_t now_ = 0, next_ = ~0ull;
};

}  // namespace sim
