// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the forward of flash_attention at every width that a kernel has a tile for:
// numbers of key blocks that fill a ring unevenly, lengths beside the borders of tiles, groups of
// heads in one tile, neighbours and padding of NaN, tensors that lie in ways of their own.
#include "tests/harness/check.h"
#include "tests/ops/attention/case.h"

using namespace apitest;

namespace {

struct Width {
  int64_t head_dim, value_dim;
  int64_t keys, local_keys;  // of a step by warpgroups, without a mask and with one
};
constexpr Width kWidths[] = {{64, 64, 128, 128},   {96, 96, 128, 128},   {128, 128, 176, 128},
                             {192, 128, 128, 128}, {192, 192, 112, 112}, {256, 256, 80, 80},
                             {64, 256, 80, 80},    {128, 64, 128, 128},  {64, 128, 128, 128}};

AttentionCase case_of(const Width& width, int64_t group = 1) {
  AttentionCase c;
  c.head_dim = width.head_dim, c.value_dim = width.value_dim;
  c.group = group;
  return c;
}

void check_forward(const AttentionCase& c, const Width& width) {
  const Answer answer = checked(c);
  if (!by_warpgroups()) return;
  const std::string spec = answer.spec("attention_forward_warpgroups");
  const int64_t keys = c.causal || c.left >= 0 ? width.local_keys : width.keys;
  CHECK_MESSAGE(spec.find(" n=" + std::to_string(keys) + " ") != spec.npos, spec);
}

}  // namespace

// One block of the grid gets several of these tiles, so that the ring's phases turn at odd places.
EVERY_FAMILY_CASE("forward: packed sequences of 0 to 8 key blocks beside one of NaN") {
  for (const Width& width : kWidths) {
    const int64_t n = width.keys;
    AttentionCase c = case_of(width);
    c.packed = true;
    c.queries = {1, 65, 0, 64, 127, 33, 128, 63, 129, 3};
    c.keys = {0, n, 5, 2 * n - 1, 1, 2 * n, 3 * n - 7, n + 1, 5 * n, 8 * n - 1};
    c.padding_q = 3, c.padding_k = n;
    c.poisoned = 5;
    check_forward(c, width);
    c.dtype = LATHE_F16, c.cu_dtype = LATHE_I64;
    c.causal = true, c.poisoned = 7, c.sinks = true;
    check_forward(c, width);
  }
}

EVERY_FAMILY_CASE("forward: lengths beside the borders of tiles, packed") {
  for (const Width& width : kWidths) {
    AttentionCase c = case_of(width);
    c.packed = true;
    c.queries = {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2};
    c.keys = {1, 63, 64, 65, 79, 80, 81, 127, 128, 129, 0, 175, 176, 177};
    c.poisoned = 5;
    check_forward(c, width);
  }
}

EVERY_FAMILY_CASE("forward: sequences of the same length") {
  for (const Width& width : kWidths) {
    AttentionCase c = case_of(width);
    c.queries = {129, 129}, c.keys = {2 * width.keys + 1, 2 * width.keys + 1};
    c.kv_heads = 2;
    c.left = width.keys + 3, c.right = 0;
    c.softcap = 5, c.slopes = Slopes::per_sequence;
    c.placement = {.token_gap = 8, .batch_gap = 16, .offset = 8};
    check_forward(c, width);
  }
}

// Groups of query heads are rows of one tile, and where they do not fit some rows are nobody's. One
// whose warps keep their tile in shared memory is among these, and one whose widths differ.
constexpr Width kGroupWidths[] = {{64, 64, 128, 128}, {128, 128, 176, 128}, {192, 128, 128, 128}};

static void check_packing(const AttentionCase& c, bool packs) {
  const Answer answer = checked(c);
  if (!by_warpgroups()) return;
  const std::string spec = answer.spec("attention_forward_warpgroups");
  CHECK_MESSAGE(spec.find(packs ? " pack_gqa=1 " : " pack_gqa=0 ") != spec.npos, spec);
}

EVERY_FAMILY_CASE(
    "forward, groups: packed sequences beside the borders of tiles, one of them of NaN") {
  for (const Width& width : kGroupWidths) {
    for (const int64_t group : {4, 5}) {
      const int64_t tokens = 128 / group;  // of a tile
      AttentionCase c = case_of(width, group);
      c.packed = true;
      c.queries = {1, tokens, 0, tokens - 1, 3, tokens + 1, 2 * tokens, 2};
      c.keys = {130, 65, 40, 1, 64, 129, 200, 0};
      c.padding_q = 3, c.padding_k = 70;
      c.poisoned = 4;
      check_packing(c, true);
      c.dtype = LATHE_F16, c.cu_dtype = LATHE_I64;
      c.causal = true, c.poisoned = 6, c.sinks = true, c.kv_heads = 2;
      check_packing(c, true);
    }
  }
}

