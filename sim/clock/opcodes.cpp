// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The names of machine instructions, sm_80 to sm_90a, and what they mean for time. The list of
// names is in the documentation of the CUDA binary utilities.
#include "sim/clock/opcodes.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace sim::clock {
namespace {

struct Row {
  const char* name;  // up to the first dot, or with more of it
  Unit unit;
  OpKind kind;
};

// The longest name that the instruction begins with counts.
constexpr Row kRows[] = {
    {"FFMA", Unit::fma, OpKind::none},
    {"FADD", Unit::fma, OpKind::none},
    {"FMUL", Unit::fma, OpKind::none},
    {"IMAD", Unit::heavy, OpKind::none},
    {"IMAD.MOV", Unit::fma, OpKind::none},
    {"HFMA2", Unit::half, OpKind::none},
    {"HADD2", Unit::half, OpKind::none},
    {"HMUL2", Unit::half, OpKind::none},
    {"HMNMX2", Unit::alu, OpKind::none},
    {"DFMA", Unit::fp64, OpKind::none},
    {"DADD", Unit::fp64, OpKind::none},
    {"DMUL", Unit::fp64, OpKind::none},
    {"DSETP", Unit::fp64, OpKind::none},
    {"MUFU", Unit::math, OpKind::load},
    {"F2I", Unit::convert, OpKind::load},
    {"I2F", Unit::convert, OpKind::load},
    {"F2F", Unit::convert, OpKind::load},
    {"FRND", Unit::convert, OpKind::load},
    {"POPC", Unit::math, OpKind::load},
    {"FLO", Unit::math, OpKind::load},
    {"BREV", Unit::math, OpKind::load},
    {"HMMA", Unit::tensor, OpKind::none},
    {"IMMA", Unit::tensor, OpKind::none},
    {"BMMA", Unit::tensor, OpKind::none},
    {"DMMA", Unit::tensor, OpKind::none},
    {"HGMMA", Unit::wgmma, OpKind::none},
    {"QGMMA", Unit::wgmma, OpKind::none},
    {"IGMMA", Unit::wgmma, OpKind::none},
    {"BGMMA", Unit::wgmma, OpKind::none},
    {"WARPGROUP.DEPBAR", Unit::control, OpKind::wgmma_wait},
    {"LDSM", Unit::shared, OpKind::load},
    {"LDS", Unit::shared, OpKind::load},
    {"STSM", Unit::shared, OpKind::store},
    {"STS", Unit::shared, OpKind::store},
    {"ATOMS", Unit::shared, OpKind::atomic},
    {"LDG", Unit::global, OpKind::load},
    {"LD", Unit::global, OpKind::load},
    {"LDL", Unit::global, OpKind::load},
    {"STG", Unit::global, OpKind::store},
    {"ST", Unit::global, OpKind::store},
    {"STL", Unit::global, OpKind::store},
    {"STAS", Unit::tma, OpKind::none},
    {"ATOMG", Unit::global, OpKind::atomic},
    {"ATOM", Unit::global, OpKind::atomic},
    {"RED", Unit::global, OpKind::store},
    {"REDG", Unit::global, OpKind::store},
    {"LDGSTS", Unit::copy, OpKind::none},
    {"LDGDEPBAR", Unit::control, OpKind::group_commit},
    {"DEPBAR", Unit::control, OpKind::group_wait},
    {"ARRIVES", Unit::control, OpKind::mbarrier_copies},
    {"UTMALDG", Unit::tma, OpKind::none},
    {"UTMASTG", Unit::tma, OpKind::none},
    {"UTMAREDG", Unit::tma, OpKind::none},
    {"UBLKCP", Unit::tma, OpKind::none},
    {"UBLKRED", Unit::tma, OpKind::none},
    {"UTMAPF", Unit::tma, OpKind::none},
    {"UBLKPF", Unit::tma, OpKind::none},
    {"REDAS", Unit::tma, OpKind::none},
    {"UTMACMDFLUSH", Unit::control, OpKind::bulk_commit},
    {"SYNCS.ARRIVE", Unit::control, OpKind::mbarrier_arrive},
    {"SYNCS.PHASECHK", Unit::control, OpKind::mbarrier_wait},
    {"SYNCS", Unit::constant, OpKind::load},
    {"BAR.ARV", Unit::control, OpKind::barrier_arrive},
    {"BAR", Unit::control, OpKind::barrier},
    {"B2R", Unit::constant, OpKind::load},
    {"UCGABAR_WAIT", Unit::control, OpKind::cluster_wait},
    {"SHFL", Unit::shuffle, OpKind::load},
    {"REDUX", Unit::shuffle, OpKind::load},
    {"MATCH", Unit::shuffle, OpKind::load},
    {"MOVM", Unit::shuffle, OpKind::load},
    {"S2R", Unit::constant, OpKind::load},
    {"S2UR", Unit::constant, OpKind::load},
    {"LDC", Unit::constant, OpKind::load},
    {"MEMBAR", Unit::constant, OpKind::load},
    {"FENCE", Unit::constant, OpKind::load},
    {"CCTL", Unit::constant, OpKind::load},
    {"QSPC", Unit::constant, OpKind::load},
    {"BRA", Unit::control, OpKind::branch},
    {"BRA.DIV", Unit::control,
     OpKind::none},  // to code for lanes that are apart; BRA.CONV: from it
    {"BRX", Unit::control, OpKind::branch},
    {"JMP", Unit::control, OpKind::branch},
    {"CALL", Unit::control, OpKind::call},
    {"RET", Unit::control, OpKind::ret},
    {"EXIT", Unit::control, OpKind::exit},
    {"BSYNC", Unit::control, OpKind::reconverge},
    {"BSSY", Unit::control, OpKind::none},
    {"NANOSLEEP", Unit::control, OpKind::sleep},
    {"NOP", Unit::control, OpKind::none},
    {"WARPSYNC", Unit::control, OpKind::none},
    {"WARPGROUP", Unit::control, OpKind::none},
    {"ERRBAR", Unit::control, OpKind::none},
    {"CGAERRBAR", Unit::control, OpKind::none},
    {"UCGABAR_ARV", Unit::control, OpKind::cluster_arrive},
    {"USETMAXREG", Unit::control, OpKind::none},
    {"YIELD", Unit::control, OpKind::none},
    {"BMOV", Unit::control, OpKind::none},
    {"R2UR", Unit::alu, OpKind::none},
    {"CS2R", Unit::alu, OpKind::none},
};

bool begins(std::string_view text, std::string_view name) {
  if (!text.starts_with(name)) return false;
  return text.size() == name.size() || text[name.size()] == '.' || text[name.size()] == ' ';
}

// Other names work on integers: of all lanes, or of one for all ("U...").
Row row_of(std::string_view text) {
  Row best = {"", text[0] == 'U' ? Unit::uniform : Unit::alu, OpKind::none};
  for (const Row& row : kRows) {
    if (begins(text, row.name) && std::strlen(row.name) > std::strlen(best.name)) best = row;
  }
  return best;
}

// Returns the number at `at`, and moves `at` behind it.
unsigned number_at(std::string_view text, size_t* at) {
  unsigned value = 0;
  while (*at < text.size() && text[*at] >= '0' && text[*at] <= '9') {
    value = 10 * value + static_cast<unsigned>(text[(*at)++] - '0');
  }
  return value;
}

// Cycles of m x n x k products in one part's tensor core: 256 multiply-adds of 16-bit floats a
// cycle on sm_80. Hopper's cores are twice as wide; the engine knows.
double tensor_cycles(std::string_view name, bool wide) {
  unsigned m = 16, n = 8, k = 16;
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos) return 8;
  size_t at = dot + 1;
  double factor = 1;
  if (wide) {  // HGMMA.64x128x16
    m = number_at(name, &at) / 4;
    n = number_at(name, &++at);
    k = number_at(name, &++at);
  } else if (name.substr(dot + 1, 2) == "16") {  // HMMA.16816: 16 x 8 x 16
    at = dot + 4;
    k = number_at(name, &at);
  } else {  // DMMA.884
    m = 8;
    at = dot + 3;
    k = number_at(name, &at);
  }
  const auto has = [&](std::string_view word) { return name.find(word) != std::string_view::npos; };
  if (has("TF32")) factor = 2;
  if (name[0] == 'Q' || name[0] == 'I') factor = 0.5;
  if (name[0] == 'D') factor = 16;
  return factor * m * n * k / 256.0;
}

