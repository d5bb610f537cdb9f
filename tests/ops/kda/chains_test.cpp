// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover kda_merge and kda_compose on their own, on the simulator, against double:
// chains longer than any call makes, trees of any radix, with maps that no inputs are needed for.
#include <doctest/doctest.h>

#include <optional>
#include <random>

#include "codegen/nvrtc.h"
#include "codegen/source.h"
#include "ops/kda/chunked_kernels.h"
#include "reference/kda.h"
#include "sim/tests/kernel_run.h"
#include "templates/params/kda_chunked.h"
#include "tests/compare.h"

using namespace lathe;

namespace {

constexpr int kHeads = 2, kValues = 52;

// Rows of S^T, [rows, K], go through M, given as M^T, and `end` is added.
ref::Array through(const ref::Array& map, const ref::Array& state, int64_t values, int64_t keys,
                   bool back, const ref::Array& end) {
  ref::Array to(static_cast<size_t>(values * keys));
  for (int64_t v = 0; v < values; ++v) {
    for (int64_t d = 0; d < keys; ++d) {
      double sum = end[v * keys + d];
      for (int64_t i = 0; i < keys; ++i) {
        const int64_t m = back ? d * keys + i : i * keys + d;  // M^T
        sum += state[v * keys + i] * map[m];
      }
      to[v * keys + d] = sum;
    }
  }
  return to;
}

// Elements of a chain, of M = .999 (I - k k^T): a step of beta 1 and a weak decay; E and D of any
// size.
struct Elements {
  ref::Array maps, ends, grads;
  size_t map_size, end_size;

  Elements(size_t count, int values, int keys)
      : map_size(static_cast<size_t>(keys * keys)), end_size(static_cast<size_t>(values * keys)) {
    std::mt19937 random(1);
    std::normal_distribution<double> normal;
    for (size_t n = 0; n < count; ++n) {
      ref::Array k(static_cast<size_t>(keys));
      double square = 0;
      for (double& x : k) x = normal(random), square += x * x;
      for (size_t i = 0; i < end_size; ++i) {
        ends.push_back(static_cast<float>(normal(random)));
        grads.push_back(static_cast<float>(normal(random)));
      }
      for (int i = 0; i < keys * keys; ++i) {
        const int row = i / keys, column = i % keys;
        maps.push_back(static_cast<float>(.999 * ((row == column) - k[row] * k[column] / square)));
      }
    }
  }
  ref::Array map(size_t n) const { return cut(maps, n, map_size); }
  ref::Array end(size_t n) const { return cut(ends, n, end_size); }
  ref::Array grad(size_t n) const { return cut(grads, n, end_size); }
  static ref::Array cut(const ref::Array& from, size_t n, size_t size) {
    const auto at = from.begin() + static_cast<std::ptrdiff_t>(n * size);
    return ref::Array(at, at + static_cast<std::ptrdiff_t>(size));
  }
};

// A kernel of a backward on one rank or on one of several, and a device for it.
class Kernel {
 public:
  template <typename Slot>
  Kernel(int keys, bool ranks, Slot KdaChunkedKernels::*which, bool rounded = false) {
    KdaProblem problem;
    problem.key_dim = keys, problem.value_dim = kValues;
    problem.backward = problem.segmented = true, problem.ranks = ranks;
    const auto kernels = kda_chunked_kernels(problem, *facts_of_arch("sm_80"));
    spec_ = *((*kernels).*which);
    if (rounded) spec_ = kda_merge_spec(problem, {true, true, false, false}, true);
    const auto compiler = Compiler::open();
    if (!compiler.ok()) {
      MESSAGE("skipped, no compiler: ", compiler.status().text());
      return;
    }
    const auto compiled = (*compiler)->compile(emit_unit(spec_, "sm_80"), "sm_80");
    REQUIRE_MESSAGE(compiled.ok(), compiled.status().text());
    CHECK(compiled->report.spill_stores == 0);
    device_.load(compiled->ptx);
    device_.dynamic_shared = static_cast<uint32_t>(spec_.smem_bytes);
    there = true;
  }
  template <class Params>
  void launch(int64_t blocks, const Params& p) {
    const auto outcome = device_.run("entry", static_cast<uint32_t>(blocks),
                                     static_cast<uint32_t>(spec_.threads), p);
    INFO(sim::test::texts(outcome));
    REQUIRE(outcome.error == 0);
    CHECK(outcome.findings.empty());
    CHECK(outcome.counters.shared_load.conflicts == 0);
    CHECK(outcome.counters.shared_store.conflicts == 0);
  }
  float* upload(const ref::Array& values) {
    return reinterpret_cast<float*>(
        device_.upload(std::vector<float>(values.begin(), values.end())));
  }
  ref::Array download(const void* from, size_t count) const {
    const auto values = device_.download<float>(reinterpret_cast<uint64_t>(from), count);
    return ref::Array(values.begin(), values.end());
  }
  int64_t constant(const char* name) const { return spec_.constant(name, 0); }
  bool there = false;  // whether there is a compiler

