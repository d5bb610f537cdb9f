// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the choice between Hopper's kernels of flash attention and the portable ones:
// which candidates a measurement has, and that all that follows from a kernel follows the choice.
#include <algorithm>
#include <memory>
#include <string>

#include "tests/ops/attention/kernel_problems.h"

using namespace lathe;
using namespace kernel_problems;

namespace {

// A device on which both families are candidates, if `sm90`.
DeviceFacts hopper(bool sm90 = true) {
  DeviceFacts out = facts("sm_90a");
  out.family = sm90 ? "sm90" : "portable";
  return out;
}

// The backward's kernels where the first candidate that begins with `begin` was measured to be the
// best, and what was asked.
struct Chosen {
  std::unique_ptr<AttentionBackward> kernels;
  TuningKey heard;
};
Chosen chosen_of(const AttentionProblem& problem, const char* begin, DeviceFacts device = hopper(),
                 AttentionHeadChoice heads = {true, true}) {
  const auto choices = std::make_shared<TakesTile>(begin);
  device.choices = choices;
  auto kernels = backward_kernels(problem, device, heads);
  return {std::move(kernels), choices->heard};
}

// How many candidates are of a kernel.
int64_t count_of(const TuningKey& heard, std::string_view kernel) {
  return std::ranges::count_if(heard.candidates, [&](const std::string& candidate) {
    return kernel_of(heard, candidate) == kernel;
  });
}

constexpr const char* kOwn = "attention_backward_warpgroups";
constexpr const char* kPortable = "kernel=attention_backward m=64 n=64 stages=1 width_warps=1 ";

}  // namespace

TEST_CASE("attention: a tuned choice is of either family, under one key whatever the tile") {
  DeviceFacts device = hopper();
  const AttentionProblem problem = forward_of(128, 128);
  const KernelSpec usual = *forward_kernels(problem, device)->kernel;
  CHECK(usual.kernel == "attention_forward_warpgroups");
  CHECK(usual.constant("n") == 176);
  const auto chosen = [&](const char* begin) {
    const auto choices = std::make_shared<TakesTile>(begin);
    device.choices = choices;
    const KernelSpec spec = *forward_kernels(problem, device)->kernel;
    CHECK(choices->heard.kernel == "attention_forward_warpgroups");
    CHECK(choices->heard.problem_class ==
          "element=bf16 cu=i32 width=128 value_width=128 packed=0 local=0 softcap=0 alibi=0 "
          "sinks=0 pack_gqa=0 listed=0 short_first=0");
    return spec;
  };
  CHECK(chosen("m=128 n=96").constant("n") == 96);
  CHECK(chosen("m=128 n=96").family_reason.empty());
  const KernelSpec portable = chosen("kernel=attention_forward m=64 n=64");
  CHECK(portable.kernel == "attention_forward");
  CHECK(portable.constant("m") == 64);
  CHECK(portable.family_reason == "not sm90: the tuned choice is a portable kernel");
  CHECK(chosen("nothing").text() == usual.text());
}

TEST_CASE("attention backward: candidates are of both families, Hopper's first") {
  const AttentionProblem problem = backward_of(128, 128);
  const Chosen usual = chosen_of(problem, "nothing");
  CHECK(usual.heard.kernel == kOwn);
  CHECK(usual.heard.problem_class ==
        "element=bf16 cu=i32 width=128 value_width=128 packed=0 local=0 softcap=0 alibi=0 "
        "deterministic=0 heads_apart=0");
  REQUIRE(!usual.heard.candidates.empty());
  CHECK(usual.heard.candidates.front() == "m=64 n=128 stages=2 width_warps=1 warps=12");
  CHECK(count_of(usual.heard, kOwn) == 1);
  CHECK(count_of(usual.heard, "attention_backward") ==
        static_cast<int64_t>(attention_backward_candidates(problem, hopper()).size()));
  // Nobody decided: the same as where nobody is asked.
  const auto silent = backward_kernels(problem, hopper(), {});
  CHECK(usual.kernels->together->text() == silent->together->text());
  CHECK(usual.kernels->together->family_reason.empty());
  CHECK(usual.kernels->finish->kernel == "attention_backward_warpgroups_finish");

  const Chosen portable = chosen_of(problem, "nothing", hopper(false));
  CHECK(portable.heard.kernel == "attention_backward");
  CHECK(count_of(portable.heard, "attention_backward") ==
        static_cast<int64_t>(portable.heard.candidates.size()));
  CHECK(count_of(usual.heard, "attention_backward") ==
        count_of(portable.heard, "attention_backward"));
  CHECK(portable.kernels->together->family_reason == "not sm90: LATHE_FAMILY is portable");
}

