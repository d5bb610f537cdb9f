// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/clock/ptx_program.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>

#include "sim/clock/order.h"
#include "sim/clock/walk/sass_map.h"
#include "sim/model/letters.h"
#include "sim/ptx/tensor.h"
#include "sim/ptx/wmma.h"

namespace sim::clock {
namespace {

bool of(sim::Op op, std::initializer_list<sim::Op> list) {
  return std::find(list.begin(), list.end(), op) != list.end();
}

// Says whether machine code leaves the instruction out.
bool vanishes(const Form& f) {
  using O = sim::Op;
  return of(f.op, {O::mov, O::cvta, O::ld_param, O::pack, O::unpack, O::widen, O::narrow, O::join,
                   O::touch, O::frame, O::pmevent, O::special}) ||
         (f.op == O::ld && f.space() == Space::param);
}

// Cycles of m x n x k products of so many bits in a tensor core of sm_80.
float tensor_cycles(double products, unsigned bits) {
  return static_cast<float>(products / 256 * bits / 16);
}

void classify_memory(const Form& f, Op* op) {
  using O = sim::Op;
  const bool shared = f.space() == Space::shared || of(f.op, {O::ldmatrix, O::stmatrix});
  op->unit = shared ? Unit::shared : f.space() == Space::constant ? Unit::constant : Unit::global;
  op->kind = of(f.op, {O::st, O::red, O::stmatrix, O::wmma_store}) ? OpKind::store
             : f.op == O::atom                                     ? OpKind::atomic
                                                                   : OpKind::load;
}

// Rows of instructions that take a unit and a kind of their own.
struct Row {
  sim::Op op;
  Unit unit;
  OpKind kind;
};
constexpr Row kRows[] = {
    {sim::Op::cp_async, Unit::copy, OpKind::none},
    {sim::Op::cp_commit, Unit::control, OpKind::group_commit},
    {sim::Op::cp_wait, Unit::control, OpKind::group_wait},
    {sim::Op::bulk_commit, Unit::control, OpKind::bulk_commit},
    {sim::Op::bulk_wait, Unit::control, OpKind::group_wait},
    {sim::Op::bulk_copy, Unit::tma, OpKind::none},
    {sim::Op::bulk_reduce, Unit::tma, OpKind::none},
    {sim::Op::bulk_prefetch, Unit::tma, OpKind::none},
    {sim::Op::tensor_copy, Unit::tma, OpKind::none},
    {sim::Op::tensor_prefetch, Unit::tma, OpKind::none},
    {sim::Op::tensor_reduce, Unit::tma, OpKind::none},
    {sim::Op::st_async, Unit::tma, OpKind::none},
    {sim::Op::red_async, Unit::tma, OpKind::none},
    {sim::Op::cluster_arrive, Unit::control, OpKind::cluster_arrive},
    {sim::Op::cluster_wait, Unit::control, OpKind::cluster_wait},
    {sim::Op::mbarrier_arrive, Unit::control, OpKind::mbarrier_arrive},
    {sim::Op::mbarrier_arrive_drop, Unit::control, OpKind::mbarrier_arrive},
    {sim::Op::cp_mbarrier_arrive, Unit::control, OpKind::mbarrier_copies},
    {sim::Op::mbarrier_try_wait, Unit::control, OpKind::mbarrier_wait},
    {sim::Op::mbarrier_test_wait, Unit::control, OpKind::mbarrier_wait},
    {sim::Op::wgmma_commit, Unit::control, OpKind::wgmma_commit},
    {sim::Op::wgmma_wait, Unit::control, OpKind::wgmma_wait},
    {sim::Op::cluster_wait, Unit::control, OpKind::cluster_wait},
    {sim::Op::shfl, Unit::shuffle, OpKind::load},
    {sim::Op::redux, Unit::shuffle, OpKind::load},
    {sim::Op::match, Unit::shuffle, OpKind::load},
    {sim::Op::movmatrix, Unit::shuffle, OpKind::load},
    {sim::Op::nanosleep, Unit::control, OpKind::sleep},
    {sim::Op::bra, Unit::control, OpKind::branch},
    {sim::Op::brx, Unit::control, OpKind::branch},
    {sim::Op::exit, Unit::control, OpKind::exit},
    {sim::Op::ret, Unit::control, OpKind::exit},
};

// The statements of each line of a module's text.
std::unordered_map<int, std::string> lines_of(const std::string& text) {
  std::unordered_map<int, std::string> lines;
  int number = 1;
  for (size_t at = 0; at < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines[number] = text.substr(at, end - at);
    at = end + 1;
  }
  return lines;
}

// Registers by name: those of the first operand are written, unless the instruction has no result.
void find_registers(std::string_view line, bool results, Draft* draft) {
  bool first = results;
  int braces = 0;
  for (size_t at = 0; at < line.size(); ++at) {
    const char c = line[at];
    braces += c == '{' ? 1 : c == '}' ? -1 : 0;
    if (c == '@') {
      size_t end = at + 1;
      while (end < line.size() && line[end] != ' ' && line[end] != '\t') ++end;
      const size_t name = line[at + 1] == '!' ? at + 2 : at + 1;
      draft->reads.emplace_back(line.substr(name, end - name));
      at = end;
    } else if (c == '%') {
      size_t end = at + 1;
      while (end < line.size() && (is_alphanumeric(line[end]) || line[end] == '_')) ++end;
      (first ? draft->writes : draft->reads).emplace_back(line.substr(at, end - at));
      at = end - 1;
    } else if (c == ',' && braces == 0) {
      first = false;
    } else if (c == '[') {
      first = false;
    }
  }
}

bool has_result(const Draft& draft) {
  switch (draft.op.kind) {
    case OpKind::store:
    case OpKind::branch:
    case OpKind::exit:
    case OpKind::barrier:
    case OpKind::barrier_arrive:
      return false;
    default:
      return draft.op.unit != Unit::copy && draft.op.unit != Unit::tma;
  }
}

}  // namespace

void classify_ptx(const Inst& in, const InstInfo& info, Op* op) {
  const Form& f = info.form;
  for (const Row& row : kRows) {
    if (row.op == f.op) op->unit = row.unit, op->kind = row.kind;
  }
  if (op->kind == OpKind::group_wait) op->keep = f.has(kWaitAll) ? 0 : static_cast<uint8_t>(in.imm);
  if (op->kind == OpKind::wgmma_wait) op->keep = static_cast<uint8_t>(in.imm);
  if (op->unit != Unit::control || op->kind != OpKind::none) return;
  switch (info.cls) {
    case Class::floating:
      op->unit = f.type() == Type::f64 ? Unit::fp64 : Unit::fma;
      break;
    case Class::half:
      op->unit = Unit::half;
      break;
    case Class::math:
      op->unit = Unit::math;
      op->kind = OpKind::load;
      break;
    case Class::convert:
      op->unit = is_half(f.type()) ? Unit::alu : Unit::convert;
      op->kind = is_half(f.type()) ? OpKind::none : OpKind::load;
      break;
    case Class::integer:
      op->unit = of(f.op, {sim::Op::mul, sim::Op::mad}) ? Unit::heavy : Unit::alu;
      break;
    case Class::compare:
    case Class::move:
      op->unit = Unit::alu;
      break;
    case Class::memory:
    case Class::atomic:
      classify_memory(f, op);
      break;
    case Class::barrier:
      op->kind = f.op == sim::Op::bar ? (f.has(kArrive) ? OpKind::barrier_arrive : OpKind::barrier)
                                      : OpKind::none;
      break;
    case Class::tensor:
      if (f.op == sim::Op::mma || f.op == sim::Op::wgmma) {
        const TensorConfig c = TensorConfig::unpack(in.imm);
        const double depth = c.words * 32.0 / element_bits(c.a);
        op->unit = f.op == sim::Op::mma ? Unit::tensor : Unit::wgmma;
        op->tensor = tensor_cycles(c.rows * c.n * depth, element_bits(c.a));
        op->columns = c.n;
        op->factors_in_registers = c.a_in_registers;
      } else if (WmmaConfig w; f.op == sim::Op::wmma_mma && wmma_config(f, &w)) {
        op->unit = Unit::tensor;
        op->tensor = tensor_cycles(w.m * w.n * w.k, element_bits(w.a));
      } else if (of(f.op, {sim::Op::ldmatrix, sim::Op::stmatrix})) {
        classify_memory(f, op);
      }
      break;
    default:
      break;
  }
}

Program ptx_program(const Function& f, const std::string& text, const Machine& machine) {
  Program out;
  const auto lines = lines_of(text);
  const std::vector<bool> leads = block_leaders(f);
  Scheduler scheduler(machine);
  std::vector<Draft> block;
  std::map<uint32_t, uint32_t> starts;  // of blocks: instruction of PTX, of the program
  std::vector<std::pair<int, uint32_t>> jumps;
  std::vector<uint32_t> targets(f.code.size(), kNowhere);
  auto close = [&] { scheduler.add(std::exchange(block, {}), &out.ops); };
  int last_line = -1;
  std::vector<std::pair<uint32_t, uint32_t>> branches;  // of the program, to PTX
  for (uint32_t pc = 0; pc < f.code.size(); ++pc) {
    const Inst& in = f.code[pc];
    const InstInfo& info = f.infos[in.info];
    if (leads[pc]) {
      close();
      starts[pc] = static_cast<uint32_t>(out.ops.size());
    }
    if (info.cls == Class::pseudo || vanishes(info.form)) continue;
    Draft draft;
    draft.op.line = info.ptx_line;
    draft.op.text = info.text;
    draft.op.guarded = in.guard != kPredTrue;
    classify_ptx(in, info, &draft.op);
    const bool to_float = info.form.type() == Type::f32 && is_integer(info.form.last_type());
    if (draft.op.unit == Unit::convert && machine.alu_converts && to_float) {
      draft.op.unit = Unit::alu;
      draft.op.kind = OpKind::none;
    }
    draft.stays = draft.op.unit >= Unit::wgmma || draft.op.kind != OpKind::none;
    if (draft.op.unit == Unit::math || draft.op.unit == Unit::convert ||
        draft.op.unit == Unit::shuffle) {
      draft.stays = draft.op.unit == Unit::shuffle;
    }
    // Several instructions of one line are one statement that the decoder took apart.
    const auto line = lines.find(info.ptx_line);
    if (line != lines.end() && info.ptx_line != last_line) {
      find_registers(line->second, has_result(draft), &draft);
    }
    last_line = info.ptx_line;
    const bool jump = draft.op.kind == OpKind::branch && in.kind == Kind::branch;
    block.push_back(std::move(draft));
    if (jump) {
      close();
      branches.emplace_back(static_cast<uint32_t>(out.ops.size() - 1), in.aux);
    }
  }
  close();
  for (const auto& [from, to] : branches) {
    const auto found = starts.lower_bound(to);
    if (found != starts.end()) out.ops[from].target = found->second;
  }
  return out;
}

}  // namespace sim::clock
