// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What the tests of the block step's kernels share: problems with random or given pairs and
// positions, and runs of the kernels on the simulator under every checker.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>

#include "codegen/kernels/attention_block.h"
#include "codegen/nvrtc.h"
#include "codegen/source.h"
#include "sim/tests/kernel_run.h"
#include "templates/params/attention.h"
#include "tests/numbers.h"
#include "tests/ref/attention_block.h"

namespace block_case {

using Pair = lathe::AttentionPair;

inline lathe_dtype tested(lathe::Dtype dtype) { return static_cast<lathe_dtype>(dtype); }

// One step: who sees whom, by pairs if there is no position.
struct Step {
  std::vector<Pair> pairs;
  std::vector<int> q_positions, k_positions;
  int window_left = -1, window_right = -1;

  bool near(int64_t ahead) const {
    return (window_left < 0 || -ahead <= window_left) &&
           (window_right < 0 || ahead <= window_right);
  }
  ref::Ahead ahead() const {
    return [this](int64_t i, int64_t j) -> std::optional<int64_t> {
      if (!q_positions.empty()) {
        const int64_t distance =
            int64_t{k_positions[static_cast<size_t>(j)]} - q_positions[static_cast<size_t>(i)];
        return near(distance) ? std::optional(distance) : std::nullopt;
      }
      for (const Pair& pair : pairs) {
        if (i < pair.qa || i >= pair.qb || j < pair.ka || j >= pair.kb) continue;
        const int64_t distance = (j - pair.ka) - (i - pair.qa) - pair.shift;
        if (near(distance)) return distance;
      }
      return std::nullopt;
    };
  }
};

// Random 16-bit operands. `dead` keys and what rows without a partial hold are NaN: not to be read.
inline ref::Array random_values(lathe_dtype dtype, size_t count, std::mt19937& random) {
  std::normal_distribution<double> normal;
  ref::Array values(count);
  for (double& value : values) value = numbers::rounded(dtype, normal(random));
  return values;
}

inline std::vector<uint16_t> encode(lathe_dtype dtype, const ref::Array& values) {
  std::vector<uint16_t> bits(std::max<size_t>(values.size(), 8));
  for (size_t i = 0; i < values.size(); ++i) {
    unsigned char bytes[8] = {};
    numbers::encode(dtype, values[i], bytes);
    bits[i] = numbers::get<uint16_t>(bytes);
  }
  return bits;
}

inline std::vector<int> pair_words(const std::vector<Pair>& pairs) {
  std::vector<int> words;
  for (const Pair& p : pairs) {
    for (const int64_t word : {p.qa, p.qb, p.ka, p.kb, p.shift, int64_t{0}, int64_t{0}}) {
      words.push_back(static_cast<int>(word));
    }
  }
  words.resize(std::max<size_t>(words.size(), 8));
  return words;
}

inline void* at(uint64_t address) { return reinterpret_cast<void*>(address); }

inline std::shared_ptr<const lathe::Compiler> compiler() {
  const auto opened = lathe::Compiler::open();
  if (opened.ok()) return *opened;
  MESSAGE("skipped, no compiler: ", opened.status().text());
  return nullptr;
}

inline std::string compile(const lathe::Compiler& nvrtc, const lathe::KernelSpec& spec,
                           bool may_spill) {
  const auto compiled = nvrtc.compile(lathe::emit_unit(spec, "sm_80"), "sm_80");
  REQUIRE_MESSAGE(compiled.ok(), compiled.status().text());
  MESSAGE(spec.text(), ": ", compiled->report.registers, " registers, ",
          compiled->report.spill_stores, " spilt");
  if (!may_spill) CHECK(compiled->report.spill_stores == 0);
  return compiled->ptx;
}

struct State {
  std::vector<float> out, lse;  // [rows, H, DV], [H, rows]
};

// The forward's kernels for one problem and tile.
class Forward {
 public:
  Forward(const lathe::Compiler& nvrtc, const lathe::AttentionProblem& problem,
          const lathe::AttentionTile& tile)
      : problem_(problem),
        spec_(lathe::attention_block_spec(problem, tile)),
        positions_(lathe::attention_positions_spec()),
        ptx_(compile(nvrtc, spec_, std::max(problem.head_dim, problem.value_dim) > 128)) {
    if (problem.positions) positions_ptx_ = compile(nvrtc, positions_, false);
  }
  const lathe::KernelSpec& spec() const { return spec_; }

