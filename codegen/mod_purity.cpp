// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Compiles a mod alone. Its text stands where it stands in a kernel, behind the same tokens,
// and names nothing that is declared behind it: it is the same function there. In the PTX of its
// probe every load, store and call is the mod's own but for the marked stores of its results.
// Purity is read off each instruction: its opcode, the registers it names and, where it reads
// memory, the variable that its address comes from.
#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>

#include "codegen/base/text.h"
#include "codegen/mod_ptx.h"
#include "codegen/mods.h"
#include "codegen/source.h"
#include "templates/params/attention.h"

namespace lathe {
namespace {

using Names = std::set<std::string_view>;

// The opcode before the first dot may be one of these: arithmetic, moves and control flow. Whatever
// is not here touches memory, other threads or the machine.
constexpr std::string_view kPureOpcodes[] = {
    "abs",  "add",  "addc",  "and",   "bfe",      "bfi",   "bfind", "bmsk",  "bra",  "brev",
    "brx",  "call", "clz",   "cnot",  "copysign", "cos",   "cvt",   "cvta",  "div",  "dp2a",
    "dp4a", "ex2",  "fma",   "fns",   "lg2",      "lop3",  "mad",   "mad24", "madc", "max",
    "min",  "mov",  "mul",   "mul24", "neg",      "not",   "or",    "popc",  "prmt", "rcp",
    "rem",  "ret",  "rsqrt", "sad",   "selp",     "set",   "setp",  "shf",   "shl",  "shr",
    "sin",  "slct", "sqrt",  "sub",   "subc",     "szext", "tanh",  "testp", "xor"};

std::string_view root_of(std::string_view opcode) { return opcode.substr(0, opcode.find('.')); }

// The memory that a pure function may use whatever the address: its arguments, its own stack.
bool is_own_memory(std::string_view opcode) {
  for (const std::string_view own : {"ld.param", "st.param", "ld.local", "st.local"}) {
    if (opcode.starts_with(own)) return true;
  }
  return false;
}

// Splits operands at the commas outside of brackets of any kind, without blanks.
std::vector<std::string_view> split(std::string_view operands) {
  std::vector<std::string_view> out;
  int depth = 0;
  size_t begin = 0;
  for (size_t at = 0; at <= operands.size(); ++at) {
    const char letter = at < operands.size() ? operands[at] : ',';
    if (letter == '[' || letter == '{' || letter == '(') ++depth;
    if (letter == ']' || letter == '}' || letter == ')') --depth;
    if (letter != ',' || (depth > 0 && at < operands.size())) continue;
    std::string_view one = operands.substr(begin, at - begin);
    const size_t first = one.find_first_not_of(" \t\n\r");
    one = first == one.npos ? std::string_view{} : one.substr(first);
    one = one.substr(0, one.find_last_not_of(" \t\n\r") + 1);
    out.push_back(one);
    begin = at + 1;
  }
  return out;
}

// A register that the function does not declare: %tid.x, %clock. Only the machine writes it.
std::string_view special_register(std::string_view operands, const Names& declared) {
  for (size_t at = operands.find('%'); at != operands.npos; at = operands.find('%', at + 1)) {
    const std::string_view name = ptx_name(operands.substr(at));
    const size_t numbered = name.find_last_not_of("0123456789") + 1;
    if (declared.count(name) != 0 || declared.count(name.substr(0, numbered)) != 0) continue;
    const size_t end = operands.find_first_of(",; ]})\n", at);
    return operands.substr(at, end - at);
  }
  return {};
}

// Finds the registers of a function that hold the address of one of some variables, or lie a
// distance behind: each instruction that writes them makes such an address.
class Addresses {
 public:
  Addresses(const PtxFunction& function, const Names& variables) : variables_(variables) {
    for (const PtxInstruction& each : function.instructions) {
      std::vector<std::string_view> operands = split(each.operands);
      const std::string_view to = operands.front();
      if (!to.starts_with('%') && !to.starts_with('{')) continue;
      const Write write{root_of(each.opcode), std::move(operands)};
      for (size_t at = to.find('%'); at != to.npos; at = to.find('%', at + 1)) {
        const std::string_view name = ptx_name(to.substr(at));
        writes_[name].push_back(write);
        holders_.insert(name);
      }
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (const auto& [name, writes] : writes_) {
        const bool all = std::all_of(writes.begin(), writes.end(),
                                     [this](const Write& write) { return makes_address(write); });
        if (!all) changed = holders_.erase(name) > 0 || changed;
      }
    }
  }

  bool holds(std::string_view operand) const {
    const std::string_view name = ptx_name(operand);
    return (name.starts_with('%') ? holders_ : variables_).count(name) != 0;
  }

 private:
  struct Write {
    std::string_view root;
    std::vector<std::string_view> operands;  // the first is what is written
  };

  bool makes_address(const Write& write) const {
    const auto at = [&](size_t i) { return i < write.operands.size() && holds(write.operands[i]); };
    if (write.root == "mov" || write.root == "cvta") return at(1);
    if (write.root == "add" || write.root == "or") return at(1) || at(2);
    if (write.root == "sub") return at(1);
    if (write.root == "mad") return at(3);
    return write.root == "selp" && at(1) && at(2);
  }

