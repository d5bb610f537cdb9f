// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Machine code that a test writes by hand, as ptxas might have made it of a kernel: each
// instruction names a statement of the PTX. So tests of walks need none of NVIDIA's tools.
#pragma once

#include <map>

#include "sim/clock/walk/agreement.h"
#include "sim/clock/walk/search.h"
#include "sim/tests/kernel_run.h"

namespace sim::test {

class MadeCode {
 public:
  explicit MadeCode(const std::string& ptx) : ptx_(ptx) { program.machine_code = true; }

  // The line of the statement that contains the words.
  int line(const std::string& words) const {
    const size_t at = ptx_.find(words);
    REQUIRE(at != std::string::npos);
    return 1 +
           static_cast<int>(std::count(ptx_.begin(), ptx_.begin() + static_cast<long>(at), '\n'));
  }
  clock::Op& add(const std::string& words, clock::Unit unit,
                 clock::OpKind kind = clock::OpKind::none) {
    clock::Op op;
    op.line = words.empty() ? 0 : line(words);
    op.unit = unit;
    op.kind = kind;
    program.ops.push_back(op);
    return program.ops.back();
  }
  void load(const std::string& words) { add(words, clock::Unit::global, clock::OpKind::load); }
  clock::Op& store(const std::string& words) {
    return add(words, clock::Unit::global, clock::OpKind::store);
  }
  void guarded_store(const std::string& words) { store(words).guarded = true; }
  void arithmetic(const std::string& words) { add(words, clock::Unit::alu); }
  // A jump to a label, with a condition unless `always`.
  void jump(const std::string& words, const std::string& label, bool always = false) {
    add(words, clock::Unit::control, clock::OpKind::branch).guarded = !always;
    jumps_[program.ops.size() - 1] = label;
  }
  void meet() { add("", clock::Unit::control, clock::OpKind::reconverge); }
  void exit() { add("", clock::Unit::control, clock::OpKind::exit); }
  void label(const std::string& name) { labels_[name] = static_cast<uint32_t>(program.ops.size()); }
  void finish() {
    for (const auto& [op, label] : jumps_) {
      program.ops[op].target = labels_.at(label);
      program.ops[op].targets = {labels_.at(label)};
    }
  }

  clock::Program program;

 private:
  std::string ptx_;
  std::map<std::string, uint32_t> labels_;
  std::map<size_t, std::string> jumps_;
};

// One warp that ran a kernel "k", and its walk through machine code.
struct Walked {
  std::vector<uint32_t> ops;           // in the order of their issue
  std::vector<const Effect*> effects;  // of each
  clock::Agreement agreement;
  size_t count(uint32_t op) const {
    return static_cast<size_t>(std::count(ops.begin(), ops.end(), op));
  }
};

class Warp0 {
 public:
  template <class... A>
  Warp0(const std::string& ptx, const MadeCode& code, uint32_t threads, A... arguments) {
    traces_.most = 1;
    device_.settings.traces = &traces_;
    device_.load(ptx);
    const uint64_t out = device_.buffer(1 << 16);
    const Outcome outcome = device_.run("k", 1, threads, out, arguments...);
    INFO(texts(outcome));
    REQUIRE(outcome.error == 0);
    map_ = std::make_unique<clock::SassMap>(*device_.module->find_kernel("k")->code, code.program);
  }
  const clock::SassMap& map() const { return *map_; }
  const WarpTrace& trace() const { return traces_.blocks.at(0).warps.at(0); }
  // The result points into the trace.
  Walked walk() const& {
    Walked out;
    clock::Walk walk(*map_, trace());
    for (auto step = walk.next(); step.op != clock::kNowhere; step = walk.next()) {
      out.ops.push_back(step.op);
      out.effects.push_back(step.effect);
    }
    out.agreement = compare_steps(out);
    return out;
  }
  Walked walk() && = delete;
  // Compares other steps with what the warp did.
  clock::Agreement compare_steps(const Walked& steps) const {
    size_t at = 0;
    return clock::compare(*map_, trace(), [&] {
      clock::Walk::Step step;
      if (at < steps.ops.size()) step = {steps.ops[at], steps.effects[at]}, ++at;
      return step;
    });
  }

 private:
  Device device_;
  Traces traces_;
  std::unique_ptr<clock::SassMap> map_;
};

}  // namespace sim::test