 private:
  KernelSpec spec_;
  sim::test::Device device_{"sm_80"};
};

void check_near(const char* what, const ref::Array& actual, const ref::Array& expected,
                double bound = 1e-6) {
  const auto verdict =
      compare::compare(what, actual, expected, {static_cast<int64_t>(expected.size())},
                       {compare::Rule::kRms, bound, 0});
  CHECK_MESSAGE(verdict.ok, verdict.text);
}

// The chains of a sequence of `segments` segments by blocks of 16 rows, or of as many as there are;
// `ranks`: it began before and goes on behind. `rounded`: M but for its diagonal and the state that
// it multiplies are rounded to bfloat16 in each link, as behind Hopper's walks.
struct Chains {
  int keys = 64;
  size_t segments = 4;
  bool ranks = false;
  bool rounded = true;
  bool most_rows = true;
};

void check_merge(const Chains& of) {
  const int keys = of.keys;
  const size_t segments = of.segments;
  const bool ranks = of.ranks;
  Kernel kernel(keys, ranks, &KdaChunkedKernels::merge, of.rounded);
  if (!kernel.there) return;
  CAPTURE(keys);
  CAPTURE(of.most_rows);
  const double bound = of.rounded ? 1.5e-3 : 1e-6;
  const Elements given(segments * kHeads, kValues, keys), carried(kHeads, kValues, keys);
  KdaMergeParams p = {};
  p.summaries = kernel.upload(given.ends);
  p.transitions = kernel.upload(given.maps);
  p.grad_ends = kernel.upload(given.grads);
  p.carry.states = kernel.upload(carried.ends);
  p.carry.grads = kernel.upload(carried.grads);
  p.carry.carried = ranks ? 1 : 0, p.carry.open = ranks ? 0 : 1;
  p.sequences = 1, p.value_heads = kHeads, p.tokens = static_cast<int>(64 * segments);
  p.key_dim = keys, p.value_dim = kValues, p.segments = static_cast<int>(segments);
  p.rows = of.most_rows ? static_cast<int>(kernel.constant("rows")) : 16;
  kernel.launch(ceil_div(kValues, p.rows) * kHeads * 2, p);
  const ref::Array merged = kernel.download(p.summaries, given.ends.size());
  const ref::Array grads = kernel.download(p.grad_ends, given.grads.size());
  for (size_t head = 0; head < kHeads; ++head) {
    const auto at = [head](size_t segment) { return segment * kHeads + head; };
    const size_t last = segments - 1;
    ref::Array state = carried.end(head), back = carried.grad(head);
    if (!ranks) state = given.end(at(0)), back = given.grad(at(last));
    for (size_t link = ranks ? 0 : 1; link < last; ++link) {
      const size_t front = at(link), behind = at(last - link);
      state = through(given.map(front), state, kValues, keys, false, given.end(front));
      back = through(given.map(behind), back, kValues, keys, true, given.grad(behind));
      check_near("state", Elements::cut(merged, front, given.end_size), state, bound);
      check_near("gradient", Elements::cut(grads, behind, given.end_size), back, bound);
    }
    // Nobody reads these, and nobody has written them.
    CHECK(Elements::cut(merged, at(last), given.end_size) == given.end(at(last)));
    CHECK(Elements::cut(grads, at(0), given.end_size) == given.grad(at(0)));
  }
}

// A tree over `count` elements of two sequences of two heads, against the chain in double; in the
// order of the slots forth, and against it back.
void check_compose(int keys, int count, int radix) {
  constexpr int kSequences = 2, kRuns = kHeads * kSequences;
  Kernel kernel(keys, true, &KdaChunkedKernels::compose);
  if (!kernel.there) return;
  CAPTURE(keys);
  CAPTURE(count);
  const Elements given(static_cast<size_t>(count * kRuns), kValues, keys);
  KdaComposeParams p = {};
  const size_t last = static_cast<size_t>(count - 1) * kRuns;
  const auto side = [&](const ref::Array& ends, long long element_runs, size_t first) {
    KdaComposeSide out = {};
    out.ends = out.to_ends = kernel.upload(ends) + first * given.end_size;
    out.transitions = out.to_transitions = kernel.upload(given.maps) + first * given.map_size;
    out.sequence_runs = kHeads, out.element_runs = element_runs;
    out.elements = count, out.maps = 1;
    return out;
  };
  p.forward = side(given.ends, kRuns, 0), p.back = side(given.grads, -kRuns, last);
  p.sequences = kSequences, p.value_heads = kHeads, p.key_dim = keys, p.value_dim = kValues;
  p.radix = radix;
  const KdaSegmentShape shape = {kSequences, kHeads, 1, keys, kValues};
  for (p.step = 1; p.step < count; p.step *= radix) {
    p.forward_blocks = static_cast<int>(kda_compose_blocks(shape, count, p.step, radix));
    kernel.launch(2 * p.forward_blocks, p);
  }
  const auto result = [&](void* from, size_t size) { return kernel.download(from, kRuns * size); };
  const ref::Array ends = result(p.forward.to_ends, given.end_size);
  const ref::Array maps = result(p.forward.to_transitions, given.map_size);
  const ref::Array grads = result(p.back.to_ends, given.end_size);
  const ref::Array back_maps = result(p.back.to_transitions, given.map_size);
  for (size_t run = 0; run < kRuns; ++run) {
    const ref::Array none(given.map_size);
    ref::Array end = given.end(run), map = given.map(run), grad = given.grad(last + run);
    for (size_t e = 1; e < static_cast<size_t>(count); ++e) {
      const size_t at = e * kRuns + run, behind = last - e * kRuns + run;
      end = through(given.map(at), end, kValues, keys, false, given.end(at));
      map = through(given.map(at), map, keys, keys, false, none);
      grad = through(given.map(behind), grad, kValues, keys, true, given.grad(behind));
    }
    check_near("state", Elements::cut(ends, run, given.end_size), end);
    check_near("map", Elements::cut(maps, run, given.map_size), map);
    check_near("gradient", Elements::cut(grads, run, given.end_size), grad);
    check_near("map back", Elements::cut(back_maps, run, given.map_size), map);
  }
}

}  // namespace

TEST_CASE("kda_merge: 32 links of weak decay, against double") {
  check_merge({60, 34});
  check_merge({60, 34, false, false});
}

TEST_CASE("kda_merge: keys of every width") {
  for (const int keys : {128, 188, 252}) {
    check_merge({keys});
    check_merge({keys, 4, false, false});
  }
  check_merge({100});
}

TEST_CASE("kda_merge: blocks of few rows") {
  check_merge({60, 4, false, true, false});
  check_merge({128, 4, false, true, false});
}

TEST_CASE("kda_merge of a rank: a state from before, a gradient from behind") {
  check_merge({60, 5, true});
  check_merge({64, 1, true});
  check_merge({64, 2, true, false});
}

TEST_CASE("kda_compose: a tree gives what the chain gives") {
  for (const int count : {2, 4, 5, 7, 11}) check_compose(60, count, 4);
  check_compose(64, 5, 32);
  check_compose(100, 3, 2);
  check_compose(252, 3, 4);
}
