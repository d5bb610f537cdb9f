// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// lse_merge on the simulator, under every checker, against the definition in double: rows that are
// empty on either side or both, sinks, every type and width, strides, and any order of many blocks.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "codegen/nvrtc.h"
#include "codegen/source.h"
#include "ops/attention/merge_kernels.h"
#include "sim/tests/kernel_run.h"
#include "templates/params/attention_merge.h"
#include "tests/numbers.h"

using lathe::Dtype;
using lathe::LseMergeParams;
using lathe::LseMergeProblem;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// [batch][token][head][column] and [batch][head][token], one after another.
struct Partial {
  std::vector<float> out, lse;
};
struct Form {
  int batch = 1, tokens = 1, heads = 1, width = 64;
  int rows() const { return batch * tokens * heads; }
  // Of row r = (batch, token, head): its place in lse.
  size_t lse_at(int r) const {
    const int head = r % heads, token = r / heads % tokens, b = r / heads / tokens;
    return static_cast<size_t>((b * heads + head) * tokens + token);
  }
};

lathe_dtype tested(Dtype dtype) { return static_cast<lathe_dtype>(dtype); }

// What a block holds where its lse is -inf must not matter: NaN.
Partial random_partial(const Form& form, Dtype type, std::mt19937& random, double empty) {
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  Partial made;
  made.out.resize(static_cast<size_t>(form.rows()) * form.width);
  made.lse.resize(static_cast<size_t>(form.rows()));
  for (int r = 0; r < form.rows(); ++r) {
    const bool none = uniform(random) < empty;
    const double spread = random() % 8 == 0 ? 1e4 : 3;
    made.lse[form.lse_at(r)] = none ? -kInfinity : static_cast<float>(spread * normal(random));
    for (int c = 0; c < form.width; ++c) {
      const double value = numbers::rounded(tested(type), normal(random));
      made.out[static_cast<size_t>(r) * form.width + c] = none ? NAN : static_cast<float>(value);
    }
  }
  return made;
}

// In double; what is summed of the partials, and how large it can be.
struct Merged {
  std::vector<double> out, lse;
};
Merged merge(const Form& form, const std::vector<Partial>& parts, const std::vector<float>& sinks) {
  Merged result;
  result.out.assign(static_cast<size_t>(form.rows()) * form.width, 0.0);
  result.lse.assign(static_cast<size_t>(form.rows()), -kInfinity);
  for (int r = 0; r < form.rows(); ++r) {
    const double sink = sinks.empty() ? -kInfinity : sinks[static_cast<size_t>(r % form.heads)];
    double most = sink;
    for (const Partial& part : parts) most = std::max<double>(most, part.lse[form.lse_at(r)]);
    if (most == -kInfinity) continue;
    double sum = std::exp(sink - most);
    for (const Partial& part : parts) sum += std::exp(part.lse[form.lse_at(r)] - most);
    result.lse[form.lse_at(r)] = most + std::log(sum);
    for (const Partial& part : parts) {
      const double weight = std::exp(part.lse[form.lse_at(r)] - most) / sum;
      if (weight == 0) continue;
      for (int c = 0; c < form.width; ++c) {
        const size_t at = static_cast<size_t>(r) * form.width + c;
        result.out[at] += weight * part.out[at];
      }
    }
  }
  return result;
}

class Merger {
 public:
  Merger(const lathe::Compiler& compiler, const LseMergeProblem& problem, uint32_t seed)
      : problem_(problem), spec_(lathe::lse_merge_spec(problem)), device_("sm_80"), seed_(seed) {
    const auto compiled = compiler.compile(lathe::emit_unit(spec_, "sm_80"), "sm_80");
    REQUIRE_MESSAGE(compiled.ok(), compiled.status().text());
    CHECK(compiled->report.spill_stores == 0);
    device_.settings.seed = seed;
    device_.settings.async_policy = static_cast<sim::AsyncPolicy>(seed % 3);
    device_.load(compiled->ptx);
  }

