// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover kda over ten schedules and on several host threads: the order of warps, of
// blocks and of what is asynchronous differs, no bit of a result does.
#include "tests/harness/repeat.h"

#include "tests/harness/family_case.h"
#include "tests/ops/kda/case.h"

using namespace apitest;

namespace {

Answer answer_of(const KdaCase& kda) {
  const KdaInputs inputs = make_kda_inputs(kda);
  const Context context = make_context();
  Answer answer = execute(context.get(), kda_call(kda, inputs));
  if (!kda.apart) return answer;
  return joined(answer, execute(context.get(), kda_backward_call(kda, inputs, answer.outputs)));
}

KdaCase sample() {
  KdaCase kda;
  kda.group = 2;
  kda.key_dim = 128, kda.value_dim = 72;
  kda.tokens = 140;
  kda.l2norm = kda.sigmoid = kda.dt_bias = true;
  kda.gate = 1;
  kda.chunk_states = kda.backward = kda.dht = true;
  return kda;
}

TEST_CASE("kda: the same bits under ten schedules, and on several host threads") {
  check_repeats(10, [] { return answer_of(sample()); });
}

// Blocks of half as many values where shared memory is small: no value knows of another.
FAMILY_CASE("portable", "kda: the same bits whatever the architecture and its tiles") {
  KdaCase kda = sample();
  kda.group = 1;
  kda.segments = 2;
  Outputs first;
  for (const char* arch : {"sm_90a", "sm_80", "sm_86"}) {
    INFO(std::string(arch));
    const auto answers = in_child(schedule_number(first.empty() ? 0 : 1, arch),
                                  [&](const Give& give) { give([&] { return answer_of(kda); }); });
    REQUIRE(answers.size() == 1);
    check_clean(answers[0]);
    if (first.empty()) first = answers[0].outputs;
    check_same(answers[0].outputs, first);
  }
}

FAMILY_CASE("sm90", "kda: the same of a cluster, whose blocks wait for one another") {
  for (const int segments : {2, 3, 7}) {
    KdaCase kda = sample();
    kda.value_dim = 128;
    kda.chunk_states = kda.backward = kda.dht = false;
    kda.cu_seqlens = {0, 0, 70, 190, 720};
    kda.padding = 5;
    kda.segments = segments;
    const Answer answer = check_repeats(10, [&] { return answer_of(kda); });
    CHECK(answer.spec("kda_forward_cluster") != "");
  }
}

TEST_CASE("kda: the same of packed sequences in segments, with what the forward has saved") {
  KdaCase kda = sample();
  kda.element = LATHE_F16;
  kda.key_dim = 60, kda.value_dim = 36;
  kda.group = 1;
  kda.gate = 0, kda.dt_bias = false;
  kda.cu_seqlens = {0, 131, 131, 150, 215};
  kda.padding = 5;
  kda.segments = 3;
  kda.saved = kda.apart = true;
  check_repeats(10, [&] { return answer_of(kda); });
}

}  // namespace
