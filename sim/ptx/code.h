// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds decoded code: the instructions of sim/ptx/inst.h with what belongs to them.
// sim/ptx/decode makes the code once per module and sim/exec runs it.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/ptx/inst.h"
#include "sim/ptx/order.h"

namespace sim {

enum class Class : uint8_t {
  integer,
  floating,
  half,
  convert,
  math,
  compare,
  move,
  memory,
  atomic,
  warp,
  barrier,
  control,
  async,
  tensor,
  pseudo,
  count
};
constexpr const char* kClassNames[] = {"integer", "float",   "half",   "convert", "math",
                                       "compare", "move",    "memory", "atomic",  "warp",
                                       "barrier", "control", "async",  "tensor"};

// Reports and counters need these facts about an instruction; they are kept out of the way of the
// run loop.
struct InstInfo {
  int ptx_line = 0;
  int file = 0, line = 0;
  Class cls = Class::control;
  Form form;
  std::string text;
  uint8_t arguments = 0;  // of a failed assertion
};

// A Constant is the same in every lane and never written: an immediate, or an address known only at
// launch.
struct Constant {
  enum class Base : uint8_t { none, symbol, shared, dynamic_shared };
  Base base = Base::none;
  uint16_t slot = 0;
  uint8_t bytes = 4;
  uint64_t value = 0;  // also the addend
  std::string symbol;
};

// These structs describe calls that stay calls. Offsets are from the frame of the function that
// names the variable.
struct CallPiece {
  uint32_t offset = 0, bytes = 0;
};
constexpr uint16_t kWideSlot = 0x8000;  // in CallSite::slots: a pair of slots, 8 bytes a lane
struct CallSite {
  std::vector<CallPiece> arguments, results;
  std::vector<uint16_t> slots, predicates;  // live across the call: kept by it
  uint32_t frame = 0;                       // 0 the kernel's, k: of callee k - 1
};
struct Callee {
  uint32_t pc = 0, frame_bytes = 0;
  std::vector<CallPiece> params, returns;
};
// Returns the address that mov of a function's name gives: no memory is there.
constexpr uint64_t function_address(uint64_t index) { return 0xC0DE'0000'0000'0000 + 16 * index; }
bool same_sizes(const CallSite& site, const Callee& callee);

// A RegisterUse is one register or predicate of an instruction, by its number before slots are
// given out. `place` tells the operands of one instruction apart: a, b, c, the rest.
struct RegisterUse {
  enum class Kind : uint8_t { source, result };
  uint32_t number = 0;  // predicates come after the registers
  Kind kind = Kind::source;
  uint8_t place = 0;
};

struct Function : CodeView {
  std::vector<Inst> code;
  std::vector<InstInfo> infos;
  std::vector<Order> orders;                  // by instruction info
  std::vector<uint16_t> lists;                // operand lists, indexed by Inst::aux
  std::vector<std::vector<uint32_t>> tables;  // brx targets
  std::vector<Constant> constants;
  uint32_t slots = 0;  // register slots of a warp, constants included
  uint32_t predicates = 0;
  uint32_t virtual_registers = 0;
  std::vector<RegisterUse> uses;    // of all instructions, in their order
  std::vector<uint32_t> use_start;  // by instruction, and the end
  uint32_t memory_ordinals = 0;
  uint32_t static_shared = 0;
  uint32_t dynamic_align = 1;  // of the .extern .shared array
  uint32_t shared_align = 1;
  bool uses_reserved_shared = false;  // the system's part of shared memory
  bool reads_undefined_registers = false;
  bool uses_async_copies = false;
  bool uses_stack = false;  // calls or alloca: the depot goes on past local_bytes
  std::vector<CallSite> sites;
  std::vector<Callee> callees;
  std::unordered_map<uint64_t, uint32_t> callee_by_address;
  bool uses_wgmma = false;
  bool ordered_across_blocks = false;  // which block comes first decides about results
  bool sees_blocks = false;            // blocks may wait for one another
  // They see others in wait loops, and by tickets: each of them can run without the others, with
  // waits that are over at once and its own number for a ticket. What it computes is wrong then.
  bool alone_if_sampled = false;
  bool tells_dependents = false;  // has griddepcontrol.launch_dependents
  std::vector<std::string> files;
};

}  // namespace sim
