// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These are the lists of mutations of the kernels of flash_attention by warpgroups.
#include <memory>
#include <utility>

#include "tests/ops/attention/decode_case.h"
#include "tests/ops/attention/mutants.h"

using namespace apitest;

namespace {

AttentionCase packed_case(std::vector<int64_t> queries, std::vector<int64_t> keys) {
  AttentionCase c;
  c.packed = true;
  c.kv_heads = 2;
  c.queries = std::move(queries), c.keys = std::move(keys);
  return c;
}

// Two calls of one kernel, whose outputs are called by the numbers of the calls.
Subject joined(const Subject& first, const Subject& second) {
  const auto named = [](const Outputs& outputs, const std::string& before) {
    Outputs out;
    for (const auto& [name, values] : outputs) out[before + name] = values;
    return out;
  };
  const auto part = [](const Answer& answer, const std::string& before) {
    Answer out = answer;
    out.outputs.clear();
    for (const auto& [name, values] : answer.outputs) {
      if (name.starts_with(before)) out.outputs[name.substr(before.size())] = values;
    }
    return out;
  };
  Subject subject = first;
  subject.call = [=] {
    Answer one = first.call(), two = second.call();
    one.outputs = named(one.outputs, "1 "), two.outputs = named(two.outputs, "2 ");
    return apitest::joined(one, two);
  };
  subject.check = [=](const Answer& answer) {
    first.check(part(answer, "1 ")), second.check(part(answer, "2 "));
  };
  return subject;
}

}  // namespace

// The last tiles of the first call have no keys: nothing but the places of messages holds up the
// warp that finds them. Those of the second call have more blocks of keys than the ring has stages.
TEST_CASE("forward of packed sequences: nothing that orders it can go") {
  const AttentionCase keyless =
      packed_case({130, 3, 0, 300, 65, 9, 20}, {259, 128, 5, 0, 639, 256, 384});
  const AttentionCase long_last = packed_case({70, 9}, {900, 780});
  check_mutations(joined(forward_subject(keyless), forward_subject(long_last)));
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