  // `gap` columns between the heads of every out.
  void run(const Form& form, Partial* own, const Partial* block, const std::vector<float>& sinks,
           int gap = 0) {
    LseMergeParams p = {};
    const auto at = [](uint64_t address) { return reinterpret_cast<void*>(address); };
    const int pitch = form.width + gap;
    p.out = at(device_.upload(spaced(own->out, form.width, gap)));
    p.lse = at(device_.upload(own->lse));
    if (block) {
      p.block_out = at(device_.upload(encoded(spaced(block->out, form.width, gap))));
      p.block_lse = at(device_.upload(block->lse));
    }
    if (!sinks.empty()) p.sinks = at(device_.upload(sinks));
    if (problem_.rounded) {
      p.rounded = at(device_.buffer(own->out.size() * 2));
      p.rounded_head_stride = form.width;
      p.rounded_token_stride = static_cast<long long>(form.heads) * form.width;
      p.rounded_batch_stride = p.rounded_token_stride * form.tokens;
    }
    p.out_head_stride = p.block_head_stride = pitch;
    p.out_token_stride = p.block_token_stride = static_cast<long long>(form.heads) * pitch;
    p.out_batch_stride = p.block_batch_stride = p.out_token_stride * form.tokens;
    p.rows = form.rows(), p.heads = form.heads, p.tokens = form.tokens, p.value_dim = form.width;
    const auto blocks = static_cast<uint32_t>(lathe::lse_merge_blocks(spec_, form.rows()));
    const auto outcome = device_.run("entry", blocks, static_cast<uint32_t>(spec_.threads), p);
    INFO(sim::test::texts(outcome));
    REQUIRE(outcome.error == 0);
    CHECK(outcome.findings.empty());
    own->lse = device_.download<float>(reinterpret_cast<uint64_t>(p.lse), own->lse.size());
    const auto out = device_.download<float>(reinterpret_cast<uint64_t>(p.out),
                                             static_cast<size_t>(form.rows()) * pitch);
    for (size_t i = 0; i < own->out.size(); ++i) {
      own->out[i] = out[i / form.width * pitch + i % form.width];
    }
    if (problem_.rounded) expect_rounded(reinterpret_cast<uint64_t>(p.rounded), own->out);
  }

 private:
  void expect_rounded(uint64_t from, const std::vector<float>& out) const {
    const lathe_dtype type = tested(problem_.rounded_type);
    const auto bits = device_.download<uint16_t>(from, out.size());
    size_t wrong = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      wrong += numbers::decode(type, &bits[i]) != numbers::rounded(type, out[i]);
    }
    CHECK(wrong == 0);
  }
  static std::vector<float> spaced(const std::vector<float>& dense, int width, int gap) {
    std::vector<float> out;
    for (size_t i = 0; i < dense.size(); i += static_cast<size_t>(width)) {
      out.insert(out.end(), dense.begin() + static_cast<int64_t>(i),
                 dense.begin() + static_cast<int64_t>(i) + width);
      out.insert(out.end(), static_cast<size_t>(gap), NAN);
    }
    return out;
  }
  std::vector<char> encoded(const std::vector<float>& values) const {
    const lathe_dtype type = tested(problem_.block_out);
    const size_t bytes = numbers::bytes_of(type);
    std::vector<char> out(values.size() * bytes);
    for (size_t i = 0; i < values.size(); ++i) {
      numbers::encode(type, values[i], &out[i * bytes]);
    }
    return out;
  }

  LseMergeProblem problem_;
  lathe::KernelSpec spec_;
  sim::test::Device device_;
  uint32_t seed_;
};

// Four float32 roundings and two of ex2, of values up to `scale`.
void expect_near(const Partial& found, const Merged& expected, double scale) {
  size_t wrong = 0;
  for (size_t i = 0; i < found.lse.size(); ++i) {
    const double a = found.lse[i], e = expected.lse[i];
    if (!(e == -kInfinity ? a == e : std::abs(a - e) <= 1e-6 + 1e-6 * std::abs(e))) ++wrong;
  }
  CHECK(wrong == 0);
  for (size_t i = 0; i < found.out.size(); ++i) {
    if (!(std::abs(found.out[i] - expected.out[i]) <= scale * 2e-6)) ++wrong;
  }
  CHECK(wrong == 0);
}

std::shared_ptr<const lathe::Compiler> compiler() {
  const auto opened = lathe::Compiler::open();
  if (opened.ok()) return *opened;
  MESSAGE("skipped, no compiler: ", opened.status().text());
  return nullptr;
}

}  // namespace

