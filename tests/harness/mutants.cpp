// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/harness/mutants.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "sim/tests/mutation.h"
#include "tests/harness/check.h"
#include "tests/harness/family.h"
#include "tests/harness/naps.h"
#include "tests/harness/repeat.h"
#include "tests/shard.h"

namespace apitest {
namespace {

using sim::test::Mutation;
using sim::test::MutationRule;

constexpr unsigned kParts = 16;
// Schedules under which a mutation is looked for, every second one with a nap. Most are found by
// the first; but by luck alone a try to wait gives up early, or a copy is late that comes with
// others of which one is waited for.
constexpr uint64_t kSchedules = 120, kNaps = kSchedules / 2;
// Under fewer ones where it may stay unseen: it nearly always does.
constexpr uint64_t kSchedulesOfCovered = 40, kSchedulesOfKept = 6;

// A context reads these when it is made.
void set_environment(const Subject& subject) {
  family = "sm90";
  setenv("LATHE_SIM_MULTIPROCESSORS", std::to_string(subject.multiprocessors).c_str(), 1);
  setenv("LATHE_SIM_QUIET", "1", 0);
  setenv("LATHE_SIM_INSTRUCTION_LIMIT", "12000000", 1);
}

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

// Runs a kernel in a child, with the PTX that the folder has.
Answer run(const Subject& subject, const Folder& folder, const Schedule& schedule) {
  const std::vector<Answer> answers = in_child(schedule, [&](const Give& give) {
    folder.use();
    give(subject.call);
  });
  return answers.empty() ? Answer() : answers.front();
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

// Lets one more group of products run.
std::string one_more(const std::string& line) {
  const size_t at = line.find_last_of(' ') + 1;
  return line.substr(0, at) + std::to_string(std::stoi(line.substr(at)) + 1) + ";";
}

std::vector<MutationRule> rules_of(const Subject& subject) {
  using namespace sim::test;
  std::vector<MutationRule> all = {
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
      {"a weaker wait", "wgmma.wait_group", "", one_more, ""},
      {"no barrier", "bar.sync", "", nothing, ""},
      {"no warp barrier", "bar.warp.sync", "", nothing, ""},
      {"no arrival", "bar.arrive", "", nothing, ""},
      {"no release", "st.release", "", nothing, ""},
      {"no cluster barrier", "barrier.cluster", "", nothing, ""},
  };
  if (subject.registers) all.push_back({"no registers", "setmaxnreg", "", nothing, ""});
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

// The kernel as it is, under 20 seeds and each policy, and with each nap.
void check_original(const Subject& subject, const std::string& ptx, const Answer& expected) {
  const testing::Shard shard = testing::chosen_shard(kParts);
  for (uint64_t number = 0; number < 60 + kNaps; ++number) {
    if (!shard.has(number)) continue;
    Schedule schedule = schedule_number(number / 3);
    const char* const kPolicies[] = {"eager", "lazy", "random"};
    schedule.async = kPolicies[number % 3];
    const Folder folder;
    if (number >= 60) folder.write(subject.kernel, with_nap(ptx, number - 60));
    const Answer answer = run(subject, folder, schedule);
    check_findings(answer);
    CHECK(answer.error == "");
    CHECK(same_outputs(answer, expected, subject.sum));
  }
}

// Whether a mutation is seen: by the simulator's checkers, or by what comes out. `seen` says under
// which schedule, and how.
bool is_found(const Subject& subject, const Mutation& m, const Answer& expected, uint64_t schedules,
              std::string* seen) {
  for (uint64_t schedule = 0; schedule < schedules; ++schedule) {
    const Folder folder;
    const bool nap = schedule % 2 == 1;
    folder.write(subject.kernel, nap ? with_nap(m.ptx, schedule / 2) : m.ptx);
    const Answer answer = run(subject, folder, schedule_number(schedule));
    if (!answer.findings.empty() || answer.error != "") {
      *seen = std::to_string(schedule) + ": ";
      *seen += !answer.findings.empty() ? answer.findings[0] : answer.error;
      return true;
    }
    if (!same_outputs(answer, expected, subject.sum)) {
      *seen = std::to_string(schedule) + ": another result";
      return true;
    }
  }
  *seen = "NOT FOUND";
  return false;
}

void check_each(const Subject& subject, const std::vector<Mutation>& all, const Answer& expected) {
  const testing::Shard shard = testing::chosen_shard(kParts);
  std::map<std::string, int> covered = subject.covered;
  unsigned kept = 0;
  for (size_t number = 0; number < all.size(); ++number) {
    if (!shard.has(number)) continue;
    const Mutation& m = all[number];
    std::string seen;
    const bool is_covered = covered[m.what] > 0;
    const uint64_t schedules = is_kept(m)   ? kSchedulesOfKept
                               : is_covered ? kSchedulesOfCovered
                                            : kSchedules;
    const bool found = is_found(subject, m, expected, schedules, &seen);
    if (std::getenv("LATHE_TEST_SHOW") != nullptr) {
      std::printf("%s %d %s: %s: %s\n", subject.kernel, m.line, m.what.c_str(), m.before.c_str(),
                  seen.c_str());
      std::fflush(stdout);
    }
    if (found) continue;
    const bool phase = subject.panels && m.what.starts_with("always phase");
    const bool may_stay = is_kept(m) || phase || is_covered;
    if (is_covered && !is_kept(m)) --covered[m.what];
    kept += may_stay;
    CHECK_MESSAGE(may_stay, m.what, " at line ", m.line, ": ", m.before);
  }
  CHECK(kept <= 8 * std::max(1u, kParts / shard.count));
}

}  // namespace

void check_mutations(const Subject& subject) {
  set_environment(subject);
  const Folder original;
  original.write(subject.kernel, "");
  const Answer expected = run(subject, original, schedule_number(0));
  CHECK(expected.findings.empty());
  CHECK(expected.error == "");
  subject.check(expected);
  const std::string ptx = original.read(subject.kernel);
  REQUIRE_MESSAGE(!ptx.empty(), subject.kernel);
  check_original(subject, ptx, expected);
  const std::vector<Mutation> all = sim::test::mutations(ptx, rules_of(subject));
  CHECK(all.size() >= subject.least);
  check_each(subject, all, expected);
}

}  // namespace apitest
