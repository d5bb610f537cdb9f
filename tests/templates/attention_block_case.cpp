// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/templates/attention_block_case.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "templates/params/attention.h"
#include "templates/params/attention_backward.h"

namespace block_case {
namespace {

std::vector<char> encode(lathe_dtype dtype, const ref::Array& values) {
  const size_t bytes = numbers::bytes_of(dtype);
  std::vector<char> out(std::max<size_t>(values.size(), 8) * bytes);
  for (size_t i = 0; i < values.size(); ++i) numbers::encode(dtype, values[i], &out[i * bytes]);
  return out;
}

// One array of all blocks.
std::vector<char> encode(lathe_dtype dtype, const std::vector<ref::AttentionBlock>& batch,
                         ref::Array ref::AttentionBlock::*values) {
  ref::Array all;
  for (const ref::AttentionBlock& a : batch) {
    all.insert(all.end(), (a.*values).begin(), (a.*values).end());
  }
  return encode(dtype, all);
}

std::vector<int> pair_words(const std::vector<Pair>& pairs) {
  std::vector<int> words;
  for (const Pair& p : pairs) {
    for (const int64_t word : {p.qa, p.qb, p.ka, p.kb, p.shift, p.q0, p.k0}) {
      words.push_back(static_cast<int>(word));
    }
  }
  words.resize(std::max<size_t>(words.size(), 8));
  return words;
}

std::vector<int> pair_batches(const std::vector<Pair>& pairs) {
  std::vector<int> batches(std::max<size_t>(pairs.size(), 8));
  for (size_t i = 0; i < pairs.size(); ++i) batches[i] = static_cast<int>(pairs[i].batch);
  return batches;
}

// What the kernels' snippets read.
template <class Params>
void put_captures(sim::test::Device& device, const lathe::AttentionProblem& problem, Params* p) {
  if (problem.snippets.empty()) return;
  p->capture[1] = reinterpret_cast<void*>(device.upload(captured_moves()));
  p->capture_count[1] = static_cast<int>(captured_moves().size());
  p->scalar[2] = captured_move();
}

std::vector<int> some(std::vector<int> list) {
  list.resize(std::max<size_t>(list.size(), 8));
  return list;
}

// Blocks of threads: of persistent ones a few, so that each has several tiles.
int64_t turns(const lathe::KernelSpec& spec, int64_t tiles) {
  return spec.constant("persistent") == 0 ? tiles : std::min<int64_t>(tiles, 3);
}

void* at(uint64_t address) { return reinterpret_cast<void*>(address); }

template <class Params>
sim::Counters launch(sim::test::Device& device, const lathe::KernelSpec& spec,
                     const std::string& ptx, int64_t blocks, const Params& p) {
  if (blocks == 0) return {};
  device.load(ptx);
  device.dynamic_shared = static_cast<uint32_t>(spec.smem_bytes);
  const auto outcome =
      device.run("entry", static_cast<uint32_t>(blocks), static_cast<uint32_t>(spec.threads), p);
  INFO(spec.text());
  INFO(sim::test::texts(outcome));
  REQUIRE(outcome.error == 0);
  CHECK(outcome.findings.empty());
  return outcome.counters;
}

}  // namespace

ref::Array random_values(lathe_dtype dtype, size_t count, std::mt19937& random) {
  std::normal_distribution<double> normal;
  ref::Array values(count);
  for (double& value : values) value = numbers::rounded(dtype, normal(random));
  return values;
}

lathe::AttentionProblem problem_of(const Setup& s) {
  lathe::AttentionProblem problem;
  problem.element = s.element;
  problem.head_dim = s.width, problem.value_dim = s.value_width;
  problem.local = s.has("local"), problem.softcap = s.has("softcap"),
  problem.alibi = s.has("alibi");
  problem.pairs = s.has("pairs"), problem.positions = s.has("positions");
  problem.forward = true;
  problem.persistent = s.has("turns");
  add_snippets(s, &problem);
  return problem;
}

// Rows in intervals, some of them nobody's; each sees disjoint intervals of the keys.
std::vector<Pair> random_pairs(int64_t rows, int64_t keys, std::mt19937& random) {
  const auto up_to = [&](int64_t most) { return static_cast<int64_t>(random() % (most + 1)); };
  std::vector<Pair> pairs;
  for (int64_t qa = up_to(rows / 4); qa < rows;) {
    const int64_t qb = std::min(rows, qa + 1 + up_to(rows));
    for (int64_t ka = up_to(keys / 3); ka < keys;) {
      const int64_t kb = std::min(keys, ka + up_to(keys));
      pairs.push_back({{qa, qb, ka, kb, up_to(2 * keys) - keys}, up_to(100), up_to(100), up_to(3)});
      ka = kb + 1 + up_to(keys / 8);
    }
    qa = qb + (random() % 3 == 0 ? up_to(5) : 0);
  }
  return pairs;
}

Step random_step(const Setup& s, int64_t rows, int64_t keys, std::mt19937& random) {
  const auto one_of = [&](std::initializer_list<int> list) {
    return *(list.begin() + random() % list.size());
  };
  Step step;
  if (s.has("local")) {
    step.window_left = one_of({-1, -1, 0, 5, 64, 300});
    step.window_right = one_of({-1, 0, 0, 3, 70});
  }
  if (s.has("pairs")) {
    step.pairs = random_pairs(rows, keys, random);
    step.batches = random() % 2 == 0;
    return step;
  }
  // Runs of a random permutation of chunks, so that tiles are skipped, masked and whole.
  const auto positions = [&](int64_t count) {
    std::vector<int> list;
    while (static_cast<int64_t>(list.size()) < count) {
      const int from = one_of({0, 0, 40, 200, 300, 500, -100});
      for (int i = one_of({1, 30, 64, 130}); i > 0; --i) list.push_back(from + i);
    }
    list.resize(static_cast<size_t>(count));
    return list;
  };
  step.q_positions = positions(rows), step.k_positions = positions(keys);
  return step;
}

void draw(lathe_dtype dtype, std::mt19937& random, ref::AttentionBlock* a) {
  const auto count = [](int64_t x, int64_t y, int64_t z) { return static_cast<size_t>(x * y * z); };
  a->q = random_values(dtype, count(a->rows, a->heads, a->head_dim), random);
  a->k = random_values(dtype, count(a->keys, a->kv_heads, a->head_dim), random);
  a->v = random_values(dtype, count(a->keys, a->kv_heads, a->value_dim), random);
}

ref::AttentionBlock random_block(const Setup& s, std::mt19937& random) {
  const auto one_of = [&](std::initializer_list<int> list) {
    return *(list.begin() + random() % list.size());
  };
  ref::AttentionBlock a;
  a.rows = one_of({1, 5, 64, 113, 150, 260}), a.keys = one_of({0, 1, 64, 130, 203, 320});
  a.kv_heads = one_of({1, 2}), a.heads = a.kv_heads * one_of({1, 3});
  a.head_dim = s.width - one_of({0, 8, 24}), a.value_dim = s.value_width - one_of({0, 8, 24});
  a.scale = 1 / std::sqrt(static_cast<double>(a.head_dim));
  a.softcap = s.has("softcap") ? one_of({1, 3, 30}) : 0;
  draw(tested(s.element), random, &a);
  for (int h = 0; s.has("alibi") && h < a.heads; ++h) a.slopes.push_back(std::exp2(-3.0 - h));
  return a;
}

std::shared_ptr<const lathe::Compiler> compiler() {
  const auto opened = lathe::Compiler::open();
  if (opened.ok()) return *opened;
  MESSAGE("skipped, no compiler: ", opened.status().text());
  return nullptr;
}

std::string compile(const lathe::Compiler& nvrtc, const lathe::KernelSpec& spec, bool may_spill) {
  static std::map<std::string, std::string> done;
  std::string& ptx = done[spec.text()];
  if (!ptx.empty()) return ptx;
  const auto compiled = nvrtc.compile(lathe::emit_unit(spec, "sm_80"), "sm_80", spec.snippets);
  REQUIRE_MESSAGE(compiled.ok(), compiled.status().text());
  MESSAGE(spec.text(), ": ", compiled->report.registers, " registers, ",
          compiled->report.spill_stores, " spilt");
  if (!may_spill) CHECK(compiled->report.spill_stores == 0);
  return ptx = compiled->ptx;
}

void* Ranges::run(sim::test::Device& device, const void* positions, int64_t count,
                  int64_t length) const {
  lathe::AttentionPositionsParams p = {};
  p.positions = positions;
  p.count = static_cast<int>(count), p.run = static_cast<int>(length);
  p.ranges = at(device.buffer(static_cast<uint64_t>(count / length + 1) * 8));
  launch(device, spec_, ptx_, lathe::attention_positions_blocks(spec_, count, length), p);
  return p.ranges;
}

void Forward::run(const std::vector<ref::AttentionBlock>& batch, const Step& step, bool first,
                  uint32_t seed, State* state) const {
  const ref::AttentionBlock& a = batch.front();
  sim::test::Device device("sm_80");
  device.settings.seed = seed;
  device.settings.async_policy = static_cast<sim::AsyncPolicy>(seed % 3);
  const lathe_dtype dtype = tested(problem_.element);
  lathe::AttentionBlockParams p = {};
  lathe::AttentionForwardParams& f = p.forward;
  f.q = at(device.upload(encode(dtype, batch, &ref::AttentionBlock::q)));
  f.k = at(device.upload(encode(dtype, batch, &ref::AttentionBlock::k)));
  f.v = at(device.upload(encode(dtype, batch, &ref::AttentionBlock::v)));
  if (!a.slopes.empty()) {
    f.alibi_slopes = at(device.upload(std::vector<float>(a.slopes.begin(), a.slopes.end())));
  }
  f.out = at(device.upload(state->out));
  f.lse = at(device.upload(state->lse));
  f.q_head_stride = f.k_head_stride = a.head_dim;
  f.v_head_stride = f.out_head_stride = a.value_dim;
  f.q_token_stride = a.heads * a.head_dim, f.k_token_stride = a.kv_heads * a.head_dim;
  f.v_token_stride = a.kv_heads * a.value_dim, f.out_token_stride = a.heads * a.value_dim;
  f.q_batch_stride = a.rows * f.q_token_stride, f.out_batch_stride = a.rows * f.out_token_stride;
  f.k_batch_stride = a.keys * f.k_token_stride, f.v_batch_stride = a.keys * f.v_token_stride;
  f.sequences = static_cast<int>(batch.size());
  f.heads = static_cast<int>(a.heads), f.kv_heads = static_cast<int>(a.kv_heads);
  f.seq_q = static_cast<int>(a.rows), f.seq_k = static_cast<int>(a.keys);
  f.head_dim = static_cast<int>(a.head_dim), f.value_dim = static_cast<int>(a.value_dim);
  f.window_left = step.window_left, f.window_right = step.window_right;
  f.tiles = static_cast<int>(lathe::attention_tiles(spec_, {1, a.heads, a.kv_heads, a.rows, 0}));
  f.softmax_scale = static_cast<float>(a.scale), f.softcap = static_cast<float>(a.softcap);
  p.pairs = at(device.upload(pair_words(step.pairs)));
  p.pair_count = static_cast<int>(step.pairs.size());
  p.first = first;
  if (step.batches) p.pair_batches = at(device.upload(pair_batches(step.pairs)));
  put_captures(device, problem_, &f);
  if (problem_.positions) {
    p.q_positions = at(device.upload(some(step.q_positions)));
    p.k_positions = at(device.upload(some(step.k_positions)));
    p.key_ranges = ranges_.run(device, p.k_positions, a.keys, spec_.constant("n"));
  }
  const int64_t blocks = turns(spec_, int64_t{f.tiles} * f.heads * f.sequences);
  const sim::Counters counters = launch(device, spec_, ptx_, blocks, p);
  CHECK(counters.shared_load.conflicts == 0);
  state->out = device.download<float>(reinterpret_cast<uint64_t>(f.out), state->out.size());
  state->lse = device.download<float>(reinterpret_cast<uint64_t>(f.lse), state->lse.size());
}

void Backward::run(const std::vector<ref::AttentionBlock>& batch, const Step& step,
                   const ref::Array& dout, const ref::Array& lse, const ref::Array& e,
                   uint32_t seed, Gradients* sums, Writes writes) const {
  const ref::AttentionBlock& a = batch.front();
  sim::test::Device device("sm_80");
  device.settings.seed = seed;
  device.settings.async_policy = static_cast<sim::AsyncPolicy>(seed % 3);
  const lathe_dtype dtype = tested(problem_.element);
  const auto floats = [&](const ref::Array& values) {
    return at(device.upload(std::vector<float>(values.begin(), values.end())));
  };
  lathe::DeviceFacts facts = *lathe::facts_of_arch("sm_80");
  facts.multiprocessors = 3;  // few slices, so that a block walks several tiles of keys
  const auto rows = static_cast<int64_t>(batch.size());
  const lathe::AttentionShape shape = {rows, a.heads, a.kv_heads, a.rows, a.keys};
  lathe::AttentionProblem own = problem_;
  own.head_dim = static_cast<int>(a.head_dim);  // of a kernel that is made for wider ones as well
  const auto made = lathe::attention_block_backward_launch(own, kernels_, facts, shape, writes.dq);
  REQUIRE(made.ok());
  const uint64_t workspace = device.buffer(static_cast<uint64_t>(made->total) + 8);

  lathe::AttentionBlockPrepareParams first = {};
  first.lse = floats(lse);
  first.lse2 = at(workspace + static_cast<uint64_t>(made->lse2));
  first.sums = at(workspace + static_cast<uint64_t>(made->sums));
  first.rows = made->lse2_values, first.chunks = made->sum_chunks;
  const uint64_t dq = device.upload(sums->dq), dk = device.upload(sums->dk),
                 dv = device.upload(sums->dv);
  const auto put_dq = [&](auto* p) {
    p->dq = at(dq);
    p->head_stride = a.head_dim, p->token_stride = a.heads * a.head_dim;
    p->batch_stride = a.rows * p->token_stride;
    p->heads = static_cast<int>(a.heads), p->head_dim = static_cast<int>(a.head_dim);
    p->seq_q = static_cast<int>(a.rows);
  };
  first.dq_chunks = made->dq_chunks;
  put_dq(&first);
  launch(device, *kernels_.prepare, prepare_ptx_, made->prepare_blocks, first);

  lathe::AttentionBlockBackwardParams p = {};
  lathe::AttentionBackwardParams& b = p.backward;
  b.q = at(device.upload(encode(dtype, batch, &ref::AttentionBlock::q)));
  b.k = at(device.upload(encode(dtype, batch, &ref::AttentionBlock::k)));
  b.v = at(device.upload(encode(dtype, batch, &ref::AttentionBlock::v)));
  b.dout = at(device.upload(encode(dtype, dout)));
  b.lse2 = first.lse2, b.error = floats(e);
  if (!a.slopes.empty()) b.alibi_slopes = floats(a.slopes);
  b.dq = problem_.deterministic ? first.sums : at(dq);
  b.dk = at(dk), b.dv = at(dv);
  b.q_head_stride = b.k_head_stride = b.dq_head_stride = b.dk_head_stride = a.head_dim;
  b.v_head_stride = b.dout_head_stride = b.dv_head_stride = a.value_dim;
  b.q_token_stride = b.dq_token_stride = a.heads * a.head_dim;
  b.k_token_stride = b.dk_token_stride = a.kv_heads * a.head_dim;
  b.v_token_stride = b.dv_token_stride = a.kv_heads * a.value_dim;
  b.dout_token_stride = a.heads * a.value_dim;
  b.q_batch_stride = b.dq_batch_stride = a.rows * b.q_token_stride;
  b.dout_batch_stride = a.rows * b.dout_token_stride;
  b.k_batch_stride = b.dk_batch_stride = a.keys * b.k_token_stride;
  b.v_batch_stride = b.dv_batch_stride = a.keys * b.v_token_stride;
  b.dq_slice_stride = rows * b.dq_batch_stride;
  b.sequences = static_cast<int>(rows), b.heads = static_cast<int>(a.heads),
  b.kv_heads = static_cast<int>(a.kv_heads);
  b.seq_q = static_cast<int>(a.rows), b.seq_k = static_cast<int>(a.keys);
  b.head_dim = static_cast<int>(a.head_dim), b.value_dim = static_cast<int>(a.value_dim);
  b.window_left = step.window_left, b.window_right = step.window_right;
  b.slices = static_cast<int>(made->slices);
  b.softmax_scale = static_cast<float>(a.scale), b.softcap = static_cast<float>(a.softcap);
  p.pairs = at(device.upload(pair_words(step.pairs)));
  p.pair_count = static_cast<int>(step.pairs.size());
  p.first_keys = writes.keys;
  if (step.batches) p.pair_batches = at(device.upload(pair_batches(step.pairs)));
  put_captures(device, problem_, &b);
  if (problem_.positions) {
    p.q_positions = at(device.upload(some(step.q_positions)));
    p.k_positions = at(device.upload(some(step.k_positions)));
    p.row_ranges = ranges_.run(device, p.q_positions, a.rows, spec().constant("m"));
  }
  const int64_t blocks = turns(spec(), made->main_blocks);
  const sim::Counters counters = launch(device, spec(), ptx_, blocks, p);
  CHECK(counters.shared_load.conflicts == 0);
  CHECK(counters.shared_store.conflicts == 0);

  lathe::AttentionBlockFinishParams last = {};
  last.sums = first.sums;
  put_dq(&last);
  last.slice_stride = b.dq_slice_stride;
  last.chunks = last.slice_stride / 4;
  last.first = writes.dq;
  last.slices = b.slices, last.softmax_scale = b.softmax_scale;
  launch(device, *kernels_.finish, finish_ptx_, made->finish_blocks, last);
  sums->dq = device.download<float>(dq, sums->dq.size());
  sums->dk = device.download<float>(dk, sums->dk.size());
  sums->dv = device.download<float>(dv, sums->dv.size());
}

void expect_gradient(const std::vector<float>& found, const ref::Array& exact,
                     const ref::Array& plain, double steps) {
  REQUIRE(found.size() >= exact.size());
  double worst = 0, lost = 0, most = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double error = std::abs(found[i] - exact[i]);
    if (!(error <= worst) && !std::isnan(worst)) worst = error;  // nan stays
    lost = std::max(lost, std::abs(plain[i] - exact[i]));
    most = std::max(most, std::abs(exact[i]));
  }
  CHECK(worst <= 2 * lost + steps * 4e-6 * most);
}

