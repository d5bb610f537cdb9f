// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The kernels between exchanges on the simulator, under every checker, against plain loops: every
// vector, type and stride, what indices outside mean, and sums whose order shows in their bits.
#include "templates/params/exchange.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "codegen/nvrtc.h"
#include "codegen/source.h"
#include "ops/exchange_kernels.h"
#include "sim/tests/kernel_run.h"
#include "tests/numbers.h"

using lathe::Dtype;
using lathe::KernelSpec;
using lathe::RowIndex;

namespace {

using Bytes = std::vector<uint8_t>;

void* at(uint64_t address) { return reinterpret_cast<void*>(address); }
uint64_t address(const void* at) { return reinterpret_cast<uint64_t>(at); }
lathe_dtype tested(Dtype dtype) { return static_cast<lathe_dtype>(dtype); }

// A kernel on a device of its own, with schedules in turn.
class Runner {
 public:
  Runner(const lathe::Compiler& compiler, const KernelSpec& spec, uint32_t seed)
      : spec_(spec), device_("sm_80") {
    const auto compiled = compiler.compile(lathe::emit_unit(spec, "sm_80"), "sm_80");
    REQUIRE_MESSAGE(compiled.ok(), compiled.status().text());
    CHECK(compiled->report.spill_stores == 0);
    device_.settings.seed = seed;
    device_.settings.async_policy = static_cast<sim::AsyncPolicy>(seed % 3);
    device_.load(compiled->ptx);
  }
  sim::test::Device& device() { return device_; }
  template <class Params>
  void run(int64_t blocks, const Params& p) {
    const auto outcome = device_.run("entry", static_cast<uint32_t>(blocks),
                                     static_cast<uint32_t>(spec_.threads), p);
    INFO(sim::test::texts(outcome));
    REQUIRE(outcome.error == 0);
    CHECK(outcome.findings.empty());
  }

 private:
  KernelSpec spec_;
  sim::test::Device device_;
};

std::shared_ptr<const lathe::Compiler> compiler() {
  const auto opened = lathe::Compiler::open();
  if (opened.ok()) return *opened;
  MESSAGE("skipped, no compiler: ", opened.status().text());
  return nullptr;
}

// A tensor [B, G, T, H, row] with gaps behind rows, tokens, groups and batches, all 0xee.
struct Place {
  int64_t batch, group, token, head, size;  // strides and bytes
  Place(int64_t groups, int64_t tokens, int64_t heads, int64_t row, int64_t gap, int64_t batches)
      : batch(0), group(0), token(0), head(row + gap), size(0) {
    token = heads * head + gap;
    group = tokens * token + gap;
    batch = groups * group + gap;
    size = batches * batch;
  }
};

struct CopyCase {
  int vector = 16;
  RowIndex index = RowIndex::none;
  int64_t batches = 1, groups = 1, tokens = 1, heads = 1, vectors = 1, gap = 0;
};

void check_copy(const lathe::Compiler& compiler, const CopyCase& c, uint32_t seed) {
  const KernelSpec spec = lathe::copy_rows_spec(c.index, c.vector);
  Runner runner(compiler, spec, seed);
  std::mt19937 random(seed);
  const int64_t row = c.vectors * c.vector, limit = c.tokens + 3;
  const bool gather = c.index == RowIndex::gather, scatter = c.index == RowIndex::scatter;
  const Place from(c.groups, gather ? limit : c.tokens, c.heads, row, c.gap, c.batches);
  const Place to(c.groups, scatter ? limit : c.tokens, c.heads, row, 2 * c.gap, c.batches);
  Bytes source(from.size), target(to.size, 0xee);
  for (uint8_t& byte : source) byte = static_cast<uint8_t>(random());
  // Each token at most once, and two that name none.
  std::vector<int> index(limit);
  for (size_t i = 0; i < index.size(); ++i) index[i] = static_cast<int>(i);
  std::shuffle(index.begin(), index.end(), random);
  index.resize(c.tokens);
  if (c.tokens > 2) index[0] = -1, index[1] = static_cast<int>(limit);

  lathe::CopyRowsParams p = {};
  p.from = at(runner.device().upload(source));
  p.to = at(runner.device().upload(target));
  if (gather || scatter) p.index = at(runner.device().upload(index));
  p.from_batch_stride = from.batch, p.from_group_stride = from.group;
  p.from_token_stride = from.token, p.from_head_stride = from.head;
  p.to_batch_stride = to.batch, p.to_group_stride = to.group;
  p.to_token_stride = to.token, p.to_head_stride = to.head;
  const int64_t cells = c.batches * c.groups * c.tokens;
  p.cells = static_cast<int>(cells);
  p.groups = static_cast<int>(c.groups), p.tokens = static_cast<int>(c.tokens);
  p.heads = static_cast<int>(c.heads), p.vectors = static_cast<int>(c.vectors);
  p.limit = static_cast<int>(limit);
  p.lane_bits = lathe::lane_bits_of(spec, c.heads * c.vectors);
  runner.run(lathe::row_blocks(spec, cells, p.lane_bits), p);

  for (int64_t cell = 0; cell < cells; ++cell) {
    const int64_t t = cell % c.tokens, g = cell / c.tokens % c.groups,
                  b = cell / c.tokens / c.groups;
    const int64_t other = gather || scatter ? index[t] : t;
    const bool named = other >= 0 && other < limit;
    if (scatter && !named) continue;
    for (int64_t h = 0; h < c.heads; ++h) {
      const int64_t s =
          b * from.batch + g * from.group + (gather ? other : t) * from.token + h * from.head;
      const int64_t d =
          b * to.batch + g * to.group + (scatter ? other : t) * to.token + h * to.head;
      for (int64_t i = 0; i < row; ++i) target[d + i] = named ? source[s + i] : 0;
    }
  }
  CHECK(runner.device().download<uint8_t>(address(p.to), target.size()) == target);
}

struct Values {
  Dtype type;
  std::vector<float> value;  // rounded to the type

