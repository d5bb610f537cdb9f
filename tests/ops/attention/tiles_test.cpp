// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover flash_attention with tiles that are not the default, on sm_80 and under several
// schedules: random shapes for each of a set of configurations that covers every width, tile, type
// and flag.
#include <random>

#include "tests/harness/check.h"
#include "tests/harness/repeat.h"
#include "tests/harness/tile_rows.h"
#include "tests/ops/attention/case.h"

namespace {

using namespace apitest;

// Flags: packed, wide (offsets), local, softcap, alibi, sinks, dlse, pack_gqa, listed, ordered,
// apart, together.
const std::vector<TileRow> kForward = tile_rows(R"(
    bf16 64 64 m=128 n=64 stages=2 warps=4
    f16 64 64 m=128 n=64 stages=2 warps=4 | local alibi
    f16 64 64 m=128 n=64 stages=2 warps=4 | local listed
    bf16 96 96 m=128 n=64 stages=2 warps=4 | packed wide local sinks
    bf16 128 128 m=128 n=64 stages=2 warps=4
    f16 128 128 m=128 n=64 stages=2 warps=8 | local
    bf16 128 128 m=128 n=64 stages=2 warps=8 | packed local softcap sinks pack_gqa listed
    f16 128 128 m=128 n=64 stages=2 warps=8 | packed local softcap alibi sinks
    bf16 128 128 m=128 n=64 stages=2 warps=8 | packed local softcap alibi sinks pack_gqa
    f16 128 128 m=64 n=64 stages=2 warps=4 | packed softcap
    bf16 128 64 m=128 n=64 stages=1 warps=4 | local sinks pack_gqa
    f16 192 128 m=128 n=64 stages=1 warps=8 | packed wide local
    bf16 256 256 m=128 n=64 stages=1 warps=8 | local
    f16 64 256 m=64 n=64 stages=1 warps=4 | alibi pack_gqa
)");
const std::vector<TileRow> kBackward = tile_rows(R"(
    f16 64 64 m=64 n=128 stages=2 width_warps=1 warps=8 | local alibi dlse
    bf16 96 96 m=64 n=128 stages=2 width_warps=1 warps=8 | packed wide local sinks dlse
    bf16 128 128 m=64 n=128 stages=1 width_warps=1 warps=8
    f16 128 128 m=64 n=128 stages=1 width_warps=1 warps=8 | local sinks ordered
    bf16 128 128 m=64 n=64 stages=1 width_warps=1 warps=4 | packed local softcap alibi sinks dlse
    f16 128 128 m=64 n=128 stages=1 width_warps=2 warps=8 | packed local softcap alibi apart ordered
    bf16 192 192 m=32 n=64 stages=1 width_warps=2 warps=8 | packed local apart
    f16 192 128 m=64 n=64 stages=1 width_warps=2 warps=8 | packed wide local ordered
    bf16 256 256 m=64 n=64 stages=1 width_warps=2 warps=8 | local
    f16 256 256 m=32 n=32 stages=1 width_warps=2 warps=4 | packed sinks alibi
    bf16 64 256 m=64 n=64 stages=1 width_warps=2 warps=8 | local alibi
    f16 64 64 m=32 n=32 stages=1 width_warps=2 warps=4 | sinks together
    bf16 64 64 m=32 n=128 stages=2 width_warps=1 warps=8 | local together ordered
)");
// Smallest and largest widths, every tile, every flag.
const std::vector<TileRow> kForwardF32 = tile_rows(R"(
    f32 64 64 m=128 n=32 stages=1 warps=8 | local
    f32 64 96 m=64 n=32 stages=1 warps=4 | packed alibi sinks pack_gqa
    f32 128 128 m=64 n=32 stages=1 warps=4 | packed local softcap sinks
    f32 96 64 m=32 n=32 stages=1 warps=2 | softcap alibi pack_gqa
    f32 192 128 m=64 n=16 stages=1 warps=4 | packed
    f32 64 256 m=32 n=16 stages=1 warps=2 | local alibi
    f32 256 256 m=32 n=16 stages=1 warps=2 | local sinks
)");
const std::vector<TileRow> kBackwardF32 = tile_rows(R"(
    f32 64 64 m=32 n=64 stages=1 width_warps=1 warps=4 | local alibi sinks dlse
    f32 96 128 m=16 n=32 stages=1 width_warps=1 warps=2 | packed softcap apart
    f32 192 192 m=32 n=32 stages=1 width_warps=2 warps=4 | packed local softcap ordered
    f32 256 256 m=16 n=16 stages=1 width_warps=2 warps=2 | packed local sinks
)");

// Cells of 64 rows and keys are whole, mixed or empty, in each head and sequence otherwise.
const char* const kMask = R"(
__device__ bool mask_mod(int batch, int head, int q, int k) {
  const int kind = (q / 64 * 5 + k / 64 * 3 + head + batch) % 4;
  return kind == 0 || (kind == 1 && (q * 31 + k * 7) % 64 == 5) || kind == 2;
}
)";
bool mask(int64_t batch, int64_t head, int64_t q, int64_t k) {
  const int64_t kind = (q / 64 * 5 + k / 64 * 3 + head + batch) % 4;
  return kind == 0 || (kind == 1 && (q * 31 + k * 7) % 64 == 5) || kind == 2;
}

