// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover mods in the forward: scores that a mod changes, lists of visits
// that a mask leaves, both with heads that share tiles; and a mod that takes more registers than
// there are, which gets the portable kernel.
#include "tests/harness/check.h"
#include "tests/ops/attention/case.h"

using namespace apitest;

namespace {

struct Width {
  int64_t head_dim, value_dim;
};
constexpr Width kWidths[] = {{64, 64}, {128, 128}, {192, 192}, {256, 256}};

const char* const kBias =
    "__device__ float score_mod(float score, int batch, int head, int q_idx, int kv_idx,\n"
    "                           const Captures& captures) {\n"
    "  return score + captures.get<0>(head * 32 + ((q_idx - kv_idx) & 31)) + 0.125f * batch;\n}\n";
const char* const kWindow =
    "__device__ bool mask_mod(int batch, int head, int q_idx, int kv_idx) {\n"
    "  return kv_idx <= q_idx && q_idx - kv_idx < 100 + 40 * head;\n}\n";
const char* const kTiles =
    "__device__ int mask_tile(int batch, int head, int q0, int q1, int k0, int k1) {\n"
    "  const int left = 100 + 40 * head;\n"
    "  if (k0 > q1 - 1 || q0 - (k1 - 1) >= left) return 0;\n"
    "  return k1 - 1 <= q0 && q1 - 1 - k0 < left ? 2 : 1;\n}\n";
// No row from 60 to 255 keeps a key, and no row at all one of the keys from 96 to 191, a block.
const char* const kHoles =
    "__device__ bool mask_mod(int batch, int head, int q_idx, int kv_idx) {\n"
    "  return (q_idx < 60 || q_idx >= 256) && kv_idx / 96 != 1;\n}\n";

AttentionCase case_of(const Width& width) {
  AttentionCase c;
  c.head_dim = width.head_dim, c.value_dim = width.value_dim;
  c.kv_heads = 2;
  return c;
}

void give_bias(AttentionCase* c, ref::Attention* inputs) {
  for (int64_t i = 0; i < c->heads() * 32; ++i) {
    c->capture.push_back(static_cast<double>(i * 7 % 13) / 8 - 0.75);
  }
  c->texts["score_mod"] = kBias;
  inputs->score_mod = [bias = c->capture](double x, int64_t n, int64_t h, int64_t i, int64_t j) {
    return x + bias[static_cast<size_t>(h * 32 + ((i - j) & 31))] + 0.125 * static_cast<double>(n);
  };
}

void give_window(AttentionCase* c, ref::Attention* inputs, bool tiles) {
  c->texts["mask_mod"] = std::string(kWindow) + (tiles ? kTiles : "");
  inputs->mask_mod = [](int64_t, int64_t h, int64_t i, int64_t j) {
    return j <= i && i - j < 100 + 40 * h;
  };
}

Answer check_forward(const AttentionCase& c, const ref::Attention& inputs) {
  INFO(c.text());
  Answer answer = checked(c, inputs);
  if (by_warpgroups()) CHECK(answer.spec("attention_forward_warpgroups") != "");
  return answer;
}

}  // namespace

EVERY_FAMILY_CASE("forward, mods: a bias and a window, sequences of the same length") {
  for (const Width& width : kWidths) {
    AttentionCase c = case_of(width);
    c.queries = {300, 300}, c.keys = {300, 300};
    ref::Attention inputs = make_inputs(c);
    give_bias(&c, &inputs);
    check_forward(c, inputs);
    give_window(&c, &inputs, false);
    const Answer listed = check_forward(c, inputs);
    give_window(&c, &inputs, true);
    CHECK(check_forward(c, inputs).total("tensor_ops") == listed.total("tensor_ops"));
  }
}

EVERY_FAMILY_CASE(
    "forward, mods: heads that share tiles, packed sequences, a window beside the mask") {
  for (const Width& width : {kWidths[0], kWidths[1]}) {
    AttentionCase c = case_of(width);
    c.packed = true, c.dtype = LATHE_F16;
    c.group = 3;
    c.queries = {200, 1, 0, 70, 43}, c.keys = {330, 150, 9, 70, 20};
    c.padding_q = 5;
    c.left = 250, c.right = 3;
    ref::Attention inputs = make_inputs(c);
    give_bias(&c, &inputs);
    give_window(&c, &inputs, false);
    check_forward(c, inputs);
    c.texts.erase("score_mod"), inputs.score_mod = nullptr, c.capture.clear();
    check_forward(c, inputs);
  }
}

EVERY_FAMILY_CASE("forward, mods: blocks and rows that a mask empties are not visited") {
  AttentionCase c = case_of(kWidths[1]);
  c.queries = {300}, c.keys = {400};
  ref::Attention inputs = make_inputs(c);
  c.texts["mask_mod"] = kHoles;
  inputs.mask_mod = [](int64_t, int64_t, int64_t i, int64_t j) {
    return (i < 60 || i >= 256) && j / 96 != 1;
  };
  const Answer answer = check_forward(c, inputs);
  if (!by_warpgroups()) return;
  // Two of the three tiles of each head have a row that sees a key, in four blocks of five.
  const uint64_t block = 2 * 128 * 96 * (128 + 128);
  CHECK(answer.total("tensor_ops") == 2 * 2 * 4 * block);
}

// Its values are all alive at once, beside sums, scores and weights. They do not change the score,
// but the compiler cannot know.
EVERY_FAMILY_CASE(
    "a mod that takes more registers than there are gets the portable kernel, which says why") {
  AttentionCase c = case_of(kWidths[1]);
  c.queries = {130}, c.keys = {200};
  const ref::Attention inputs = make_inputs(c);
  c.options["scalar_0"] = "0";
  c.texts["score_mod"] =
      "__device__ float score_mod(float score, int batch, int head, int q_idx, int kv_idx,\n"
      "                           const Captures& captures) {\n"
      "  float value[40];\n"
      "  for (int i = 0; i < 40; ++i) value[i] = score * (i + q_idx % 7) + kv_idx % (i + 3);\n"
      "  for (int i = 0; i < 40; ++i) value[i] = value[i] * value[(i + 17) % 40] - value[39 - i];\n"
      "  float sum = 0;\n"
      "  for (int i = 0; i < 40; ++i) sum += value[i] * value[(7 * i + 3) % 40];\n"
      "  return score + sum * captures.scalar(0);\n}\n";
  const Answer answer = checked(c, inputs);
  CHECK(answer.spec("attention_forward") != "");
  CHECK(answer.spec("attention_forward_warpgroups") == "");
  const PlannedCall again(shared_context(), attention_call(c, inputs, AttentionPart::forward));
  CHECK(again.compiled() == 0);  // Hopper's kernel is not tried again
  lathe_kernel_info info = {};
  info.size = sizeof(info);
  REQUIRE(lathe_plan_kernel(again.plan(), 0, &info) == LATHE_OK);
  if (!by_warpgroups()) return;
  CHECK(std::string(info.family) == "portable");
  const std::string reason = info.family_reason;
  CHECK_MESSAGE(reason.starts_with("not sm90: with these mods the compiler reports "), reason);
}
