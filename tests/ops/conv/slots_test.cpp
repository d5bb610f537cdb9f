// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover causal_conv1d_update over slots of a pool: windows, rings and drafts, against
// histories of whole sequences in float64, and what it refuses.
#include <algorithm>
#include <cmath>
#include <deque>

#include "tests/numbers.h"
#include "tests/ops/conv/case.h"

using namespace apitest;

namespace {

enum class Keeps { window, ring, drafts };

struct SlotsCase {
  lathe_dtype x = LATHE_BF16, weight = LATHE_BF16;
  Keeps keeps = Keeps::window;
  std::vector<int64_t> tokens = {1, 1, 1};  // of each sequence
  bool packed = false;
  std::vector<int64_t> writes = {3, 1, 0}, reads;  // slots; no reads: the same
  std::vector<int64_t> counts;                     // cache_seqlens or num_accepted_tokens
  int64_t slots = 5, columns = 4, channels = 37, width = 4, null_slot = -1;
  int64_t rows_behind = 0;  // packed rows that no sequence has
  lathe_dtype index = LATHE_I32;
  Placement placement = {};  // of the state
  bool silu = true, bias = true, residual = false, update_state = true;

  int64_t rows() const {
    int64_t sum = rows_behind;
    for (const int64_t count : tokens) sum += count;
    return sum;
  }
  bool is_null(int64_t slot) const { return slot < 0 || slot == null_slot; }
};

struct Expected {
  Values y, state;
};

// The inputs before a call, oldest first, as the definition of each kind of state has them.
std::vector<double> history_of(const SlotsCase& c, const Values& state, size_t n, int64_t channel) {
  std::vector<double> before(static_cast<size_t>(c.width - 1), 0.0);
  const int64_t slot = c.reads.empty() ? c.writes[n] : c.reads[n];
  if (c.is_null(slot)) return before;
  const auto column = [&](int64_t at) {
    return state[static_cast<size_t>((slot * c.channels + channel) * c.columns + at)];
  };
  for (int64_t i = 0; i < c.width - 1; ++i) {
    const int64_t back = c.width - 1 - i;  // 1 is the newest
    int64_t at = c.columns - back;
    if (c.keeps == Keeps::ring) at = ((c.counts[n] - back) % c.columns + c.columns) % c.columns;
    if (c.keeps == Keeps::drafts) at = c.counts[n] - 1 + i;
    before[static_cast<size_t>(i)] = column(at);
  }
  return before;
}

void put_state(const SlotsCase& c, const Values& old, const std::vector<double>& before, size_t n,
               int64_t channel, const std::vector<double>& fed, Values* state) {
  const int64_t from = c.reads.empty() ? c.writes[n] : c.reads[n];
  const auto at = [&](int64_t slot, int64_t column) {
    return static_cast<size_t>((slot * c.channels + channel) * c.columns + column);
  };
  const auto kept = [&](int64_t column) { return c.is_null(from) ? 0.0 : old[at(from, column)]; };
  const int64_t to = c.writes[n], count = std::ssize(fed);
  if (c.keeps == Keeps::drafts) {
    if (count == 0) return;
    std::vector<double> row(before.begin() + 1, before.end());
    row.insert(row.end(), fed.begin(), fed.end());
    for (size_t i = 0; i < row.size(); ++i) (*state)[at(to, static_cast<int64_t>(i))] = row[i];
    return;
  }
  std::deque<double> columns;
  for (int64_t i = 0; i < c.columns; ++i) columns.push_back(kept(i));
  for (int64_t t = 0; t < count; ++t) {
    if (c.keeps == Keeps::ring) {
      columns[static_cast<size_t>((c.counts[n] + t) % c.columns)] = fed[static_cast<size_t>(t)];
    } else {
      columns.pop_front(), columns.push_back(fed[static_cast<size_t>(t)]);
    }
  }
  for (int64_t i = 0; i < c.columns; ++i) {
    (*state)[at(to, i)] = columns[static_cast<size_t>(i)];
  }
}

Expected expected_of(const SlotsCase& c, const Call& call) {
  const auto& values = [&](const char* name) -> const Values& {
    return call.tensors.at(name).values;
  };
  const Values &x = values("x"), &weight = values("weight"), &state = values("state");
  Expected out{Values(x.size(), 0.0), state};
  int64_t first = 0;
  for (size_t n = 0; n < c.tokens.size(); first += c.tokens[n], ++n) {
    if (c.is_null(c.writes[n])) continue;
    for (int64_t d = 0; d < c.channels; ++d) {
      const std::vector<double> before = history_of(c, state, n, d);
      std::vector<double> inputs = before, fed;
      for (int64_t t = 0; t < c.tokens[n]; ++t) {
        const auto row = static_cast<size_t>((first + t) * c.channels + d);
        inputs.push_back(x[row]), fed.push_back(x[row]);
        double z = c.bias ? values("bias")[static_cast<size_t>(d)] : 0.0;
        for (int64_t i = 0; i < c.width; ++i) {
          z += weight[static_cast<size_t>(d * c.width + i)] * inputs[static_cast<size_t>(t + i)];
        }
        if (c.silu) z = z / (1 + std::exp(-z));
        out.y[row] = z + (c.residual ? values("residual")[row] : 0.0);
      }
      if (c.update_state) put_state(c, state, before, n, d, fed, &out.state);
    }
  }
  return out;
}

Values as_values(const std::vector<int64_t>& from) { return Values(from.begin(), from.end()); }

Call call_of(const SlotsCase& c) {
  Call call;
  call.op = "causal_conv1d_update";
  call.options["activation"] = c.silu ? "silu" : "none";
  if (c.null_slot != -1) call.set("null_slot", c.null_slot);
  if (!c.update_state) call.set("update_state", int64_t{0});
  const auto sequences = static_cast<int64_t>(c.tokens.size());
  std::vector<int64_t> shape = {c.rows(), c.channels};
  if (!c.packed && c.tokens[0] != 1) shape = {sequences, c.tokens[0], c.channels};
  call.draw("x", c.x, shape, 1);
  call.draw("weight", c.weight, {c.channels, c.width}, 2);
  if (c.bias) call.draw("bias", c.weight, {c.channels}, 3);
  if (c.residual) call.draw("residual", c.x, shape, 4);
  call.draw("state", c.x, {c.slots, c.channels, c.columns}, 5);
  call.tensors.at("state").placement = c.placement;
  call.tensors.at("state").changed = true;
  if (!c.writes.empty()) call.put("state_indices", c.index, {sequences}, as_values(c.writes));
  if (!c.reads.empty()) call.put("source_indices", c.index, {sequences}, as_values(c.reads));
  if (c.packed) {
    Values offsets = {0.0};
    for (const int64_t count : c.tokens) offsets.push_back(offsets.back() + double(count));
    call.put("cu_seqlens", c.index, {sequences + 1}, offsets);
  }
  if (c.keeps != Keeps::window) {
    call.put(c.keeps == Keeps::ring ? "cache_seqlens" : "num_accepted_tokens", LATHE_I32,
             {sequences}, as_values(c.counts));
  }
  call.want("y", c.x, shape);
  return call;
}

// What no sequence reads is a NaN before the call, and the same after it where nobody writes.
void spoil_unread(const SlotsCase& c, Call* call) {
  Values& state = call->tensors.at("state").values;
  const auto& read = c.reads.empty() ? c.writes : c.reads;
  for (int64_t slot = 0; slot < c.slots; ++slot) {
    if (std::count(read.begin(), read.end(), slot) > 0 && !c.is_null(slot)) continue;
    const auto begin = state.begin() + slot * c.channels * c.columns;
    std::fill(begin, begin + c.channels * c.columns, std::nan(""));
  }
}

void check_case(const SlotsCase& c) {
  Call call = call_of(c);
  spoil_unread(c, &call);
  const Expected expected = expected_of(c, call);
  const Outputs out = run_conv_call(call).outputs;
  check_rms("y", out.at("y"), expected.y, numbers::half_ulp(c.x) + 1e-5);
  check_equal(out, {{"state", expected.state}}, {"state"});
}

TEST_CASE("slots: a token of each, the unread slot left out, padding") {
  check_case({.columns = 3});
  check_case({.x = LATHE_F32, .weight = LATHE_F32, .columns = 3, .silu = false, .bias = false});
  check_case({.x = LATHE_F16, .writes = {3, -1, 0}, .columns = 9, .residual = true});
  check_case({.writes = {2, 0, 4}, .columns = 4, .null_slot = 0, .index = LATHE_I64});
  check_case({.writes = {2, 0, 4}, .columns = 1, .channels = 300, .width = 2});
  check_case({.writes = {4, 3, 2}, .columns = 8, .channels = 129, .width = 8});
}

TEST_CASE("slots: states apart, as a server's pool for several layers has them") {
  check_case({.columns = 3, .placement = {.token_gap = 2, .batch_gap = 5, .guard = 32}});
  SlotsCase c{.tokens = {2, 2, 2}, .writes = {3, 1, 0}, .reads = {2, 4, -1}, .columns = 6};
  c.placement = {.batch_gap = 48, .guard = 64};
  check_case(c);
  // Channels side by side, as servers keep them that append columns.
  for (const int64_t channels : {37, 64}) {
    SlotsCase turned{.reads = {2, 4, -1}, .columns = 3, .channels = channels};
    turned.placement = {.token_gap = 2, .batch_gap = 5, .guard = 32, .turned = true};
    check_case(turned);
    turned.x = turned.weight = LATHE_F32, turned.columns = 4, turned.placement.token_gap = 0;
    check_case(turned);
    turned.keeps = Keeps::drafts, turned.counts = {1, 2, 3}, turned.columns = 6;
    check_case(turned);
    turned.keeps = Keeps::ring, turned.tokens = {5, 5, 5};
    check_case(turned);
  }
  // The kernels for a token of each state copy whole ones.
  SlotsCase whole{.writes = {}, .slots = 3};
  whole.placement = c.placement;
  CHECK_THROWS_WITH(run(call_of(whole)),
                    doctest::Contains("state has strides 196 and 4; allowed without"));
}

TEST_CASE("slots: another slot to read, and none") {
  check_case({.writes = {3, 1, 0}, .reads = {2, 4, -1}, .columns = 5});
  check_case({.tokens = {3, 3, 3}, .writes = {3, 1, 0}, .reads = {3, 4, 2}, .columns = 6});
  check_case({.tokens = {7, 7, 7}, .writes = {3, 1, 0}, .reads = {2, -1, 0}, .columns = 3});
}

TEST_CASE("slots: packed sequences, empty ones and rows behind them") {
  SlotsCase c{.tokens = {2, 0, 5}, .packed = true, .columns = 3, .rows_behind = 2};
  c.residual = true;
  check_case(c);
  c.reads = {2, 4, -1}, c.index = LATHE_I64;
  check_case(c);
  c.writes = {-3, 1, 2}, c.reads = {};
  check_case(c);
}

TEST_CASE("slots: the state is a ring") {
  SlotsCase c{.keeps = Keeps::ring, .counts = {0, 3, 11}};
  for (const int64_t columns : {3, 4, 6}) {
    c.columns = columns, c.reads = {};
    check_case(c);
    c.tokens = {9, 9, 9};
    check_case(c);
    c.tokens = {1, 1, 1}, c.reads = {2, 4, -1};
    check_case(c);
  }
  c.packed = true, c.tokens = {0, 2, 8};
  check_case(c);
}

TEST_CASE("slots: the state holds drafts of which some count") {
  SlotsCase c{.keeps = Keeps::drafts, .counts = {1, 3, 2}, .columns = 6};
  check_case(c);
  c.tokens = {4, 4, 4};
  check_case(c);
  c.tokens = {1, 0, 4}, c.packed = true;
  check_case(c);
  c.reads = {2, 4, -1};
  check_case(c);
  c.reads = {}, c.writes = {3, -1, 0}, c.counts = {1, 99, 2};  // padding's count is not looked at
  check_case(c);
  check_case({.keeps = Keeps::drafts, .counts = {1, 2, 3}, .columns = 4, .width = 2});
}

TEST_CASE("slots: a state that is only read, and sequences with slots of their own number") {
  check_case({.update_state = false});
  SlotsCase c{.tokens = {3, 3, 3}, .writes = {0, 1, 2}, .slots = 3, .update_state = false};
  check_case(c);
  Call call = call_of(c);
  const Outputs named = run(call).outputs;
  call.tensors.erase("state_indices");
  check_equal(run(call).outputs, named, {"y", "state"});
}

// One decoding step after the other is the call of all their tokens.
TEST_CASE("slots: tokens one by one are the same bits as together") {
  SlotsCase c{.tokens = {6, 6, 6}, .columns = 5};
  const Call together = call_of(c);
  const Outputs whole = run(together).outputs;
  Values state = together.tensors.at("state").values;
  for (int64_t t = 0; t < 6; ++t) {
    SlotsCase one = c;
    one.tokens = {1, 1, 1};
    Call call = call_of(one);
    Values row, y;
    for (int64_t n = 0; n < 3; ++n) {
      const auto at = (n * 6 + t) * c.channels;
      const Values& x = together.tensors.at("x").values;
      row.insert(row.end(), x.begin() + at, x.begin() + at + c.channels);
      y.insert(y.end(), whole.at("y").begin() + at, whole.at("y").begin() + at + c.channels);
    }
    call.tensors.at("x").values = row, call.tensors.at("state").values = state;
    const Outputs out = run(call).outputs;
    check_equal(out, {{"y", y}}, {"y"});
    state = out.at("state");
  }
  check_equal(whole, {{"state", state}}, {"state"});
}

}  // namespace
