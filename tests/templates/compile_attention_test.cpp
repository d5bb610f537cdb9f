// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The kernels of attention as they are chosen for every architecture: they compile, and up to a
// width of 128 they keep everything in registers.
//
// Every architecture has some widths and sets of options of the table, the next one the next;
// with LATHE_TEST_SHARD=3/12 it is a part of all of them.
#include <doctest/doctest.h>

#include "ops/attention/backward/sm90.h"
#include "ops/attention/forward/sm90.h"
#include "tests/ops/attention/kernel_problems.h"
#include "tests/templates/compile_jobs.h"

using namespace lathe;

namespace {

struct Widths {
  int head_dim, value_dim;
};
constexpr Widths kNarrow[] = {{64, 64}, {128, 128}, {96, 96}, {128, 64}, {64, 128}};
constexpr Widths kWide[] = {{192, 128}, {256, 256}, {192, 192}, {64, 256}};

// What of a problem changes the code beside types and widths.
struct Options {
  bool packed, local, softcap, alibi, sinks, pack_gqa, deterministic, apart;
};
// Rows may be less aligned than usual: each architecture takes these alignments in turn.
constexpr int kAlignments[] = {2, 4, 8};
constexpr Options kOptions[] = {
    {true, true, true, true, true, true, true, true},
    {false, true, false, false, false, false, false, false},
    {false, false, false, false, false, false, false, true},
    {true, false, true, false, true, true, true, false},
    {false, true, false, true, false, true, false, false},
};

AttentionProblem problem_of(const Widths& widths, const Options& options, bool half) {
  AttentionProblem problem;
  problem.element = half ? Dtype::f16 : Dtype::bf16;
  problem.cu_seqlens = half ? Dtype::i64 : Dtype::i32;
  problem.head_dim = widths.head_dim, problem.value_dim = widths.value_dim;
  problem.packed = options.packed, problem.local = options.local;
  problem.softcap = options.softcap, problem.alibi = options.alibi;
  problem.sinks = problem.dsinks = problem.dlse = options.sinks;
  problem.pack_gqa = options.pack_gqa;
  problem.deterministic = options.deterministic;
  problem.forward = problem.backward = true;
  return problem;
}

void add_jobs(const AttentionProblem& problem, bool apart, const std::string& arch,
              compile_test::Jobs* jobs) {
  const bool wide = std::max(problem.head_dim, problem.value_dim) > 128;
  const int spilt = wide ? compile_test::kAnySpills : 0;
  const DeviceFacts facts = *facts_of_arch(arch);
  const auto forward = kernel_problems::forward_kernels(problem, facts);
  // With a mask the forward of width 128 may be short of a word, and of up to 21 where rows are
  // aligned to fewer than 16 bytes, whose addresses take registers. By the clock of an H100 it
  // takes 494 us then, and 551 in the tile that spills nothing. For sm_120 the compiler is short of
  // up to 16 words at width 64 too, for rows aligned to fewer than 16 bytes.
  const bool unaligned = problem.alignment < 16;
  int words = 0;
  if (problem.local && problem.value_dim == 128) words = unaligned ? 21 : 1;
  if (problem.local && problem.value_dim == 64 && unaligned && arch == "sm_120") words = 16;
  jobs->add(*forward->kernel, arch, std::max(spilt, 4 * words));
  const auto backward = kernel_problems::backward_kernels(problem, facts, {!apart, apart});
  jobs->add(*backward->prepare, arch);
  jobs->add(*backward->main(), arch, spilt);
  jobs->add(*backward->finish, arch);
}

DeviceFacts hopper() {
  DeviceFacts facts = *facts_of_arch("sm_90a");
  facts.family = "sm90";
  return facts;
}

}  // namespace

TEST_CASE("attention compiles for every architecture, without spills up to a width of 128") {
  const auto nvrtc = compile_test::open_compiler();
  if (!nvrtc) return;
  const bool all = testing::shard_is_chosen();
  compile_test::Jobs jobs;
  const auto& archs = supported_archs();
  for (size_t a = 0; a < archs.size(); ++a) {
    for (size_t w = 0; w < std::size(kNarrow) + std::size(kWide); ++w) {
      const bool wide = w >= std::size(kNarrow);
      const Widths& widths = wide ? kWide[w - std::size(kNarrow)] : kNarrow[w];
      for (size_t o = 0; o < std::size(kOptions); ++o) {
        // Two narrow ones of each architecture and one wide one of every other.
        const bool turn = wide ? a % 2 == 0 && (w + a / 2) % 4 == 0 && o == a % 5
                               : (w + a) % 5 == 0 && (o == a % 5 || o == 0);
        if (!all && !turn) continue;
        AttentionProblem problem = problem_of(widths, kOptions[o], (a + o) % 2 == 0);
        add_jobs(problem, kOptions[o].apart, archs[a], &jobs);
        if (!all && !(w == a && o == 0)) continue;
        problem.alignment = kAlignments[(a + o + w) % std::size(kAlignments)];
        add_jobs(problem, kOptions[o].apart, archs[a], &jobs);
      }
    }
  }
  const compile_test::Outcome outcome =
      compile_test::check_compiles(*nvrtc, jobs.list(testing::chosen_shard(1)));
  if (!all) CHECK(outcome.covered.size() + outcome.unknown.size() == 4 * archs.size());
}

