// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests take away, one at a time, each wait, fence, commit, arrival, expected byte and phase
// in the PTX of the kernels by warpgroups. Each time the simulator's checkers say so, or the result
// is another one; and the kernels as they are have nothing to say and the same bits under 20 seeds
// and all policies of asynchronous copies.
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>

#include "sim/tests/mutation.h"
#include "tests/harness/check.h"
#include "tests/harness/repeat.h"
#include "tests/ops/attention/case.h"
#include "tests/ops/attention/decode_case.h"
#include "tests/shard.h"

using namespace apitest;
using sim::test::Mutation;
using sim::test::MutationRule;

namespace {

constexpr unsigned kParts = 16;
// Schedules under which a mutation is looked for. Most are found by the first; but by luck alone a
// try to wait gives up early, or a copy is late that comes with others of which one is waited for.
constexpr uint64_t kSchedules = 80, kSchedulesOfKept = 6;

// Few multiprocessors give each block several tiles, so that stages are used again and phases turn.
const bool kEnvironment = setenv("LATHE_FAMILY", "sm90", 1) == 0 &&
                          setenv("LATHE_SIM_MULTIPROCESSORS", "1", 1) == 0 &&
                          setenv("LATHE_SIM_QUIET", "1", 0) == 0 &&
                          setenv("LATHE_SIM_INSTRUCTION_LIMIT", "3000000", 1) == 0;

// A folder of its own for each run: the kernels in the cache are known by their source, which a
// mutation leaves as it is.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "lathe-mutation-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
    std::filesystem::create_directory(path_ / "ptx");
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::filesystem::path ptx(const std::string& kernel) const {
    return path_ / "ptx" / (kernel + ".ptx");
  }
  std::string read(const std::string& kernel) const {
    std::ostringstream text;
    text << std::ifstream(ptx(kernel), std::ios::binary).rdbuf();
    return text.str();
  }
  void write(const std::string& kernel, const std::string& text) const {
    std::ofstream(ptx(kernel), std::ios::binary) << text;
  }
  void use() const {
    setenv("LATHE_TEST_NVRTC_PTX", (path_ / "ptx").c_str(), 1);
    setenv("LATHE_TEST_CACHE", (path_ / "cache").c_str(), 1);
  }

 private:
  std::filesystem::path path_;
};

// A kernel, a call that runs it, and what its answer has to be. The plan has the kernel in one
// form: groups of heads would have two.
struct Subject {
  const char* kernel;
  std::function<Answer()> call;
  std::function<void(const Answer&)> check;
  // An output that is added up in any order, so that its last places differ between schedules.
  std::string sum = "";
  // Copies of a block's panels are asked for together: a wait for the wrong phase of one of them
  // shows where that one alone is late, which no schedule need bring about.
  bool panels = false;
  // Waits that say nothing new to the simulator: of products that the wait behind the next scores
  // covers before anybody reads them, and of a stage of dout, whose readers are done with it before
  // those of q are.
  int spare_waits = 0;

  // Runs it in a child, with the PTX that the folder has.
  Answer run(const Folder& folder, const Schedule& schedule) const {
    const std::vector<Answer> answers = in_child(schedule, [&](const Give& give) {
      folder.use();
      give(call);
    });
    return answers.empty() ? Answer() : answers.front();
  }
};

Subject subject_of(const char* kernel, const AttentionCase& c) {
  const auto inputs = std::make_shared<const ref::Attention>(make_inputs(c));
  return {kernel,
          [=] { return run_attention(make_context().get(), c, *inputs); },
          [=](const Answer& answer) { check_attention(c, *inputs, answer); },
          c.backward && !c.deterministic ? "dq" : "",
          false,
          c.backward && c.head_dim == 64 ? 3 : 0};
}

bool near(const Values& a, const Values& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    const double larger = std::max(std::abs(a[i]), std::abs(b[i]));
    if (!(std::abs(a[i] - b[i]) <= larger * 0x1p-7 + 1e-6)) return false;
  }
  return true;
}