  void run(const ref::AttentionBlock& a, const Step& step, bool first, uint32_t seed,
           State* state) const {
    sim::test::Device device("sm_80");
    device.settings.seed = seed;
    device.settings.async_policy = static_cast<sim::AsyncPolicy>(seed % 3);
    const lathe_dtype dtype = tested(problem_.element);
    lathe::AttentionBlockParams p = {};
    lathe::AttentionForwardParams& f = p.forward;
    f.q = at(device.upload(encode(dtype, a.q)));
    f.k = at(device.upload(encode(dtype, a.k)));
    f.v = at(device.upload(encode(dtype, a.v)));
    if (!a.slopes.empty()) {
      f.alibi_slopes = at(device.upload(std::vector<float>(a.slopes.begin(), a.slopes.end())));
    }
    f.out = at(device.upload(state->out));
    f.lse = at(device.upload(state->lse));
    f.q_head_stride = f.k_head_stride = a.head_dim;
    f.v_head_stride = f.out_head_stride = a.value_dim;
    f.q_token_stride = a.heads * a.head_dim, f.k_token_stride = a.kv_heads * a.head_dim;
    f.v_token_stride = a.kv_heads * a.value_dim, f.out_token_stride = a.heads * a.value_dim;
    f.sequences = 1, f.heads = static_cast<int>(a.heads), f.kv_heads = static_cast<int>(a.kv_heads);
    f.seq_q = static_cast<int>(a.rows), f.seq_k = static_cast<int>(a.keys);
    f.head_dim = static_cast<int>(a.head_dim), f.value_dim = static_cast<int>(a.value_dim);
    f.window_left = step.window_left, f.window_right = step.window_right;
    f.tiles = static_cast<int>(lathe::attention_tiles(spec_, {1, a.heads, a.kv_heads, a.rows, 0}));
    f.softmax_scale = static_cast<float>(a.scale), f.softcap = static_cast<float>(a.softcap);
    p.pairs = at(device.upload(pair_words(step.pairs)));
    p.pair_count = static_cast<int>(step.pairs.size());
    p.first = first;
    if (problem_.positions) ranges(device, step, &p);
    device.dynamic_shared = static_cast<uint32_t>(spec_.smem_bytes);
    device.load(ptx_);
    const auto outcome = device.run("entry", static_cast<uint32_t>(f.tiles * f.heads),
                                    static_cast<uint32_t>(spec_.threads), p);
    INFO(sim::test::texts(outcome));
    REQUIRE(outcome.error == 0);
    CHECK(outcome.findings.empty());
    CHECK(outcome.counters.shared_load.conflicts == 0);
    state->out = device.download<float>(reinterpret_cast<uint64_t>(f.out), state->out.size());
    state->lse = device.download<float>(reinterpret_cast<uint64_t>(f.lse), state->lse.size());
  }

 private:
  void ranges(sim::test::Device& device, const Step& step, lathe::AttentionBlockParams* p) const {
    const auto some = [](std::vector<int> list) {
      list.resize(std::max<size_t>(list.size(), 8));
      return list;
    };
    p->q_positions = at(device.upload(some(step.q_positions)));
    p->k_positions = at(device.upload(some(step.k_positions)));
    lathe::AttentionPositionsParams r = {};
    r.positions = p->k_positions;
    r.count = static_cast<int>(step.k_positions.size());
    r.run = static_cast<int>(spec_.constant("n"));
    const int64_t blocks = lathe::attention_positions_blocks(positions_, r.count, r.run);
    r.ranges = at(device.buffer(lathe::attention_block_workspace_bytes(spec_, r.count) + 256));
    p->key_ranges = r.ranges;
    if (blocks == 0) return;
    device.load(positions_ptx_);
    device.dynamic_shared = 0;
    const auto outcome = device.run("entry", static_cast<uint32_t>(blocks),
                                    static_cast<uint32_t>(positions_.threads), r);
    INFO(sim::test::texts(outcome));
    REQUIRE(outcome.error == 0);
    CHECK(outcome.findings.empty());
  }

  lathe::AttentionProblem problem_;
  lathe::KernelSpec spec_, positions_;
  std::string ptx_, positions_ptx_;
};

// Weights are rounded once to the element type, so out is off by at most half a last place of it,
// relative to the largest value; and a few places of float32.
inline void expect_near(const State& found, const ref::AttentionForward& expected,
                        lathe_dtype dtype, double largest_value, double steps = 1) {
  double worst = 0;
  size_t wrong = 0, first = 0;
  for (size_t i = 0; i < found.out.size(); ++i) {
    const double error = std::abs(found.out[i] - expected.out[i]);
    if (!(error <= worst)) worst = error;  // nan too
  }
  CHECK(worst <= (1.1 * numbers::half_ulp(dtype) + 2e-6 * steps) * largest_value);
  for (size_t i = 0; i < found.lse.size(); ++i) {
    const double a = found.lse[i], e = expected.lse[i];
    const bool good =
        e == -ref::kInfinity ? a == e : std::abs(a - e) <= steps * (1e-5 + 1e-6 * std::abs(e));
    if (!good && wrong++ == 0) first = i;
  }
  INFO("lse " << first << ": " << found.lse.at(first) << " for " << expected.lse.at(first));
  CHECK(wrong == 0);
}

inline double largest(const ref::Array& values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

}  // namespace block_case