TEST_CASE("lse_merge: two partials and a sink, in every type") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  const LseMergeProblem problems[] = {
      {Dtype::f32, 64, true, false}, {Dtype::f16, 128, true, true},  {Dtype::bf16, 8, true, false},
      {Dtype::f32, 256, true, true}, {Dtype::bf16, 72, true, false}, {Dtype::f32, 96, false, true}};
  uint32_t seed = 1;
  for (const LseMergeProblem& problem : problems) {
    for (int turn = 0; turn < 2; ++turn, ++seed) {
      CAPTURE(lathe::lse_merge_spec(problem).text());
      std::mt19937 random(seed);
      const Form form = {turn ? 3 : 1, turn ? 5 : 29, turn ? 2 : 3, problem.value_dim};
      Partial own = random_partial(form, Dtype::f32, random, 0.3);
      const Partial block = random_partial(form, problem.block_out, random, 0.3);
      std::vector<float> sinks;
      if (problem.sinks) sinks = {0.5f, -kInfinity, 2.0f};
      sinks.resize(problem.sinks ? static_cast<size_t>(form.heads) : 0);
      std::vector<Partial> parts = {own};
      if (problem.block) parts.push_back(block);
      const Merged expected = merge(form, parts, sinks);
      Merger(*nvrtc, problem, seed)
          .run(form, &own, problem.block ? &block : nullptr, sinks, turn * 8);
      expect_near(own, expected, 5);
    }
  }
}

TEST_CASE("lse_merge: an empty block changes no bit, and both empty give (0, -inf)") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  std::mt19937 random(7);
  const Form form = {1, 9, 2, 64};
  Merger merger(*nvrtc, {Dtype::f32, 64, true, false}, 7);
  const Partial before = random_partial(form, Dtype::f32, random, 0.2);
  const Partial empty = random_partial(form, Dtype::f32, random, 1.0);
  Partial after = before;
  merger.run(form, &after, &empty, {});
  CHECK(after.lse == before.lse);
  for (int r = 0; r < form.rows(); ++r) {
    const bool none = before.lse[form.lse_at(r)] == -kInfinity;
    for (int c = 0; c < form.width; ++c) {
      const size_t at = static_cast<size_t>(r) * form.width + c;
      CHECK(after.out[at] == (none ? 0.0f : before.out[at]));
    }
  }
  Partial taken = empty;  // the other way round: what it takes it takes as it is
  merger.run(form, &taken, &before, {});
  CHECK(taken.lse == after.lse);
  CHECK(taken.out == after.out);
}

TEST_CASE("lse_merge: without anything to merge, rounded is out") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  std::mt19937 random(9);
  const Form form = {1, 9, 2, 128};
  Merger merger(*nvrtc, {Dtype::f32, 128, false, false, true, Dtype::bf16}, 2);
  Partial own = random_partial(form, Dtype::f32, random, 0.2);
  const std::vector<float> lse = own.lse;
  merger.run(form, &own, nullptr, {});
  CHECK(own.lse == lse);
}

TEST_CASE("lse_merge: many blocks in any order, each order bit for bit") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  std::mt19937 random(11);
  const Form form = {1, 7, 3, 64};
  constexpr size_t kBlocks = 6;
  Merger merger(*nvrtc, {Dtype::f32, 64, true, false}, 3);
  std::vector<Partial> blocks;
  for (size_t i = 0; i < kBlocks; ++i) {
    blocks.push_back(random_partial(form, Dtype::f32, random, 0.4));
  }
  const Merged expected = merge(form, blocks, {});
  std::vector<size_t> order(kBlocks);
  std::iota(order.begin(), order.end(), 0);
  const auto in_order = [&] {
    Partial state = random_partial(form, Dtype::f32, random, 1.0);  // nothing yet
    for (const size_t i : order) merger.run(form, &state, &blocks[i], {});
    return state;
  };
  for (int turn = 0; turn < 4; ++turn) {
    std::shuffle(order.begin(), order.end(), random);
    const Partial once = in_order(), again = in_order();
    expect_near(once, expected, 5.0 * kBlocks);
    CHECK(once.out == again.out);
    CHECK(once.lse == again.lse);
  }
}
