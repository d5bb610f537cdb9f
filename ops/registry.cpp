// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Finds the operators of all families by name.
#include <vector>

#include "codegen/base/nearest_name.h"
#include "codegen/base/printable.h"
#include "codegen/base/text.h"
#include "ops/schema.h"

// One word for each folder of operators: it defines
// std::span<const Operator> <word>_operators().
#define LATHE_FAMILIES(family)                                                              \
  family(conv) family(attention) family(decode) family(ring) family(kda) family(kda_decode) \
      family(sparse) family(shard)

namespace lathe {

#define LATHE_DECLARE(name) std::span<const Operator> name##_operators();
LATHE_FAMILIES(LATHE_DECLARE)
#undef LATHE_DECLARE

namespace {

template <typename Row>
int find_named(std::span<const Row> rows, std::string_view name) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (name == rows[i].name) return static_cast<int>(i);
  }
  return -1;
}

// "kda has no tensor 'querys'; did you mean 'q'?; it has q, k, v".
template <typename Row>
std::string unknown(const std::string& head, std::string_view name, const char* tail,
                    std::span<const Row> rows) {
  std::vector<std::string_view> names;
  for (const Row& row : rows) names.emplace_back(row.name);
  return text(head, in_quotes(std::string(name)), did_you_mean(name, names), tail,
              names.empty() ? "none" : comma_list(names));
}

}  // namespace

std::span<const Operator> operators() {
  static const std::vector<Operator> all = [] {
    std::vector<Operator> out;
    const auto append = [&out](std::span<const Operator> family) {
      out.insert(out.end(), family.begin(), family.end());
    };
#define LATHE_APPEND(name) append(name##_operators());
    LATHE_FAMILIES(LATHE_APPEND)
#undef LATHE_APPEND
    return out;
  }();
  return all;
}

const Operator* find_operator(std::string_view name) {
  const int index = find_named(operators(), name);
  return index < 0 ? nullptr : &operators()[static_cast<size_t>(index)];
}

int find_tensor(const Operator& op, std::string_view name) { return find_named(op.tensors, name); }
int find_option(const Operator& op, std::string_view name) { return find_named(op.options, name); }

std::string operator_names() { return comma_list(operators(), &Operator::name); }

std::string no_such_operator(std::string_view name) {
  return unknown("there is no operator ", name, "; there are ", operators());
}
std::string no_such_tensor(const Operator& op, std::string_view name) {
  return unknown(text(op.name, " has no tensor "), name, "; it has ", op.tensors);
}
std::string no_such_option(const Operator& op, std::string_view name) {
  return unknown(text(op.name, " has no option "), name, "; it has ", op.options);
}

}  // namespace lathe
