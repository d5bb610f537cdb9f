// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// lathe_shard_plan: questions to the pure functions behind context parallelism, as text.
#include "api/boundary.h"
#include "api/lathe.h"
#include "api/shard_cases.h"

namespace lathe {
namespace {

Result<const ShardKind*> kind_of(const std::string& name) {
  std::string known;
  const ShardKind* found = nullptr;
  const auto look = [&](const ShardKind& kind) {
    if (name == kind.name) found = &kind;
    known += (known.empty() ? "" : ", ") + std::string(kind.name);
  };
  for (const ShardKind& kind : kShardKinds) look(kind);
  for (const ShardKind& kind : kDispatchKinds) look(kind);
  if (found) return found;
  return invalid(text("kind is '", name, "'; allowed are ", known));
}

Json answer(const ShardKind& kind, const Json& input) {
  try {
    return kind.answer(input);
  } catch (const Refused& refused) {
    return {{"error", refused.what()}};
  } catch (const Json::exception& error) {  // a field that is missing or of another type
    return {{"error", text(kind.name, ": ", error.what())}};
  }
}

Result<std::string> answers(const ShardKind& kind, const char* input) {
  const Json asked = Json::parse(input, nullptr, false);
  if (asked.is_discarded()) return invalid("input is not JSON");
  const auto cases = asked.is_object() ? asked.find("cases") : asked.end();
  if (cases == asked.end() || !cases->is_array()) {
    return invalid("input has no list 'cases'; it must be {\"cases\": [{...}]}");
  }
  Json out = Json::array();
  for (const Json& each : *cases) out.push_back(answer(kind, each));
  return Json{{"cases", out}}.dump(1);
}

}  // namespace
}  // namespace lathe

extern "C" lathe_status lathe_shard_plan(const char* kind, const char* input, const char** out) {
  return lathe::boundary([&]() -> lathe::Status {
    static thread_local std::string lent;
    LATHE_TRY(lathe::require(kind, "kind"));
    LATHE_TRY(lathe::require(input, "input"));
    LATHE_TRY(lathe::require(out, "out"));
    LATHE_ASSIGN(const lathe::ShardKind* found, lathe::kind_of(kind));
    LATHE_ASSIGN(lent, lathe::answers(*found, input));
    *out = lent.c_str();
    return {};
  });
}
