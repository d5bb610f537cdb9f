// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A Caller of the C API keeps tensors by name and runs operators on some of them.
#pragma once

#include "tests/harness/check.h"

namespace apitest {

class Caller {
 public:
  // Heads and tokens lie apart, and poison is around them.
  void put(const std::string& name, lathe_dtype dtype, const std::vector<int64_t>& shape,
           const Values& values) {
    const bool row = name.find("lse") != name.npos || name == "delta";
    const bool gaps = !row && shape.size() > 2;
    tensors_[name] = {dtype, shape, values, true,
                      Placement{.token_gap = gaps ? 8 : 0,
                                .batch_gap = gaps && shape.size() == 4 ? 24 : 0,
                                .offset = gaps ? 16 : 0,
                                .guard = 32}};
  }
  const Values& get(const std::string& name) const { return tensors_.at(name).values; }

  // `names` maps the operator's tensors to ours. The tensors keep what the run writes.
  Answer run(const std::string& op, const std::map<std::string, std::string>& names,
             const std::map<std::string, std::string>& options) {
    Call call;
    call.op = op, call.options = options, call.texts = texts, call.tiles = tiles;
    for (const auto& [theirs, ours] : names) call.tensors[theirs] = tensors_.at(ours);
    Answer answer = apitest::run(call);
    for (const auto& [theirs, ours] : names) tensors_.at(ours).values = answer.at(theirs);
    return answer;
  }
  // Runs the operator on tensors whose names are the operator's own.
  Answer run(const std::string& op, const std::vector<std::string>& names,
             const std::map<std::string, std::string>& options) {
    std::map<std::string, std::string> own;
    for (const std::string& name : names) own[name] = name;
    return run(op, own, options);
  }

  std::map<std::string, std::string> texts, tiles;  // of every run

 private:
  std::map<std::string, CallTensor> tensors_;
};

}  // namespace apitest
