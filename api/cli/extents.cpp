// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Binding letters to extents.
#include "api/cli/extents.h"

#include <algorithm>
#include <cctype>

#include "api/cli/failure.h"

namespace lathe::cli {

std::vector<std::vector<std::string>> shapes(const lathe_operator_tensor& tensor) {
  std::vector<std::vector<std::string>> out(1);
  std::string word;
  for (const char* c = tensor.shape;; ++c) {
    if (*c != ',' && *c != '|' && *c != '\0') {
      word += *c;
      continue;
    }
    out.back().push_back(word);
    word.clear();
    if (*c == '|') out.emplace_back();
    if (*c == '\0') return out;
  }
}

std::vector<std::string> letters(const lathe_operator_tensor& tensor, size_t rank, int number) {
  std::vector<std::string> found;
  for (auto& each : shapes(tensor)) {
    if (each.size() != rank) continue;
    found = std::move(each);
    if (number-- == 0) break;
  }
  return found;
}

bool varies(const std::string& letter) {
  // Batch, captured, sequences, slots, tokens, speculative ones; pages, their size and how many a
  // sequence has; entries of a list (topk).
  return std::string_view("BCNSTPpMst").find(letter.front()) != std::string_view::npos;
}

std::vector<std::string> varying_letters(const lathe_operator_info& op) {
  std::vector<std::string> out;
  for (size_t i = 0; i < op.tensor_count; ++i) {
    for (const auto& shape : shapes(op.tensors[i])) {
      for (const std::string& text : shape) {
        const auto [letter, extra] = parse_letter(text);
        if (varies(letter) && std::find(out.begin(), out.end(), letter) == out.end()) {
          out.push_back(letter);
        }
      }
    }
  }
  return out;
}

std::pair<std::string, int64_t> parse_letter(const std::string& letter) {
  const size_t plus = letter.find('+');
  if (plus == std::string::npos) return {letter, 0};
  return {letter.substr(0, plus), std::stoll(letter.substr(plus + 1))};
}

void Extents::bind(const lathe_operator_tensor& tensor, const TensorSpec& spec) {
  const std::string name = tensor.name;
  const auto names = letters(tensor, spec.shape.size(), number_);
  if (names.empty()) {
    std::string allowed;
    for (const auto& each : shapes(tensor)) {
      allowed += (allowed.empty() ? "[" : " or [") + joined(each) + "]";
    }
    refuse("tensor " + name + " has shape " + shape_text(spec.shape) + ", expected " + allowed);
  }
  for (size_t i = 0; i < names.size(); ++i) {
    const auto [letter, extra] = parse_letter(names[i]);
    const int64_t extent = spec.shape[i];
    if (std::isdigit(static_cast<unsigned char>(letter.front()))) {
      if (extent == std::stoll(letter)) continue;
      refuse("tensor " + name + " has shape " + shape_text(spec.shape) + ", expected [" +
             joined(names) + "]");
    }
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
