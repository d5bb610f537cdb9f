// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// lathe_shard_plan asks the pure functions behind context parallelism, in text.
#include <algorithm>

#include "api/boundary.h"
#include "api/lathe.h"
#include "api/shard_cases.h"
#include "codegen/base/printable.h"
#include "collective/plans/shard.h"

namespace lathe {
namespace {

// `pair_rule` is the older name of range_rule.
Result<const ShardKind*> kind_of(const std::string& name) {
  const std::string asked = name == "pair_rule" ? "range_rule" : name;
  const ShardKind* found = std::ranges::find(kShardKinds, asked, &ShardKind::name);
  if (found != std::end(kShardKinds)) return found;
  return invalid(text("kind is ", in_quotes(name), "; allowed are ",
                      comma_list(kShardKinds, &ShardKind::name)));
}

Json answer(const ShardKind& kind, const Json& input, int64_t* room) {
  try {
    return kind.answer(PlanCase(input, room));
  } catch (const Refused& refused) {
    return {{"error", refused.what()}};
  } catch (const Json::exception& error) {  // a value of another type
    return {{"error", text(kind.name, ": ", error.what())}};
  }
}

}  // namespace

const ShardKind kShardKinds[12] = {
    {"cp_context", kinds::cp_context},   {"cp_context_ragged", kinds::cp_context_ragged},
    {"balancers", kinds::balancers},     {"ring_schedule", kinds::ring_schedule},
    {"range_rule", kinds::range_rule},   {"gather_slices", kinds::gather_slices},
    {"conv_halo", kinds::conv_halo},     {"merge", kinds::merge},
    {"pieces", kinds::pieces},           {"dispatch_query", kinds::dispatch_query},
    {"dispatch_kv", kinds::dispatch_kv}, {"planner", kinds::planner},
};

Result<std::string> shard_answers(const std::string& kind, const char* input, int64_t room) {
  LATHE_ASSIGN(const ShardKind* found, kind_of(kind));
  const Json asked = Json::parse(input, nullptr, false);
  if (asked.is_discarded()) return invalid("input is not JSON");
  const auto cases = asked.is_object() ? asked.find("cases") : asked.end();
  if (cases == asked.end() || !cases->is_array()) {
    return invalid("input has no list 'cases'; it must be {\"cases\": [{...}]}");
  }
  Json out = Json::array();
  for (const Json& each : *cases) out.push_back(answer(*found, each, &room));
  return Json{{"cases", out}}.dump(1, ' ', false, Json::error_handler_t::replace);
}

std::string shown(const Json& value) {
  return escaped(value.dump(-1, ' ', true, Json::error_handler_t::replace));
}

int64_t integer_of(const Json& value, const char* name, int64_t low, int64_t high) {
  const bool fits = value.is_number_unsigned() ? value.get<uint64_t>() <= uint64_t{INT64_MAX}
                                               : value.is_number_integer();
  const int64_t found = fits ? value.get<int64_t>() : 0;
  if (fits && found >= low && found <= high) return found;
  throw Refused(
      text(name, " is ", shown(value), "; allowed are whole numbers from ", low, " to ", high));
}

std::vector<int64_t> integers_of(const Json& value, const char* name, int64_t low, int64_t high) {
  if (!value.is_array()) throw Refused(text(name, " is ", shown(value), "; allowed is a list"));
  std::vector<int64_t> out;
  out.reserve(value.size());
  for (const Json& each : value) out.push_back(integer_of(each, name, low, high));
  return out;
}

const Json& PlanCase::at(const char* name) const {
  if (!input_.is_object())
    throw Refused(text("a case is ", shown(input_), "; allowed is an object"));
  const auto found = input_.find(name);
  if (found == input_.end()) throw Refused(text(name, " is missing"));
  return *found;
}

std::string PlanCase::word(const char* name) const {
  const Json& value = at(name);
  if (value.is_string()) return value.get<std::string>();
  throw Refused(text(name, " is ", shown(value), "; allowed is a text"));
}

bool PlanCase::flag(const char* name) const {
  if (!input_.is_object() || !input_.contains(name) || input_[name].is_null()) return false;
  const Json& value = input_[name];
  if (value.is_boolean()) return value.get<bool>();
  if (value == 0 || value == 1) return value == 1;
  throw Refused(text(name, " is ", shown(value), "; allowed are true and false"));
}

int PlanCase::world() const { return static_cast<int>(integer("world_size", 1, kMostWorld)); }

std::vector<int64_t> PlanCase::cu_seqlens() const {
  std::vector<int64_t> out = integers("cu_seqlens", 0, INT_MAX);
  accepted(check_cu_seqlens(out, -1));
  return out;
}

void PlanCase::list(const char* things, int64_t count, int64_t numbers) const {
  if (count > *room_ / numbers) {
    throw Refused(text("the answer has ", count, " ", things, "; allowed are ", *room_ / numbers,
                       ", of ", kMostPlanNumbers / numbers, " in the answers of one call"));
  }
  *room_ -= count * numbers;
}

}  // namespace lathe

using namespace lathe;

extern "C" lathe_status lathe_shard_plan(const char* kind, const char* input, const char** out) {
  return boundary({{kind, "kind"}, {input, "input"}, {out, "out"}}, [&]() -> Status {
    static thread_local std::string lent;
    LATHE_ASSIGN(lent, shard_answers(kind, input, kMostPlanNumbers));
    *out = lent.c_str();
    return {};
  });
}
