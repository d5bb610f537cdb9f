// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Decoded code: fixed-size instructions over 32-lane register slots. Made once per module by
// sim/ptx/decode.cpp, run by sim/exec.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/ptx/form.h"
#include "sim/ptx/order.h"

namespace sim {

struct Warp;
struct Inst;
using Handler = void (*)(Warp& warp, const Inst& inst, uint32_t exec);

// How the run loop treats an instruction. `simple` has no effect on control; `checked` may stop the
// warp (a fault); `converge` needs the lanes named by a mask together; the rest are the loop's own.
enum class Kind : uint8_t {
  simple,
  checked,
  converge,
  bar_warp,
  barrier,
  blocking,  // may have to be tried again: then it had no effect
  branch,
  branch_table,
  exit,
  trap,
  join,
  pause,
  call,
  ret,
  none,
  fence
};

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

constexpr unsigned kSlotBytes = 128;  // 32 lanes of 4 bytes; 64-bit values take two
constexpr uint16_t kPredTrue = 0;     // predicate slots with a fixed meaning
constexpr uint16_t kPredCarry = 1;
constexpr uint16_t kPredFalse = 2;
constexpr uint16_t kPredFirst = 3;
constexpr uint16_t kPredNegate = 0x8000;  // set in a source operand: use its complement
constexpr uint16_t kNoSlot = 0xFFFF;
constexpr uint32_t kNoTarget = 0xFFFFFFFF;

struct Inst {
  Handler fn = nullptr;
  uint16_t d = kNoSlot, a = kNoSlot, b = kNoSlot, c = kNoSlot;
  uint16_t guard = kPredTrue;  // with kPredNegate: complemented
  uint8_t counted = 1;         // 0: made by the decoder
  Kind kind = Kind::simple;
  uint32_t aux = 0;    // per family: operand list, branch target, table, flags
  int64_t imm = 0;     // per family: address offset, constant
  uint32_t extra = 0;  // join point of a branch; ordinal of a memory instruction
  uint32_t info = 0;   // index into Function::infos
};

// What reports and counters need to know about an instruction; out of the way of the run loop.
struct InstInfo {
  int ptx_line = 0;
  int file = 0, line = 0;
  Class cls = Class::control;
  Form form;
  std::string text;
  uint8_t arguments = 0;  // of a failed assertion
};

// A value that is the same in every lane and never written: an immediate, or an address known only
// at launch.
struct Constant {
  enum class Base : uint8_t { none, symbol, shared, dynamic_shared };
  Base base = Base::none;
  uint16_t slot = 0;
  uint8_t bytes = 4;
  uint64_t value = 0;  // also the addend
  std::string symbol;
};

// Calls that stay calls. Offsets are from the frame of the function that names the variable.
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
// What mov of a function's name gives: no memory is there.
constexpr uint64_t function_address(uint64_t index) { return 0xC0DE'0000'0000'0000 + 16 * index; }
bool same_sizes(const CallSite& site, const Callee& callee);

struct Function {
  std::vector<Inst> code;
  std::vector<InstInfo> infos;
  std::vector<Order> orders;                  // by instruction info
  std::vector<uint16_t> lists;                // operand lists, indexed by Inst::aux
  std::vector<std::vector<uint32_t>> tables;  // brx targets
  std::vector<Constant> constants;
  uint32_t slots = 0;  // register slots of a warp, constants included
  uint32_t predicates = 0;
  uint32_t memory_ordinals = 0;
  uint32_t static_shared = 0;
  uint32_t dynamic_align = 1;  // of the .extern .shared array
  uint32_t shared_align = 1;
  uint32_t local_bytes = 0;
  bool reads_undefined_registers = false;
  bool uses_async_copies = false;
  bool uses_stack = false;  // calls or alloca: the depot goes on past local_bytes
  std::vector<CallSite> sites;
  std::vector<Callee> callees;
  std::unordered_map<uint64_t, uint32_t> callee_by_address;
  bool uses_wgmma = false;
  bool ordered_across_blocks = false;  // which block comes first decides about results
  bool sees_blocks = false;            // blocks may wait for one another
  std::vector<std::string> files;
  const Inst* code_data = nullptr;      // the vectors' contents, for code that may not call into
  const uint16_t* list_data = nullptr;  // the standard library
};

}  // namespace sim