  static Values random(Dtype type, int64_t count, std::mt19937& random) {
    std::normal_distribution<double> normal;
    Values out{type, {}};
    for (int64_t i = 0; i < count; ++i) {
      // Of many sizes: a sum in another order has other bits.
      const double size = random() % 3 == 0 ? 1e3 : 1;
      out.value.push_back(
          static_cast<float>(numbers::rounded(tested(type), size * normal(random))));
    }
    return out;
  }
  Bytes bytes() const {
    const size_t each = numbers::bytes_of(tested(type));
    Bytes out(value.size() * each);
    for (size_t i = 0; i < value.size(); ++i) {
      numbers::encode(tested(type), value[i], &out[i * each]);
    }
    return out;
  }
};

std::vector<float> decoded(const Bytes& bytes, Dtype type) {
  const size_t each = numbers::bytes_of(tested(type));
  std::vector<float> out;
  for (size_t i = 0; i < bytes.size(); i += each) {
    out.push_back(static_cast<float>(numbers::decode(tested(type), &bytes[i])));
  }
  return out;
}
float rounded(Dtype type, float value) {
  return static_cast<float>(numbers::rounded(tested(type), value));
}

}  // namespace

TEST_CASE("copy_rows: strides, vectors and indices") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  uint32_t seed = 0;
  for (const RowIndex index : {RowIndex::none, RowIndex::gather, RowIndex::scatter}) {
    for (const int vector : {2, 4, 8, 16}) {
      check_copy(*nvrtc, {vector, index, 2, 3, 7, 2, 5, vector}, ++seed);
    }
    check_copy(*nvrtc, {16, index, 1, 1, 9, 4, 33, 16}, ++seed);   // many vectors a thread
    check_copy(*nvrtc, {4, index, 2, 4, 301, 1, 1, 0}, ++seed);    // one word a token
    check_copy(*nvrtc, {16, index, 1, 1, 1, 1, 2100, 0}, ++seed);  // one long token
  }
}

TEST_CASE("copy_rows: a token more than 2^31 bytes away") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  const KernelSpec spec = lathe::copy_rows_spec(RowIndex::gather, 16);
  Runner runner(*nvrtc, spec, 5);
  // The tensor begins that much before what it holds of memory: token 1 alone is read.
  const int64_t stride = (int64_t{1} << 31) + 64;
  const std::vector<uint32_t> far = {1, 2, 3, 4};
  lathe::CopyRowsParams p = {};
  p.from = at(runner.device().upload(far) - static_cast<uint64_t>(stride));
  p.to = at(runner.device().buffer(16));
  p.index = at(runner.device().upload(std::vector<int>{1}));
  p.from_token_stride = stride;
  p.cells = p.groups = p.tokens = p.heads = p.vectors = 1;
  p.limit = 2;
  runner.run(1, p);
  CHECK(runner.device().download<uint32_t>(address(p.to), 4) == far);
}

