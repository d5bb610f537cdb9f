// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/clock/walk/sass_map.h"

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

bool orders(AnchorKind kind) { return kind >= AnchorKind::barrier && kind < AnchorKind::branch; }

}  // namespace

AnchorKind anchor_kind(const Op& op) {
  switch (op.kind) {
    case OpKind::barrier:
      return AnchorKind::barrier;
    case OpKind::barrier_arrive:
      return AnchorKind::barrier_arrive;
    case OpKind::group_commit:
      return AnchorKind::group_commit;
    case OpKind::group_wait:
    case OpKind::bulk_wait:
      return AnchorKind::group_wait;
    case OpKind::bulk_commit:
      return AnchorKind::bulk_commit;
    case OpKind::mbarrier_arrive:
      return AnchorKind::arrive;
    case OpKind::mbarrier_copies:
      return AnchorKind::copies_arrive;
    case OpKind::mbarrier_wait:
      return AnchorKind::wait;
    case OpKind::wgmma_wait:
      return AnchorKind::wgmma_wait;
    case OpKind::cluster_wait:
      return AnchorKind::cluster_wait;
    case OpKind::branch:
    case OpKind::exit:
      return op.guarded ? AnchorKind::branch : AnchorKind::none;
    default:
      break;
  }
  switch (op.unit) {
    case Unit::tensor:
      return AnchorKind::product;
    case Unit::wgmma:
      return AnchorKind::wgmma;
    case Unit::copy:
      return AnchorKind::copy;
    case Unit::tma:
      return AnchorKind::tma;
    case Unit::shuffle:
      return AnchorKind::shuffle;
    case Unit::shared:
    case Unit::global:
      return op.kind == OpKind::load ? AnchorKind::load : AnchorKind::write;
    default:
      return AnchorKind::none;
  }
}

