// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover gradients on Hopper where a choice takes a kernel of either family: the launch
// behind it, the sums of dq, lists under a mask_mod and blocks of either kind follow the kernel
// that was chosen, and not the one that the rules would take.
#include "tests/harness/check.h"
#include "tests/harness/repeat.h"
#include "tests/ops/attention/case.h"

using namespace apitest;

namespace {

constexpr const char* kOwn = "attention_backward_warpgroups";

struct Choice {
  const char* candidate;
  const char* kernel;
};
// Those of (128, 128): Hopper's kernel, and portable ones that have fewer keys a block or fewer
// rows a step than it has.
constexpr Choice kChoices[] = {
    {"m=64 n=128 stages=2 width_warps=1 warps=12", kOwn},
    {"kernel=attention_backward m=64 n=64 stages=1 width_warps=1 warps=4", "attention_backward"},
    {"kernel=attention_backward m=32 n=128 stages=2 width_warps=1 warps=8", "attention_backward"},
};

AttentionCase case_of(const Choice& choice) {
  AttentionCase c;
  c.head_dim = c.value_dim = 128;
  c.backward = true;
  c.main_kernel = kOwn, c.main_tile = choice.candidate;
  return c;
}

void check_kernels(const Answer& answer, const Choice& choice) {
  const bool own = std::string(choice.kernel) == kOwn;
  CHECK(answer.spec(choice.kernel) != "");
  CHECK(answer.spec(own ? "attention_backward" : kOwn) == "");
  CHECK(answer.spec("attention_forward_warpgroups") != "");
  CHECK((answer.spec("attention_backward_warpgroups_finish") != "") == own);
  CHECK((answer.spec("attention_backward_finish") != "") == !own);
}

void check_choice(AttentionCase c, const Choice& choice) {
  for (const bool deterministic : {false, true}) {
    c.deterministic = deterministic;
    INFO(c.text());
    check_kernels(checked(c), choice);
  }
}

}  // namespace

// First, while no other test has opened the simulator: children run under other schedules.
FAMILY_CASE("auto", "families: deterministic gradients are the same bits under three schedules") {
  for (const Choice& choice : kChoices) {
    AttentionCase c = case_of(choice);
    c.kv_heads = 1, c.group = 2;
    c.queries = {130}, c.keys = {300};
    c.causal = c.deterministic = true;
    INFO(c.text());
    const ref::Attention inputs = make_inputs(c);
    const Answer answer =
        check_repeats(3, [&] { return run_attention(make_context().get(), c, inputs); });
    check_attention(c, inputs, answer);
    check_kernels(answer, choice);
  }
}

FAMILY_CASE("auto",
            "families: heads of a group in a block each and in one, whose number a call decides") {
  for (const Choice& choice : kChoices) {
    AttentionCase c = case_of(choice);
    c.queries = {129, 129}, c.keys = {150, 150};
    c.kv_heads = 2, c.group = 2;
    c.causal = true;
    check_choice(c, choice);
    // 27 * 2 * 2 blocks of keys, or more, fill the device.
    c.queries.assign(27, 3), c.keys.assign(27, 129);
    c.group = 2;
    check_choice(c, choice);
  }
}

FAMILY_CASE("auto", "families: packed sequences with padding, sinks and every option") {
  for (const Choice& choice : kChoices) {
    AttentionCase c = case_of(choice);
    c.packed = true, c.dtype = LATHE_F16;
    c.queries = {1, 65, 0, 130}, c.keys = {0, 129, 5, 70};
    c.padding_q = 3, c.padding_k = 130;
    c.left = 60, c.right = 7, c.softcap = 5, c.slopes = Slopes::per_head;
    c.sinks = c.dlse = true;
    check_choice(c, choice);
  }
}

FAMILY_CASE("auto",
            "families: a mask_mod, whose lists are of the chosen kernel's tiles, and both forms") {
  // With a mask_mod Hopper's kernel has forms.
  const Choice choices[] = {
      {"m=64 n=128 stages=2 width_warps=1 queries=64 warps=12", kOwn},
      {"m=64 n=128 stages=2 width_warps=1 queries=32 warps=12", kOwn},
      kChoices[1],
      kChoices[2],
  };
  for (const Choice& choice : choices) {
    AttentionCase c = case_of(choice);
    c.queries = {300}, c.keys = {270};
    c.texts["mask_mod"] =
        "__device__ bool mask_mod(int batch, int head, int q_idx, int kv_idx) {\n"
        "  return kv_idx <= q_idx && q_idx - kv_idx < 100 && q_idx / 64 != 1 && kv_idx / 64 != 3;\n"
        "}\n";
    ref::Attention inputs = make_inputs(c);
    inputs.mask_mod = [](int64_t, int64_t, int64_t i, int64_t j) {
      return j <= i && i - j < 100 && i / 64 != 1 && j / 64 != 3;
    };
    for (const bool deterministic : {false, true}) {
      c.deterministic = deterministic;
      INFO(c.text());
      const Answer answer = checked(c, inputs);
      check_kernels(answer, choice);
      check_no_spills(answer);
    }
  }
}
