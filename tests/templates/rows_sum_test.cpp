// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The kernels that add up rows on the simulator, against plain loops: every type, and sums whose
// order shows in their bits.
#include "tests/templates/rows_case.h"

using namespace rows;

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
      runner.run(lathe::item_blocks(spec, count), p);
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

TEST_CASE("sum_rows: by lists and by groups of heads, in their order, rounded once") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  const int tokens = 5, batch = 2, heads = 3, columns = 8, row = heads * columns;
  uint32_t seed = 0;
  for (const auto& [in, out] :
       {std::pair(Dtype::f32, Dtype::bf16), std::pair(Dtype::bf16, Dtype::bf16),
        std::pair(Dtype::f32, Dtype::f32)}) {
    for (const bool listed : {false, true}) {
      const KernelSpec spec = lathe::sum_rows_spec(in, out, listed);
      std::mt19937 random(++seed);
      Runner runner(*nvrtc, spec, seed);
      lathe::SumRowsParams p = {};
      lathe::RowSum& s = p.sums[p.count++];
      // Lists of none to four rows of eleven, of which seven came and four are this rank's own.
      // Else each head has two ranks' terms: rank 4 has its group behind those of the others.
      const std::vector<int> first = {0, 2, 2, 3, 7, 8}, list = {9, 0, 3, 6, 7, 10, 1, 2};
      const int terms = 2, groups = heads * terms, rows = listed ? 11 : groups * tokens;
      const Values values = Values::random(in, rows * batch * row, random);
      const Bytes bytes = values.bytes();
      const size_t each = numbers::bytes_of(tested(in));
      s.slot_rows = 7;
      s.slots = at(runner.device().upload(bytes));
      const Bytes own(bytes.begin() + static_cast<std::ptrdiff_t>(7 * batch * row * each),
                      bytes.end());
      if (listed) s.own = at(runner.device().upload(own));
      s.first = at(runner.device().upload(first)), s.list = at(runner.device().upload(list));
      s.token = batch * row, s.batch = row, s.head = columns, s.group = tokens * s.token;
      s.to_head = columns + 4, s.to_batch = heads * s.to_head, s.to_token = batch * s.to_batch;
      s.tokens = tokens, s.batch_rows = batch, s.heads = heads, s.columns = columns;
      s.terms = terms, s.own_at = 4, s.own_group = groups - 1;
      s.last_block = static_cast<int>(lathe::item_blocks(spec, tokens * batch * row));
      const size_t size = static_cast<size_t>(tokens * s.to_token) * numbers::bytes_of(tested(out));
      s.to = at(runner.device().upload(Bytes(size, 0xee)));
      runner.run(s.last_block, p);
      const auto found = decoded(runner.device().download<uint8_t>(address(s.to), size), out);
      size_t wrong = 0;
      for (int i = 0; i < tokens * batch * row; ++i) {
        const int t = i / (batch * row), b = i / row % batch, h = i / columns % heads,
                  c = i % columns;
        float sum = 0;
        const int begin = listed ? first[t] : 0, end = listed ? first[t + 1] : terms;
        for (int j = begin; j < end; ++j) {
          const int rank = h * terms + j,
                    group = rank == 4 ? groups - 1 : rank - (rank > 4 ? 1 : 0);
          const int64_t at_row = listed ? list[j] : group * tokens + t;
          const float value = listed ? values.value[(at_row * batch + b) * row + h * columns + c]
                                     : values.value[(at_row * batch + b) * row + c];
          sum = j == begin ? value : sum + value;
        }
        wrong += found[t * s.to_token + b * s.to_batch + h * s.to_head + c] != rounded(out, sum);
      }
      CHECK(wrong == 0);
    }
  }
}
