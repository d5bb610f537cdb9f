// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file runs cases of kda on devices that are small enough for them: a block of Hopper's
// gradients goes through a run of two chunks where so many blocks keep the device busy.
#pragma once

#include <array>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "tests/harness/repeat.h"
#include "tests/ops/kda/setups.h"

namespace apitest {

// Returns how many blocks the gradients of chunks have where each goes through two of them. Every
// packed sequence has a block more than its tokens need.
inline int64_t kda_runs(const KdaCase& kda) {
  constexpr int64_t kTokens = 2 * 64;
  const int64_t of_head = kda.packed() ? kda.rows() / kTokens + kda.sequences()
                                       : kda.batch * ((kda.tokens + kTokens - 1) / kTokens);
  return kda.heads * of_head;
}

// Returns the multiprocessors that have room for all runs at a time. Chunks then take two turns, so
// that runs of two take no longer; of the smallest kernel a multiprocessor has two blocks.
inline int64_t kda_small_device(const KdaCase& kda) {
  const bool two = kda.key_dim <= 64 && kda.value_dim <= 64;
  return two ? (kda_runs(kda) + 1) / 2 : kda_runs(kda);
}

// Runs work in a child, whose device has so many multiprocessors. No parent of one may open the
// simulator.
inline Answer on_device_of(int64_t multiprocessors, uint64_t schedule,
                           const std::function<Answer()>& work) {
  const auto answers = in_child(schedule_number(schedule), [&](const Give& give) {
    setenv("LATHE_SIM_MULTIPROCESSORS", std::to_string(multiprocessors).c_str(), 1);
    give(work);
  });
  REQUIRE(answers.size() == 1);
  return answers.front();
}

// Returns the blocks that a plan's kernel was launched with: it is known by its shared memory.
inline int64_t blocks_of(const Answer& answer, const std::string& kernel) {
  const std::string spec = answer.spec(kernel), word = " smem=";
  const size_t at = spec.find(word);
  REQUIRE_MESSAGE(at != spec.npos, kernel);
  const auto bytes = std::stoull(spec.substr(at + word.size()));
  int64_t blocks = 0;
  for (const auto& launch : answer.launches) {
    if (launch.at("dynamic_shared_bytes") == bytes) blocks += launch.at("grid")[0].get<int64_t>();
  }
  return blocks;
}

// One call, or two. `fixed`: with all extents declared, a plan for few tokens has no kernels for
// segments.
inline Answer answer_of(const KdaCase& kda, const KdaInputs& inputs, bool fixed) {
  const Context context = make_context();
  const auto run_once = [&](Call call) {
    call.fixed = fixed;
    return execute(context.get(), call);
  };
  if (!kda.forward) return run_once(kda_backward_call(kda, inputs, {}));
  const Answer answer = run_once(kda_call(kda, inputs));
  if (!kda.apart) return answer;
  return joined(answer, run_once(kda_backward_call(kda, inputs, answer.outputs)));
}

// Checks a case whose gradients go by runs of two chunks, and that they did.
inline Answer check_runs(const KdaCase& kda, const KdaInputs& inputs, int64_t multiprocessors,
                         uint64_t schedule, bool fixed = false) {
  INFO(kda.text() << " schedule " << schedule << " multiprocessors " << multiprocessors);
  Answer answer =
      on_device_of(multiprocessors, schedule, [&] { return answer_of(kda, inputs, fixed); });
  check_clean(answer);
  REQUIRE(answer.error == "");
  CHECK(blocks_of(answer, "kda_backward_warpgroups") == kda_runs(kda));
  check_kda(kda, inputs, answer.outputs);
  return answer;
}

// Numbers of a setup: K as it is padded, and columns of V in parts of 64. Lengths of sequences end
// where chunks and runs do, one token before and one behind.
inline KdaCase run_shape_of(const KdaSetup& s, size_t turn) {
  KdaCase kda = case_of(s);
  kda.warps = 0, kda.segments = 0;
  if (s.has("packed")) {
    const std::vector<int64_t> kLengths[] = {
        {0, 1, 63, 64, 65, 128, 0, 129, 192}, {192, 0, 0, 130, 320, 64}, {127, 300}};
    kda.cu_seqlens = {0};
    for (const int64_t length : kLengths[turn % 3]) {
      kda.cu_seqlens.push_back(kda.cu_seqlens.back() + length);
    }
    kda.padding = std::array<int64_t, 3>{20, 0, 130}[turn % 3];
  }
  kda.batch = std::array<int64_t, 3>{2, 3, 1}[turn % 3];
  kda.tokens = std::array<int64_t, 3>{130, 256, 319}[turn % 3];
  kda.heads = turn % 3 == 0 ? 2 : 1;
  kda.key_dim = s.width - std::array<int, 3>{8, 0, 24}[turn % 3];
  kda.value_dim = 64 * s.warps - std::array<int, 3>{40, 0, 8}[turn % 3];
  kda.gap = turn % 3 == 2 ? 8 : 0;
  return kda;
}

}  // namespace apitest
