// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Who decides among the tiles that a kernel could have: the order of the candidates, unless the
// device's facts bring choices that were measured. The tuner listens to the same question.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "codegen/device_facts.h"
#include "codegen/spec.h"

namespace lathe {

struct Question {
  std::string kernel;         // "attention_forward"
  std::string problem_class;  // the spec's text but for kernel, tile, threads and shared memory
  std::vector<std::string> candidates;  // "m=128 n=64 stages=2 warps=4"; the heuristic's first
};

class Choices {
 public:
  virtual ~Choices() = default;
  // The index of a candidate; any other number is taken for 0. Called from several threads.
  virtual size_t choose(const Question& question) const = 0;
  // Whether every answer would be 0: then no question is put together.
  virtual bool silent() const { return false; }
};

// `tile`: the constants of the specs that a tile fixes, beside the number of warps.
Question question_of(const std::vector<KernelSpec>& specs, std::initializer_list<const char*> tile);

// The same device, of which nothing was measured: for what must not move with a tile.
DeviceFacts without_choices(DeviceFacts facts);

// Of `candidates`, of which there is at least one. `spec_of` makes a candidate's spec.
template <typename Tile, typename SpecOf>
const Tile& pick(const std::vector<Tile>& candidates, const DeviceFacts& facts,
                 std::initializer_list<const char*> tile, SpecOf spec_of) {
  if (!facts.choices || candidates.size() < 2 || facts.choices->silent()) return candidates.front();
  std::vector<KernelSpec> specs;
  for (const Tile& candidate : candidates) specs.push_back(spec_of(candidate));
  const size_t chosen = facts.choices->choose(question_of(specs, tile));
  return candidates[chosen < candidates.size() ? chosen : 0];
}

}  // namespace lathe
