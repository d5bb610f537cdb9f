// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/clock/map.h"

#include <algorithm>
#include <map>
#include <set>

#include "sim/ptx/tensor.h"

namespace sim::clock {
namespace {

bool ends_piece(const Op& op) {
  return op.act == Act::branch || op.act == Act::exit || op.act == Act::reconverge ||
         op.act == Act::call || op.act == Act::give_back;
}

}  // namespace

bool stays(const Op& op) {
  const bool moves = op.act == Act::none || op.act == Act::load || op.act == Act::branch ||
                     op.act == Act::exit || op.act == Act::reconverge || op.act == Act::call ||
                     op.act == Act::give_back;
  return (op.unit >= Unit::tensor && op.unit <= Unit::tma) || !moves;
}

Map::Map(const Function& f, const Program& p) : function(f), program(p) {
  find_blocks();
  find_products();
  find_waits();
  find_pieces();
  find_homes();
  look_ahead();
}

void Map::find_blocks() {
  const auto& code = function.code;
  leads.assign(code.size() + 1, false);
  leads[0] = true;
  for (size_t pc = 0; pc < code.size(); ++pc) {
    const Inst& in = code[pc];
    line_of.push_back(function.infos[in.info].ptx_line);
    const bool jumps = in.kind == Kind::branch || in.kind == Kind::branch_table ||
                       in.kind == Kind::exit || in.kind == Kind::ret || in.kind == Kind::call;
    if (in.kind == Kind::branch && in.aux < code.size()) leads[in.aux] = true;
    if (in.kind == Kind::branch_table && in.aux < function.tables.size()) {
      for (const uint32_t target : function.tables[in.aux]) leads[target] = true;
    }
    if (jumps || in.kind == Kind::join) leads[pc + 1] = true;
  }
  for (size_t pc = 0; pc < code.size(); ++pc) {
    blocks += leads[pc] ? 1 : 0;
    block_of.push_back(blocks - 1);
  }
}

// ptxas gives a wgmma the line of its descriptors. Products stay in order, also where a loop was
// copied: each is the next of its kind in PTX, around and around.
void Map::find_products() {
  struct Product {
    int line;
    bool factors_in_registers;
    uint16_t columns;
  };
  std::vector<Product> products;
  for (size_t pc = 0; pc < line_of.size(); ++pc) {
    const Inst& in = function.code[pc];
    if (function.infos[in.info].form.op != sim::Op::wgmma) continue;
    const TensorConfig c = TensorConfig::unpack(in.imm);
    products.push_back({line_of[pc], c.a_in_registers, c.n});
  }
  size_t next = 0;
  for (const Op& op : program.ops) {
    line_of_op.push_back(op.line);
    for (size_t tries = 0; op.unit == Unit::wgmma && tries < products.size(); ++tries) {
      const Product& product = products[next];
      next = (next + 1) % products.size();
      if (product.columns != op.columns ||
          product.factors_in_registers != op.factors_in_registers) {
        continue;
      }
      line_of_op.back() = product.line;
      break;
    }
  }
}

// A wait that begins with a label has the line before it.
void Map::find_waits() {
  std::set<int> waits;
  for (size_t pc = 0; pc < line_of.size(); ++pc) {
    const sim::Op op = function.infos[function.code[pc].info].form.op;
    if (op == sim::Op::mbarrier_try_wait || op == sim::Op::mbarrier_test_wait) {
      waits.insert(line_of[pc]);
    }
  }
  for (size_t at = 0; at < program.ops.size(); ++at) {
    if (program.ops[at].act != Act::mbarrier_wait) continue;
    const auto next = waits.lower_bound(line_of_op[at]);
    if (next != waits.end()) line_of_op[at] = *next;
  }
}

void Map::find_pieces() {
  const auto& ops = program.ops;
  std::vector<bool> starts(ops.size() + 1, false);
  starts[0] = true;
  for (size_t at = 0; at < ops.size(); ++at) {
    if (ends_piece(ops[at])) starts[at + 1] = true;
    if (ops[at].target < ops.size()) starts[ops[at].target] = true;
  }
  for (uint32_t at = 0; at < ops.size(); ++at) {
    if (starts[at]) pieces.push_back({at, at, {}, 1, false});
    pieces.back().end = at + 1;
    piece_of.push_back(static_cast<uint32_t>(pieces.size() - 1));
  }
}

void Map::find_homes() {
  std::map<int, uint32_t> block_of_line;
  for (size_t pc = 0; pc < line_of.size(); ++pc) block_of_line.emplace(line_of[pc], block_of[pc]);
  lines.resize(pieces.size());
  for (size_t k = 0; k < pieces.size(); ++k) {
    Piece& piece = pieces[k];
    std::map<int, int> fixed, moved;  // votes by block
    std::map<int, int> copies;        // by line
    for (uint32_t at = piece.first; at < piece.end; ++at) {
      const Op& op = program.ops[at];
      const auto block = block_of_line.find(line_of_op[at]);
      if (block == block_of_line.end()) continue;
      if (stays(op)) {
        ++fixed[static_cast<int>(block->second)];
        ++copies[line_of_op[at]];
      } else if (op.unit != Unit::control) {
        ++moved[static_cast<int>(block->second)];
      }
    }
    piece.fixed = !fixed.empty();
    const auto& votes = piece.fixed ? fixed : moved;
    for (const auto& [block, count] : votes) piece.homes.push_back(block);
    std::stable_sort(piece.homes.begin(), piece.homes.end(),
                     [&](int x, int y) { return votes.at(x) > votes.at(y); });
    // One line may become two instructions, so most lines decide.
    std::vector<int> counts;
    for (const auto& [line, count] : copies) counts.push_back(count), lines[k].push_back(line);
    std::sort(counts.begin(), counts.end());
    if (!counts.empty()) piece.copies = counts[counts.size() / 2];
  }
}

// Which fixed pieces a way leads to first.
void Map::look_ahead() {
  ahead.resize(pieces.size());
  for (uint32_t k = 0; k < pieces.size(); ++k) {
    std::vector<uint32_t> open = {k};
    std::vector<bool> seen(pieces.size(), false);
    while (!open.empty()) {
      const uint32_t at = open.back();
      open.pop_back();
      if (seen[at]) continue;
      seen[at] = true;
      if (pieces[at].fixed) {
        ahead[k].push_back(at);
        continue;
      }
      const Op& last = program.ops[pieces[at].end - 1];
      if (last.target < program.ops.size()) open.push_back(piece_of[last.target]);
      const bool leaves = last.act == Act::exit || last.act == Act::give_back ||
                          (last.act == Act::branch && last.target < program.ops.size());
      if ((!leaves || last.guarded) && at + 1 < pieces.size()) open.push_back(at + 1);
    }
  }
}

}  // namespace sim::clock
