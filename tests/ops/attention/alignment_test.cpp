// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover attention where tensors begin and rows lie at multiples of 2, 4 or 8 bytes
// only: every operator against its reference or against itself with rows aligned to 16 bytes, whose
// bits it has, since only the accesses differ. What lies between the rows is poison.
#include "tests/ops/attention/alignment.h"

#include "tests/ops/attention/decode_case.h"

using namespace apitest;

namespace {

// The same call with aligned rows, by the portable kernels, has the same bits.
void check_same_bits(const Call& call, int alignment) {
  CAPTURE(alignment);
  check_same(run_misplaced(call, alignment).outputs, execute(shared_context(), call).outputs);
}

}  // namespace

TEST_CASE("two bytes: a batch of heads that are 80 wide, forward and backward") {
  AttentionCase c{.head_dim = 80, .value_dim = 80, .kv_heads = 2, .group = 2};
  c.queries = {37, 37}, c.keys = {70, 70}, c.causal = c.backward = true;
  check_case(c, 2);
  // Other lengths and strides are no other kernels.
  c.queries = {65}, c.keys = {65}, c.seed = 2;
  CHECK(check_case(c, 2).compiled == 0);
}

TEST_CASE("four bytes: packed sequences, in order") {
  AttentionCase c{.dtype = LATHE_F16, .kv_heads = 1, .group = 3, .queries = {30, 0, 41}};
  c.keys = {44, 5, 41}, c.packed = c.backward = c.deterministic = c.sinks = true;
  c.padding_q = 3, c.padding_k = 5;
  check_case(c, 4);
}

TEST_CASE("eight bytes: keys and values of different widths") {
  AttentionCase c{.head_dim = 96, .value_dim = 64, .kv_heads = 2, .queries = {66}, .keys = {50}};
  c.left = 20, c.backward = true;
  check_case(c, 8);
}

TEST_CASE("heads and rows of a batch that are repeated by strides of 0") {
  AttentionCase c{.kv_heads = 2, .group = 2, .queries = {40, 40}, .keys = {50, 50}};
  ref::Attention in = make_inputs(c);
  for (ref::Array* values : {&in.k, &in.v}) {
    for (size_t i = 0; i < values->size(); ++i)
      (*values)[i] = (*values)[i % 64 + i / 128 % 50 * 128];
  }
  for (const int alignment : {2, 16}) {
    CAPTURE(alignment);
    Call call = attention_call(c, in, AttentionPart::forward);
    PlannedCall planned(shared_context(), misplaced(call, alignment));
    const std::string forward = planned.kernels().front().spec;
    const int64_t gap = alignment / 2, row = 2 * (64 + gap) + 2 * gap;
    int64_t strides[] = {0, row, 0, 1};
    DLTensor views[2];
    for (const int i : {0, 1}) {
      views[i] = *planned.dl(i == 0 ? "k" : "v");
      views[i].strides = strides;
      planned.replace(i == 0 ? "k" : "v", &views[i]);
    }
    if (forward.find("warpgroups") != std::string::npos) {
      CHECK_THROWS_WITH_AS(execute(planned), doctest::Contains("a smaller lathe_problem_alignment"),
                           std::runtime_error);
      CHECK(take_report().launches.empty());
      continue;
    }
    const Answer answer = execute(planned);
    check_findings(answer);
    check_attention(c, in, answer.outputs);
    DLTensor out = *planned.dl("out");
    out.strides = strides;
    planned.replace("out", &out);
    CHECK_THROWS_WITH_AS(execute(planned), doctest::Contains("elements overlap"),
                         std::runtime_error);
  }
}

TEST_CASE("pages: new keys in rows of two bytes, and parts of the keys joined") {
  DecodeCase c{.queries = 2, .kv_heads = 2, .ratio = 3, .head_dim = 80, .value_dim = 80};
  c.append = c.causal = c.sinks = true, c.splits = "2", c.fixed = true;
  for (const int alignment : {2, 8}) {
    CAPTURE(alignment);
    const DecodeInputs in = make_decode(c);
    check_decode(c, in, run_misplaced(decode_call(c, in), alignment));
    c.dtype = LATHE_F16, c.splits = "1";
  }
}

TEST_CASE("pages: latent keys in rows of four bytes") {
  DecodeCase c{.queries = 2, .ratio = 16, .head_dim = 576, .value_dim = 512};
  c.latent = c.append = c.fixed = true, c.cached = {40, 21};
  const DecodeInputs in = make_decode(c);
  check_decode(c, in, run_misplaced(decode_call(c, in), 4));
}

TEST_CASE("delta, and two partial results that become one") {
  for (const lathe_dtype dtype : {LATHE_BF16, LATHE_F32}) {
    Call delta;
    delta.op = "flash_attention_delta";
    delta.draw("out", dtype, {2, 33, 3, 80}, 1), delta.draw("dout", dtype, {2, 33, 3, 80}, 2);
    delta.draw("lse", LATHE_F32, {2, 3, 33}, 3), delta.draw("dlse", LATHE_F32, {2, 3, 33}, 4);
    delta.want("delta", LATHE_F32, {2, 3, 33});
    check_same_bits(delta, dtype == LATHE_F32 ? 4 : 2);

    Call merge;
    merge.op = "lse_merge";
    merge.draw("block_out", dtype, {2, 9, 3, 80}, 1),
        merge.draw("block_lse", LATHE_F32, {2, 3, 9}, 2);
    merge.draw("out", LATHE_F32, {2, 9, 3, 80}, 3), merge.draw("lse", LATHE_F32, {2, 3, 9}, 4);
    for (const char* name : {"out", "lse"}) merge.tensors.at(name).changed = true;
    merge.want("rounded", LATHE_F16, {2, 9, 3, 80});
    check_same_bits(merge, dtype == LATHE_F32 ? 8 : 2);
  }
}

TEST_CASE("a tensor that is less aligned than promised is refused, and nothing is launched") {
  const AttentionCase c{.queries = {20}, .keys = {20}};
  for (const int promised : {0, 4}) {
    Call call = misplaced(attention_call(c, make_inputs(c), AttentionPart::forward), 2);
    call.alignment = promised;
    const int bytes = promised == 0 ? 16 : promised;
    const std::string text = "q has stride 67 at 1, 134 bytes; the problem declared multiples of " +
                             std::to_string(bytes) + " bytes";
    take_report();
    CHECK_THROWS_WITH_AS(execute(shared_context(), call), doctest::Contains(text.c_str()),
                         std::runtime_error);
    CHECK(take_report().launches.empty());
  }
  Call call = attention_call(c, make_inputs(c), AttentionPart::forward);
  call.tensors.at("out").placement.offset = 1;
  PlannedCall planned(shared_context(), call);
  take_report();
  CHECK_THROWS_WITH_AS(planned.run(),
                       doctest::Contains("its address must be a multiple of 16 bytes"),
                       std::runtime_error);
  CHECK(take_report().launches.empty());
}
