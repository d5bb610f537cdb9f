// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The kernels that copy rows on the simulator, against plain loops: every vector and stride, and
// what indices outside mean.
#include "tests/templates/rows_case.h"

using namespace rows;

namespace {

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

TEST_CASE(
    "move_rows: several tensors, indices on both sides, heads in groups, skipped and repeated") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  for (const int word : {4, 16}) {
    const KernelSpec spec = lathe::move_rows_spec(word);
    Runner runner(*nvrtc, spec, static_cast<uint32_t>(word));
    std::mt19937 random(static_cast<unsigned>(word));
    lathe::MoveRowsParams p = {};
    std::vector<std::vector<uint32_t>> expected;
    for (const int words : {1, 5, 64}) {
      // Seven of nine tokens go to nine places; of twelve heads in groups of three, six that lie
      // around two others, each of them twice.
      const int tokens = 7, batch = 2, heads = 8, per = word / 4;
      std::vector<int> from(9), to(9);
      for (int i = 0; i < 9; ++i) from[i] = to[i] = i;
      std::shuffle(from.begin(), from.end(), random);
      std::shuffle(to.begin(), to.end(), random);
      lathe::RowMove& move = p.moves[p.count];
      move.from = {nullptr, nullptr, 0, 0, words, 3 * words + 2, 3, 4, 4};
      move.from.token = 4 * move.from.group + 1, move.from.batch = 9 * move.from.token;
      move.to = {nullptr, nullptr, 0, 0, words + 1, 0, heads, heads, 0};
      move.to.token = heads * move.to.head, move.to.batch = 9 * move.to.token;
      std::vector<uint32_t> source(batch * move.from.batch * per);
      std::vector<uint32_t> target(batch * move.to.batch * per, 0xeeeeeeee);
      for (uint32_t& each : source) each = static_cast<uint32_t>(random());
      move.from.data = at(runner.device().upload(source));
      move.to.data = at(runner.device().upload(target));
      move.from.index = at(runner.device().upload(from));
      move.to.index = at(runner.device().upload(to));
      move.tokens = tokens, move.batch = batch, move.heads = heads, move.words = words;
      move.repeat = 2;
      const int before = p.count == 0 ? 0 : p.moves[p.count - 1].last_block;
      move.last_block =
          before + static_cast<int>(lathe::item_blocks(spec, tokens * batch * heads * words));
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t b = 0; b < batch; ++b) {
          for (int64_t h = 0; h < heads; ++h) {
            const int64_t real = (h < 4 ? h : h + 4) / 2;
            const int64_t s = from[t] * move.from.token + b * move.from.batch +
                              real / 3 * move.from.group + real % 3 * move.from.head;
            const int64_t d = to[t] * move.to.token + b * move.to.batch + h * move.to.head;
            std::copy_n(&source[s * per], words * per, &target[d * per]);
          }
        }
      }
      expected.push_back(target);
      ++p.count;
    }
    runner.run(p.moves[p.count - 1].last_block, p);
    for (int i = 0; i < p.count; ++i) {
      CHECK(runner.device().download<uint32_t>(address(p.moves[i].to.data), expected[i].size()) ==
            expected[i]);
    }
  }
}
