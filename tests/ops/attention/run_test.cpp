// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover flash_attention where tensors lie in ways of their own: in one buffer, with
// rows that are nobody's, with options at the ends of their ranges, without any sequence.
#include "tests/harness/check.h"
#include "tests/ops/attention/case.h"

using namespace apitest;

TEST_CASE("queries, keys and values in one buffer, and an output with gaps") {
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

TEST_CASE("packed sequences, some empty, with rows that are nobody's, and the widest window") {
  AttentionCase c{.dtype = LATHE_F16, .value_dim = 32, .kv_heads = 1, .group = 4};
  c.queries = {0, 5, 33, 2}, c.keys = {4, 0, 70, 2}, c.padding_q = 9, c.padding_k = 4;
  c.packed = c.causal = c.sinks = true, c.cu_dtype = LATHE_I64, c.seed = 3;
  c.softcap = 5, c.slopes = Slopes::per_sequence, c.left = int64_t{1} << 62;
  checked(c);
}

TEST_CASE("float32 inputs keep float32's accuracy") {
  AttentionCase c{.dtype = LATHE_F32, .head_dim = 72, .value_dim = 40, .group = 2};
  c.queries = {9, 9}, c.keys = {40, 40}, c.causal = true;
  checked(c);
}

TEST_CASE("without sequences every packed row is padding") {
  AttentionCase c{.dtype = LATHE_F16, .value_dim = 32, .group = 4, .queries = {}, .keys = {}};
  c.packed = c.causal = c.sinks = true, c.padding_q = 9, c.padding_k = 3;
  checked(c);
}