void expect_near(const State& found, const ref::AttentionForward& expected, lathe_dtype dtype,
                 double largest_value, double steps) {
  double worst = 0;
  size_t wrong = 0, first = 0;
  for (size_t i = 0; i < found.out.size(); ++i) {
    const double error = std::abs(found.out[i] - expected.out[i]);
    if (!(error <= worst) && !std::isnan(worst)) worst = error;  // nan stays
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

double largest(const ref::Array& values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

void poison_unseen(const Step& step, ref::AttentionBlock* a, ref::Array* dout) {
  if (!step.q_positions.empty()) return;  // every key may be near some row
  std::vector<bool> rows(static_cast<size_t>(a->rows)), keys(static_cast<size_t>(a->keys));
  for (const Pair& pair : step.pairs) {
    if (pair.qa >= pair.qb || pair.ka >= pair.kb) continue;
    std::fill(rows.begin() + pair.qa, rows.begin() + pair.qb, true);
    std::fill(keys.begin() + pair.ka, keys.begin() + pair.kb, true);
  }
  const auto poison = [](ref::Array* values, const std::vector<bool>& seen) {
    const size_t columns = seen.empty() ? 0 : values->size() / seen.size();
    for (size_t i = 0; i < values->size(); ++i) {
      if (!seen[i / columns]) (*values)[i] = NAN;
    }
  };
  poison(&a->q, rows);
  poison(&a->k, keys);
  poison(&a->v, keys);
  if (dout) poison(dout, rows);
}

}  // namespace block_case
