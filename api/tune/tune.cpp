// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// lathe_tune tunes each tuning key of a plan in turn, with the answers found so far.
#include <cstring>
#include <deque>
#include <optional>

#include "api/boundary.h"
#include "api/tune/tune_plan.h"
#include "cache/tuned_file.h"
#include "codegen/base/env.h"
#include "collective/agreement.h"
#include "collective/small_gather.h"

namespace lathe {
namespace {

constexpr int kUsualRepeats = 20;

// Holds what a report points to.
struct TuneTexts {
  std::deque<std::string> texts;
  std::vector<lathe_tune_candidate> candidates;
  const char* keep(const std::string& text) { return texts.emplace_back(text).c_str(); }
};

class Tuning {
 public:
  Tuning(lathe_context& context, const lathe_problem& problem, const lathe_tune_options& options)
      : context_(context), problem_(problem), options_(options), device_(tuned_device_of(context)) {
    report_.by_model = context.kind == LATHE_DEVICE_SIM;
  }
  TuneTexts& texts() { return texts_; }

  Result<lathe_tune_report> go(const DLTensor* const* slots) {
    LATHE_TRY(check());
    LATHE_TRY(require(slots, "slots"));
    LATHE_ASSIGN(const Resolved resolved, declared_by(problem_));
    const std::vector<Slot> wanted = make_slots(resolved);
    LATHE_TRY(check_slots(wanted, slots));
    scope_.emplace(*context_.device);
    LATHE_TRY(scope_->status());
    LATHE_ASSIGN(std::vector<TuningKey> tuning_keys,
                 tuning_keys_of_call(context_, problem_, wanted, slots));
    const auto most = static_cast<size_t>(options_.candidates);
    for (auto& [kernel, problem_class, candidates] : tuning_keys) {
      if (most > 0 && candidates.size() > most) candidates.resize(most);
    }
    if (group()) LATHE_TRY(agree_on(tuning_keys));
    bench_.emplace(context_, problem_, options_);
    LATHE_TRY(bench_->open(wanted, slots));
    shape_ = shape_text(wanted, slots);
    for (const TuningKey& tuning_key : tuning_keys) {
      LATHE_TRY(tune(tuning_key));
      if (report_.cancelled) break;
    }
    if (options_.store && !report_.cancelled) LATHE_TRY(store());
    report_.candidates = texts_.candidates.data();
    report_.count = texts_.candidates.size();
    report_.gpu = texts_.keep(device_.gpu);
    if (!report_.stored_in) report_.stored_in = "";
    return report_;
  }

 private:
  Group* group() const {
    const bool ranks = problem_.group && problem_.group->group->world() > 1;
    return ranks ? problem_.group->group.get() : nullptr;
  }

  Status check() const {
    if (options_.repeats < 0 || options_.candidates < 0 || !(options_.seconds >= 0)) {
      return invalid(text("options.repeats is ", options_.repeats, ", candidates ",
                          options_.candidates, ", seconds ", options_.seconds,
                          "; each must be 0 (the usual) or more"));
    }
    if (problem_.group && problem_.group->context != &context_) {
      return invalid("the problem's group was made in another context");
    }
    if (group() && !options_.shard) {
      return invalid("the problem has a group: options.shard must say how its axis is cut");
    }
    if (!problem_.group && options_.shard) {
      return invalid("options.shard was given, but the problem has no group");
    }
    const std::string tuned = environment("LATHE_TUNED").value_or("off");
    if (options_.store && tuned != "off") {
      return invalid(text("LATHE_TUNED is '", tuned,
                          "', a file that is only read; unset it to store what is tuned"));
    }
    if (options_.store && context_.store->root().empty()) {
      return Status(Code::cache_io,
                    "there is no cache directory to store in: " + context_.store->problem());
    }
    if (!report_.by_model) return {};
    if (!environment_raw("LATHE_SIM_TIMELINE")) {
      return invalid(
          "the simulator keeps no time: set LATHE_SIM_TIMELINE, to a file or to /dev/null, before "
          "it is opened");
    }
    if (environment_raw("LATHE_SIM_SAMPLE_BLOCKS")) {
      return invalid(
          "LATHE_SIM_SAMPLE_BLOCKS is set: results would be wrong, so candidates cannot be "
          "compared; unset it");
    }
    return {};
  }

  static Status check_slots(const std::vector<Slot>& wanted, const DLTensor* const* slots) {
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (slots[i]) continue;
      return invalid(text("slots[", i, "] is NULL, but ", wanted[i].name, " was declared"));
    }
    return {};
  }

  // Ranks that count differently would wait for each other's votes for ever.
  Status agree_on(const std::vector<TuningKey>& tuning_keys) const {
    std::string all;
    for (const TuningKey& tuning_key : tuning_keys) {
      all += tuning_key.kernel + '|' + tuning_key.problem_class;
      for (const std::string& candidate : tuning_key.candidates) all += '|' + candidate;
      all += '\n';
    }
    const NamedDigest digests[] = {
        {"the kernels to tune", digest_of(std::string_view(all))},
        {"options.repeats", static_cast<uint64_t>(options_.repeats)},
        {"options.store", static_cast<uint64_t>(options_.store != 0)},
    };
    return agree(*group(), digests);
  }

