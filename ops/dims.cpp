// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Parses the words of the operators' shapes.
#include "ops/dims.h"

#include <cstdlib>
#include <span>

#include "codegen/base/text.h"

namespace lathe {

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

Dim find_dim(std::string_view name, OwnDims own) {
  for (size_t i = 0; i < own.size(); ++i) {
    if (name == own[i].name) return own_dim(i);
  }
  int index = 0;
  while (index + 1 < kDimCount && (name.empty() || name != kDims[index].name)) ++index;
  return static_cast<Dim>(index);
}

Shape parse_shape(std::string_view shape, OwnDims own) {
  Shape parsed;
  parsed.own = own.data();
  for (std::string_view word : split(shape, ',')) {
    if (word.front() >= '0' && word.front() <= '9') {
      parsed.dims[parsed.rank++] = {Dim::fixed, std::atoi(std::string(word).c_str())};
      continue;
    }
    const int plus = word.ends_with("+1") ? 1 : 0;
    if (plus) word.remove_suffix(2);
    parsed.dims[parsed.rank++] = {find_dim(word, own), plus};
  }
  return parsed;
}

std::vector<Shape> parse_shapes(std::string_view shapes, OwnDims own) {
  std::vector<Shape> out;
  for (std::string_view each : split(shapes, '|')) out.push_back(parse_shape(each, own));
  return out;
}

Shape shape_of_rank(std::string_view shapes, int rank, int number, OwnDims own) {
  Shape found;
  for (const Shape& shape : parse_shapes(shapes, own)) {
    if (shape.rank != rank) continue;
    found = shape;
    if (number-- == 0) break;
  }
  return found;
}

std::string shape_text(const Shape& shape) {
  std::string out = "[";
  for (int i = 0; i < shape.rank; ++i) {
    const Axis axis = shape.dims[i];
    out += i ? "," : "";
    out += axis.dim == Dim::fixed ? std::to_string(axis.plus)
                                  : text(shape.name(axis.dim), axis.plus ? "+1" : "");
  }
  return out + "]";
}

std::string extents_text(int rank, const int64_t* extents) {
  const auto number = [](int64_t extent) { return std::to_string(extent); };
  return text("[", comma_list(std::span(extents, static_cast<size_t>(rank)), number), "]");
}

bool has_dim(const Shape& shape, Dim dim) {
  for (int i = 0; i < shape.rank; ++i) {
    if (shape.dims[i].dim == dim) return true;
  }
  return false;
}

bool is_packed_shape(const Shape& shape) {
  return has_dim(shape, Dim::Tq) || has_dim(shape, Dim::Tk);
}
bool is_batched_shape(const Shape& shape) {
  return has_dim(shape, Dim::Sq) || has_dim(shape, Dim::Sk);
}

}  // namespace lathe