// Registers named R<number>, with the number of them that an operand of this place has.
void add_registers(Op* op, std::string_view operands, bool matrix) {
  int place = 0;
  int sources = 0;
  for (size_t at = 0; at < operands.size();) {
    const size_t comma = std::min(operands.find(',', at), operands.size());
    const std::string_view one = operands.substr(at, comma - at);
    at = comma + 1;
    for (size_t r = one.find('R'); r != std::string_view::npos; r = one.find('R', r + 1)) {
      const bool begins_word = r == 0 || one[r - 1] == ' ' || one[r - 1] == '-' ||
                               one[r - 1] == '[' || one[r - 1] == '|' || one[r - 1] == '+';
      size_t digits = r + 1;
      if (!begins_word || digits >= one.size() || one[digits] < '0' || one[digits] > '9') continue;
      const auto number = static_cast<uint16_t>(number_at(one, &digits));
      if (place == 0) {
        op->result = number;
        op->result_count = matrix ? 4 : 0;
      } else if (sources < 6) {
        op->sources[sources] = number;
        op->source_places[sources] = static_cast<uint8_t>(place);
        if (one.substr(digits).starts_with(".reuse"))
          op->kept = static_cast<uint8_t>(op->kept | 1u << sources);
        op->source_counts[sources++] = static_cast<uint8_t>(matrix ? (place == 2 ? 2 : 4) : 1);
      }
    }
    ++place;
  }
}