TEST_CASE("attention backward: blocks of either kind have the chosen kernel and tile") {
  const AttentionProblem problem = backward_of(128, 128);
  for (const AttentionHeadChoice& heads :
       {AttentionHeadChoice{true, true}, {true, false}, {false, true}}) {
    const Chosen chosen = chosen_of(problem, kPortable, hopper(), heads);
    const bool apart = !heads.together;
    CHECK((chosen.heard.problem_class.find("heads_apart=1") != std::string::npos) == apart);
    CHECK(chosen.kernels->finish->kernel == "attention_backward_finish");
    CHECK(chosen.kernels->together.has_value() == heads.together);
    CHECK(chosen.kernels->apart.has_value() == heads.apart);
    for (const KernelSlot* kernel : {&chosen.kernels->together, &chosen.kernels->apart}) {
      if (!*kernel) continue;
      const KernelSpec expected =
          attention_backward_spec(problem, {64, 64, 1, 4, 1}, kernel == &chosen.kernels->apart);
      CHECK((*kernel)->text() == expected.text());
      CHECK((*kernel)->family_reason == "not sm90: the tuned choice is a portable kernel");
    }
  }
}

TEST_CASE("attention backward: grids, sums of dq and lists follow the choice") {
  AttentionProblem problem = backward_of(128, 128);
  problem.deterministic = true;
  problem.mods = {{"mask_mod", "", ""}};
  const AttentionShape shape{2, 8, 2, 130, 300};
  const auto launch_of = [&](const AttentionBackward& kernels) {
    CHECK(kernels.mask_queries->constant("m") == kernels.main()->constant("m"));
    CHECK(kernels.mask_queries->constant("n") == kernels.main()->constant("n"));
    return kernels.plan(shape, kAll);
  };
  // By warpgroups blocks of 128 keys take turns at one dq, which lies in tiles of 64 rows.
  const AttentionBackwardLaunch own = launch_of(*chosen_of(problem, "nothing").kernels);
  CHECK(own.dq.tiles == 3);
  CHECK(own.slices == 3);
  CHECK(own.dq.accumulators == 1);
  CHECK(own.dq.rows == 2 * 3 * 64);
  CHECK(own.dq.turns == (2 * 8 * 3 / 2 + 1) * 2);
  // Blocks of 64 keys have an accumulator each: 5, fewer than the 9 that would fill the device.
  const Chosen chosen = chosen_of(problem, kPortable);
  REQUIRE(chosen.kernels->main()->kernel == "attention_backward");
  const AttentionBackwardLaunch portable = launch_of(*chosen.kernels);
  CHECK(portable.dq.tiles == 0);
  CHECK(portable.slices == 5);
  CHECK(portable.dq.accumulators == 5);
  CHECK(portable.dq.rows == 2 * 130);
  CHECK(portable.dq.turns == 0);
  // It is the launch that the same kernels have where Hopper's are not considered.
  const Chosen alone =
      chosen_of(problem, "m=64 n=64 stages=1 width_warps=1 warps=4", hopper(false));
  CHECK(alone.kernels->main()->text() == chosen.kernels->main()->text());
  const AttentionBackwardLaunch same = launch_of(*alone.kernels);
  CHECK(same.apart == portable.apart);
  CHECK(same.main_blocks == portable.main_blocks);
  CHECK(same.finish_blocks() == portable.finish_blocks());
  CHECK(attention_backward_workspace(problem, shape, same)->total ==
        attention_backward_workspace(problem, shape, portable)->total);
}

TEST_CASE("attention backward: with mods both forms are candidates, until one is rejected") {
  AttentionProblem problem = backward_of(64, 64);
  problem.mods = {{"score_mod", "", ""}};
  DeviceFacts device = hopper();
  const char* const kSecond = "m=128 n=128 stages=2 width_warps=1 queries=32 ";
  Chosen chosen = chosen_of(problem, kSecond);
  CHECK(count_of(chosen.heard, kOwn) == 2);
  CHECK(count_of(chosen.heard, "attention_backward") > 2);
  CHECK(chosen.kernels->main()->constant("queries") == 32);
  CHECK(chosen_of(problem, "nothing").kernels->main()->constant("queries") == 64);
  const std::string problem_class = chosen.heard.problem_class;
  CHECK(problem_class.find("queries") == std::string::npos);

  device.reject(kOwn, "the first form", "it spills", 0);
  chosen = chosen_of(problem, "m=128 n=128 stages=2 width_warps=1 queries=64 ", device);
  CHECK(count_of(chosen.heard, kOwn) == 1);
  CHECK(chosen.heard.problem_class == problem_class);
  CHECK(chosen.kernels->main()->constant("queries") == 32);  // what was chosen is not offered
  CHECK(chosen_of(problem, kSecond, device).kernels->main()->constant("queries") == 32);
  CHECK(chosen_of(problem, "kernel=", device).kernels->main()->kernel == "attention_backward");

  device.reject(kOwn, "the second form", "it spills", device.rejected.size());
  chosen = chosen_of(problem, kSecond, device);
  CHECK(chosen.heard.kernel == "attention_backward");
  CHECK(chosen.kernels->main()->kernel == "attention_backward");
  CHECK(chosen.kernels->main()->family_reason == "not sm90: it spills");
  // Wide heads have one form, whose class and candidates do not know of forms.
  problem.head_dim = problem.value_dim = 256;
  CHECK(count_of(chosen_of(problem, "nothing").heard, kOwn) == 1);
}
