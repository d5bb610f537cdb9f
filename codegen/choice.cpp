// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Writes the tuning key that choices answer, as texts.
#include "codegen/choice.h"

#include <algorithm>

#include "codegen/base/text.h"

namespace lathe {
namespace {

constexpr std::string_view kKernelWord = "kernel=";

std::string class_of(KernelSpec spec, const std::vector<const char*>& tile) {
  std::erase_if(spec.constants, [&](const Constant& constant) {
    return std::ranges::count(tile, constant.name) > 0;
  });
  spec.tensor_maps.clear();  // their boxes follow from the tile
  spec.min_blocks = 1;       // and so do launch bounds
  const std::string all = spec.text();
  const size_t end = all.rfind(" threads=");
  const size_t begin = std::min(spec.kernel.size() + 1, end);
  return all.substr(begin, end - begin) + spec.also_decides;
}

std::string tile_of(const KernelSpec& spec, const std::vector<const char*>& tile) {
  std::string result;
  for (const char* name : tile) {
    for (const Constant& constant : spec.constants) {
      if (constant.name == name) result += text(name, '=', constant.value, ' ');
    }
  }
  return result + text("warps=", spec.threads / 32);
}

}  // namespace

TuningKey tuning_key_of(const std::vector<CandidateGroup>& groups) {
  TuningKey tuning_key;
  if (groups.empty() || groups.front().specs.empty()) return tuning_key;
  const KernelSpec& first = groups.front().specs.front();
  tuning_key.kernel = first.kernel;
  tuning_key.problem_class = class_of(first, groups.front().tile);
  for (const CandidateGroup& group : groups) {
    for (const KernelSpec& spec : group.specs) {
      const bool same = spec.kernel == tuning_key.kernel;
      tuning_key.candidates.push_back((same ? "" : text(kKernelWord, spec.kernel, ' ')) +
                                      tile_of(spec, group.tile));
    }
  }
  return tuning_key;
}

std::string_view kernel_of(const TuningKey& tuning_key, std::string_view candidate) {
  if (!candidate.starts_with(kKernelWord)) return tuning_key.kernel;
  candidate.remove_prefix(kKernelWord.size());
  return candidate.substr(0, candidate.find(' '));
}

CandidateIndex pick(const std::vector<CandidateGroup>& groups, const DeviceFacts& facts) {
  CandidateIndex found;
  if (!facts.choices || facts.choices->silent()) return found;
  const TuningKey tuning_key = tuning_key_of(groups);
  if (tuning_key.candidates.size() < 2) return found;
  size_t chosen = facts.choices->choose(tuning_key);
  if (chosen >= tuning_key.candidates.size()) return found;
  for (; chosen >= groups[found.group].specs.size(); ++found.group) {
    chosen -= groups[found.group].specs.size();
  }
  found.spec = chosen;
  return found;
}

DeviceFacts without_choices(DeviceFacts facts) {
  facts.choices = nullptr;
  return facts;
}

}  // namespace lathe