  const Names& variables_;
  std::map<std::string_view, std::vector<Write>> writes_;
  Names holders_;
};

std::string describe(const PtxInstruction& instruction) {
  const std::string_view root = root_of(instruction.opcode);
  const auto is = [root](std::initializer_list<std::string_view> words) {
    return std::find(words.begin(), words.end(), root) != words.end();
  };
  const char* what = "does more than compute";
  if (is({"st"})) what = "writes memory";
  if (is({"ld", "ldu", "tex", "tld4"})) what = "reads memory that is not captured";
  if (is({"atom", "red"})) what = "has an atomic operation";
  if (is({"bar", "barrier", "membar", "fence", "mbarrier"})) what = "has a barrier";
  if (is({"shfl", "vote", "match", "activemask", "redux", "elect"}))
    what = "looks at other threads";
  // The namespace of the text is in the names of its variables.
  if (instruction.operands.find("caller_") != std::string_view::npos)
    what = "keeps a variable in memory";
  return text(what, " (", instruction.opcode, ")");
}

// One function of a probe.
class Purity {
 public:
  Purity(const Ptx& ptx, const Names& tables, const PtxFunction& function)
      : ptx_(ptx), tables_(tables), function_(function) {}

  std::string check(const PtxInstruction& each) {
    const std::string_view special = special_register(each.operands, function_.registers);
    if (!special.empty()) return text("depends on the thread or the machine (", special, ")");
    const std::string_view opcode = each.opcode, root = root_of(opcode);
    if (root == "call" && is_indirect(each.operands)) {
      return text("calls through a pointer (", opcode, ")");
    }
    const bool pure =
        std::find(std::begin(kPureOpcodes), std::end(kPureOpcodes), root) != std::end(kPureOpcodes);
    if (pure || is_own_memory(opcode)) return {};
    if (each.marked && opcode.starts_with("st.weak.global")) return {};  // the probe's own
    if (opcode.starts_with("ld.const") && reads(each, ptx_.constants, &constant_)) return {};
    // sin, cos and tan of large arguments look up 2 / pi in tables of the compiler's.
    if (opcode.starts_with("ld.global") && reads(each, tables_, &table_)) return {};
    return describe(each);
  }

 private:
  // "(retval0), name, (param0)": the name is a register's.
  static bool is_indirect(std::string_view operands) {
    for (const std::string_view operand : split(operands)) {
      if (!operand.starts_with('(')) return operand.starts_with('%');
    }
    return false;
  }

  // True if the address comes from one of `variables`. `known`: found once, when first needed.
  bool reads(const PtxInstruction& each, const Names& variables,
             std::optional<Addresses>* known) const {
    const size_t at = each.operands.find('[');
    if (at == each.operands.npos) return false;
    if (!*known) known->emplace(function_, variables);
    std::string_view address = each.operands.substr(at + 1);
    address.remove_prefix(std::min(address.find_first_not_of(" \t"), address.size()));
    return (*known)->holds(address);
  }

  const Ptx& ptx_;
  const Names& tables_;
  const PtxFunction& function_;
  std::optional<Addresses> constant_, table_;
};

// A compiler that is told of fewer would know of threadIdx what is not so in a kernel.
constexpr int kMostThreads = 1024;

// The assertion of an adapter that failed, if nothing failed before it: what a mod should have
// been. Behind another error it says only that a function was not understood.
std::string failed_assertion(const std::string& log) {
  const std::string_view mark = "static assertion failed with \"must ";
  const size_t at = log.find(mark), error = log.find("error: ");
  if (at == log.npos || error + std::string_view("error: ").size() < at) return {};
  const size_t from = at + mark.size() - std::string_view("must ").size();
  return log.substr(from, log.find('"', from) - from);
}

}  // namespace

std::string impurity_of(std::string_view text) {
  Ptx ptx;
  read_ptx(text, &ptx);
  if (!ptx.outside.empty()) {
    return lathe::text("calls what is not in it (", ptx.outside, ")");
  }
  Names tables;  // a mod's own variables have longer names, as nothing of it is extern
  for (const std::string_view name : ptx.globals) {
    if (name.starts_with("__cudart_")) tables.insert(name);
  }
  for (const PtxFunction& function : ptx.functions) {
    Purity purity(ptx, tables, function);
    for (const PtxInstruction& each : function.instructions) {
      std::string found = purity.check(each);
      if (!found.empty()) return found;
    }
  }
  return {};
}

KernelSpec mod_probe_spec(const KernelSpec& spec, const Mod& mod) {
  KernelSpec probe = KernelSpec::of(
      LATHE_TEMPLATE("attention/mods", "mod_probe", ModProbeParams, kv_idx), kMostThreads);
  probe.loads = "attention/mods/probe_loads.cuh";
  for (const Constant& constant : spec.constants) {
    if (constant.is_capture()) probe.constants.push_back(constant);
  }
  probe.constants.push_back(Constant::flag("masks", "kMasks", mod.name == "mask_mod"));
  // All that stands before it in a kernel: it is the last.
  for (const Mod& each : spec.mods) {
    probe.mods.push_back(each);
    if (each.name == mod.name) break;
  }
  return probe;
}

Status probe_mod(const KernelSpec& probe, const Compiler& compiler, const std::string& arch) {
  const Mod& mod = probe.mods.back();
  const auto refuse = [&](const std::string& what) {
    return Status(Code::invalid_argument, text("option ", mod.name, ": ", mod.file, " ", what));
  };
  std::string log;
  const auto compiled = compiler.compile(emit_unit(probe, arch), arch, probe.mods, &log);
  if (!compiled.ok()) {
    if (log.empty()) return compiled.status();
    const std::string expected = failed_assertion(log);
    return refuse(expected.empty() ? "does not compile\n" + log : expected);
  }
  const std::string impurity = impurity_of(compiled->ptx);
  if (impurity.empty()) return {};
  return refuse(impurity +
                "; a mod is a pure function of its arguments, captures and __constant__ tables");
}

}  // namespace lathe
