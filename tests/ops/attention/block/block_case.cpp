// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/attention/block/block_case.h"

#include <algorithm>

#include "tests/harness/check.h"
#include "tests/numbers.h"
#include "tests/ops/attention/block/block_mods.h"

namespace apitest {
namespace {

Values draw_values(lathe_dtype dtype, int64_t count, std::mt19937& random) {
  return random_values(dtype, count, random());
}

// Rows in intervals, some of them nobody's; each sees disjoint intervals of the keys.
std::vector<BlockRange> random_pairs(int64_t rows, int64_t keys, std::mt19937& random) {
  const auto up_to = [&](int64_t most) { return static_cast<int64_t>(random() % (most + 1)); };
  std::vector<BlockRange> ranges;
  for (int64_t qa = up_to(rows / 4); qa < rows;) {
    const int64_t qb = std::min(rows, qa + 1 + up_to(rows));
    for (int64_t ka = up_to(keys / 3); ka < keys;) {
      const int64_t kb = std::min(keys, ka + up_to(keys));
      ranges.push_back({qa, qb, ka, kb, up_to(2 * keys) - keys, up_to(100), up_to(100), up_to(3)});
      ka = kb + 1 + up_to(keys / 8);
    }
    qa = qb + (random() % 3 == 0 ? up_to(5) : 0);
  }
  return ranges;
}

int64_t one_of(const std::vector<int64_t>& list, std::mt19937& random) {
  return list[random() % list.size()];
}

BlockStep random_step(const TileRow& row, int64_t rows, int64_t keys, std::mt19937& random) {
  BlockStep step;
  if (row.has("local")) {
    step.window_left = one_of({-1, -1, 0, 5, 64, 300}, random);
    step.window_right = one_of({-1, 0, 0, 3, 70}, random);
  }
  if (row.has("ranges")) {
    step.ranges = random_pairs(rows, keys, random);
    step.batches = random() % 2 == 0;
    return step;
  }
  // Runs of a random permutation of chunks, so that tiles are skipped, masked and whole.
  const auto positions = [&](int64_t count) {
    std::vector<int64_t> list;
    while (static_cast<int64_t>(list.size()) < count) {
      const int64_t from = one_of({0, 0, 40, 200, 300, 500, -100}, random);
      for (int64_t i = one_of({1, 30, 64, 130}, random); i > 0; --i) list.push_back(from + i);
    }
    list.resize(static_cast<size_t>(count));
    return list;
  };
  step.q_positions = positions(rows), step.k_positions = positions(keys);
  return step;
}

ref::AttentionBlock random_shape(const TileRow& row, std::mt19937& random) {
  ref::AttentionBlock a;
  a.rows = one_of({1, 5, 64, 113, 150, 260}, random);
  a.keys = one_of({0, 1, 64, 130, 203, 320}, random);
  a.kv_heads = one_of({1, 2}, random), a.heads = a.kv_heads * one_of({1, 3}, random);
  a.head_dim = row.width - one_of({0, 8, 24}, random);
  a.value_dim = row.value_width - one_of({0, 8, 24}, random);
  a.softcap = row.has("softcap") ? static_cast<double>(one_of({1, 3, 30}, random)) : 0;
  return a;
}

// Makes rows and keys of no range NaN.
void poison_unseen(const BlockStep& step, ref::AttentionBlock* a, Values* dout) {
  if (!step.q_positions.empty()) return;  // every key may be near some row
  std::vector<bool> rows(static_cast<size_t>(a->rows)), keys(static_cast<size_t>(a->keys));
  for (const BlockRange& range : step.ranges) {
    if (range.qa >= range.qb || range.ka >= range.kb) continue;
    std::fill(rows.begin() + range.qa, rows.begin() + range.qb, true);
    std::fill(keys.begin() + range.ka, keys.begin() + range.kb, true);
  }
  const auto poison = [](Values* values, const std::vector<bool>& seen) {
    const size_t columns = seen.empty() ? 0 : values->size() / seen.size();
    for (size_t i = 0; i < values->size(); ++i) {
      if (!seen[i / columns]) (*values)[i] = NAN;
    }
  };
  poison(&a->q, rows), poison(&a->k, keys), poison(&a->v, keys), poison(dout, rows);
}

void append(Values* to, const Values& from) { to->insert(to->end(), from.begin(), from.end()); }

// Adds what one block goes on from: a partial result of some rows; and for its gradients an lse as
// attention over more keys may have it, above that of the block's own and in some rows -inf.
void add_state(const TileRow& row, ref::AttentionBlock* a, std::mt19937& random, BlockInputs* to) {
  std::normal_distribution<double> normal;
  const int64_t cells = a->rows * a->heads;
  Values out = draw_values(LATHE_F32, cells * a->value_dim, random);
  ref::AttentionForward forward;
  forward.out.assign(out.size(), 0.0);
  forward.lse.assign(static_cast<size_t>(cells), -ref::kInfinity);
  ref::attention_block(*a, &forward);
  for (int64_t cell = 0; cell < cells; ++cell) {
    const int64_t h = cell / a->rows, i = cell % a->rows;
    const bool none = random() % 3 == 0;
    to->lse.push_back(none ? -ref::kInfinity : static_cast<float>(2 + 3 * normal(random)));
    if (none) std::fill_n(out.begin() + (i * a->heads + h) * a->value_dim, a->value_dim, NAN);
    const double own = forward.lse[static_cast<size_t>(cell)];
    const double more = 0.5 + std::abs(normal(random));
    const double whole = own == -ref::kInfinity ? normal(random) : own + more;
    to->whole.push_back(random() % 5 == 0 ? -ref::kInfinity : static_cast<float>(whole));
    to->e.push_back(static_cast<float>(normal(random)));
  }
  Values dout = draw_values(row.dtype, cells * a->value_dim, random);
  poison_unseen(*to->step, a, &dout);
  append(&to->out, out), append(&to->dout, dout);
  append(&to->dq, draw_values(LATHE_F32, static_cast<int64_t>(a->q.size()), random));
  append(&to->dk, draw_values(LATHE_F32, static_cast<int64_t>(a->k.size()), random));
  append(&to->dv, draw_values(LATHE_F32, static_cast<int64_t>(a->v.size()), random));
}

// Makes the part of a call that a forward and a backward over these blocks share.
Call common_call(const TileRow& row, const BlockInputs& in, int64_t sm_margin) {
  const ref::AttentionBlock& a = in.blocks.front();
  const BlockStep& step = *in.step;
  const auto batch = static_cast<int64_t>(in.blocks.size());
  Call call;
  const auto put = [&](const char* name, const std::vector<int64_t>& shape,
                       ref::Array ref::AttentionBlock::*of) {
    Values all;
    for (const ref::AttentionBlock& block : in.blocks) append(&all, block.*of);
    call.put(name, row.dtype, shape, all);
  };
  put("q", {batch, a.rows, a.heads, a.head_dim}, &ref::AttentionBlock::q);
  put("k", {batch, a.keys, a.kv_heads, a.head_dim}, &ref::AttentionBlock::k);
  put("v", {batch, a.keys, a.kv_heads, a.value_dim}, &ref::AttentionBlock::v);
  if (step.q_positions.empty()) {
    Values words, batches;
    for (const BlockRange& p : step.ranges) {
      for (const int64_t word : {p.qa, p.qb, p.ka, p.kb, p.shift, p.q0, p.k0}) {
        words.push_back(static_cast<double>(word));
      }
      batches.push_back(static_cast<double>(p.batch));
    }
    const auto count = static_cast<int64_t>(step.ranges.size());
    call.put("ranges", LATHE_I32, {count, 7}, words);
    if (step.batches) call.put("range_batch", LATHE_I32, {count}, batches);
  } else {
    call.put("q_pos", LATHE_I32, {a.rows}, {step.q_positions.begin(), step.q_positions.end()});
    call.put("k_pos", LATHE_I32, {a.keys}, {step.k_positions.begin(), step.k_positions.end()});
  }
  if (!a.slopes.empty()) call.put("alibi_slopes", LATHE_F32, {a.heads}, a.slopes);
  put_mod_texts(row, &call);
  call.set("softmax_scale", a.scale), call.set("softcap", a.softcap);
  call.set("window_left", step.window_left), call.set("window_right", step.window_right);
  call.set("sm_margin", sm_margin);
  return call;
}

}  // namespace

std::optional<int64_t> BlockStep::ahead(int64_t i, int64_t j) const {
  const auto near = [this](int64_t distance) {
    return (window_left < 0 || -distance <= window_left) &&
           (window_right < 0 || distance <= window_right);
  };
  if (!q_positions.empty()) {
    const int64_t distance =
        k_positions[static_cast<size_t>(j)] - q_positions[static_cast<size_t>(i)];
    return near(distance) ? std::optional(distance) : std::nullopt;
  }
  for (const BlockRange& range : ranges) {
    if (i < range.qa || i >= range.qb || j < range.ka || j >= range.kb) continue;
    const int64_t distance = (j - range.ka) - (i - range.qa) - range.shift;
    if (near(distance)) return distance;
  }
  return std::nullopt;
}

BlockStep::Place BlockStep::place(int64_t i, int64_t j, int64_t b) const {
  if (!q_positions.empty()) {
    return {q_positions[static_cast<size_t>(i)], k_positions[static_cast<size_t>(j)], b};
  }
  for (const BlockRange& range : ranges) {
    if (i < range.qa || i >= range.qb || j < range.ka || j >= range.kb) continue;
    return {range.q0 + i - range.qa, range.k0 + j - range.ka, batches ? range.batch : b};
  }
  return {0, 0, b};
}

BlockInputs make_block(const TileRow& row, uint32_t seed, const ref::AttentionBlock& shape,
                       const BlockStep* step, int64_t batch) {
  std::mt19937 random(seed);
  BlockInputs in;
  *in.step = step != nullptr ? *step : random_step(row, shape.rows, shape.keys, random);
  for (int64_t b = 0; b < batch; ++b) {
    ref::AttentionBlock a = shape;
    a.scale = 1 / std::sqrt(static_cast<double>(a.head_dim));
    a.q = draw_values(row.dtype, a.rows * a.heads * a.head_dim, random);
    a.k = draw_values(row.dtype, a.keys * a.kv_heads * a.head_dim, random);
    a.v = draw_values(row.dtype, a.keys * a.kv_heads * a.value_dim, random);
    for (int64_t h = 0; row.has("alibi") && h < a.heads; ++h) {
      a.slopes.push_back(std::exp2(-3.0 - static_cast<double>(h)));
    }
    put_mods(row, in.step, b, &a);
    add_state(row, &a, random, &in);
    in.blocks.push_back(a);
  }
  return in;
}

BlockInputs make_block(const TileRow& row, uint32_t seed, int64_t batch) {
  std::mt19937 random(seed + 1000);
  return make_block(row, seed, random_shape(row, random), nullptr, batch);
}

namespace {

// Names the tile of a step, or where it begins with the name of another kernel, that kernel in the
// place of Hopper's, which is the rules' choice.
void put_tile(const TileRow& row, const char* kernel, const char* of_hopper, Call* call) {
  if (row.tile.empty()) return;
  call->tiles[row.tile.starts_with("kernel=") ? of_hopper : kernel] = row.tile;
}

}  // namespace

Call block_call(const TileRow& row, const BlockInputs& in, bool first, int64_t sm_margin) {
  const ref::AttentionBlock& a = in.blocks.front();
  const auto batch = static_cast<int64_t>(in.blocks.size());
  Call call = common_call(row, in, sm_margin);
  call.op = "flash_attention_block";
  call.put("out", LATHE_F32, {batch, a.rows, a.heads, a.value_dim}, in.out);
  call.put("lse", LATHE_F32, {batch, a.heads, a.rows}, in.lse);
  for (const char* name : {"out", "lse"}) call.tensors.at(name).changed = true;
  call.options["first"] = first ? "1" : "0";
  put_tile(row, "attention_block", "attention_block_warpgroups", &call);
  return call;
}

Call block_gradients_call(const TileRow& row, const BlockInputs& in, const std::string& first,
                          int64_t sm_margin) {
  const ref::AttentionBlock& a = in.blocks.front();
  const auto batch = static_cast<int64_t>(in.blocks.size());
  Call call = common_call(row, in, sm_margin);
  call.op = "flash_attention_block_bwd";
  call.put("dout", row.dtype, {batch, a.rows, a.heads, a.value_dim}, in.dout);
  call.put("lse", LATHE_F32, {batch, a.heads, a.rows}, in.whole);
  call.put("delta", LATHE_F32, {batch, a.heads, a.rows}, in.e);
  const auto sums = [&](const char* name, const std::vector<int64_t>& shape, const Values& values,
                        bool written) {
    // A tensor that is not read may hold anything.
    call.put(name, LATHE_F32, shape, written ? Values(values.size(), NAN) : values);
    call.tensors.at(name).changed = true;
  };
  sums("dq", {batch, a.rows, a.heads, a.head_dim}, in.dq, first == "first");
  sums("dk", {batch, a.keys, a.kv_heads, a.head_dim}, in.dk, !first.empty());
  sums("dv", {batch, a.keys, a.kv_heads, a.value_dim}, in.dv, !first.empty());
  call.options["deterministic"] = row.has("ordered") ? "1" : "0";
  if (!first.empty()) call.options[first] = "1";
  put_tile(row, "attention_block_backward", "attention_block_backward_warpgroups", &call);
  return call;
}

}  // namespace apitest
