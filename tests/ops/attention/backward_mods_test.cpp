// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover mods in the backward: gradients through scores that a mod
// changes, lists of query blocks that a mask leaves of each tile of keys, and mods that take more
// registers than there are, which get another form of the kernel or the portable one.
#include "tests/harness/check.h"
#include "tests/ops/attention/case.h"

using namespace apitest;

namespace {

struct Width {
  int64_t head_dim, value_dim;
};
constexpr Width kWidths[] = {{64, 64}, {96, 96}, {128, 128}, {192, 128}, {192, 192}, {256, 256}};

// Linear in the score where its slope is captured and 0, else not.
const char* const kSquare =
    "__device__ float score_mod(float score, int batch, int head, int q_idx, int kv_idx,\n"
    "                           const Captures& captures) {\n"
    "  return score + captures.get<0>(head) * score * score + 0.25f * ((q_idx - kv_idx) & 3);\n}\n"
    "__device__ float score_mod_bwd(float dscore, float score, int batch, int head, int q_idx,\n"
    "                               int kv_idx, const Captures& captures) {\n"
    "  return dscore * (1 + 2 * captures.get<0>(head) * score);\n}\n";
const char* const kWindow =
    "__device__ bool mask_mod(int batch, int head, int q_idx, int kv_idx) {\n"
    "  return kv_idx <= q_idx && q_idx - kv_idx < 100 + 40 * head;\n}\n";
const char* const kTiles =
    "__device__ int mask_tile(int batch, int head, int q0, int q1, int k0, int k1) {\n"
    "  const int left = 100 + 40 * head;\n"
    "  if (k0 > q1 - 1 || q0 - (k1 - 1) >= left) return 0;\n"
    "  return k1 - 1 <= q0 && q1 - 1 - k0 < left ? 2 : 1;\n}\n";
// Rows 5, 64 to 127 and 200 to 399 keep no key; no row keeps keys 128 to 255; head 1 has no list
// of the first tile of keys.
const char* const kHoles =
    "__device__ bool mask_mod(int batch, int head, int q_idx, int kv_idx) {\n"
    "  return q_idx != 5 && q_idx / 64 != 1 && (q_idx < 200 || q_idx >= 400) &&\n"
    "         kv_idx / 128 != 1 && !(head == 1 && kv_idx < 128) && (q_idx + kv_idx) % 5 != 2;\n}\n";

bool in_holes(int64_t h, int64_t i, int64_t j) {
  return i != 5 && i / 64 != 1 && (i < 200 || i >= 400) && j / 128 != 1 && !(h == 1 && j < 128) &&
         (i + j) % 5 != 2;
}

AttentionCase case_of(const Width& width) {
  AttentionCase c;
  c.head_dim = width.head_dim, c.value_dim = width.value_dim;
  c.kv_heads = 2;
  c.backward = true;
  return c;
}

void give_square(AttentionCase* c, ref::Attention* inputs) {
  for (int64_t h = 0; h < c->heads(); ++h) {
    c->capture.push_back(0.125 * static_cast<double>(h % 3) - 0.125);
  }
  c->texts["score_mod"] = kSquare;
  const Values factor = c->capture;
  inputs->score_mod = [factor](double x, int64_t, int64_t h, int64_t i, int64_t j) {
    return x + factor[static_cast<size_t>(h)] * x * x + 0.25 * static_cast<double>((i - j) & 3);
  };
  inputs->score_slope = [factor](double x, int64_t, int64_t h, int64_t, int64_t) {
    return 1 + 2 * factor[static_cast<size_t>(h)] * x;
  };
}

void give_window(AttentionCase* c, ref::Attention* inputs, bool tiles) {
  c->texts["mask_mod"] = std::string(kWindow) + (tiles ? kTiles : "");
  inputs->mask_mod = [](int64_t, int64_t h, int64_t i, int64_t j) {
    return j <= i && i - j < 100 + 40 * h;
  };
}

void give_holes(AttentionCase* c, ref::Attention* inputs) {
  c->texts["mask_mod"] = kHoles;
  inputs->mask_mod = [](int64_t, int64_t h, int64_t i, int64_t j) { return in_holes(h, i, j); };
}

// In no order of dq and, where blocks have 128 keys, in a fixed one; returns the answer of the
// first. Other architectures have the portable kernel, which gets the same cases.
Answer check_backward(AttentionCase c, const ref::Attention& inputs) {
  Answer first;
  for (const bool deterministic : {false, true}) {
    if (deterministic && c.head_dim + c.value_dim > 320) break;
    c.deterministic = deterministic;
    CAPTURE(c.text());
    Answer answer = checked(c, inputs);
    if (by_warpgroups()) {
      CHECK(answer.spec("attention_backward_warpgroups") != "");
      for (const char* kind : {"shared_load_conflicts", "shared_store_conflicts",
                               "local_load_requests", "local_store_requests"}) {
        CHECK_MESSAGE(answer.total(kind) == 0, kind);
      }
    }
    if (!deterministic) first = std::move(answer);
  }
  return first;
}

// Returns the products of the kernel ahead: it multiplies rows of out by those of dout, 16 by 16,
// and a block has 64 rows.
uint64_t prepare_ops(const AttentionCase& c) {
  const int64_t tiles = (c.queries.at(0) + 63) / 64;
  return static_cast<uint64_t>(tiles * c.heads() * 64 * c.value_dim * 32);
}

}  // namespace

