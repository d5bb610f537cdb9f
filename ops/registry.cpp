// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Finds the operators of all families by name.
#include <map>
#include <mutex>
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

namespace {

// The operators that were made at run time, as long as somebody holds them.
struct Registered {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<const Operator>, std::less<>> by_name;
};

Registered& registered() {
  static Registered all;
  return all;
}

}  // namespace

OperatorPointer find_operator(std::string_view name) {
  const int index = find_named(operators(), name);
  if (index >= 0) {
    return {std::shared_ptr<const void>(), &operators()[static_cast<size_t>(index)]};
  }
  Registered& all = registered();
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_name.find(name);
  return found == all.by_name.end() ? nullptr : found->second.lock();
}

OperatorPointer register_operator(OperatorPointer made) {
  Registered& all = registered();
  const std::lock_guard lock(all.mutex);
  // Names of operators that nobody holds any more go when another one comes.
  std::erase_if(all.by_name, [](const auto& each) { return each.second.expired(); });
  std::weak_ptr<const Operator>& place = all.by_name[made->name];
  if (OperatorPointer known = place.lock()) return known;
  place = made;
  return made;
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
