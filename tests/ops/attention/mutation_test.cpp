// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These are the lists of mutations of the kernels of flash_attention by warpgroups.
#include <memory>

#include "tests/ops/attention/decode_case.h"
#include "tests/ops/attention/mutants.h"

using namespace apitest;

namespace {

AttentionCase packed_case(int64_t keys) {
  AttentionCase c;
  c.packed = true;
  c.kv_heads = 2;
  c.queries = {130, 3, 0, 70, 65, 9, 20};
  c.keys = {2 * keys + 3, keys, 5, 0, 5 * keys - 1, 2 * keys, 3 * keys};
  return c;
}

}  // namespace

TEST_CASE("forward of packed sequences: nothing that orders it can go") {
  check_mutations(forward_subject(packed_case(128)));
}

TEST_CASE("forward by two warpgroups, causal: nothing that orders it can go") {
  AttentionCase c;
  c.head_dim = c.value_dim = 128;
  c.kv_heads = 3;
  c.queries = {300}, c.keys = {460};
  c.causal = true;
  check_mutations(forward_subject(c));
}

TEST_CASE("backward by warpgroups: nothing that orders it can go") {
  AttentionCase c;
  c.packed = true;
  c.queries = {500, 0, 300, 70, 1}, c.keys = {140, 5, 129, 64, 3};
  c.kv_heads = 2;
  c.backward = c.given_forward = true;
  check_mutations(backward_subject(c, BackwardForm::halves));
}

TEST_CASE("backward by warpgroups, causal and wider: nothing that orders it can go") {
  AttentionCase c;
  c.head_dim = c.value_dim = 128;
  c.queries = {330}, c.keys = {300};
  c.causal = c.backward = c.given_forward = true;
  check_mutations(backward_subject(c, BackwardForm::whole));
}

TEST_CASE("backward by warpgroups, in order: nothing that orders it can go") {
  AttentionCase c;
  c.packed = true;
  c.queries = {600}, c.keys = {300};
  c.backward = c.given_forward = c.deterministic = true;
  check_mutations(backward_subject(c, BackwardForm::halves));
}

TEST_CASE("backward by warpgroups, in order, causal and wider: nothing that orders it can go") {
  AttentionCase c;
  c.head_dim = c.value_dim = 128;
  c.queries = {330}, c.keys = {400};
  c.causal = c.backward = c.given_forward = c.deterministic = true;
  check_mutations(backward_subject(c, BackwardForm::whole));
}

TEST_CASE("latent decoding by warpgroups: nothing that orders it can go") {
  DecodeCase c;
  c.latent = true, c.head_dim = 576, c.value_dim = 512;
  c.ratio = 64, c.page = 64, c.table_width = 12;
  c.cached = {700, 128, 0, 400};  // pairs of blocks, and one block alone at the end
  c.splits = "1";
  const auto inputs = std::make_shared<const DecodeInputs>(make_decode(c));
  Subject subject = {"attention_decode_warpgroups", [=] { return run_decode(c, *inputs); },
                     [=](const Answer& answer) { check_decode(c, *inputs, answer); }, "", true};
  // Each lane that copies has waited for the place itself, and a copy may end ahead of the arrival
  // that expects its bytes. Behind a last even block no odd one's scores wait for their turn; the
  // barrier there only takes what the other warpgroup gave.
  subject.covered = {{"no warp barrier", 4}, {"no barrier", 1}};
  check_mutations(subject);
}

TEST_CASE("packed queries over pages by warpgroups: nothing that orders it can go") {
  DecodeCase c;
  c.page = 64, c.table_width = 8;
  c.rows = {70, 1, 0, 9, 40}, c.cached = {390, 500, 5, 9, 130};
  c.padding = 3, c.ratio = 2;
  c.causal = true, c.rotary = 16;
  const auto inputs = std::make_shared<const DecodeInputs>(make_decode(c));
  Subject subject = {"attention_ragged_warpgroups", [=] { return run_decode(c, *inputs); },
                     [=](const Answer& answer) { check_decode(c, *inputs, answer); }, "", true};
  check_mutations(subject);
}
