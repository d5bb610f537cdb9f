// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover causal_conv1d over slots of a pool and with its result in parts, against the
// definition in float64 and bit for bit against one call with states of its own.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "tests/numbers.h"
#include "tests/ops/conv/case.h"

using namespace apitest;

namespace {

struct PoolCase {
  ConvCase conv;  // without states; packed
  int64_t slots = 7, columns = 3, null_slot = -1;
  std::vector<int64_t> writes = {3, 1, 0}, reads;  // no reads: the same
  std::vector<int64_t> has_initial;                // empty: 1
  std::vector<int64_t> cu_checkpoints, checkpoint_tokens, checkpoint_slots;
  std::vector<int64_t> split;  // empty: y alone
  lathe_dtype index = LATHE_I32;
  Placement placement = {};  // of the pool

  bool is_null(int64_t slot) const { return slot < 0 || slot == null_slot; }
  // The slot that a sequence reads; -1: none.
  int64_t read_by(size_t n) const {
    if (is_null(writes[n]) || (!has_initial.empty() && has_initial[n] == 0)) return -1;
    const int64_t slot = reads.empty() ? writes[n] : reads[n];
    return is_null(slot) || slot >= slots ? -1 : slot;
  }
};

PoolCase base(std::vector<int64_t> cu_seqlens) {
  PoolCase c;
  c.conv = {.x = LATHE_BF16, .weight = LATHE_BF16, .tokens = cu_seqlens.back(), .channels = 37};
  c.conv.cu_seqlens = std::move(cu_seqlens);
  c.conv.silu = c.conv.bias = true;
  c.conv.backward = false;
  return c;
}

std::string part_name(size_t part) { return "y_" + std::to_string(part); }
Values as_values(const std::vector<int64_t>& from) { return Values(from.begin(), from.end()); }

// What nobody reads is a NaN.
Values pool_values(const PoolCase& c, uint64_t seed) {
  const int64_t each = c.conv.channels * c.columns;
  Values pool = random_values(c.conv.x, c.slots * each, static_cast<uint32_t>(seed) + 77);
  for (int64_t slot = 0; slot < c.slots; ++slot) {
    bool read = false;
    for (size_t n = 0; n < c.writes.size(); ++n) read = read || c.read_by(n) == slot;
    if (!read) std::fill_n(pool.begin() + slot * each, each, std::nan(""));
  }
  return pool;
}

Call pool_call(const PoolCase& c, const ref::Conv& inputs, const Values& pool) {
  Call call = conv_call(c.conv, inputs);
  if (c.null_slot != -1) call.set("null_slot", c.null_slot);
  call.put("state_pool", c.conv.x, {c.slots, c.conv.channels, c.columns}, pool, c.placement);
  call.tensors.at("state_pool").changed = true;
  const auto lists = std::ssize(c.writes);
  call.put("state_indices", c.index, {lists}, as_values(c.writes));
  if (!c.reads.empty()) call.put("source_indices", c.index, {lists}, as_values(c.reads));
  if (!c.has_initial.empty()) {
    call.put("has_initial_state", LATHE_I32, {lists}, as_values(c.has_initial));
  }
  if (!c.cu_checkpoints.empty()) {
    call.put("cu_checkpoints", LATHE_I32, {lists + 1}, as_values(c.cu_checkpoints));
    const auto count = std::ssize(c.checkpoint_tokens);
    call.put("checkpoint_tokens", LATHE_I32, {count}, as_values(c.checkpoint_tokens));
    call.put("checkpoint_slots", LATHE_I32, {count}, as_values(c.checkpoint_slots));
  }
  if (c.split.empty()) return call;
  call.tensors.erase("y");
  std::string words;
  for (size_t part = 0; part < c.split.size(); ++part) {
    words += (part == 0 ? "" : ",") + std::to_string(c.split[part]);
    call.want(part_name(part), c.conv.x, {1, c.conv.tokens, c.split[part]}, c.conv.placement);
  }
  call.options["split"] = words;
  return call;
}

// The inputs of a sequence's channel from the oldest column of its state on.
std::vector<double> line_of(const PoolCase& c, const ref::Conv& inputs, const Values& pool,
                            size_t n, int64_t channel) {
  std::vector<double> line(static_cast<size_t>(c.columns), 0.0);
  if (const int64_t slot = c.read_by(n); slot >= 0) {
    const auto from = pool.begin() + (slot * c.conv.channels + channel) * c.columns;
    std::copy_n(from, c.columns, line.begin());
  }
  for (int64_t t = c.conv.cu_seqlens[n]; t < c.conv.cu_seqlens[n + 1]; ++t) {
    line.push_back(inputs.x[static_cast<size_t>(t * c.conv.channels + channel)]);
  }
  return line;
}

double filtered(const PoolCase& c, const ref::Conv& inputs, const std::vector<double>& line,
                int64_t t, int64_t channel) {
  const int64_t width = c.conv.width;
  double z = inputs.bias.empty() ? 0.0 : inputs.bias[static_cast<size_t>(channel)];
  for (int64_t i = 0; i < width; ++i) {
    z += inputs.weight[static_cast<size_t>(channel * width + i)] *
         line[static_cast<size_t>(c.columns + t - (width - 1) + i)];
  }
  return c.conv.silu ? z / (1 + std::exp(-z)) : z;
}

// y [T, D] and the pool behind the call, by the definition.
std::pair<Values, Values> expected_of(const PoolCase& c, const ref::Conv& inputs,
                                      const Values& pool) {
  Values y(inputs.x.size(), 0.0), after = pool;
  for (size_t n = 0; n < c.writes.size(); ++n) {
    if (c.is_null(c.writes[n])) continue;
    const int64_t first = c.conv.cu_seqlens[n], tokens = c.conv.cu_seqlens[n + 1] - first;
    for (int64_t d = 0; d < c.conv.channels; ++d) {
      const std::vector<double> line = line_of(c, inputs, pool, n, d);
      for (int64_t t = 0; t < tokens; ++t) {
        const auto at = static_cast<size_t>((first + t) * c.conv.channels + d);
        y[at] =
            filtered(c, inputs, line, t, d) + (inputs.residual.empty() ? 0.0 : inputs.residual[at]);
      }
      const auto keep = [&](int64_t slot, int64_t token) {
        std::copy_n(line.begin() + token, c.columns,
                    after.begin() + (slot * c.conv.channels + d) * c.columns);
      };
      for (int64_t i = c.cu_checkpoints.empty() ? 0 : c.cu_checkpoints[n];
           !c.cu_checkpoints.empty() && i < c.cu_checkpoints[n + 1]; ++i) {
        const int64_t slot = c.checkpoint_slots[static_cast<size_t>(i)];
        if (!c.is_null(slot)) keep(slot, c.checkpoint_tokens[static_cast<size_t>(i)]);
      }
      keep(c.writes[n], tokens);
    }
  }
  return {y, after};
}

// The parts side by side.
Values joined_parts(const PoolCase& c, const Outputs& out) {
  if (c.split.empty()) return out.at("y");
  Values y;
  for (int64_t t = 0; t < c.conv.tokens; ++t) {
    for (size_t part = 0; part < c.split.size(); ++part) {
      const auto row = out.at(part_name(part)).begin() + t * c.split[part];
      y.insert(y.end(), row, row + c.split[part]);
    }
  }
  return y;
}

Outputs check_case(const PoolCase& c, uint64_t seed = 1) {
  const ref::Conv inputs = make_inputs(c.conv, seed);
  const Values pool = pool_values(c, seed);
  const auto [y, after] = expected_of(c, inputs, pool);
  const Outputs out = run_conv_call(pool_call(c, inputs, pool)).outputs;
  INFO(c.conv.text());
  check_rms("y", joined_parts(c, out), y, numbers::half_ulp(c.conv.x) + 1e-5, 1e-30);
  check_equal(out, {{"state_pool", after}}, {"state_pool"});
  return out;
}

TEST_CASE("pool: every width, dtype and number of columns") {
  for (int64_t width = 2; width <= 8; ++width) {
    for (const int64_t columns : {width - 1, width}) {
      PoolCase c = base({0, 3, 40, 41});
      c.conv.width = width, c.columns = columns;
      c.conv.x = width % 3 == 0 ? LATHE_F32 : width % 3 == 1 ? LATHE_BF16 : LATHE_F16;
      c.conv.weight = width % 2 == 0 ? c.conv.x : LATHE_F32;
      c.conv.channels = width % 2 == 0 ? 64 : 37;
      c.conv.residual = columns == width, c.conv.silu = width < 6;
      check_case(c);
    }
  }
}

TEST_CASE("pool: padding, empty sequences, sources and zeros, at any place of a run of tokens") {
  // Sequences that begin at and around the ends of runs and groups, and such of a token or none.
  PoolCase c = base({0, 1, 2, 2, 15, 16, 18, 31, 32, 32, 65, 129, 131});
  c.slots = 30, c.columns = 4;
  c.conv.channels = 72;
  c.writes.clear();
  for (int64_t n = 0; n < 12; ++n) c.writes.push_back(n == 4 || n == 7 ? -1 - n : 2 * n + 1);
  for (const int kind : {0, 1, 2, 3}) {
    c.reads.clear(), c.has_initial.clear();
    // Shared sources, none, and the slot of its own; a sequence without tokens copies.
    if (kind % 2 == 1) c.reads = {0, 3, 26, 28, 4, 26, -1, 2, 26, 19, 21, 28};
    if (kind >= 2) c.has_initial = {1, 0, 1, 0, 1, 1, 1, 0, 0, 1, 1, 1};
    c.index = kind % 2 == 1 ? LATHE_I64 : LATHE_I32;
    c.conv.residual = kind == 3;
    check_case(c, static_cast<uint64_t>(kind));
    if (!c.reads.empty()) CHECK(c.read_by(2) == 26);  // which has no tokens
  }
  c.null_slot = 3, c.reads.clear();
  check_case(c);
  // Rows behind the last sequence are 0 too.
  c.conv.tokens = 150;
  c.conv.residual = true;
  check_case(c);
}

TEST_CASE("pool: checkpoints at any token") {
  PoolCase c = base({0, 70, 70, 71, 75});
  c.slots = 60, c.columns = 3, c.writes = {0, 1, 2, 4}, c.reads = {0, 3, 3, 5};
  c.cu_checkpoints = {0, 40, 42, 44, 50};
  for (int64_t token = 70; token > 32; --token) c.checkpoint_tokens.push_back(token);
  for (const int64_t token : {1, 0, 0, 0, 0, 1, 0, 1, 2, 3, 4, 4}) {
    c.checkpoint_tokens.push_back(token);
  }
  for (int64_t slot = 6; slot < 56; ++slot) c.checkpoint_slots.push_back(slot);
  c.checkpoint_slots[3] = -1, c.checkpoint_slots[41] = -7;
  check_case(c);
  // One that takes the place of the state that its sequence reads, early or late.
  for (const int64_t token : {1, 3, 4}) {
    c.checkpoint_tokens[46] = token, c.checkpoint_slots[46] = 5;
    check_case(c);
  }
  c.columns = 4, c.conv.x = c.conv.weight = LATHE_F32;
  c.has_initial = {1, 1, 0, 1};
  c.writes[3] = -1;  // padding has none
  check_case(c);
}

TEST_CASE("pool: states that lie apart, and channels that lie side by side") {
  PoolCase c = base({0, 2, 40, 41});
  for (const int64_t channels : {37, 64, 200}) {
    c.conv.channels = channels;
    for (const bool turned : {false, true}) {
      c.placement = {.token_gap = 3, .batch_gap = 11, .guard = 9, .turned = turned};
      check_case(c);
      c.placement = {.guard = 9, .turned = turned};
      check_case(c);
    }
  }
}

TEST_CASE("pool: a result in parts, with a pool and with states of its own") {
  PoolCase c = base({0, 5, 40, 41});
  for (const std::vector<int64_t>& split :
       {std::vector<int64_t>{16, 16, 32}, {64}, {8, 1, 55}, {1, 2, 3, 4, 5, 6, 7, 36}}) {
    c.split = split, c.conv.channels = 64;
    c.conv.placement = {.token_gap = split.size() == 3 ? 8 : 0};
    const Outputs parts = check_case(c);
    PoolCase whole = c;
    whole.split.clear();
    const ref::Conv inputs = make_inputs(c.conv);
    const Values pool = pool_values(c, 1);
    const Outputs one = run_conv_call(pool_call(whole, inputs, pool)).outputs;
    CHECK(joined_parts(c, parts) == one.at("y"));
  }
}

// Packed or not, with states or without: split changes where results lie, and nothing else.
TEST_CASE("pool: parts are the result's channels, bit for bit") {
  for (const bool packed : {false, true}) {
    for (const bool states : {false, true}) {
      ConvCase conv{.x = LATHE_F16, .weight = LATHE_F32, .batch = packed ? 1 : 3, .tokens = 77};
      conv.channels = 48, conv.silu = conv.residual = true, conv.states = states;
      conv.backward = false;
      if (packed) conv.cu_seqlens = {0, 2, 2, 60, 77};
      const ref::Conv inputs = make_inputs(conv);
      Call call = conv_call(conv, inputs);
      const Outputs whole = run_conv_call(call).outputs;
      call.tensors.erase("y");
      call.options["split"] = "32,16";
      call.want("y_0", conv.x, {conv.batch, 77, 32});
      call.want("y_1", conv.x, {conv.batch, 77, 16});
      const Outputs parts = run_conv_call(call).outputs;
      for (size_t at = 0; at < whole.at("y").size(); ++at) {
        const size_t row = at / 48, d = at % 48;
        const double found =
            d < 32 ? parts.at("y_0")[row * 32 + d] : parts.at("y_1")[row * 16 + d - 32];
        REQUIRE(found == whole.at("y")[at]);
      }
      if (states) CHECK(parts.at("final_state") == whole.at("final_state"));
    }
  }
}

TEST_CASE("pool: a slot is an initial and a final state, bit for bit, in pieces too") {
  PoolCase c = base({0, 50});
  c.columns = 4, c.writes = {2};
  const ref::Conv inputs = make_inputs(c.conv);
  const Values pool = pool_values(c, 1);
  const Outputs whole = run_conv_call(pool_call(c, inputs, pool)).outputs;
  ConvCase plain = c.conv;
  plain.states = true;
  ref::Conv copies = inputs;
  const int64_t each = c.conv.channels * 4;
  copies.initial_state.assign(pool.begin() + 2 * each, pool.begin() + 3 * each);
  const Outputs same = run_conv(plain, copies);
  CHECK(whole.at("y") == same.at("y"));
  CHECK(Values(whole.at("state_pool").begin() + 2 * each,
               whole.at("state_pool").begin() + 3 * each) == same.at("final_state"));
  Values state = pool, y;
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 1}, {1, 4}, {4, 21}, {21, 50}}) {
    PoolCase piece = c;
    piece.conv.cu_seqlens = {0, end - begin}, piece.conv.tokens = end - begin;
    ref::Conv some = inputs;
    some.x.assign(inputs.x.begin() + begin * c.conv.channels,
                  inputs.x.begin() + end * c.conv.channels);
    some.begin = piece.conv.cu_seqlens;
    const Outputs out = run_conv_call(pool_call(piece, some, state)).outputs;
    y.insert(y.end(), out.at("y").begin(), out.at("y").end());
    state = out.at("state_pool");
  }
  CHECK(y == whole.at("y"));
  check_equal(whole, {{"state_pool", state}}, {"state_pool"});
}

