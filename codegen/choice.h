// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Choices decide among the tiles that a kernel could have: the order of the candidates does, unless
// the device's facts bring choices that were measured. The tuner listens to the same tuning key.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/device_facts.h"
#include "codegen/spec.h"

namespace lathe {

struct TuningKey {
  std::string kernel;         // "attention_forward"
  std::string problem_class;  // the spec's text but for kernel, tile, threads and shared memory
  std::vector<std::string> candidates;  // "m=128 n=64 stages=2 warps=4"; the heuristic's first
};

class Choices {
 public:
  virtual ~Choices() = default;
  // The index of a candidate; any other number is taken for 0. Called from several threads.
  virtual size_t choose(const TuningKey& tuning_key) const = 0;
  // True if every answer would be 0: then no tuning key is put together.
  virtual bool silent() const { return false; }
};

// The configurations of one kernel, the default first. `tile`: the constants of the specs that a
// configuration fixes, beside the number of warps.
struct CandidateGroup {
  std::vector<KernelSpec> specs;
  std::vector<const char*> tile;
};
struct CandidateIndex {
  size_t group = 0, spec = 0;
};

// The tuning key has the name and the class of the first group. Candidates of the others begin with
// the name of their kernel: "kernel=causal_conv1d_update_row warps=4".
TuningKey tuning_key_of(const std::vector<CandidateGroup>& groups);
// The kernel that a candidate of the tuning key stands for.
std::string_view kernel_of(const TuningKey& tuning_key, std::string_view candidate);

// Takes what the device's choices say, else the default of the first group. No group is empty.
CandidateIndex pick(const std::vector<CandidateGroup>& groups, const DeviceFacts& facts);

// The same device, of which nothing was measured: for what must not move with a tile.
DeviceFacts without_choices(DeviceFacts facts);

// Returns the candidates as a group. `spec_of` makes a candidate's spec.
template <typename Tile, typename SpecOf>
CandidateGroup group_of(const std::vector<Tile>& candidates, std::vector<const char*> tile,
                        SpecOf spec_of) {
  CandidateGroup group = {{}, std::move(tile)};
  for (const Tile& candidate : candidates) group.specs.push_back(spec_of(candidate));
  return group;
}

// Picks one of `candidates`, of which there is at least one.
template <typename Tile, typename SpecOf>
const Tile& pick(const std::vector<Tile>& candidates, const DeviceFacts& facts,
                 std::initializer_list<const char*> tile, SpecOf spec_of) {
  if (!facts.choices || candidates.size() < 2 || facts.choices->silent()) return candidates.front();
  return candidates[pick({group_of(candidates, tile, spec_of)}, facts).spec];
}

}  // namespace lathe