bool same_outputs(const Answer& a, const Answer& b, const std::string& sum) {
  if (a.outputs.size() != b.outputs.size()) return false;
  for (const auto& [name, values] : a.outputs) {
    const auto other = b.outputs.find(name);
    if (other == b.outputs.end()) return false;
    const bool same = name == sum ? near(values, other->second) : same_bits(values, other->second);
    if (!same) return false;
  }
  return true;
}

const std::vector<MutationRule>& rules() {
  using namespace sim::test;
  static const std::vector<MutationRule> all = {
      {"no wait", "mbarrier.try_wait", "", always_true, ""},
      {"no second try", "bra AGAIN", "", nothing, ""},
      {"always phase 0", "mbarrier.try_wait", "", last_operand("0"), ""},
      {"always phase 1", "mbarrier.try_wait", "", last_operand("1"), ""},
      {"no arrival", "mbarrier.arrive", "", nothing, ""},
      {"no bytes", "mbarrier.arrive.expect_tx", "",
       [](const std::string& line) {
         return without_last_operand(replace(".expect_tx", "")(line));
       },
       ""},
      {"fewer bytes", "mbarrier.arrive.expect_tx", "", last_operand("1024"), ""},
      {"no fence", "fence.", "", nothing, ""},
      {"no commit", "commit_group", "", nothing, ""},
      {"no wait", "wait_group", "", nothing, ""},
      {"a weaker wait", "wgmma.wait_group", "aligned 1", replace("aligned 0", "aligned 1"), ""},
      {"a weaker wait", "wgmma.wait_group", "aligned 0", replace("aligned 1", "aligned 2"), ""},
      {"no barrier", "bar.sync", "", nothing, ""},
      {"no arrival", "bar.arrive", "", nothing, ""},
      {"no release", "st.release", "", nothing, ""},
  };
  return all;
}

// Says whether a line orders nothing that the simulator knows of; comments say why it stands there.
bool is_kept(const Mutation& m) {
  // The barrier of the block behind it tells all threads of the mbarriers; the fence tells the
  // engine that copies, which has no rule of its own for them.
  if (sim::test::has_instruction(m.before, "fence.mbarrier_init")) return true;
  // A product that is waited for together with the one behind it needs no group of its own.
  if (sim::test::has_instruction(m.before, "wgmma.commit_group")) return true;
  // A product that is started right behind another one needs no fence of its own, since nobody
  // wrote a register between; but without one ptxas adds it and says so (C7519), which
  // templates_attention_compile_test refuses.
  return sim::test::has_instruction(m.before, "wgmma.fence");
}

// The kernel as it is, under 20 seeds and each policy.
void check_original(const Subject& subject, const Answer& expected) {
  const testing::Shard shard = testing::chosen_shard(kParts);
  for (uint64_t number = 0; number < 60; ++number) {
    if (!shard.has(number)) continue;
    Schedule schedule = schedule_number(number / 3);
    const char* const kPolicies[] = {"eager", "lazy", "random"};
    schedule.async = kPolicies[number % 3];
    const Folder folder;
    const Answer answer = subject.run(folder, schedule);
    check_findings(answer);
    CHECK(same_outputs(answer, expected, subject.sum));
  }
}

