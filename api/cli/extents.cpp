// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Binding letters to extents.
#include "api/cli/extents.h"

#include "api/cli/failure.h"

namespace lathe::cli {

std::vector<std::string> letters(const lathe_operator_tensor& tensor) {
  std::vector<std::string> out;
  std::string word;
  for (const char* c = tensor.shape;; ++c) {
    if (*c != ',' && *c != '\0') {
      word += *c;
      continue;
    }
    out.push_back(word);
    word.clear();
    if (*c == '\0') return out;
  }
}

std::pair<std::string, int64_t> parse_letter(const std::string& letter) {
  const size_t plus = letter.find('+');
  if (plus == std::string::npos) return {letter, 0};
  return {letter.substr(0, plus), std::stoll(letter.substr(plus + 1))};
}

void Extents::bind(const lathe_operator_tensor& tensor, const TensorSpec& spec) {
  const std::string name = tensor.name;
  const auto names = letters(tensor);
  if (names.size() != spec.shape.size()) {
    refuse("tensor " + name + " has shape " + shape_text(spec.shape) + ", expected [" +
           joined(names) + "]");
  }
  for (size_t i = 0; i < names.size(); ++i) {
    const auto [letter, extra] = parse_letter(names[i]);
    const int64_t extent = spec.shape[i];
    if (extent == -1) {
      known_->emplace(letter, -1);
      continue;
    }
    if (extent < extra) {
      refuse("tensor " + name + " has shape " + shape_text(spec.shape) + ": " + names[i] + " is " +
             std::to_string(extent) + ", allowed: at least " + std::to_string(extra));
    }
    set(letter, extent - extra, name, spec);
  }
}

void Extents::imply(const std::string& letter, int64_t value, const std::string& from) {
  if (known_->emplace(letter, value).second) from_[letter] = from;
}

void Extents::set(const std::string& letter, int64_t value, const std::string& name,
                  const TensorSpec& spec) {
  const auto [place, fresh] = known_->emplace(letter, value);
  if (fresh || place->second == -1) {
    place->second = value;
    from_[letter] = name;
  } else if (place->second != value) {
    refuse("tensor " + name + " has shape " + shape_text(spec.shape) + ": its " + letter + " is " +
           std::to_string(value) + ", but " + from_[letter] + " has " + letter + " = " +
           std::to_string(place->second));
  }
}

}  // namespace lathe::cli
