// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A snippet compiled alone. In the PTX of its probe every load, store and call is the snippet's own
// but for the stores of its results, which are spelt as no compiler does, so that purity is read
// off the instructions.
#include <algorithm>
#include <cctype>
#include <cstddef>

#include "codegen/base/text.h"
#include "codegen/snippets.h"
#include "codegen/source.h"
#include "templates/params/attention.h"

namespace lathe {
namespace {

// What the opcode before the first dot may be: arithmetic, moves and control flow. Whatever is not
// here touches memory, other threads or the machine.
constexpr std::string_view kPureOpcodes[] = {
    "abs",  "add",  "addc",  "and",   "bfe",      "bfi",   "bfind", "bmsk",  "bra",  "brev",
    "brx",  "call", "clz",   "cnot",  "copysign", "cos",   "cvt",   "cvta",  "div",  "dp2a",
    "dp4a", "ex2",  "fma",   "fns",   "lg2",      "lop3",  "mad",   "mad24", "madc", "max",
    "min",  "mov",  "mul",   "mul24", "neg",      "not",   "or",    "popc",  "prmt", "rcp",
    "rem",  "ret",  "rsqrt", "sad",   "selp",     "set",   "setp",  "shf",   "shl",  "shr",
    "sin",  "slct", "sqrt",  "sub",   "subc",     "szext", "tanh",  "testp", "xor"};

// The memory that a pure function may use: its arguments, its own stack, constants.
bool is_own_memory(std::string_view opcode) {
  for (const std::string_view own : {"ld.param", "st.param", "ld.local", "st.local", "ld.const"}) {
    if (opcode.starts_with(own)) return true;
  }
  return false;
}

struct Instruction {
  std::string_view opcode, operands;
};

// The instruction of a line of PTX; an empty opcode if it has none.
Instruction instruction_of(std::string_view line) {
  const auto skip_blanks = [&line] {
    line.remove_prefix(std::min(line.find_first_not_of(" \t{"), line.size()));
  };
  skip_blanks();
  if (line.starts_with('@')) {
    line.remove_prefix(std::min(line.find(' '), line.size()));
    skip_blanks();
  }
  if (line.empty() || std::isalpha(static_cast<unsigned char>(line[0])) == 0) return {};
  const size_t end = std::min(line.find_first_of(" \t;"), line.size());
  const std::string_view opcode = line.substr(0, end);
  if (opcode.ends_with(':') || opcode.ends_with(',')) return {};  // a label, an argument of a call
  return {opcode, line.substr(end)};
}

// A register that only the machine writes: %tid.x, %clock. Those of the compiler are a few letters
// and a number, and the stack pointers.
std::string_view special_register(std::string_view operands) {
  for (size_t at = operands.find('%'); at != operands.npos; at = operands.find('%', at + 1)) {
    size_t end = at + 1;
    while (end < operands.size() && std::isalpha(static_cast<unsigned char>(operands[end])) != 0) {
      ++end;
    }
    const std::string_view letters = operands.substr(at + 1, end - at - 1);
    if (letters == "SP" || letters == "SPL") continue;
    const bool numbered =
        end < operands.size() && std::isdigit(static_cast<unsigned char>(operands[end])) != 0;
    if (letters.size() <= 2 && numbered) continue;
    while (end < operands.size() && operands[end] != ',' && operands[end] != ';') ++end;
    return operands.substr(at, end - at);
  }
  return {};
}

std::string describe(std::string_view opcode, std::string_view operands) {
  const std::string_view root = opcode.substr(0, opcode.find('.'));
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
  if (operands.find("snippet_") != operands.npos) what = "keeps a variable in memory";
  return text(what, " (", opcode, ")");
}

// The assertion of a template that failed: what a snippet should have been.
std::string failed_assertion(const std::string& log) {
  const std::string_view mark = "static assertion failed with \"must ";
  const size_t at = log.find(mark);
  if (at == log.npos) return {};
  const size_t from = at + mark.size() - std::string_view("must ").size();
  return log.substr(from, log.find('"', from) - from);
}

}  // namespace

std::string impurity_of(std::string_view ptx) {
  const bool ptx_has_table = ptx.find("__cudart_i2opi") != ptx.npos;
  bool calling = false;  // inside a call, whose operands have lines of their own
  while (!ptx.empty()) {
    const size_t end = std::min(ptx.find('\n'), ptx.size());
    std::string_view line = ptx.substr(0, end);
    ptx.remove_prefix(std::min(end + 1, ptx.size()));
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    if (line.starts_with("//")) continue;
    if (line.starts_with(".extern")) {
      return "calls what is not in it (" + std::string(line) + ")";
    }
    if (line.starts_with('.')) continue;  // what is declared and never used is no harm
    const bool operand = calling;
    if (calling) calling = line.find(';') == line.npos;
    if (operand) continue;
    const auto [opcode, operands] = instruction_of(line);
    if (opcode.empty()) continue;
    if (opcode.starts_with("call")) calling = line.find(';') == line.npos;
    if (const std::string_view special = special_register(operands); !special.empty()) {
      return "depends on the thread or the machine (" + std::string(special) + ")";
    }
    if (opcode.starts_with("st.weak.global")) continue;  // as in snippet_probe.cuh, and there alone
    const std::string_view root = opcode.substr(0, opcode.find('.'));
    const bool pure =
        std::find(std::begin(kPureOpcodes), std::end(kPureOpcodes), root) != std::end(kPureOpcodes);
    if (pure || is_own_memory(opcode)) continue;
    // sin, cos and tan of large arguments look up 2 / pi in a table of the compiler's.
    if (opcode.starts_with("ld.global") && ptx_has_table) continue;
    return describe(opcode, operands);
  }
  return {};
}

KernelSpec snippet_probe_spec(const KernelSpec& spec, const Snippet& snippet) {
  KernelSpec probe;
  probe.kernel = "snippet_probe";
  probe.source = "attention/snippet_probe.cuh";
  probe.params = "SnippetProbeParams";
  probe.params_bytes = sizeof(SnippetProbeParams);
  probe.last_field = "kv_idx";
  probe.last_field_offset = offsetof(SnippetProbeParams, kv_idx);
  probe.threads = 32;
  for (const Constant& constant : spec.constants) {
    if (constant.name.starts_with("capture_")) probe.constants.push_back(constant);
  }
  probe.constants.push_back(Constant::flag("probe", "kProbe", true));
  probe.snippets = {snippet};
  return probe;
}

Status probe_snippet(const KernelSpec& probe, const Compiler& compiler, const std::string& arch) {
  const Snippet& snippet = probe.snippets.front();
  const auto refuse = [&](const std::string& what) {
    return Status(Code::invalid_argument,
                  text("option ", snippet.name, ": ", snippet.file, " ", what));
  };
  std::string log;
  const auto compiled = compiler.compile(emit_unit(probe, arch), arch, probe.snippets, &log);
  if (!compiled.ok()) {
    if (log.empty()) return compiled.status();
    const std::string expected = failed_assertion(log);
    return refuse(expected.empty() ? "does not compile\n" + log : expected);
  }
  const std::string impurity = impurity_of(compiled->ptx);
  if (impurity.empty()) return {};
  return refuse(
      impurity +
      "; a snippet is a pure function of its arguments, captures and __constant__ tables");
}

}  // namespace lathe