EVERY_FAMILY_CASE("backward, mods: a slope and a window, heads of a group") {
  for (const Width& width : kWidths) {
    AttentionCase c = case_of(width);
    c.queries = {300, 300}, c.keys = {270, 270};
    c.group = width.head_dim > 128 ? 1 : 2;
    ref::Attention inputs = make_inputs(c);
    give_window(&c, &inputs, false);
    const Answer listed = check_backward(c, inputs);
    give_window(&c, &inputs, true);
    CHECK(check_backward(c, inputs).total("tensor_ops") == listed.total("tensor_ops"));
    c.texts.erase("mask_mod"), inputs.mask_mod = nullptr;
    give_square(&c, &inputs);
    check_backward(c, inputs);
  }
}

EVERY_FAMILY_CASE("backward, mods: packed sequences beside one of NaN, empty lists") {
  for (const Width& width : kWidths) {
    AttentionCase c = case_of(width);
    c.packed = true, c.dtype = LATHE_F16;
    c.queries = {1, 65, 0, 64, 127, 450, 128, 63, 129, 3};
    c.keys = {0, 129, 5, 65, 1, 3, 127, 64, 128, 400};
    c.padding_q = 3, c.padding_k = 130;
    c.poisoned = 5;
    ref::Attention inputs = make_inputs(c);
    give_holes(&c, &inputs);
    check_backward(c, inputs);
    c.left = 300, c.right = 30, c.dlse = c.sinks = true, c.poisoned = 7;
    inputs = make_inputs(c);
    give_window(&c, &inputs, true);
    check_backward(c, inputs);
  }
}

EVERY_FAMILY_CASE("backward, mods: lengths beside the borders of tiles") {
  for (const Width& width : {kWidths[0], kWidths[2], kWidths[5]}) {
    for (const int64_t queries : {1, 63, 64, 65, 127, 128, 129}) {
      if (width.head_dim > 128 && queries % 64 != 1) continue;
      AttentionCase c = case_of(width);
      c.queries = {queries}, c.keys = {queries == 64 ? 257 : 192 - queries};
      ref::Attention inputs = make_inputs(c);
      give_window(&c, &inputs, queries % 2 == 0);
      check_backward(c, inputs);
    }
  }
}

EVERY_FAMILY_CASE("backward, mods: a mask that leaves nothing, and no queries or keys") {
  for (const Width& width : {kWidths[2], kWidths[4]}) {
    AttentionCase c = case_of(width);
    c.queries = {130}, c.keys = {200};
    ref::Attention inputs = make_inputs(c);
    c.texts["mask_mod"] = "__device__ bool mask_mod(int, int, int, int) { return false; }\n";
    inputs.mask_mod = [](int64_t, int64_t, int64_t, int64_t) { return false; };
    CHECK(check_backward(c, inputs).total("tensor_ops") == prepare_ops(c));
    for (const auto& [queries, keys] : {std::pair(0, 90), std::pair(70, 0), std::pair(0, 0)}) {
      c.queries = {queries, queries}, c.keys = {keys, keys};
      inputs = make_inputs(c);
      give_holes(&c, &inputs);
      checked(c, inputs);
    }
  }
}

EVERY_FAMILY_CASE("backward, mods: blocks that a mask empties are not visited") {
  AttentionCase c = case_of(kWidths[2]);
  c.queries = {450}, c.keys = {400};
  ref::Attention inputs = make_inputs(c);
  give_holes(&c, &inputs);
  const Answer answer = check_backward(c, inputs);
  if (!by_warpgroups()) return;
  // Head 0 has a list for three of its four tiles of keys, and head 1 for two. The lists name the
  // blocks 0, 2, 3, 6 and 7 of 64 rows. A visit makes five products of 64 by 128 by 128.
  AttentionCase forward = c;
  forward.backward = false;
  const uint64_t own = answer.total("tensor_ops") - checked(forward, inputs).total("tensor_ops");
  CHECK(own == prepare_ops(c) + uint64_t{5} * 5 * (5 * 2 * 64 * 128 * 128));
}

