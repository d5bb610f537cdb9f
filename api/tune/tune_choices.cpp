// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Finds who answers the tuning keys of a plan.
#include "api/tune/tune_choices.h"

#include <algorithm>

#include "cache/tuned_file.h"
#include "codegen/base/digest.h"
#include "codegen/base/env.h"
#include "codegen/base/log.h"
#include "codegen/base/text.h"
#include "codegen/templates.h"
#include "ops/resolve.h"

namespace lathe {
namespace {

std::string name_of(const std::string& kernel, const std::string& problem_class) {
  return kernel + '|' + problem_class;
}
std::string name_of(const TuningKey& tuning_key) {
  return name_of(tuning_key.kernel, tuning_key.problem_class);
}

bool among(const std::vector<TuningKey>& list, const TuningKey& tuning_key) {
  return std::ranges::any_of(
      list, [&](const TuningKey& each) { return name_of(each) == name_of(tuning_key); });
}

class Listener : public Choices {
 public:
  size_t choose(const TuningKey& tuning_key) const override {
    if (tuning_key.candidates.size() > 1 && !among(asked, tuning_key)) asked.push_back(tuning_key);
    return 0;
  }
  mutable std::vector<TuningKey> asked;  // one plan at a time, by one thread
};

void warn(const std::string& message) { log_message(LogLevel::warning, message); }

// A directory gives its file, a bundle the records alone.
void add_tier(ReadOnlyTier& tier, TunedChoices* choices) {
  std::string all = tier.tuned(choices->device().gpu);
  if (all.empty()) return;
  if (!all.starts_with("lathe-tuned ")) all.insert(0, std::string(kTunedHeader) + '\n');
  const auto read = parse_tuned(all);
  const std::string problem = read.ok() ? read->problem : read.status().text();
  if (!problem.empty()) warn(text("tuned choices of ", tier.name(), ": ", problem));
  if (read.ok()) choices->add_source(tier.name(), read->records);
}

bool is_rank(const lathe_problem& problem) {
  return problem.group && problem.group->group && problem.group->group->world() > 1;
}

// Returns all that a plan of the problem asks.
Result<std::vector<TuningKey>> tuning_keys_of(const lathe_context& context,
                                              const lathe_problem& problem) {
  LATHE_ASSIGN(const Resolved resolved, declared_by(problem));
  const auto listener = std::make_shared<Listener>();
  DeviceFacts facts = context.facts;
  facts.choices = listener;
  LATHE_ASSIGN(const auto executor, make_executor(resolved, facts));
  // A tuning key of a kernel that is not in the plan is none of the plan's.
  std::erase_if(listener->asked, [specs = executor->specs()](const TuningKey& tuning_key) {
    return std::ranges::find(specs, tuning_key.kernel, &KernelSpec::kernel) == specs.end();
  });
  return std::move(listener->asked);
}

}  // namespace

FixedChoices::FixedChoices(const std::vector<TunedRecord>& records) {
  for (const TunedRecord& record : records) {
    choices_[name_of(record.kernel, record.problem_class)] = record.choice;
  }
}

void FixedChoices::set(const TuningKey& tuning_key, const std::string& choice) {
  choices_[name_of(tuning_key)] = choice;
}

size_t FixedChoices::choose(const TuningKey& tuning_key) const {
  const auto found = choices_.find(name_of(tuning_key));
  if (found == choices_.end()) return 0;
  const auto& candidates = tuning_key.candidates;
  const auto at = std::ranges::find(candidates, found->second);
  return at == candidates.end() ? 0 : static_cast<size_t>(at - candidates.begin());
}

Result<std::vector<TuningKey>> tuning_keys_of_call(const lathe_context& context,
                                                   const lathe_problem& problem,
                                                   const std::vector<Slot>& slots,
                                                   const DLTensor* const* given) {
  LATHE_ASSIGN(std::vector<TuningKey> all, tuning_keys_of(context, problem));
  if (is_rank(problem)) return all;
  lathe_problem exact = problem;
  for (const Slot& slot : slots) {
    const DLTensor& tensor = **given++;
    auto& extents = exact.tensors[static_cast<size_t>(slot.tensor)].extents;
    std::copy_n(tensor.shape, std::min(tensor.ndim, kMaxRank), extents.begin());
  }
  const auto own = tuning_keys_of(context, exact);
  // A plan of exactly these shapes may be refused where one of open shapes is not.
  if (!own.ok()) return all;
  std::vector<TuningKey> out;
  for (const TuningKey& tuning_key : all) {
    const bool other_serves = std::ranges::any_of(*own, [&](const TuningKey& each) {
      return each.kernel == tuning_key.kernel && among(all, each);
    });
    if (among(*own, tuning_key) || !other_serves) out.push_back(tuning_key);
  }
  return out;
}

DeviceFacts facts_for(const lathe_context& context, const lathe_problem& problem) {
  DeviceFacts facts = context.facts;
  facts.choices = problem.choices    ? problem.choices
                  : is_rank(problem) ? problem.group->choices
                                     : std::shared_ptr<const Choices>(context.tuned);
  return facts;
}

TunedDevice tuned_device_of(const lathe_context& context) {
  return tuned_device(context.facts, context.device ? context.device->name() : "");
}

std::shared_ptr<TunedChoices> open_tuned(lathe_context& context) {
  const std::string setting = environment("LATHE_TUNED").value_or("");
  if (setting == "off") return nullptr;
  auto choices = std::make_shared<TunedChoices>(tuned_device_of(context));
  if (!setting.empty()) {
    const auto read = read_tuned_file(setting);
    if (!read.ok()) {
      warn(text("LATHE_TUNED is not used: ", read.status().text()));
      return choices;
    }
    if (read->skipped > 0) {
      warn(text("LATHE_TUNED ", setting, ": ", read->skipped,
                " lines were skipped, the first: ", read->problem));
    }
    choices->add_source(setting, read->records);
    return choices;
  }
  const TunedFile file(*context.store, choices->device().gpu);
  choices->add_source(file.path(), file.read().records);
  for (const auto& tier : context.tiers->read_only()) add_tier(*tier, choices.get());
  return choices;
}

const std::string& sources_digest() {
  static const std::string digest_text = [] {
    std::string all;
    for (const TemplateFile& file : template_files()) {
      all += text(file.name, '\n', digest(file.text).hex(), '\n');
    }
    return digest(all).hex().substr(0, 16);
  }();
  return digest_text;
}

}  // namespace lathe
