// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The tests of tuned choices share this file: a record, its device and its tuning key.
#pragma once

#include <string>
#include <vector>

#include "cache/tuned.h"
#include "cache/tuned_choices.h"

namespace lathe::test {

inline const std::string kClass = "x=bf16 weight=bf16 width=4";
inline const std::vector<std::string> kCandidates = {"tokens=64 warps=4", "tokens=128 warps=4",
                                                     "tokens=32 warps=8"};

inline TunedRecord sample(const std::string& kernel = "causal_conv1d", double us = 12.5) {
  TunedRecord record;
  record.kernel = kernel, record.problem_class = kClass, record.choice = kCandidates[1];
  record.gpu = "h100", record.arch = "sm_90a", record.multiprocessors = 132;
  record.shape = "causal_conv1d(x:1x4096x2048)";
  record.us = us, record.default_us = 14, record.measured = true, record.tried = 3;
  record.lathe = "0.1.0", record.driver = "13000", record.sources = "abc";
  return record;
}

inline const TunedDevice kDevice = {"h100", "sm_90a", 132};

inline TuningKey tuning_key(const std::string& kernel = "causal_conv1d") {
  return {kernel, kClass, kCandidates};
}

inline bool same_records(const std::vector<TunedRecord>& a, const std::vector<TunedRecord>& b) {
  return tuned_text(a) == tuned_text(b);
}

}  // namespace lathe::test
