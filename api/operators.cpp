// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Lists the operators for C: the tables of ops/ as structs of lathe.h.
#include <iterator>
#include <vector>

#include "api/lathe.h"
#include "ops/schema.h"

namespace lathe {
namespace {

lathe_operator_tensor to_c(const TensorInfo& tensor) {
  return {.name = tensor.name,
          .shape = tensor.shape,
          .role = static_cast<lathe_role>(tensor.role),
          .optional = tensor.is_optional,
          .dtypes = tensor.dtypes,
          .alias_of = tensor.alias_of,
          .sentence = tensor.sentence,
          .given_if = tensor.given_if,
          .changed_by = tensor.changed_by};
}

lathe_operator_option to_c(const OptionInfo& option) {
  return {.name = option.name,
          .type = static_cast<lathe_option_type>(option.type),
          .fallback = option.fallback,
          .allowed = option.allowed,
          .sentence = option.sentence};
}

// An operator's rows and the struct that points to them.
struct Listed {
  std::vector<lathe_operator_tensor> tensors;
  std::vector<lathe_operator_option> options;
  lathe_operator_info info;

  explicit Listed(const Operator& op) {
    for (const TensorInfo& tensor : op.tensors) tensors.push_back(to_c(tensor));
    for (const OptionInfo& option : op.options) options.push_back(to_c(option));
    info = {.name = op.name,
            .sentence = op.sentence,
            .tensors = tensors.data(),
            .tensor_count = tensors.size(),
            .options = options.data(),
            .option_count = options.size(),
            .ranks = op.ranks};
  }
};

const std::vector<Listed>& listed_operators() {
  static const std::vector<Listed> all(operators().begin(), operators().end());
  return all;
}

}  // namespace
}  // namespace lathe

using namespace lathe;

static_assert(static_cast<int>(Role::inout) == LATHE_INOUT);
static_assert(static_cast<int>(OptionType::word) == LATHE_OPTION_STRING);

extern "C" {

size_t lathe_operator_count(void) { return operators().size(); }

const lathe_operator_info* lathe_operator_at(size_t index) {
  return index < operators().size() ? &listed_operators()[index].info : nullptr;
}

const lathe_operator_info* lathe_operator_find(const char* name) {
  const Operator* op = name ? find_operator(name) : nullptr;
  return op ? lathe_operator_at(static_cast<size_t>(op - operators().data())) : nullptr;
}

}  // extern "C"