bool keeps(const Op& op, unsigned place, unsigned number) {
  for (unsigned k = 0; k < 6; ++k) {
    if ((op.kept >> k & 1) && op.source_places[k] == place && op.sources[k] == number) return true;
  }
  return false;
}

}  // namespace

void count_bank_reads(Op* op, const Op* before) {
  for (unsigned k = 0; k < 6 && op->source_counts[k]; ++k) {
    const bool again = std::find(op->sources, op->sources + k, op->sources[k]) != op->sources + k;
    if (again || (before && keeps(*before, op->source_places[k], op->sources[k]))) continue;
    for (unsigned r = 0; r < op->source_counts[k]; ++r) ++op->bank_reads[(op->sources[k] + r) & 1];
  }
}

Op decode_machine(const std::string& full) {
  Op op;
  op.text = full;
  std::string_view text = full;
  if (text[0] == '@') {
    op.guarded = true;
    text.remove_prefix(std::min(text.find(' '), text.size() - 1));
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size() - 1));
  }
  if (full.starts_with("@!PT ") || full.starts_with("@!UPT ")) return op;  // never done
  const Row row = row_of(text);
  op.unit = row.unit;
  op.kind = row.kind;
  const size_t space = std::min(text.find(' '), text.size());
  const std::string_view name = text.substr(0, space), operands = text.substr(space);
  const auto has = [&](std::string_view word) { return text.find(word) != std::string_view::npos; };
  if (op.unit == Unit::tensor) {
    op.tensor = static_cast<float>(tensor_cycles(name, false));
    add_registers(&op, operands, true);
  } else if (op.unit == Unit::wgmma) {
    op.tensor = static_cast<float>(tensor_cycles(name, true));
    size_t at = name.find('x') + 1;
    op.columns = static_cast<uint16_t>(number_at(name, &at));
    op.commits = has("gsb0");
    // A is a descriptor too, unless the second operand is a register.
    const size_t second = operands.find(", ");
    op.factors_in_registers = second != std::string_view::npos && operands[second + 2] == 'R';
  } else {
    add_registers(&op, operands, false);
  }
  // A condition may stand before the target.
  const bool conditional = operands.find(',') != std::string_view::npos;
  if (op.kind == OpKind::branch && conditional && !begins(name, "BRA.CONV")) op.guarded = true;
  if (op.kind == OpKind::group_wait || op.kind == OpKind::wgmma_wait) {
    const size_t comma = operands.rfind("0x");
    if (comma != std::string_view::npos) {
      op.keep = static_cast<uint8_t>(
          std::strtoul(std::string(operands.substr(comma)).c_str(), nullptr, 16));
    }
  }
  return op;
}

}  // namespace sim::clock