TEST_CASE("add_rows: types, tails, in place") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  std::mt19937 random(3);
  uint32_t seed = 0;
  for (const auto& [a_type, out_type] :
       {std::pair(Dtype::f32, Dtype::f32), std::pair(Dtype::bf16, Dtype::bf16),
        std::pair(Dtype::f16, Dtype::f32), std::pair(Dtype::f32, Dtype::f16)}) {
    const KernelSpec spec = lathe::add_rows_spec(a_type, out_type);
    for (const int64_t count : {1, 4, 1027, 4096}) {
      Runner runner(*nvrtc, spec, ++seed);
      const Values a = Values::random(a_type, count, random);
      const Values b = Values::random(Dtype::f32, count, random);
      lathe::AddRowsParams p = {};
      p.a = at(runner.device().upload(a.bytes()));
      p.b = at(runner.device().upload(b.value));
      const size_t bytes = static_cast<size_t>(count) * numbers::bytes_of(tested(out_type));
      // Over what arrived, or over the rank's own part, or elsewhere.
      p.out = a_type == out_type       ? const_cast<void*>(p.a)
              : out_type == Dtype::f32 ? const_cast<void*>(p.b)
                                       : at(runner.device().buffer(bytes));
      p.count = count;
      runner.run(lathe::add_rows_blocks(spec, count), p);
      std::vector<float> expected;
      for (int64_t i = 0; i < count; ++i) {
        expected.push_back(rounded(out_type, a.value[i] + b.value[i]));
      }
      CHECK(decoded(runner.device().download<uint8_t>(address(p.out), bytes), out_type) ==
            expected);
    }
  }
}

namespace {

struct Sum {
  Dtype part, out;
  int vector;
  int64_t batches, tokens, heads, width;
};

void check_sum(const lathe::Compiler& compiler, const Sum& s, uint32_t seed) {
  const KernelSpec spec = lathe::sum_parts_spec(s.part, s.out, s.vector);
  Runner runner(compiler, spec, seed);
  std::mt19937 random(seed);
  const int64_t row = s.heads * s.width, gap = 8;
  // Parts of some of the tokens, the rank's own in their middle, one empty; token 0 in none.
  const std::vector<int> places = {0,
                                   2,
                                   5,
                                   3,
                                   1,
                                   static_cast<int>(s.tokens),
                                   -1,
                                   0,
                                   0,
                                   static_cast<int>(s.tokens) + 2,
                                   4,
                                   4,
                                   static_cast<int>(s.tokens) + 2,
                                   3,
                                   4};
  const int64_t part_tokens = s.tokens + 3;
  const Values parts = Values::random(s.part, s.batches * part_tokens * row, random);
  const Values own = Values::random(Dtype::f32, s.batches * (s.tokens * row + gap), random);
  lathe::SumPartsParams p = {};
  p.parts = at(runner.device().upload(parts.bytes()));
  p.own = at(runner.device().upload(own.value));
  p.places = at(runner.device().upload(places));
  p.own_batch_stride = s.tokens * row + gap;
  p.out_head_stride = s.width + gap;
  p.out_token_stride = s.heads * p.out_head_stride;
  p.out_batch_stride = s.tokens * p.out_token_stride;
  const size_t bytes =
      static_cast<size_t>(s.batches * p.out_batch_stride) * numbers::bytes_of(tested(s.out));
  p.out = at(runner.device().upload(Bytes(bytes, 0xee)));
  p.part_tokens = part_tokens;
  p.cells = static_cast<int>(s.batches * s.tokens);
  p.batch = static_cast<int>(s.batches), p.tokens = static_cast<int>(s.tokens);
  p.heads = static_cast<int>(s.heads), p.vectors = static_cast<int>(s.width / s.vector);
  p.count = static_cast<int>(places.size() / 3);
  p.lane_bits = lathe::lane_bits_of(spec, row / s.vector);
  runner.run(lathe::row_blocks(spec, p.cells, p.lane_bits), p);

  const std::vector<float> found =
      decoded(runner.device().download<uint8_t>(address(p.out), bytes), s.out);
  size_t wrong = 0;
  for (int64_t b = 0; b < s.batches; ++b) {
    for (int64_t t = 0; t < s.tokens; ++t) {
      for (int64_t c = 0; c < row; ++c) {
        float sum = 0;
        for (size_t i = 0; i < places.size(); i += 3) {
          const int before = places[i], begin = places[i + 1], end = places[i + 2];
          if (before < 0) {
            sum += own.value[b * p.own_batch_stride + t * row + c];
          } else if (t >= begin && t < end) {
            const int64_t token = before * s.batches + b * (end - begin) + t - begin;
            sum += parts.value[token * row + c];
          }
        }
        const int64_t where = b * p.out_batch_stride + t * p.out_token_stride +
                              c / s.width * p.out_head_stride + c % s.width;
        wrong += found[where] != rounded(s.out, sum);
      }
    }
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("sum_parts: every part in its turn, rounded once") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  check_sum(*nvrtc, {Dtype::f32, Dtype::bf16, 4, 2, 9, 2, 24}, 1);
  check_sum(*nvrtc, {Dtype::f32, Dtype::f32, 4, 1, 40, 1, 128}, 2);
  check_sum(*nvrtc, {Dtype::bf16, Dtype::bf16, 4, 2, 7, 3, 8}, 3);
  check_sum(*nvrtc, {Dtype::f16, Dtype::f16, 2, 1, 6, 3, 6}, 4);
  check_sum(*nvrtc, {Dtype::f32, Dtype::f16, 1, 3, 6, 1, 5}, 5);
}
