// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The tests take away, piece by piece, what keeps a matrix product in order, and each time the
// checkers say what is wrong.
#include <set>

#include "sim/tests/gemm/gemm.h"
#include "sim/tests/mutation.h"

using namespace sim;
using namespace sim::test;

namespace {

constexpr uint64_t kSeeds = 10;

Settings settings_of(uint64_t seed) {
  constexpr AsyncPolicy kPolicies[] = {AsyncPolicy::lazy, AsyncPolicy::random, AsyncPolicy::eager};
  Settings s;
  s.seed = seed;
  s.async_policy = kPolicies[seed % 3];
  s.instruction_limit = 1'000'000;
  return s;
}

bool is_right(const Mutation& m, const Finding& f) {
  const std::string name = f.check + "/" + f.kind;
  return f.text.find(m.says) != std::string::npos &&
         (" " + m.kinds + " ").find(" " + name + " ") != std::string::npos;
}

// Some seed shows it.
template <class Run>
void expect_found(const std::vector<Mutation>& all, Run run) {
  for (const Mutation& m : all) {
    std::set<std::string> seen;
    uint64_t seed = 0;
    bool found = false;
    while (seed < kSeeds && !found) {
      const GemmRun r = run(m.ptx, settings_of(seed++));
      for (const Finding& f : r.outcome.findings) {
        seen.insert(f.check + "/" + f.kind + " at line " + std::to_string(f.ptx_line));
        found |= is_right(m, f);
      }
    }
    std::string text;
    for (const std::string& s : seen) text += s + "; ";
    CHECK_MESSAGE(found,
                  m.what << " at line " << m.line << ": " << m.before << "\nfound: " << text);
  }
}

// Every instruction that orders something is taken away by a rule.
void expect_all_covered(const std::string& ptx, const std::vector<Mutation>& all) {
  const std::vector<std::string> lines = lines_of(ptx);
  std::set<size_t> covered;
  for (const Mutation& m : all) {
    if (m.what.rfind("no ", 0) == 0) covered.insert(static_cast<size_t>(m.line - 1));
  }
  size_t count = 0;
  for (size_t k = 0; k < lines.size(); ++k) {
    bool orders = false;
    for (const char* word :
         {"wait", "fence", "membar", "commit", "arrive", "expect_tx", "bar.", "barrier."}) {
      orders |= has_instruction(lines[k], word);
    }
    for (const char* word : {"mbarrier.init", "cp.async.bulk.tensor"}) {
      orders &= !has_instruction(lines[k], word);
    }
    count += orders;
    CHECK_MESSAGE((!orders || covered.count(k)), lines[k]);
  }
  CHECK(count >= 5);
}

const std::vector<MutationRule> kAmpere = {
    {"no wait", "cp.async.wait_group", "", nothing, "asynccheck/in_flight"},
    {"a weaker wait", "cp.async.wait_group", "", replace("group 1", "group 2"),
     "asynccheck/in_flight"},
    {"no commit", "cp.async.commit_group", "", nothing, "asynccheck/in_flight"},
    {"no barrier", "bar.sync", "", nothing, "racecheck/race asynccheck/in_flight"},
};

const std::vector<MutationRule> kHopper = {
    // Without the wait for a full stage, data of copies in flight is used. Without the wait for an
    // empty stage, the copies write too early.
    {"no wait", "mbarrier.try_wait", "acquire.cluster", always_true, "asynccheck/in_flight"},
    {"no wait", "mbarrier.try_wait.parity.acquire.cluster", "", always_true,
     "synccheck/mbarrier asynccheck/source_overwritten"},
    {"no retry", "bra AGAIN", "", nothing, "asynccheck/in_flight synccheck/mbarrier"},
    {"no arrival", "mbarrier.arrive.shared::cta", "", nothing, "synccheck/deadlock",
     "8 of 16 arrivals"},
    {"no arrival", "mbarrier.arrive.release.cluster", "", nothing, "synccheck/deadlock",
     "8 of 16 arrivals"},
    {"no arrival, no bytes", "mbarrier.arrive.expect_tx", "", nothing, "synccheck/deadlock",
     "1 of 1 arrivals"},
    {"16 bytes more", "mbarrier.arrive.expect_tx", "", last_operand("32784"), "synccheck/deadlock",
     "16 bytes outstanding"},
    {"16 bytes fewer", "mbarrier.arrive.expect_tx", "", last_operand("32752"), "synccheck/deadlock",
     "16 bytes more than were expected"},
    {"no bytes", "mbarrier.arrive.expect_tx", "",
     [](const std::string& line) { return without_last_operand(replace(".expect_tx", "")(line)); },
     "asynccheck/in_flight"},
    {"no fence", "wgmma.fence", "", nothing, "asynccheck/missing_fence"},
    {"no commit", "wgmma.commit_group", "", nothing, "asynccheck/register_in_flight"},
    // Inside the loop it frees a stage, after it the sums.
    {"no wait", "wgmma.wait_group", "aligned 0", nothing, "asynccheck/source_overwritten"},
    {"a weaker wait", "wgmma.wait_group", "aligned 0", replace("aligned 1", "aligned 2"),
     "asynccheck/source_overwritten"},
    {"no wait", "wgmma.wait_group", "aligned 1", nothing, "asynccheck/register_in_flight"},
    {"a weaker wait", "wgmma.wait_group", "aligned 1", replace("aligned 0", "aligned 1"),
     "asynccheck/register_in_flight"},
    {"no fence", "fence.proxy.async", "", nothing, "asynccheck/missing_proxy_fence"},
    {"no fence", "fence.mbarrier_init", "", nothing, "racecheck/race"},
    {"no commit", "cp.async.bulk.commit_group", "", nothing, "asynccheck/source_overwritten"},
    {"no wait", "cp.async.bulk.wait_group.read", "", nothing, "asynccheck/source_overwritten"},
    {"a weaker wait", "cp.async.bulk.wait_group.read", "", replace(" 0;", " 1;"),
     "asynccheck/source_overwritten"},
    {"no wait", "cp.async.bulk.wait_group", ".read", nothing, "asynccheck/unread_source"},
    {"a weaker wait", "cp.async.bulk.wait_group", ".read", replace(" 0;", " 1;"),
     "asynccheck/unread_source"},
    {"no barrier", "bar.sync", "", nothing, "racecheck/race asynccheck/source_overwritten"},
    {"no arrival", "barrier.cluster.arrive", "", nothing, "synccheck/cluster_barrier"},
    // The next arrival is one too many; at the end, a block is gone.
    {"no wait", "barrier.cluster.wait.acquire.aligned", "", nothing,
     "synccheck/cluster_barrier synccheck/mbarrier"},
    {"no wait", "barrier.cluster.wait.acquire", ".aligned", nothing, "memcheck/dsmem_after_exit"},
};

}  // namespace