EVERY_FAMILY_CASE("forward, groups: short sequences of the same length") {
  for (const Width& width : kGroupWidths) {
    AttentionCase c = case_of(width, 6);
    c.queries = {37, 37}, c.keys = {150, 150};
    c.kv_heads = 2;
    c.left = 70, c.right = 0;
    c.softcap = 5, c.slopes = Slopes::per_sequence;
    c.placement = {.token_gap = 8, .batch_gap = 16, .offset = 8};
    check_packing(c, true);
    c.fixed_lengths = true;  // few rows of a tile would be used by one head
    check_packing(c, true);
  }
}

EVERY_FAMILY_CASE("forward, groups: one head a tile where groups do not fit") {
  for (const int64_t group : {100, 130}) {
    AttentionCase c = case_of(kGroupWidths[1], group);
    c.queries = {5, 5}, c.keys = {70, 70};
    check_packing(c, false);
    c.queries = {1, 3}, c.keys = {70, 5};
    c.packed = true;
    check_packing(c, false);
  }
}

EVERY_FAMILY_CASE("forward: queries, keys and values in one buffer, and an output with gaps") {
  AttentionCase c{.kv_heads = 2, .group = 2, .queries = {70, 70}, .keys = {70, 70}};
  c.left = 20, c.right = 3, c.scale = 0.3;
  c.placement = {.token_gap = 8, .batch_gap = 16};
  const ref::Attention a = make_inputs(c);
  const Answer expected = checked(c, a);
  // Heads of all three one after another in each row, with gaps between heads.
  const int64_t heads = c.heads() + 2 * c.kv_heads, width = 64;
  Values whole;
  for (int64_t row = 0; row < 140; ++row) {
    const auto append = [&](const ref::Array& from, int64_t own) {
      const auto at = from.begin() + row * own * width;
      whole.insert(whole.end(), at, at + own * width);
    };
    append(a.q, c.heads()), append(a.k, c.kv_heads), append(a.v, c.kv_heads);
  }
  lathe_context* const context = shared_context();
  Tensor buffer(context, c.dtype, {2, 70, heads, width}, {.token_gap = 8, .guard = 32});
  buffer.upload(whole);
  PlannedCall planned(context, attention_call(c, a, AttentionPart::forward));
  DLTensor views[3];
  int64_t shapes[3][4], head = 0;
  const char* const names[] = {"q", "k", "v"};
  for (size_t i = 0; i < 3; ++i) {
    const int64_t own = i == 0 ? c.heads() : c.kv_heads;
    views[i] = *buffer.dl();
    std::copy_n(std::array<int64_t, 4>{2, 70, own, width}.begin(), 4, shapes[i]);
    views[i].shape = shapes[i];
    views[i].byte_offset += static_cast<uint64_t>(2 * head * (width + 8));
    planned.replace(names[i], &views[i]);
    head += own;
  }
  const Answer found = execute(planned);
  check_clean(found);
  check_same(found.outputs, expected.outputs);
}

EVERY_FAMILY_CASE(
    "forward: packed sequences, some empty, with rows that are nobody's, and the widest window") {
  AttentionCase c{.dtype = LATHE_F16, .value_dim = 32, .kv_heads = 1, .group = 4};
  c.queries = {0, 5, 33, 2}, c.keys = {4, 0, 70, 2}, c.padding_q = 9, c.padding_k = 4;
  c.packed = c.causal = c.sinks = true, c.cu_dtype = LATHE_I64, c.seed = 3;
  c.softcap = 5, c.slopes = Slopes::per_sequence, c.left = int64_t{1} << 62;
  checked(c);
}

EVERY_FAMILY_CASE("forward: float32 inputs keep float32's accuracy") {
  AttentionCase c{.dtype = LATHE_F32, .head_dim = 72, .value_dim = 40, .group = 2};
  c.queries = {9, 9}, c.keys = {40, 40}, c.causal = true;
  checked(c);
}

EVERY_FAMILY_CASE("forward: without sequences every packed row is padding") {
  AttentionCase c{.dtype = LATHE_F16, .value_dim = 32, .group = 4, .queries = {}, .keys = {}};
  c.packed = c.causal = c.sinks = true, c.padding_q = 9, c.padding_k = 3;
  checked(c);
}
