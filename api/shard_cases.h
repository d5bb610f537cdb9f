// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Cases of lathe_shard_plan: from the words of JSON to the pure functions of collective/ and back.
#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "codegen/base/status.h"

namespace lathe {

using Json = nlohmann::json;

// A case that must be refused. It stays within lathe_shard_plan, where the JSON library throws too.
struct Refused : std::runtime_error {
  using runtime_error::runtime_error;
};

template <class T>
T accepted(Result<T> result) {
  if (!result.ok()) throw Refused(result.status().text());
  return std::move(*result);
}
inline void accepted(const Status& status) {
  if (!status.ok()) throw Refused(status.text());
}

// One kind of question: a case's inputs to its results.
struct ShardKind {
  const char* name;
  Json (*answer)(const Json& input);
};

// Cuts of a sequence axis, rings and gathers; and the exchange of shards for balance.
extern const ShardKind kShardKinds[8];
extern const ShardKind kDispatchKinds[3];

}  // namespace lathe
