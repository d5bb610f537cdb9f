// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Choices that the tuner makes plans with, and those that plans are made with otherwise.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/plan.h"
#include "cache/tuned_choices.h"
#include "codegen/choice.h"

namespace lathe {

// Maps kernel and class to the text of a candidate; other tuning keys get the heuristic's.
class FixedChoices : public Choices {
 public:
  FixedChoices() = default;
  explicit FixedChoices(const std::vector<TunedRecord>& records);
  void set(const TuningKey& tuning_key, const std::string& choice);
  size_t choose(const TuningKey& tuning_key) const override;

 private:
  std::map<std::string, std::string> choices_;
};

// Returns the tuning keys, each with more than one candidate once, that a plan of the problem asks
// and that matter to a call with `given` in its slots: of kernels that serve different lengths, the
// ones that serve these. Nothing is compiled.
Result<std::vector<TuningKey>> tuning_keys_of_call(const lathe_context& context,
                                                   const lathe_problem& problem,
                                                   const std::vector<Slot>& slots,
                                                   const DLTensor* const* given);

// The facts that a plan of the problem in the context is chosen by. Over ranks nothing tuned holds
// but what the group shares, since all must choose alike.
DeviceFacts facts_for(const lathe_context& context, const lathe_problem& problem);

TunedDevice tuned_device_of(const lathe_context& context);
// Reads the databases of the context's device: LATHE_TUNED, or the cache directory.
std::shared_ptr<TunedChoices> open_tuned(lathe_context& context);
// Returns the digest of what is embedded: kernels of other sources may have other times.
const std::string& sources_digest();

// Gives the group rank 0's choices. Collective.
Status share_tuned(lathe_group& group);

// Tuned choices that travel with kernels: "<gpu> | RECORD", a line of a bundle's information.

// The records of the user's directory, and those that hold for the context's device, by which
// kernels among `keys` (null: all of the sources) were made.
std::vector<std::string> tuned_lines(lathe_context& context,
                                     const std::vector<EntrySource*>& sources,
                                     const std::vector<Digest>* keys);
// Adds those of a bundle, whose information text this is, to the user's directory.
Status take_tuned_lines(lathe_context& context, const std::string& information);

}  // namespace lathe