struct Lengths {
  std::vector<int64_t> rows, keys;                // of each sequence of a batch
  std::vector<int64_t> packed_rows, packed_keys;  // of packed ones
};
const Lengths kLong = {{1, 5, 64, 97, 113, 150},
                       {0, 1, 63, 64, 97, 130, 203},
                       {0, 1, 17, 64, 130},
                       {0, 1, 40, 64, 129, 200}};
const Lengths kShort = {{1, 33, 70}, {1, 16, 47, 90}, {0, 1, 17, 40}, {0, 1, 30, 65}};

class Maker {
 public:
  Maker(const TileRow& row, const Lengths& lengths, uint64_t seed)
      : row_(row), lengths_(lengths), random_(static_cast<uint32_t>(seed)) {
    c_.seed = seed;
  }
  AttentionCase operator()() {
    c_.dtype = row_.dtype, c_.cu_dtype = row_.has("wide") ? LATHE_I64 : LATHE_I32;
    c_.packed = row_.has("packed"), c_.sinks = row_.has("sinks"), c_.dlse = row_.has("dlse");
    c_.deterministic = row_.has("ordered");
    add_lengths();
    add_heads();
    const int64_t narrow = c_.dtype == LATHE_F32 ? 8 : 24;
    c_.head_dim = row_.width - one_of({0, 8, narrow});
    c_.value_dim = row_.value_width - one_of({0, 8, narrow});
    if (row_.has("softcap")) c_.softcap = static_cast<double>(one_of({2, 3, 30}));
    if (row_.has("alibi")) c_.slopes = one_of({0, 1}) ? Slopes::per_sequence : Slopes::per_head;
    if (one_of({0, 0, 1})) c_.placement = {.token_gap = 8, .batch_gap = 16, .offset = 8};
    if (row_.has("local")) {
      c_.left = one_of({-1, -1, 0, 1, 40, 64, 300, 0x7fffffff});
      c_.right = one_of({-1, 0, 0, 0, 3, 70, 0x7fffffff});
    }
    if (row_.has("listed")) c_.texts["mask_mod"] = kMask;
    return c_;
  }

 private:
  int64_t one_of(const std::vector<int64_t>& list) { return list[random_() % list.size()]; }
  void add_lengths() {
    const int64_t sequences = c_.packed ? one_of({1, 3, 5}) : one_of({1, 2});
    const int64_t rows = one_of(lengths_.rows), keys = one_of(lengths_.keys);
    c_.queries.clear(), c_.keys.clear();
    for (int64_t n = 0; n < sequences; ++n) {
      c_.queries.push_back(c_.packed ? one_of(lengths_.packed_rows) : rows);
      c_.keys.push_back(c_.packed ? one_of(lengths_.packed_keys) : keys);
    }
    if (c_.packed) c_.padding_q = one_of({0, 3, 140}), c_.padding_k = one_of({0, 3, 70});
  }
  // Rows of a group share tiles, and its gradients of keys a block, where that pays: of many
  // groups.
  void add_heads() {
    c_.kv_heads = one_of({1, 2, 3});
    if (row_.has("pack_gqa")) c_.kv_heads = one_of({1, 2}), c_.group = one_of({2, 3});
    if (row_.has("apart")) {
      c_.kv_heads = 1, c_.group = one_of({2, 3}), c_.fixed_lengths = true;
    }
    if (row_.has("together")) {
      c_.kv_heads = 2, c_.group = one_of({2, 3}), c_.fixed_lengths = true;
      const bool narrow = row_.tile.find(" n=32 ") != std::string::npos;
      c_.queries.assign(narrow ? 8 : 28, one_of({5, 20, 33}));
      c_.keys.assign(c_.queries.size(), narrow ? 203 : 150);
    }
  }

