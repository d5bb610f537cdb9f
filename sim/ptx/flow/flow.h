// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file computes the control flow of a decoded function: branch targets, join points, liveness,
// register slots.
#pragma once

#include <functional>
#include <vector>

#include "sim/ptx/decode/decode.h"

namespace sim {

class Flow {
 public:
  explicit Flow(Decoder& decoder) : d_(decoder) {}
  // Turns the drafts into Function::code.
  void run();

 private:
  struct BasicBlock {
    uint32_t begin = 0, end = 0;
    std::vector<uint32_t> next, previous;
    bool leaves = false;  // ends the thread
    int join = -1;        // immediate post-dominator; -1: none
  };
  using Bits = std::vector<uint64_t>;

  uint32_t resolve(int scope, const std::string& label, int line) const;
  void resolve_targets();
  void make_blocks();
  void post_dominators();
  void insert_joins();
  void liveness();
  void assign_slots();
  void finish();
  void keep_across_call(uint32_t block, CallSite* site) const;
  void visit_registers(const Draft& draft, const std::function<void(uint32_t, bool)>& f) const;
  uint16_t slot(const Ref& r) const;
  void note_uses(const Draft& draft);

  Decoder& d_;
  std::vector<BasicBlock> blocks_;
  std::vector<uint32_t> block_of_;
  std::vector<uint32_t> callee_starts_;  // drafts
  std::vector<uint32_t> new_index_;      // draft -> instruction, once joins are in
  std::vector<uint8_t> needs_join_;      // by block
  std::vector<Bits> live_in_, live_out_;
  std::vector<uint32_t> slots_;  // by virtual register
  std::vector<uint16_t> constant_slots_;
};

}  // namespace sim