SassMap::SassMap(const Function& f, const Program& p)
    : function(f), program(p), paths(std::make_shared<SassPaths>()) {
  find_blocks();
  find_kinds();
  find_sass_blocks();
  bind();
  add_anchors();
  if (program.machine_code) join_twins();
  find_uses();
  find_homes();
  if (program.machine_code) {
    find_visits();
    find_senses();
  }
  for (SassBlock& sass_block : sass_blocks) {
    for (const AnchorUse& use : sass_block.uses) sass_block.tokens += use.tokens;
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

void SassMap::find_blocks() {
  leads = block_leaders(function);
  for (size_t pc = 0; pc < function.code.size(); ++pc) {
    const int line = function.infos[function.code[pc].info].ptx_line;
    blocks += leads[pc] ? 1 : 0;
    ptx_block_of.push_back(blocks - 1);
    // A meeting of lanes is no statement of its own: the line is that of the one behind it.
    if (function.code[pc].kind != Kind::join) ptx_block_of_line_.emplace(line, blocks - 1);
  }
}

uint32_t SassMap::block_at(int line) const {
  const auto found = ptx_block_of_line_.find(line);
  return found == ptx_block_of_line_.end() ? kNowhere : found->second;
}

void SassMap::find_kinds() {
  for (const Inst& in : function.code) {
    const InstInfo& info = function.infos[in.info];
    Op op;
    op.guarded = has_condition(in);
    if (info.cls != Class::pseudo && !of_parameters(info.form)) classify_ptx(in, info, &op);
    kind_of.push_back(anchor_kind(op));
  }
}

void SassMap::find_sass_blocks() {
  const auto& ops = program.ops;
  std::vector<bool> starts(ops.size() + 1, false);
  starts[0] = true;
  sass_block_of_ptx_block.assign(blocks, kNowhere);
  for (size_t at = 0; at < ops.size(); ++at) {
    const Op& op = ops[at];
    if (!program.machine_code) {
      if (at > 0 && block_at(op.line) != block_at(ops[at - 1].line)) starts[at] = true;
      continue;
    }
    const bool ends = op.kind == OpKind::branch || op.kind == OpKind::exit ||
                      op.kind == OpKind::reconverge || op.kind == OpKind::call ||
                      op.kind == OpKind::ret;
    if (ends) starts[at + 1] = true;
    for (const uint32_t target : op.targets) starts[target] = true;
  }
  for (uint32_t at = 0; at < ops.size(); ++at) {
    if (starts[at]) {
      sass_blocks.emplace_back();
      sass_blocks.back().first = at;
      const uint32_t block = block_at(ops[at].line);
      if (block != kNowhere)
        sass_block_of_ptx_block[block] = static_cast<uint32_t>(sass_blocks.size() - 1);
    }
    sass_blocks.back().end = at + 1;
    sass_block_of.push_back(static_cast<uint32_t>(sass_blocks.size() - 1));
  }
  if (program.machine_code) find_ends();
}

void SassMap::find_ends() {
  for (SassBlock& sass_block : sass_blocks) {
    const Op& last = program.ops[sass_block.end - 1];
    for (const uint32_t target : last.targets) sass_block.targets.push_back(sass_block_of[target]);
    using End = SassBlock::End;
    if (last.kind == OpKind::exit) {
      sass_block.how = last.guarded ? End::may_exit : End::exits;
    } else if (last.kind == OpKind::ret) {
      sass_block.how = End::returns;
    } else if (last.kind == OpKind::reconverge) {
      sass_block.how = End::meets;
    } else if (sass_block.targets.empty()) {
      sass_block.how = End::falls;  // or it calls what the listing does not have
    } else if (last.kind == OpKind::call) {
      sass_block.how = last.guarded ? End::may_call : End::calls;
    } else {
      sass_block.how = last.guarded ? End::forks : End::jumps;
    }
  }
}

// Returns the instruction of PTX that one of the program stands for.
uint32_t SassMap::bound(const Op& op, AnchorKind kind) const {
  const auto found = pc_of_line_.find({op.line, kind});
  if (found != pc_of_line_.end()) return found->second;
  if (!orders(kind)) return kNowhere;
  for (int off = 1; off <= kLinesOff; ++off) {
    const auto near = pc_of_line_.find({op.line + off, kind});
    if (near != pc_of_line_.end()) return near->second;
  }
  return kNowhere;
}

void SassMap::bind() {
  for (uint32_t pc = 0; pc < kind_of.size(); ++pc) {
    const int line = function.infos[function.code[pc].info].ptx_line;
    pc_of_line_.emplace(std::pair(line, kind_of[pc]), pc);
  }
  for (const Op& op : program.ops) {
    const AnchorKind kind = anchor_kind(op);
    pc_of_.push_back(kind == AnchorKind::none ? kNowhere : bound(op, kind));
  }
}

// The products of a wgmma have the lines of their descriptors, which may come from anywhere, but
// are never put into another order: those of one shape are one anchor.
void SassMap::add_anchors() {
  anchor_of.assign(kind_of.size(), kNowhere);
  anchor_of_ptx_block.assign(blocks, kNowhere);
  std::map<std::pair<unsigned, bool>, uint32_t> shapes;
  const auto fresh = [&](AnchorKind kind, uint32_t block, uint32_t pc) {
    anchors.push_back({kind, block, pc});
    return static_cast<uint32_t>(anchors.size() - 1);
  };
  for (uint32_t pc = 0; pc < kind_of.size(); ++pc) {
    if (kind_of[pc] != AnchorKind::wgmma) continue;
    const TensorConfig c = TensorConfig::unpack(function.code[pc].imm);
    const auto [shape, first] = shapes.try_emplace({c.n, c.a_in_registers}, kNowhere);
    if (first) shape->second = fresh(AnchorKind::wgmma, ptx_block_of[pc], kNowhere);
    anchor_of[pc] = shape->second;
  }
  anchor_of_op_.assign(program.ops.size(), kNowhere);
  for (size_t at = 0; at < program.ops.size(); ++at) {
    const Op& op = program.ops[at];
    if (op.unit == Unit::wgmma) {
      const auto shape = shapes.find({op.columns, op.factors_in_registers});
      if (shape != shapes.end()) anchor_of_op_[at] = shape->second;
    } else if (const uint32_t pc = pc_of_[at]; pc != kNowhere) {
      if (anchor_of[pc] == kNowhere) anchor_of[pc] = fresh(kind_of[pc], ptx_block_of[pc], pc);
      anchor_of_op_[at] = anchor_of[pc];
    }
  }
}

}  // namespace sim::clock
