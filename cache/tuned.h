// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Tuned choices as text: which tile was the fastest for a kernel's problem class on a GPU.
//
//   lathe-tuned 1
//   KERNEL | PROBLEM CLASS | CHOICE | gpu=h100 arch=sm_90a sms=132 shape=... us=12.3 ...
//
// Strict: a line that does not parse is skipped and counted, a text that does not begin as ours is
// refused. Fields of later versions are kept.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/base/status.h"

namespace lathe {

struct TunedRecord {
  std::string kernel;         // "attention_forward"
  std::string problem_class;  // as TuningKey has it
  std::string choice;         // a text of its candidates
  // The measurement holds for this device and shape.
  std::string gpu;          // "h100", or the driver's name of the device made a word
  std::string arch;         // "sm_90a"
  int multiprocessors = 0;  // sms
  std::string shape;        // "causal_conv1d(x:1x4096x2048)": one class has many
  // Times of a whole run of the plan, with this choice and with the heuristic's.
  double us = 0, default_us = 0;
  bool measured = false;  // by=events; else by=model, as the simulator counts
  int tried = 0;          // candidates, the heuristic's among them
  // For information: with others a record is stale, and still used.
  std::string lathe, driver, nvrtc, sources;
  std::map<std::string, std::string> others;  // fields that this version does not know

  // Two records of one place say the same of the same.
  std::string place() const;
  // True if the sources or the library were others.
  bool stale(const std::string& lathe_now, const std::string& sources_now) const;
};

inline constexpr std::string_view kTunedHeader = "lathe-tuned 1";

// One line, without its end. A record has one text.
std::string text_of(const TunedRecord& record);
// INVALID_ARGUMENT with what is wrong.
Result<TunedRecord> parse_tuned_record(std::string_view line);

struct TunedText {
  std::vector<TunedRecord> records;
  size_t skipped = 0;   // lines
  std::string problem;  // of the first of them: "line 3: ..."
};
// INVALID_ARGUMENT if it does not begin with the header; UNSUPPORTED for that of a later version.
Result<TunedText> parse_tuned(std::string_view text);

// A measured record before a modelled one, then the faster.
bool is_better(const TunedRecord& a, const TunedRecord& b);
// The better of each place, sorted; in whatever order they come.
std::vector<TunedRecord> merged(std::vector<TunedRecord> records);
std::string tuned_text(const std::vector<TunedRecord>& records);  // header and lines

// Letters, digits and "._-" of a name, the rest dashes: fit for a file's name and a field.
std::string safe_word(std::string_view name);

// Returns whether the record chooses a kernel with this spec's text.
bool is_choice_of(const TunedRecord& record, std::string_view spec_text);

}  // namespace lathe