  // Returns a text such as "causal_conv1d(x:1x4096x2048,weight:2048x4)".
  std::string shape_text(const std::vector<Slot>& wanted, const DLTensor* const* slots) const {
    std::string out = std::string(problem_.op->name) + '(';
    const char* comma = "";
    for (const Slot& slot : wanted) {
      const DLTensor& tensor = **slots++;
      out += comma + std::string(slot.name) + ':';
      for (int i = 0; i < tensor.ndim; ++i) out += text(i ? "x" : "", tensor.shape[i]);
      comma = ",";
    }
    out += ')';
    // A line has an end, and this is only for people and for telling shapes apart.
    constexpr size_t kMost = 1024;
    if (out.size() > kMost) out = out.substr(0, kMost - 17) + digest(out).hex().substr(0, 16) + ')';
    if (group()) out += text("/", group()->world(), "ranks");
    return out;
  }

  Status tune(const TuningKey& tuning_key) {
    PlanRunner runner(*bench_, chosen_, tuning_key);
    RaceOptions race_options;
    race_options.rounds = options_.repeats > 0 ? options_.repeats : kUsualRepeats;
    race_options.timed_once = report_.by_model != 0;
    if (options_.progress) {
      race_options.cancelled = [&](const std::string& what, size_t done, size_t total) {
        const std::string line = tuning_key.kernel + ": " + what;
        return options_.progress(options_.user, line.c_str(), done, total) != 0;
      };
    }
    const auto ballot = [this](const std::vector<double>& mine) { return exchange(mine); };
    const auto raced = race(runner, tuning_key.candidates.size(), race_options, ballot);
    if (!bench_->lost().empty()) return Status(Code::timeout, bench_->lost());
    LATHE_TRY(raced);
    const RaceResult& result = *raced;
    if (result.cancelled) {
      report_.cancelled = 1;
      return {};
    }
    note(tuning_key, runner, result);
    return {};
  }

  Result<Votes> exchange(const std::vector<double>& mine) const {
    if (!group()) return Votes{mine};
    const size_t bytes = mine.size() * sizeof(double);
    LATHE_ASSIGN(const std::string all,
                 small_gather(*group(), mine.data(), bytes, "a vote on kernels"));
    Votes votes(static_cast<size_t>(group()->world()), std::vector<double>(mine.size()));
    for (size_t rank = 0; rank < votes.size(); ++rank) {
      std::memcpy(votes[rank].data(), all.data() + rank * bytes, bytes);
    }
    return votes;
  }

  void note(const TuningKey& tuning_key, const PlanRunner& runner, const RaceResult& result) {
    const Outcome& first = result.outcomes[0];
    const Outcome& winner = result.outcomes[result.winner];
    if (report_.kernels++ == 0) report_.default_us = first.us;
    report_.us = winner.us;
    report_.improved += result.winner > 0;
    const char* kernel = texts_.keep(tuning_key.kernel);
    const char* problem_class = texts_.keep(tuning_key.problem_class);
    for (size_t i = 0; i < result.outcomes.size(); ++i) {
      const Outcome& outcome = result.outcomes[i];
      const lathe_kernel_info info = runner.kernel(i);
      texts_.candidates.push_back({kernel, problem_class, texts_.keep(tuning_key.candidates[i]),
                                   word(outcome.kind), texts_.keep(outcome.reason), info.registers,
                                   info.smem_bytes, info.spill_bytes, info.stack_bytes, outcome.us,
                                   outcome.spread});
    }
    const std::string& choice = tuning_key.candidates[result.winner];
    chosen_.set(tuning_key, choice);
    const std::string compiler = runner.compiler();
    records_.push_back({.kernel = tuning_key.kernel,
                        .problem_class = tuning_key.problem_class,
                        .choice = choice,
                        .gpu = device_.gpu,
                        .arch = device_.arch,
                        .multiprocessors = device_.multiprocessors,
                        .shape = shape_,
                        .us = winner.us,
                        .default_us = first.us,
                        .measured = report_.by_model == 0,
                        .tried = static_cast<int>(tuning_key.candidates.size()),
                        .lathe = lathe_version(),
                        .driver = std::to_string(context_.device->driver().version),
                        .nvrtc = compiler.empty() ? "" : safe_word(compiler),
                        .sources = sources_digest()});
  }

  Status store() {
    const TunedFile file(*context_.store, device_.gpu);
    if (!records_.empty()) {
      LATHE_ASSIGN(const std::vector<TunedRecord> all,
                   file.update([this](std::vector<TunedRecord> there) {
                     return with_fresh(std::move(there), records_);
                   }));
      if (context_.tuned) context_.tuned->replace_source(file.path(), all);
      report_.stored_in = texts_.keep(file.path());
    }
    return group() ? share_tuned(*problem_.group) : Status();
  }

  lathe_context& context_;
  const lathe_problem& problem_;
  const lathe_tune_options& options_;
  TuneTexts texts_;
  const TunedDevice device_;
  std::optional<Device::Scope> scope_;  // ends after what is freed in it
  std::optional<TuneBench> bench_;
  std::string shape_;
  FixedChoices chosen_;
  std::vector<TunedRecord> records_;
  lathe_tune_report report_ = {};
};

}  // namespace
}  // namespace lathe

using namespace lathe;

extern "C" lathe_status lathe_tune(lathe_context* context, const lathe_problem* problem,
                                   const DLTensor* const* slots, const lathe_tune_options* options,
                                   lathe_tune_report* out) {
  return boundary({{context, "context"}, {problem, "problem"}}, [&]() -> Status {
    LATHE_TRY(check_sized(out));
    LATHE_TRY(require_device(*context, "tuning"));
    lathe_tune_options taken = LATHE_TUNE_OPTIONS_INIT;
    if (options) LATHE_TRY(take_sized(options, "options", &taken));
    thread_local TuneTexts kept;
    Tuning tuning(*context, *problem, taken);
    LATHE_ASSIGN(const lathe_tune_report report, tuning.go(slots));
    kept = std::move(tuning.texts());
    return give_sized(report, out);
  });
}