void check_mutations(const Subject& subject) {
  const Folder original;
  original.write(subject.kernel, "");
  const Answer expected = subject.run(original, schedule_number(0));
  CHECK(expected.findings.empty());
  CHECK(expected.error == "");
  subject.check(expected);
  check_original(subject, expected);
  const std::string ptx = original.read(subject.kernel);
  REQUIRE_MESSAGE(!ptx.empty(), subject.kernel);

  const std::vector<Mutation> all = sim::test::mutations(ptx, rules());
  CHECK(all.size() >= 60);
  const testing::Shard shard = testing::chosen_shard(kParts);
  int kept = 0, spared = 0;
  for (size_t number = 0; number < all.size(); ++number) {
    const Mutation& m = all[number];
    if (!shard.has(number)) continue;
    bool found = false;
    std::string seen;
    const uint64_t schedules = is_kept(m) ? kSchedulesOfKept : kSchedules;
    for (uint64_t schedule = 0; schedule < schedules && !found; ++schedule) {
      const Folder folder;
      folder.write(subject.kernel, m.ptx);
      const Answer answer = subject.run(folder, schedule_number(schedule));
      found = !answer.findings.empty() || answer.error != "" ||
              !same_outputs(answer, expected, subject.sum);
      if (found) seen = !answer.findings.empty() ? answer.findings[0] : answer.error;
    }
    if (std::getenv("LATHE_TEST_SHOW") != nullptr) {
      std::printf("%s %d %s: %s: %s\n", subject.kernel, m.line, m.what.c_str(), m.before.c_str(),
                  found ? seen.c_str() : "NOT FOUND");
      std::fflush(stdout);
    }
    const bool wait = m.what == "no wait" || m.what == "no second try";
    const bool spare = !found && wait && spared < subject.spare_waits;
    spared += spare;
    const bool may_stay =
        is_kept(m) || spare || (subject.panels && m.what.starts_with("always phase"));
    kept += !found && may_stay;
    CHECK_MESSAGE((found || may_stay), m.what, " at line ", m.line, ": ", m.before);
  }
  CHECK(kept <= 8);
}

AttentionCase packed_case(int64_t keys) {
  AttentionCase c;
  c.packed = true;
  c.kv_heads = 2;
  c.queries = {130, 3, 0, 70, 65, 9, 20};
  c.keys = {2 * keys + 3, keys, 5, 0, 5 * keys - 1, 2 * keys, 3 * keys};
  return c;
}

}  // namespace

TEST_CASE("forward by three warpgroups in turns: nothing that orders it can go") {
  REQUIRE(kEnvironment);
  check_mutations(subject_of("attention_forward_warpgroups", packed_case(128)));
}

TEST_CASE("forward by two warpgroups, causal: nothing that orders it can go") {
  AttentionCase c;
  c.head_dim = c.value_dim = 128;
  c.kv_heads = 3;
  c.queries = {300}, c.keys = {460};
  c.causal = true;
  check_mutations(subject_of("attention_forward_warpgroups", c));
}

TEST_CASE("backward by warpgroups: nothing that orders it can go") {
  AttentionCase c;
  c.packed = true;
  c.queries = {500, 0, 300, 70, 1}, c.keys = {140, 5, 129, 64, 3};
  c.kv_heads = 2;
  c.backward = c.given_forward = true;
  check_mutations(subject_of("attention_backward_warpgroups", c));
}

TEST_CASE("backward by warpgroups, causal and wider: nothing that orders it can go") {
  AttentionCase c;
  c.head_dim = c.value_dim = 128;
  c.queries = {330}, c.keys = {300};
  c.causal = c.backward = c.given_forward = true;
  check_mutations(subject_of("attention_backward_warpgroups", c));
}

TEST_CASE("backward by warpgroups, in order: nothing that orders it can go") {
  AttentionCase c;
  c.packed = true;
  c.queries = {700, 0, 300, 70, 1}, c.keys = {300, 5, 129, 64, 3};
  c.backward = c.given_forward = c.deterministic = true;
  check_mutations(subject_of("attention_backward_warpgroups", c));
}

TEST_CASE("backward by warpgroups, in order, causal and wider: nothing that orders it can go") {
  AttentionCase c;
  c.head_dim = c.value_dim = 128;
  c.queries = {330}, c.keys = {400};
  c.causal = c.backward = c.given_forward = c.deterministic = true;
  check_mutations(subject_of("attention_backward_warpgroups", c));
}

TEST_CASE("latent decoding by warpgroups: nothing that orders it can go") {
  DecodeCase c;
  c.latent = true, c.head_dim = 576, c.value_dim = 512;
  c.ratio = 64, c.page = 64, c.table_width = 12;
  c.cached = {700, 64, 0, 400};
  c.splits = "1";
  const auto inputs = std::make_shared<const DecodeInputs>(make_decode(c));
  check_mutations({"attention_decode_warpgroups", [=] { return run_decode(c, *inputs); },
                   [=](const Answer& answer) { check_decode(c, *inputs, answer); }, "", true});
}