// What warps keep outside registers, they would have to bring back inside the loop over keys or
// queries.
TEST_CASE("the forward by warpgroups compiles without spills") {
  const auto nvrtc = compile_test::open_compiler();
  if (!nvrtc) return;
  const DeviceFacts facts = hopper();
  compile_test::Jobs jobs;
  const auto add = [&](const Widths& widths, bool half) {
    for (const Options& options : kOptions) {
      AttentionProblem problem = problem_of(widths, options, half);
      REQUIRE(attention_warpgroups_refusal(problem, facts).empty());
      for (const KernelSpec& spec : kAttentionForwardSm90.candidates(problem, facts)) {
        jobs.add(spec, facts.arch);
      }
      half = !half;
      if (&options != kOptions) continue;
      problem.pack_gqa = false;  // with all other options
      jobs.add(attention_warpgroups_spec(problem), facts.arch);
    }
  };
  for (const Widths& widths : kNarrow) add(widths, false);
  for (const Widths& widths : kWide) add(widths, true);
  compile_test::check_compiles(*nvrtc, jobs.list());
}

// All sets of options, each width's in turn with one element and the other.
TEST_CASE("with every set of options the forward by warpgroups compiles without spills") {
  const auto nvrtc = compile_test::open_compiler();
  if (!nvrtc) return;
  const DeviceFacts facts = hopper();
  compile_test::Jobs jobs;
  std::vector<Widths> all(std::begin(kNarrow), std::end(kNarrow));
  all.insert(all.end(), std::begin(kWide), std::end(kWide));
  for (const Widths& widths : all) {
    for (unsigned set = 0; set < 64; ++set) {
      const auto has = [set](unsigned option) { return (set >> option & 1) != 0; };
      const Options options = {has(0), has(1), has(2), has(3), has(4), has(5), false, false};
      const bool half = (__builtin_popcount(set) & 1) != 0;
      const AttentionProblem problem = problem_of(widths, options, half);
      for (const KernelSpec& spec : kAttentionForwardSm90.candidates(problem, facts)) {
        jobs.add(spec, facts.arch);
      }
    }
  }
  compile_test::check_compiles(*nvrtc, jobs.list(testing::chosen_shard(24)));
}

TEST_CASE("the backward by warpgroups compiles without spills") {
  const auto nvrtc = compile_test::open_compiler();
  if (!nvrtc) return;
  const DeviceFacts facts = hopper();
  compile_test::Jobs jobs;
  bool half = false;
  for (const Widths& widths : {kNarrow[0], kNarrow[1], kNarrow[2], kWide[0], kWide[1], kWide[2]}) {
    for (const Options& options : kOptions) {
      AttentionProblem problem = problem_of(widths, options, half);
      for (const bool deterministic : {false, true}) {
        problem.deterministic = deterministic;
        const bool wide = widths.head_dim + widths.value_dim > 320;  // no order of dq there
        const bool covered = attention_backward_warpgroups_refusal(problem, facts).empty();
        REQUIRE(covered == !(deterministic && wide));
        if (!covered) continue;
        const KernelSpec spec = attention_backward_warpgroups_spec(problem, options.apart);
        jobs.add(spec, facts.arch);
      }
      problem.deterministic = false;
      jobs.add(*kernel_problems::backward_kernels(problem, facts, {})->finish, facts.arch);
      half = !half;
    }
  }
  compile_test::check_compiles(*nvrtc, jobs.list());
}

