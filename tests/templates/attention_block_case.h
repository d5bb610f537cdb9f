// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What the tests of the block step's kernels share: problems with random or given pairs and
// positions, and runs of the kernels on the simulator under every checker.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <random>

#include "codegen/nvrtc.h"
#include "codegen/source.h"
#include "ops/attention/block_kernels.h"
#include "sim/tests/kernel_run.h"
#include "templates/params/attention.h"
#include "templates/params/attention_backward.h"
#include "tests/numbers.h"
#include "tests/ref/attention_block.h"

namespace block_case {

struct Pair : lathe::AttentionPair {
  int64_t q0 = 0, k0 = 0, batch = 0;  // for snippets
};

inline lathe_dtype tested(lathe::Dtype dtype) { return static_cast<lathe_dtype>(dtype); }

// One step: who sees whom, by pairs if there is no position.
struct Step {
  std::vector<Pair> pairs;
  std::vector<int> q_positions, k_positions;
  int window_left = -1, window_right = -1;
  bool batches = false;  // pairs tell of the batch

  // What snippets are told of row i and key j of the first row of a batch.
  struct Place {
    int q, k, batch;
  };
  Place place(int64_t i, int64_t j) const;
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

struct Setup {
  lathe::Dtype element;
  int width, value_width;
  lathe::AttentionTile tile;
  std::string flags;  // of pairs, positions, local, softcap, alibi, score, mask, tiles, turns
  bool has(const char* flag) const { return flags.find(flag) != std::string::npos; }
};

lathe::AttentionProblem problem_of(const Setup& s);
// Rows and keys of random numbers, heads and widths; and who sees whom among them.
ref::AttentionBlock random_block(const Setup& s, std::mt19937& random);
// Snippets as the flags name them, with what they capture: capture_1 and scalar_2.
void add_snippets(const Setup& s, lathe::AttentionProblem* problem);
std::vector<float> captured_moves();
float captured_move();
// The reference's side of them.
void put_snippets(const Setup& s, const Step& step, ref::AttentionBlock* a);
// Queries, keys and values of a block's sizes.
void draw(lathe_dtype dtype, std::mt19937& random, ref::AttentionBlock* a);
Step random_step(const Setup& s, int64_t rows, int64_t keys, std::mt19937& random);
// Rows and keys of no pair become NaN, which must reach nothing.
void poison_unseen(const Step& step, ref::AttentionBlock* a, ref::Array* dout);
// Of a 16-bit type.
ref::Array random_values(lathe_dtype dtype, size_t count, std::mt19937& random);

// NULL, and a message, if there is none.
std::shared_ptr<const lathe::Compiler> compiler();
// PTX of a kernel for sm_80, compiled once whoever asks.
std::string compile(const lathe::Compiler& nvrtc, const lathe::KernelSpec& spec, bool may_spill);

struct State {
  std::vector<float> out, lse;  // [rows, H, DV], [H, rows]
};

// attention_positions.
class Ranges {
 public:
  explicit Ranges(const lathe::Compiler& nvrtc)
      : spec_(lathe::attention_positions_spec()), ptx_(compile(nvrtc, spec_, false)) {}
  // Where the ranges of `count` positions in runs of `length` are.
  void* run(sim::test::Device& device, const void* positions, int64_t count, int64_t length) const;

 private:
  lathe::KernelSpec spec_;
  std::string ptx_;
};

// The forward's kernels for one problem and tile.
class Forward {
 public:
  Forward(const lathe::Compiler& nvrtc, const lathe::AttentionProblem& problem,
          const lathe::AttentionTile& tile)
      : problem_(problem),
        spec_(lathe::attention_block_spec(problem, tile)),
        ranges_(nvrtc),
        ptx_(compile(nvrtc, spec_, std::max(problem.head_dim, problem.value_dim) > 128)) {}
  const lathe::KernelSpec& spec() const { return spec_; }
  // Of a batch of blocks of one shape, one after another in every tensor.
  void run(const std::vector<ref::AttentionBlock>& batch, const Step& step, bool first,
           uint32_t seed, State* state) const;
  void run(const ref::AttentionBlock& a, const Step& step, bool first, uint32_t seed,
           State* state) const {
    run(std::vector<ref::AttentionBlock>{a}, step, first, seed, state);
  }

 private:
  lathe::AttentionProblem problem_;
  lathe::KernelSpec spec_;
  Ranges ranges_;
  std::string ptx_;
};

// What is written and not read.
struct Writes {
  bool dq = false, keys = false;
};
struct Gradients {
  std::vector<float> dq, dk, dv;  // [rows, H, D], [keys, HK, D], [keys, HK, DV]
};

// The backward's kernels for one problem and tile.
class Backward {
 public:
  Backward(const lathe::Compiler& nvrtc, const lathe::AttentionProblem& problem,
           const lathe::AttentionBackwardTile& tile)
      : problem_(problem),
        ranges_(nvrtc),
        ptx_(compile(nvrtc, lathe::attention_block_backward_spec(problem, tile),
                     std::max(problem.head_dim, problem.value_dim) > 128)),
        prepare_ptx_(compile(nvrtc, lathe::attention_block_prepare_spec(), false)),
        finish_ptx_(compile(nvrtc, lathe::attention_block_finish_spec(), false)) {
    kernels_.prepare = lathe::attention_block_prepare_spec();
    kernels_.backward = lathe::attention_block_backward_spec(problem, tile);
    kernels_.finish = lathe::attention_block_finish_spec();
  }
  const lathe::KernelSpec& spec() const { return *kernels_.backward; }
  // Adds to `sums`. lse and e are [H, rows]; in a batch all of them are one after another.
  void run(const std::vector<ref::AttentionBlock>& batch, const Step& step, const ref::Array& dout,
           const ref::Array& lse, const ref::Array& e, uint32_t seed, Gradients* sums,
           Writes writes = {}) const;
  void run(const ref::AttentionBlock& a, const Step& step, const ref::Array& dout,
           const ref::Array& lse, const ref::Array& e, uint32_t seed, Gradients* sums,
           Writes writes = {}) const {
    run(std::vector<ref::AttentionBlock>{a}, step, dout, lse, e, seed, sums, writes);
  }

 private:
  lathe::AttentionProblem problem_;
  Ranges ranges_;
  lathe::AttentionBlockKernels kernels_;
  std::string ptx_, prepare_ptx_, finish_ptx_;
};

// At most twice what a computation loses that rounds weights and gradients of scores to the element
// type, and some places of float32.
void expect_gradient(const std::vector<float>& found, const ref::Array& exact,
                     const ref::Array& plain, double steps = 1);

// Weights are rounded once to the element type, so out is off by at most half a last place of it,
// relative to the largest value; and a few places of float32.
void expect_near(const State& found, const ref::AttentionForward& expected, lathe_dtype dtype,
                 double largest_value, double steps = 1);
double largest(const ref::Array& values);

}  // namespace block_case