TEST_CASE("sm_80: nothing that orders the product can go") {
  const std::string ptx = compile_gemm("ampere_gemm.cuh", "sm_80");
  if (ptx.empty()) return;
  const std::vector<Mutation> all = mutations(ptx, kAmpere);
  expect_all_covered(ptx, all);
  const Problem p = make_problem(64, 64, 9 * 32, 4);
  REQUIRE(run_ampere(ptx, p, settings_of(0)).outcome.findings.empty());
  expect_found(all,
               [&](const std::string& text, const Settings& s) { return run_ampere(text, p, s); });
}

TEST_CASE("sm_90a: nothing that orders the product can go") {
  const std::string ptx = compile_gemm("hopper_gemm.cuh", "sm_90a");
  if (ptx.empty()) return;
  const std::vector<Mutation> all = mutations(ptx, kHopper);
  expect_all_covered(ptx, all);
  const Problem p = make_problem(256, 256, 9 * 64, 2);
  REQUIRE(run_hopper(ptx, p, settings_of(0)).outcome.findings.empty());
  auto run = [&](const std::string& text, const Settings& s) { return run_hopper(text, p, s); };
  expect_found(all, run);
  // Arrivals come before the other block has made its barriers; and after it has left.
  expect_found(without_pairs(ptx, "barrier.cluster.arrive", "barrier.cluster.wait",
                             {"synccheck/mbarrier", "memcheck/dsmem_after_exit"}),
               run);
}
