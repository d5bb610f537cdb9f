// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The C functions that list the operators.
#include "ops/schema.h"

extern "C" {

size_t lathe_operator_count(void) { return lathe::operators().size(); }

const lathe_operator_info* lathe_operator_at(size_t index) {
  return index < lathe::operators().size() ? &lathe::operators()[index].info : nullptr;
}

const lathe_operator_info* lathe_operator_find(const char* name) {
  const lathe::Operator* op = name ? lathe::find_operator(name) : nullptr;
  return op ? &op->info : nullptr;
}

}  // extern "C"