  const TileRow& row_;
  const Lengths& lengths_;
  std::mt19937 random_;
  AttentionCase c_;
};

Answer run_case(const AttentionCase& c) {
  return run_attention(shared_context(), c, make_inputs(c));
}

// `turns` cases of each row.
std::vector<AttentionCase> cases_of(const std::vector<TileRow>& rows, const Lengths& lengths,
                                    int turns, bool backward) {
  std::vector<AttentionCase> cases;
  for (const TileRow& row : rows) {
    for (int turn = 0; turn < turns; ++turn) {
      AttentionCase c = Maker(row, lengths, cases.size() + 1)();
      c.backward = c.given_forward = backward;
      (backward ? c.main_tile : c.tile) = row.tile;
      c.ones = !backward && turn == 5;
      cases.push_back(c);
    }
  }
  return cases;
}

void check_all(const std::vector<AttentionCase>& cases, bool sums = false) {
  under_schedules(
      cases.size(), [&](size_t i) { return run_case(cases[i]); },
      [&](size_t i, const Answer& answer) {
        const AttentionCase& c = cases[i];
        INFO(c.text());
        ref::Attention inputs = make_inputs(c);
        if (!c.texts.empty()) inputs.mask_mod = mask;
        check_attention(c, inputs, answer);
        if (std::max(c.head_dim, c.value_dim) <= 128) check_no_spills(answer);
      },
      "sm_80", sums);
}

}  // namespace

FAMILY_CASE("portable",
            "attention forward: random shapes on every kind of tile, under every check") {
  check_all(cases_of(kForward, kLong, 6, false));
}

FAMILY_CASE("portable",
            "attention backward: random shapes on every kind of tile, under every check") {
  check_all(cases_of(kBackward, kLong, 4, true));
}

FAMILY_CASE("portable",
            "attention forward: float32 is not rounded to less, however tensor cores add") {
  check_all(cases_of(kForwardF32, kShort, 2, false), true);
  std::vector<AttentionCase> ones;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const TileRow row = {LATHE_F32, 96, 64, "m=64 n=32 stages=1 warps=4", "packed local alibi"};
    ones.push_back(Maker(row, kShort, seed)());
    ones.back().tile = row.tile, ones.back().ones = true;
  }
  check_all(ones, true);
}

FAMILY_CASE("portable",
            "attention backward: float32 is not rounded to less, however tensor cores add") {
  check_all(cases_of(kBackwardF32, kShort, 2, true), true);
}

FAMILY_CASE("portable",
            "attention backward: five products for each tile that the mask leaves, on sm_90a too") {
  AttentionCase c{.dtype = LATHE_F16, .head_dim = 128, .value_dim = 128};
  c.queries = c.keys = {256}, c.right = 0;
  c.backward = c.given_forward = true;
  c.main_tile = "m=64 n=128 stages=1 width_warps=1 warps=8";
  // There are 4 by 2 tiles of 64 by 128; the diagonal leaves 4 and 2 of them.
  const uint64_t expected = 5ull * 6 * 2 * 64 * 128 * 128;
  for (const bool ordered : {true, false}) {
    c.deterministic = c.sinks = ordered;
    const auto answers = in_child(schedule_number(2, ordered ? "sm_80" : "sm_90a"),
                                  [&](const Give& give) { give([&] { return run_case(c); }); });
    REQUIRE(answers.size() == 1);
    check_attention(c, make_inputs(c), answers[0]);
    REQUIRE(answers[0].launches.size() == 3);  // of which the second is the main one
    CHECK(answers[0].launches[1].at("tensor_ops") == expected);
    CHECK(answers[0].launches[1].at("local_load_requests") == 0);
  }
}
