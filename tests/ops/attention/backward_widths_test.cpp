// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the backward at every width that a kernel has a tile for: lengths beside the
// borders of tiles, numbers of query blocks that leave a ring at either stage, all options,
// and neighbours and padding of NaN, which must not reach a result.
#include "tests/harness/check.h"
#include "tests/ops/attention/case.h"

using namespace apitest;

namespace {

struct Width {
  int64_t head_dim, value_dim;
  int64_t rows;  // of a step
};
constexpr Width kWidths[] = {{64, 64, 128},  {96, 96, 64},   {128, 128, 64},
                             {192, 128, 64}, {192, 192, 64}, {256, 256, 64}};

AttentionCase case_of(const Width& width) {
  AttentionCase c;
  c.head_dim = width.head_dim, c.value_dim = width.value_dim;
  c.backward = true;
  return c;
}

// In no order of dq and, where blocks have 128 keys, in a fixed one.
void check_backward(AttentionCase c, const Width& width) {
  for (const bool deterministic : {false, true}) {
    if (deterministic && width.head_dim + width.value_dim > 320) return;
    c.deterministic = deterministic;
    CAPTURE(c.text());
    const Answer answer = checked(c);
    if (!by_warpgroups()) continue;
    const std::string spec = answer.spec("attention_backward_warpgroups");
    CHECK_MESSAGE(spec.find(" m=" + std::to_string(width.rows) + " ") != spec.npos, spec);
    CHECK(spec.find(" deterministic=" + std::to_string(deterministic) + " ") != spec.npos);
    for (const char* kind : {"shared_load_conflicts", "shared_store_conflicts",
                             "local_load_requests", "local_store_requests"}) {
      CHECK_MESSAGE(answer.total(kind) == 0, kind);
    }
  }
}

}  // namespace

EVERY_FAMILY_CASE("backward: packed sequences of 0 to 5 query blocks beside one of NaN") {
  for (const Width& width : kWidths) {
    const int64_t m = width.rows;
    AttentionCase c = case_of(width);
    c.packed = true;
    c.queries = {1, 65, 0, 64, 127, 5 * m - 1, 128, 63, 129, 3};
    c.keys = {0, 129, 5, 65, 1, 3, 127, 64, 128, 257};
    c.padding_q = 3, c.padding_k = 130;
    c.poisoned = 5;
    check_backward(c, width);
    c.dtype = LATHE_F16, c.cu_dtype = LATHE_I64;
    c.causal = true, c.poisoned = 9, c.sinks = c.dlse = true;  // beside padding
    check_backward(c, width);
  }
}

EVERY_FAMILY_CASE("backward: lengths beside the borders of tiles") {
  for (const Width& width : kWidths) {
    for (const int64_t queries : {1, 63, 64, 65, 127, 128, 129}) {
      // Where heads are wide the simulator takes long, and tiles are those of (128, 128) or less.
      if (width.head_dim > 128 && queries % 64 != 1) continue;
      AttentionCase c = case_of(width);
      c.queries = {queries}, c.keys = {queries == 64 ? 257 : 192 - queries};
      check_backward(c, width);
    }
  }
}

EVERY_FAMILY_CASE("backward: heads of a group in one block, and in a block each") {
  for (const Width& width : kWidths) {
    AttentionCase c = case_of(width);
    c.queries = {129, 129}, c.keys = {2 * width.rows + 1, 2 * width.rows + 1};
    c.kv_heads = 2, c.group = 3;
    c.causal = c.fixed_lengths = true;
    check_backward(c, width);
    // 27 * 2 * 2 blocks of keys fill the device.
    c.queries.assign(27, 3), c.keys.assign(27, 129);
    check_backward(c, width);
  }
}

EVERY_FAMILY_CASE("backward: all options, tensors with gaps") {
  for (const Width& width : kWidths) {
    AttentionCase c = case_of(width);
    c.queries = {150, 150}, c.keys = {140, 140};
    c.kv_heads = 2;
    c.left = 60, c.right = 7;
    c.softcap = 5, c.slopes = Slopes::per_sequence;
    c.sinks = c.dlse = true;
    c.placement = {.token_gap = 8, .batch_gap = 16, .offset = 8};
    check_backward(c, width);
    c.softcap = 0, c.right = 0, c.left = -1, c.slopes = Slopes::per_head, c.dtype = LATHE_F16;
    check_backward(c, width);
  }
}

EVERY_FAMILY_CASE("backward: widths between those of its tiles, and some of the gradients") {
  for (const Width& width : kWidths) {
    AttentionCase c = case_of(width);
    c.head_dim -= 8, c.value_dim -= 16;
    c.queries = {70}, c.keys = {140};
    for (const char* gradients : {"dq", "dk", "dv", "dq,dk,dv"}) {
      c.gradients = gradients;
      check_backward(c, width);
    }
  }
}

EVERY_FAMILY_CASE("backward: no queries, no keys, no sequences") {
  for (const Width& width : kWidths) {
    for (const auto& [queries, keys] : {std::pair(0, 90), std::pair(70, 0), std::pair(0, 0)}) {
      AttentionCase c = case_of(width);
      c.queries = {queries, queries}, c.keys = {keys, keys};
      checked(c);
    }
    AttentionCase c = case_of(width);
    c.packed = true;
    for (const int64_t padding : {0, 9}) {
      c.queries = c.keys = {};
      c.padding_q = c.padding_k = padding;
      checked(c);
      c.queries = c.keys = {0, 0, 0};
      checked(c);
    }
  }
}

EVERY_FAMILY_CASE("backward: what it doesn't cover stays with the portable kernel") {
  AttentionCase c = case_of({128, 128, 64});
  c.queries = {70}, c.keys = {90};
  c.value_dim = 64;
  CHECK(checked(c).spec("attention_backward").find(" value_width=64 ") != std::string::npos);
}
