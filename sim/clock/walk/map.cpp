// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/clock/walk/map.h"

#include <algorithm>
#include <string_view>

#include "sim/clock/ptx_program.h"
#include "sim/clock/walk/search.h"
#include "sim/ptx/tensor.h"

namespace sim::clock {
namespace {

// ptxas gives some waits and barriers the line of a label or a brace before them.
constexpr int kLinesOff = 8;

bool has_condition(const Inst& in) {
  if (in.kind == sim::Kind::branch_table) return true;
  const bool leaves =
      in.kind == sim::Kind::branch || in.kind == sim::Kind::exit || in.kind == sim::Kind::ret;
  return leaves && in.guard != kPredTrue;
}

bool of_parameters(const Form& f) {
  if (f.op == sim::Op::ld_param) return true;
  const bool plain = f.op == sim::Op::ld || f.op == sim::Op::st;
  return plain && (f.space() == Space::param || f.space() == Space::constant);
}

bool orders(MarkKind kind) { return kind >= MarkKind::barrier && kind < MarkKind::branch; }

}  // namespace

MarkKind mark_kind(const Op& op) {
  switch (op.act) {
    case Act::barrier:
      return MarkKind::barrier;
    case Act::barrier_arrive:
      return MarkKind::barrier_arrive;
    case Act::group_commit:
      return MarkKind::group_commit;
    case Act::group_wait:
    case Act::bulk_wait:
      return MarkKind::group_wait;
    case Act::bulk_commit:
      return MarkKind::bulk_commit;
    case Act::mbarrier_arrive:
      return MarkKind::arrive;
    case Act::mbarrier_copies:
      return MarkKind::copies_arrive;
    case Act::mbarrier_wait:
      return MarkKind::wait;
    case Act::wgmma_wait:
      return MarkKind::wgmma_wait;
    case Act::cluster_wait:
      return MarkKind::cluster_wait;
    case Act::branch:
    case Act::exit:
      return op.guarded ? MarkKind::branch : MarkKind::none;
    default:
      break;
  }
  switch (op.unit) {
    case Unit::tensor:
      return MarkKind::product;
    case Unit::wgmma:
      return MarkKind::wgmma;
    case Unit::copy:
      return MarkKind::copy;
    case Unit::tma:
      return MarkKind::tma;
    case Unit::shuffle:
      return MarkKind::shuffle;
    case Unit::shared:
    case Unit::global:
      return op.act == Act::load ? MarkKind::load : MarkKind::write;
    default:
      return MarkKind::none;
  }
}

Map::Map(const Function& f, const Program& p)
    : function(f), program(p), ways(std::make_shared<Ways>()) {
  find_blocks();
  find_kinds();
  find_pieces();
  bind();
  add_marks();
  if (program.machine_code) join_twins();
  find_uses();
  find_homes();
  if (program.machine_code) {
    find_visits();
    find_senses();
  }
  for (Piece& piece : pieces) {
    for (const Use& use : piece.uses) piece.tokens += use.tokens;
  }
}

std::vector<bool> block_leaders(const Function& function) {
  const auto& code = function.code;
  std::vector<bool> leads(code.size() + 1, false);
  leads[0] = true;
  for (size_t pc = 0; pc < code.size(); ++pc) {
    const Inst& in = code[pc];
    const bool jumps = in.kind == Kind::branch || in.kind == Kind::branch_table ||
                       in.kind == Kind::exit || in.kind == Kind::ret || in.kind == Kind::call;
    if (in.kind == Kind::branch && in.aux < code.size()) leads[in.aux] = true;
    if (in.kind == Kind::branch_table && in.aux < function.tables.size()) {
      for (const uint32_t target : function.tables[in.aux]) leads[target] = true;
    }
    if (jumps || in.kind == Kind::join) leads[pc + 1] = true;
  }
  return leads;
}

void Map::find_blocks() {
  leads = block_leaders(function);
  for (size_t pc = 0; pc < function.code.size(); ++pc) {
    const int line = function.infos[function.code[pc].info].ptx_line;
    blocks += leads[pc] ? 1 : 0;
    block_of.push_back(blocks - 1);
    // Where lanes meet there is no statement of its own, only the one behind it.
    if (function.code[pc].kind != Kind::join) block_of_line_.emplace(line, blocks - 1);
  }
}

uint32_t Map::block_at(int line) const {
  const auto found = block_of_line_.find(line);
  return found == block_of_line_.end() ? kNowhere : found->second;
}

void Map::find_kinds() {
  for (const Inst& in : function.code) {
    const InstInfo& info = function.infos[in.info];
    Op op;
    op.guarded = has_condition(in);
    if (info.cls != Class::pseudo && !of_parameters(info.form)) classify_ptx(in, info, &op);
    kind_of.push_back(mark_kind(op));
  }
}

void Map::find_pieces() {
  const auto& ops = program.ops;
  std::vector<bool> starts(ops.size() + 1, false);
  starts[0] = true;
  piece_of_block.assign(blocks, kNowhere);
  for (size_t at = 0; at < ops.size(); ++at) {
    const Op& op = ops[at];
    if (!program.machine_code) {
      if (at > 0 && block_at(op.line) != block_at(ops[at - 1].line)) starts[at] = true;
      continue;
    }
    const bool ends = op.act == Act::branch || op.act == Act::exit || op.act == Act::reconverge ||
                      op.act == Act::call || op.act == Act::give_back;
    if (ends) starts[at + 1] = true;
    for (const uint32_t target : op.targets) starts[target] = true;
  }
  for (uint32_t at = 0; at < ops.size(); ++at) {
    if (starts[at]) {
      pieces.emplace_back();
      pieces.back().first = at;
      const uint32_t block = block_at(ops[at].line);
      if (block != kNowhere) piece_of_block[block] = static_cast<uint32_t>(pieces.size() - 1);
    }
    pieces.back().end = at + 1;
    piece_of.push_back(static_cast<uint32_t>(pieces.size() - 1));
  }
  if (program.machine_code) find_ends();
}

void Map::find_ends() {
  for (Piece& piece : pieces) {
    const Op& last = program.ops[piece.end - 1];
    for (const uint32_t target : last.targets) piece.targets.push_back(piece_of[target]);
    using End = Piece::End;
    if (last.act == Act::exit) {
      piece.how = last.guarded ? End::may_exit : End::exits;
    } else if (last.act == Act::give_back) {
      piece.how = End::returns;
    } else if (last.act == Act::reconverge) {
      piece.how = End::meets;
    } else if (piece.targets.empty()) {
      piece.how = End::falls;  // or it calls what the listing does not have
    } else if (last.act == Act::call) {
      piece.how = last.guarded ? End::may_call : End::calls;
    } else {
      piece.how = last.guarded ? End::forks : End::jumps;
    }
  }
}

// Returns the instruction of PTX that one of the program stands for.
uint32_t Map::bound(const Op& op, MarkKind kind) const {
  const auto found = pc_of_line_.find({op.line, kind});
  if (found != pc_of_line_.end()) return found->second;
  if (!orders(kind)) return kNowhere;
  for (int off = 1; off <= kLinesOff; ++off) {
    const auto near = pc_of_line_.find({op.line + off, kind});
    if (near != pc_of_line_.end()) return near->second;
  }
  return kNowhere;
}

void Map::bind() {
  for (uint32_t pc = 0; pc < kind_of.size(); ++pc) {
    const int line = function.infos[function.code[pc].info].ptx_line;
    pc_of_line_.emplace(std::pair(line, kind_of[pc]), pc);
  }
  for (const Op& op : program.ops) {
    const MarkKind kind = mark_kind(op);
    pc_of_.push_back(kind == MarkKind::none ? kNowhere : bound(op, kind));
  }
}

// The products of a wgmma have the lines of their descriptors, which may come from anywhere, but
// are never put into another order: those of one shape are one mark.
void Map::add_marks() {
  mark_of.assign(kind_of.size(), kNowhere);
  mark_of_block.assign(blocks, kNowhere);
  std::map<std::pair<unsigned, bool>, uint32_t> shapes;
  const auto fresh = [&](MarkKind kind, uint32_t block, uint32_t pc) {
    marks.push_back({kind, block, pc});
    return static_cast<uint32_t>(marks.size() - 1);
  };
  for (uint32_t pc = 0; pc < kind_of.size(); ++pc) {
    if (kind_of[pc] != MarkKind::wgmma) continue;
    const TensorConfig c = TensorConfig::unpack(function.code[pc].imm);
    const auto [shape, first] = shapes.try_emplace({c.n, c.a_in_registers}, kNowhere);
    if (first) shape->second = fresh(MarkKind::wgmma, block_of[pc], kNowhere);
    mark_of[pc] = shape->second;
  }
  mark_of_op_.assign(program.ops.size(), kNowhere);
  for (size_t at = 0; at < program.ops.size(); ++at) {
    const Op& op = program.ops[at];
    if (op.unit == Unit::wgmma) {
      const auto shape = shapes.find({op.columns, op.factors_in_registers});
      if (shape != shapes.end()) mark_of_op_[at] = shape->second;
    } else if (const uint32_t pc = pc_of_[at]; pc != kNowhere) {
      if (mark_of[pc] == kNowhere) mark_of[pc] = fresh(kind_of[pc], block_of[pc], pc);
      mark_of_op_[at] = mark_of[pc];
    }
  }
}

}  // namespace sim::clock