EVERY_FAMILY_CASE("backward, mods: gradients of a window are the option's, bit for bit") {
  for (const Width& width : kWidths) {
    AttentionCase c = case_of(width);
    c.queries = {200}, c.keys = {300};
    c.given_forward = true;
    c.gradients = "dk,dv";  // of dq the order of sums is not fixed
    AttentionCase option = c;
    option.left = 60, option.right = 7;
    const ref::Attention inputs = make_inputs(option);
    c.texts["mask_mod"] =
        "__device__ bool mask_mod(int batch, int head, int q_idx, int kv_idx) {\n"
        "  const int ahead = kv_idx - (q_idx + 100);\n"
        "  return ahead <= 7 && ahead >= -60;\n}\n";
    const Answer expected = checked(option, inputs);
    const Answer found = run_attention(shared_context(), c, inputs);
    check_clean(found);
    if (!by_warpgroups()) continue;
    CHECK(found.spec("attention_backward_warpgroups") != "");
    for (const char* name : {"dk", "dv"}) {
      CHECK_MESSAGE(same_bits(expected.at(name), found.at(name)), name);
    }
    CHECK(found.total("tensor_ops") == expected.total("tensor_ops"));
  }
}

EVERY_FAMILY_CASE(
    "backward, mods: a mod that takes more registers gets scores of fewer queries at a time") {
  AttentionCase c = case_of(kWidths[2]);
  c.queries = {70}, c.keys = {130};
  ref::Attention inputs = make_inputs(c);
  give_window(&c, &inputs, false);
  const Answer light = check_backward(c, inputs);
  c.texts.erase("mask_mod"), inputs.mask_mod = nullptr;
  give_square(&c, &inputs);
  const Answer heavy = check_backward(c, inputs);
  if (!by_warpgroups()) return;
  const auto form = [](const Answer& answer) {
    const std::string spec = answer.spec("attention_backward_warpgroups");
    return spec.substr(spec.find(" queries="), 11);
  };
  CHECK(form(light) == " queries=64");
  CHECK(form(heavy) == " queries=32");
}

// Its values are all alive at once, beside sums and scores. They do not change the score, but the
// compiler cannot know.
EVERY_FAMILY_CASE(
    "backward, mods: a mod that takes more registers than there are gets the portable backward") {
  AttentionCase c = case_of(kWidths[2]);
  c.queries = {130}, c.keys = {200};
  ref::Attention inputs = make_inputs(c);
  inputs.score_mod = [](double x, int64_t, int64_t, int64_t, int64_t) { return x; };
  inputs.score_slope = [](double, int64_t, int64_t, int64_t, int64_t) { return 1; };
  c.options["scalar_0"] = "0";
  c.texts["score_mod"] =
      "__device__ float score_mod(float score, int batch, int head, int q_idx, int kv_idx,\n"
      "                           const Captures& captures) {\n"
      "  float value[40];\n"
      "  for (int i = 0; i < 40; ++i) value[i] = score * (i + q_idx % 7) + kv_idx % (i + 3);\n"
      "  for (int i = 0; i < 40; ++i) value[i] = value[i] * value[(i + 17) % 40] - value[39 - i];\n"
      "  float sum = 0;\n"
      "  for (int i = 0; i < 40; ++i) sum += value[i] * value[(7 * i + 3) % 40];\n"
      "  return score + sum * captures.scalar(0);\n}\n"
      "__device__ float score_mod_bwd(float dscore, float, int, int, int, int) {\n"
      "  return dscore;\n}\n";
  const Answer answer = checked(c, inputs);
  CHECK(answer.spec("attention_backward") != "");
  CHECK(answer.spec("attention_backward_warpgroups") == "");
  const PlannedCall again(shared_context(), attention_call(c, inputs, AttentionPart::both));
  CHECK(again.compiled() == 0);  // no form of Hopper's kernel is tried again
  if (!by_warpgroups()) return;
  size_t found = 0;
  for (size_t i = 0; i < again.kernels().size(); ++i) {
    lathe_kernel_info info = {};
    info.size = sizeof(info);
    REQUIRE(lathe_plan_kernel(again.plan(), i, &info) == LATHE_OK);
    if (std::string(info.spec).rfind("attention_backward ", 0) != 0) continue;
    const std::string reason = info.family_reason;
    CHECK_MESSAGE(reason.starts_with("not sm90: with these mods the compiler reports "), reason);
    ++found;
  }
  CHECK(found == 1);
}
