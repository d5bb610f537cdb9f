// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The operators of all families, found by name, and the words of their tables taken apart.
#include <cstdlib>
#include <iterator>

#include "codegen/base/text.h"
#include "ops/entries.h"
#include "ops/schema.h"

namespace lathe {
namespace {

std::string join(size_t count, const char* (*name)(const void*, size_t), const void* of) {
  std::string names;
  for (size_t i = 0; i < count; ++i) names += (i ? ", " : "") + std::string(name(of, i));
  return names;
}

}  // namespace

std::span<const Operator> operators() {
  static const std::vector<Operator> all = [] {
    std::vector<Operator> joined;
    for (const auto family : {conv_operators(), attention_operators(), ring_operators(),
                              kda_operators(), sparse_operators(), shard_operators()}) {
      joined.insert(joined.end(), family.begin(), family.end());
    }
    return joined;
  }();
  return all;
}

const Operator* find_operator(std::string_view name) {
  for (const Operator& op : operators()) {
    if (name == op.info.name) return &op;
  }
  return nullptr;
}

int find_tensor(const Operator& op, std::string_view name) {
  for (size_t i = 0; i < op.info.tensor_count; ++i) {
    if (name == op.info.tensors[i].name) return static_cast<int>(i);
  }
  return -1;
}

int find_option(const Operator& op, std::string_view name) {
  for (size_t i = 0; i < op.info.option_count; ++i) {
    if (name == op.info.options[i].name) return static_cast<int>(i);
  }
  return -1;
}

std::string operator_names() {
  return join(
      operators().size(), [](const void*, size_t i) { return operators()[i].info.name; }, nullptr);
}
std::string tensor_names(const Operator& op) {
  return join(
      op.info.tensor_count,
      [](const void* of, size_t i) {
        return static_cast<const Operator*>(of)->info.tensors[i].name;
      },
      &op);
}
std::string option_names(const Operator& op) {
  return join(
      op.info.option_count,
      [](const void* of, size_t i) {
        return static_cast<const Operator*>(of)->info.options[i].name;
      },
      &op);
}

std::vector<std::string_view> split(std::string_view list, char at) {
  std::vector<std::string_view> words;
  while (!list.empty()) {
    const size_t end = list.find(at);
    words.push_back(list.substr(0, end));
    list.remove_prefix(end == list.npos ? list.size() : end + 1);
  }
  return words;
}

bool listed(std::string_view list, char at, std::string_view word) {
  for (std::string_view each : split(list, at)) {
    if (each == word) return true;
  }
  return false;
}

Shape parse_shape(std::string_view shape) {
  Shape parsed;
  for (std::string_view word : split(shape, ',')) {
    if (word.front() >= '0' && word.front() <= '9') {
      parsed.dims[parsed.rank++] = {Letter::fixed, std::atoi(std::string(word).c_str())};
      continue;
    }
    const int plus = word.ends_with("+1") ? 1 : 0;
    if (plus) word.remove_suffix(2);
    int letter = 0;
    while (letter + 1 < kLetters && word != kLetterNames[letter]) ++letter;
    parsed.dims[parsed.rank++] = {static_cast<Letter>(letter), plus};
  }
  return parsed;
}

Shape shape_of_rank(std::string_view shapes, int rank, int number) {
  Shape found;
  for (std::string_view each : split(shapes, '|')) {
    const Shape shape = parse_shape(each);
    if (shape.rank != rank) continue;
    found = shape;
    if (number-- == 0) break;
  }
  return found;
}

std::string shape_text(const Shape& shape) {
  std::string out = "[";
  for (int i = 0; i < shape.rank; ++i) {
    const auto [letter, plus] = shape.dims[i];
    const bool fixed = letter == Letter::fixed;
    out += text(i ? "," : "", fixed ? std::to_string(plus) : name_of(letter),
                plus && !fixed ? "+1" : "");
  }
  return out + "]";
}

bool has_letter(const Shape& shape, Letter letter) {
  for (int i = 0; i < shape.rank; ++i) {
    if (shape.dims[i].letter == letter) return true;
  }
  return false;
}

}  // namespace lathe
