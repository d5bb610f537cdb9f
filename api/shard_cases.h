// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Reads cases of lathe_shard_plan from JSON for the pure functions of collective/, and writes
// answers back.
#pragma once

#include <climits>
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

// Returns "VALUE" cut short, for messages.
std::string shown(const Json& value);

// A whole number from `low` to `high`: how every number of a case is read. `name` is for messages.
int64_t integer_of(const Json& value, const char* name, int64_t low, int64_t high);
std::vector<int64_t> integers_of(const Json& value, const char* name, int64_t low, int64_t high);

// The inputs of one case, and the room that is left for answers in this call.
class PlanCase {
 public:
  PlanCase(const Json& input, int64_t* room) : input_(input), room_(room) {}

  const Json& at(const char* name) const;
  std::string word(const char* name) const;
  bool has(const char* name) const { return input_.is_object() && input_.contains(name); }
  bool flag(const char* name) const;  // false if it is not there
  int64_t integer(const char* name, int64_t low, int64_t high) const {
    return integer_of(at(name), name, low, high);
  }
  std::vector<int64_t> integers(const char* name, int64_t low, int64_t high) const {
    return integers_of(at(name), name, low, high);
  }
  int world() const;
  std::vector<int64_t> cu_seqlens() const;

  // Takes the room of `count` things of an answer, each of which is so many numbers of JSON.
  // Refuses more than is left.
  void list(const char* things, int64_t count, int64_t numbers) const;

 private:
  const Json& input_;
  int64_t* room_;
};

// Numbers that the answers of one call may list: about a gigabyte while they are made.
constexpr int64_t kMostPlanNumbers = int64_t{1} << 23;

// Holds what lathe_shard_plan lends, with room for so many numbers.
Result<std::string> shard_answers(const std::string& kind, const char* input, int64_t room);

// Numbers of JSON that a thing with named fields takes the memory of.
constexpr int64_t kFields = 64;

// A function of this type answers one case of its kind of question.
using Answer = Json(const PlanCase& input);
struct ShardKind {
  const char* name;
  Answer* answer;
};
extern const ShardKind kShardKinds[12];

namespace kinds {

Answer cp_context, cp_context_ragged, balancers, conv_halo;  // in shard_cases.cpp
Answer ring_schedule, range_rule, gather_slices, merge;      // in attention_cases.cpp
Answer dispatch_query, dispatch_kv, planner;                 // in dispatch_cases.cpp
Answer pieces;                                               // in piece_cases.cpp

}  // namespace kinds
}  // namespace lathe
