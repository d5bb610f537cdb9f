// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/clock/ptx_program.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>
#include <unordered_map>

#include "sim/ptx/tensor.h"
#include "sim/ptx/wmma.h"

namespace sim::clock {
namespace {

constexpr int kBoards = 6;
constexpr size_t kWindow = 96;  // instructions among which ptxas finds one that is ready

struct Draft {
  Op op;
  std::vector<std::string> writes, reads;
  bool stays = false;          // in its place among others that stay: memory, barriers
  double latency = 4;          // of what has no scoreboard
  uint32_t target = kNowhere;  // PTX instruction
};

bool of(sim::Op op, std::initializer_list<sim::Op> list) {
  return std::find(list.begin(), list.end(), op) != list.end();
}

// What is not there in machine code.
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
  op->act = of(f.op, {O::st, O::red, O::stmatrix, O::wmma_store}) ? Act::store
            : f.op == O::atom                                     ? Act::atomic
                                                                  : Act::load;
}

// Rows of instructions that take a unit and act of their own.
struct Row {
  sim::Op op;
  Unit unit;
  Act act;
};
constexpr Row kRows[] = {
    {sim::Op::cp_async, Unit::copy, Act::none},
    {sim::Op::cp_commit, Unit::control, Act::group_commit},
    {sim::Op::cp_wait, Unit::control, Act::group_wait},
    {sim::Op::bulk_commit, Unit::control, Act::bulk_commit},
    {sim::Op::bulk_wait, Unit::control, Act::group_wait},
    {sim::Op::bulk_copy, Unit::tma, Act::none},
    {sim::Op::bulk_reduce, Unit::tma, Act::none},
    {sim::Op::tensor_copy, Unit::tma, Act::none},
    {sim::Op::tensor_reduce, Unit::tma, Act::none},
    {sim::Op::mbarrier_arrive, Unit::control, Act::mbarrier_arrive},
    {sim::Op::mbarrier_arrive_drop, Unit::control, Act::mbarrier_arrive},
    {sim::Op::cp_mbarrier_arrive, Unit::control, Act::mbarrier_copies},
    {sim::Op::mbarrier_try_wait, Unit::control, Act::mbarrier_wait},
    {sim::Op::mbarrier_test_wait, Unit::control, Act::mbarrier_wait},
    {sim::Op::wgmma_commit, Unit::control, Act::wgmma_commit},
    {sim::Op::wgmma_wait, Unit::control, Act::wgmma_wait},
    {sim::Op::shfl, Unit::shuffle, Act::load},
    {sim::Op::redux, Unit::shuffle, Act::load},
    {sim::Op::match, Unit::shuffle, Act::load},
    {sim::Op::movmatrix, Unit::shuffle, Act::load},
    {sim::Op::nanosleep, Unit::control, Act::sleep},
    {sim::Op::bra, Unit::control, Act::branch},
    {sim::Op::brx, Unit::control, Act::branch},
    {sim::Op::exit, Unit::control, Act::exit},
    {sim::Op::ret, Unit::control, Act::exit},
};

void classify(const Inst& in, const InstInfo& info, Op* op) {
  const Form& f = info.form;
  for (const Row& row : kRows) {
    if (row.op == f.op) op->unit = row.unit, op->act = row.act;
  }
  if (op->act == Act::group_wait) op->keep = f.has(kWaitAll) ? 0 : static_cast<uint8_t>(in.imm);
  if (op->act == Act::wgmma_wait) op->keep = static_cast<uint8_t>(in.imm);
  if (op->unit != Unit::control || op->act != Act::none) return;
  switch (info.cls) {
    case Class::floating:
      op->unit = f.type() == Type::f64 ? Unit::fp64 : Unit::fma;
      break;
    case Class::half:
      op->unit = Unit::half;
      break;
    case Class::math:
      op->unit = Unit::math;
      op->act = Act::load;
      break;
    case Class::convert:
      op->unit = is_half(f.type()) ? Unit::alu : Unit::convert;
      op->act = is_half(f.type()) ? Act::none : Act::load;
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
      op->act =
          f.op == sim::Op::bar ? (f.has(kArrive) ? Act::barrier_arrive : Act::barrier) : Act::none;
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
      while (end < line.size() &&
             (std::isalnum(static_cast<unsigned char>(line[end])) || line[end] == '_'))
        ++end;
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
  switch (draft.op.act) {
    case Act::store:
    case Act::branch:
    case Act::exit:
    case Act::barrier:
    case Act::barrier_arrive:
      return false;
    default:
      return draft.op.unit != Unit::copy && draft.op.unit != Unit::tma;
  }
}

double fixed_latency(const Op& op) {
  switch (op.unit) {
    case Unit::alu:
    case Unit::heavy:
      return 5;
    case Unit::fp64:
      return 8;
    default:
      return 4;
  }
}

// Puts the drafts of one block in order, and gives them stall cycles and scoreboards.
class Scheduler {
 public:
  explicit Scheduler(const Machine& machine) : machine_(machine) {}
  void add(std::vector<Draft> block, std::vector<Op>* ops);

 private:
  bool ready(const std::vector<Draft>& block, const std::vector<bool>& done, size_t at) const;
  double time_of(const Draft& draft) const;
  void emit(Draft& draft, std::vector<Op>* ops);

  const Machine& machine_;
  struct Value {
    double ready = 0;
    int board = -1;
  };
  std::unordered_map<std::string, Value> values_;
  double now_ = 0;
  int next_board_ = 0;
};

bool overlaps(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return std::any_of(a.begin(), a.end(), [&](const std::string& name) {
    return std::find(b.begin(), b.end(), name) != b.end();
  });
}

// An instruction may go before those that neither write what it reads nor touch what it writes.
bool Scheduler::ready(const std::vector<Draft>& block, const std::vector<bool>& done,
                      size_t at) const {
  const Draft& d = block[at];
  for (size_t k = at > kWindow ? at - kWindow : 0; k < at; ++k) {
    if (done[k]) continue;
    const Draft& e = block[k];
    if ((d.stays && e.stays) || overlaps(e.writes, d.reads) || overlaps(e.writes, d.writes) ||
        overlaps(e.reads, d.writes)) {
      return false;
    }
  }
  return true;
}

double Scheduler::time_of(const Draft& draft) const {
  double time = now_;
  for (const std::string& name : draft.reads) {
    const auto found = values_.find(name);
    if (found != values_.end()) time = std::max(time, found->second.ready);
  }
  return time;
}

void Scheduler::emit(Draft& draft, std::vector<Op>* ops) {
  double begin = now_;
  for (const std::string& name : draft.reads) {
    const auto found = values_.find(name);
    if (found == values_.end()) continue;
    if (found->second.board >= 0) {
      draft.op.waits |= static_cast<uint8_t>(1u << found->second.board);
    } else {
      begin = std::max(begin, found->second.ready);
    }
  }
  if (!ops->empty() && begin > now_) {
    ops->back().stall = static_cast<uint8_t>(std::min(255.0, ops->back().stall + begin - now_));
  }
  now_ = begin + 1;
  Value value = {begin + fixed_latency(draft.op), -1};
  const bool late = draft.op.act == Act::load || draft.op.act == Act::atomic;
  if (late && !draft.writes.empty()) {
    value.board = next_board_;
    draft.op.writes = static_cast<uint8_t>(next_board_);
    next_board_ = (next_board_ + 1) % kBoards;
    value.ready =
        begin + (draft.op.unit == Unit::global ? machine_.l2_latency : machine_.shared_latency);
  }
  if (draft.op.unit == Unit::tensor) value.ready = begin + machine_.mma_latency;
  for (const std::string& name : draft.writes) values_[name] = value;
  draft.op.stall = 1;
  ops->push_back(std::move(draft.op));
}

void Scheduler::add(std::vector<Draft> block, std::vector<Op>* ops) {
  std::vector<bool> done(block.size(), false);
  size_t first = 0;
  for (size_t count = 0; count < block.size(); ++count) {
    while (done[first]) ++first;
    size_t best = first;
    double soonest = time_of(block[first]);
    const size_t end = std::min(block.size(), first + kWindow);
    for (size_t at = first + 1; at < end && soonest > now_; ++at) {
      if (done[at] || !ready(block, done, at)) continue;
      if (block[at].op.act == Act::branch || block[at].op.act == Act::exit) break;
      const double time = time_of(block[at]);
      if (time < soonest) soonest = time, best = at;
    }
    done[best] = true;
    emit(block[best], ops);
  }
}

}  // namespace

Program ptx_program(const Function& f, const std::string& text, const Machine& machine) {
  Program out;
  const auto lines = lines_of(text);
  std::vector<bool> leads(f.code.size() + 1, false);
  for (size_t pc = 0; pc < f.code.size(); ++pc) {
    const Inst& in = f.code[pc];
    if (in.kind == Kind::branch && in.aux < f.code.size()) leads[in.aux] = true;
    if (in.kind == Kind::branch || in.kind == Kind::exit || in.kind == Kind::ret ||
        in.kind == Kind::call) {
      leads[pc + 1] = true;
    }
    if (in.kind == Kind::branch_table && in.aux < f.tables.size()) {
      for (const uint32_t target : f.tables[in.aux]) leads[target] = true;
    }
  }
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
    classify(in, info, &draft.op);
    draft.stays = draft.op.unit >= Unit::wgmma || draft.op.act != Act::none;
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
    const bool jump = draft.op.act == Act::branch && in.kind == Kind::branch;
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