// Nobody checks what is on the device: whatever it says, nothing outside the pool is touched.
TEST_CASE("pool: wild slots, checkpoints and offsets stay within the pool") {
  std::mt19937_64 random(5);
  for (int turn = 0; turn < 6; ++turn) {
    PoolCase c = base({0, 9, 20, 33});
    c.placement = {.batch_gap = 5, .guard = 40};
    const auto wild = [&] {
      const int64_t some[] = {0, 3, 6, 7, 1000000, -1, -2147483648, 2147483647};
      return some[random() % 8];
    };
    for (int64_t& slot : c.writes) slot = wild();
    c.reads = {wild(), wild(), wild()};
    c.cu_checkpoints = {wild(), wild(), wild(), wild()};
    c.checkpoint_tokens = {wild(), wild()}, c.checkpoint_slots = {wild(), wild()};
    const ref::Conv inputs = make_inputs(c.conv);
    const Values pool(static_cast<size_t>(c.slots * c.conv.channels * c.columns), 0.5);
    Call call = pool_call(c, inputs, pool);
    execute(shared_context(), call);  // throws where a byte outside the pool has changed
    take_report();                    // two may have written one slot
  }
}

TEST_CASE("pool: no sequences, and none with tokens") {
  PoolCase c = base({0, 0, 0});
  c.writes = {3, 1}, c.reads = {0, 1};
  check_case(c);
  PoolCase none = base({0});
  none.writes = {};
  none.cu_checkpoints = {0}, none.checkpoint_tokens = {}, none.checkpoint_slots = {};
  check_case(none);
}

}  // namespace