// Other mods need more registers than there are: then a plan takes the next form.
TEST_CASE("the backward by warpgroups compiles without spills with mods of a few registers") {
  const auto nvrtc = compile_test::open_compiler();
  if (!nvrtc) return;
  const DeviceFacts facts = hopper();
  compile_test::Jobs jobs;
  const Mod mask = {"mask_mod", "window",
                    "__device__ bool mask_mod(int batch, int head, int q, int k) {\n"
                    "  return k <= q && (k < 4 || q - k < 128);\n}\n"};
  const Mod score = {"score_mod", "bias",
                     "__device__ float score_mod(float score, int batch, int head, int q, int k,\n"
                     "                           const Captures& captures) {\n"
                     "  return alibi(score, captures.get<0>(head), q - k);\n}\n"
                     "__device__ float score_mod_bwd(float dscore, float score, int batch,\n"
                     "                               int head, int q, int k) {\n"
                     "  return dscore;\n}\n"};
  bool half = false;
  for (const Widths& widths : {kNarrow[0], kNarrow[1], kNarrow[2], kWide[0], kWide[1], kWide[2]}) {
    const bool wide = widths.head_dim + widths.value_dim > 320;  // no order of dq there
    for (const Mod& mod : {mask, score}) {
      const Options& options = kOptions[half ? 1 : 2];
      AttentionProblem problem = problem_of(widths, options, half);
      problem.mods = {mod};
      if (mod.name == "score_mod") problem.captures[0] = Dtype::f32;
      for (const bool deterministic : {false, true}) {
        problem.deterministic = deterministic;
        if (!attention_backward_warpgroups_refusal(problem, facts).empty()) {
          CHECK((deterministic && wide));
          continue;
        }
        const KernelSpec spec = attention_backward_warpgroups_spec(problem, options.apart);
        jobs.add(spec, facts.arch);
      }
      half = !half;
    }
    half = !half;
  }
  AttentionProblem both = problem_of(kNarrow[1], kOptions[2], half);
  both.mods = {mask, score};
  both.captures[0] = Dtype::f32;
  DeviceFacts rejecting = facts;
  for (int form = 0; form < 2; ++form) {
    REQUIRE(attention_backward_warpgroups_refusal(both, rejecting).empty());
    const auto left = kAttentionBackwardSm90.candidates({both, {}}, rejecting);
    REQUIRE(left.size() == static_cast<size_t>(2 - form));
    const KernelSpec& spec = left.front();
    CHECK(spec.constant("queries") == (form == 0 ? 64 : 32));
    jobs.add(spec, facts.arch, form == 0 ? compile_test::kAnySpills : 0);
    rejecting.reject(spec.kernel, spec.text(), "spills", rejecting.rejected.size());
    rejecting.reject(spec.kernel, "twin", "spills",
                     rejecting.rejected.size() - 1);  // the block's twin
  }
  CHECK(attention_backward_warpgroups_refusal(both, rejecting) == "spills");
  compile_test::check_compiles(*nvrtc, jobs.list());
}

TEST_CASE("latent decoding compiles without spills, on every architecture and by warpgroups") {
  const auto nvrtc = compile_test::open_compiler();
  if (!nvrtc) return;
  compile_test::Jobs jobs;
  bool half = false;
  for (const Options& options : kOptions) {
    AttentionProblem problem = problem_of({576, 512}, options, half = !half);
    problem.decode = problem.latent = true;
    for (const std::string& arch : supported_archs()) {
      const DeviceFacts facts = *facts_of_arch(arch);
      const auto kernels = kernel_problems::decode_kernels(problem, facts, {});
      // All options at once on every architecture, the others on one.
      if (!options.alibi && arch != "sm_80") continue;
      for (const auto& decode : kernels) jobs.add(*decode->kernel, arch);
    }
    for (const KernelSpec& spec : kAttentionDecodeSm90.candidates({problem, {}}, hopper())) {
      jobs.add(spec, "sm_90a");
    }
  }
  compile_test::check_compiles(*nvrtc, jobs.list());
}

// All sets of options, each width's in turn with one element and the other.
TEST_CASE("with every set of options packed queries over pages compile without spills") {
  const auto nvrtc = compile_test::open_compiler();
  if (!nvrtc) return;
  const DeviceFacts facts = hopper();
  compile_test::Jobs jobs;
  std::vector<Widths> all(std::begin(kNarrow), std::end(kNarrow));
  all.insert(all.end(), std::begin(kWide), std::end(kWide));
  for (const Widths& widths : all) {
    for (unsigned set = 0; set < 32; ++set) {
      const auto has = [set](unsigned option) { return (set >> option & 1) != 0; };
      const Options options = {false, has(0), has(1), has(2), has(3), false, false, false};
      AttentionProblem problem = problem_of(widths, options, (__builtin_popcount(set) & 1) != 0);
      problem.decode = problem.ragged = true;
      problem.rotary = has(4), problem.angle = Dtype::f32;
      REQUIRE(kAttentionDecodeRaggedSm90.refusal({problem, {}}, facts).empty());
      const auto candidates = kAttentionDecodeRaggedSm90.candidates({problem, {}}, facts);
      const auto made = kAttentionDecodeRaggedSm90.make(candidates.front(), {problem, {}}, facts);
      for (const KernelSlot* slot : made->slots()) jobs.add(**slot, facts.arch);
    }
  }
  compile_test::check_compiles(*nvrtc, jobs.list(testing::chosen_shard(12)));
}
