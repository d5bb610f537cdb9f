// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The question that choices answer, as texts.
#include "codegen/choice.h"

#include <algorithm>

#include "codegen/base/text.h"

namespace lathe {
namespace {

constexpr std::string_view kKernelWord = "kernel=";

bool is_of_tile(const Constant& constant, const std::vector<const char*>& tile) {
  return std::any_of(tile.begin(), tile.end(),
                     [&](const char* name) { return constant.name == name; });
}

std::string class_of(KernelSpec spec, const std::vector<const char*>& tile) {
  auto& constants = spec.constants;
  constants.erase(
      std::remove_if(constants.begin(), constants.end(),
                     [&](const Constant& constant) { return is_of_tile(constant, tile); }),
      constants.end());
  const std::string all = spec.text();
  const size_t end = all.rfind(" threads=");
  const size_t begin = std::min(spec.kernel.size() + 1, end);
  return all.substr(begin, end - begin);
}

std::string tile_of(const KernelSpec& spec, const std::vector<const char*>& tile) {
  std::string result;
  for (const char* name : tile) result += text(name, '=', spec.constant(name), ' ');
  return result + text("warps=", spec.threads / 32);
}

}  // namespace

Question question_of(const std::vector<CandidateGroup>& groups) {
  Question question;
  if (groups.empty() || groups.front().specs.empty()) return question;
  const KernelSpec& first = groups.front().specs.front();
  question.kernel = first.kernel;
  question.problem_class = class_of(first, groups.front().tile);
  for (const CandidateGroup& group : groups) {
    for (const KernelSpec& spec : group.specs) {
      const bool same = spec.kernel == question.kernel;
      question.candidates.push_back((same ? "" : text(kKernelWord, spec.kernel, ' ')) +
                                    tile_of(spec, group.tile));
    }
  }
  return question;
}

Question question_of(const std::vector<KernelSpec>& specs,
                     std::initializer_list<const char*> tile) {
  return question_of({CandidateGroup{specs, tile}});
}

std::string_view kernel_of(const Question& question, std::string_view candidate) {
  if (!candidate.starts_with(kKernelWord)) return question.kernel;
  candidate.remove_prefix(kKernelWord.size());
  return candidate.substr(0, candidate.find(' '));
}

CandidateIndex pick(const std::vector<CandidateGroup>& groups, const DeviceFacts& facts) {
  CandidateIndex found;
  if (!facts.choices || facts.choices->silent()) return found;
  const Question question = question_of(groups);
  if (question.candidates.size() < 2) return found;
  size_t chosen = facts.choices->choose(question);
  if (chosen >= question.candidates.size()) return found;
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
