// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The question that choices answer, as texts.
#include "codegen/choice.h"

#include <algorithm>

#include "codegen/base/text.h"

namespace lathe {
namespace {

bool is_of_tile(const Constant& constant, std::initializer_list<const char*> tile) {
  return std::any_of(tile.begin(), tile.end(),
                     [&](const char* name) { return constant.name == name; });
}

std::string class_of(KernelSpec spec, std::initializer_list<const char*> tile) {
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

std::string tile_of(const KernelSpec& spec, std::initializer_list<const char*> tile) {
  std::string result;
  for (const char* name : tile) result += text(name, '=', spec.constant(name), ' ');
  return result + text("warps=", spec.threads / 32);
}

}  // namespace

Question question_of(const std::vector<KernelSpec>& specs,
                     std::initializer_list<const char*> tile) {
  Question question;
  if (specs.empty()) return question;
  question.kernel = specs.front().kernel;
  question.problem_class = class_of(specs.front(), tile);
  for (const KernelSpec& spec : specs) question.candidates.push_back(tile_of(spec, tile));
  return question;
}

DeviceFacts without_choices(DeviceFacts facts) {
  facts.choices = nullptr;
  return facts;
}

}  // namespace lathe
