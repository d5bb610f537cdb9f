// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This target fuzzes cases of lathe_shard_plan. Whatever the text: it is refused with a sentence,
// or every case has an answer, the same one each time, and every refusal of a case has a sentence.
// The first byte picks the kind; the rest is a case, or a whole input. Answers have room for few
// numbers only.
#include <nlohmann/json.hpp>

#include "api/shard_cases.h"
#include "tests/fuzz/property.h"

using namespace lathe;

namespace {

constexpr int64_t kRoom = 1 << 16;

void check_input(const std::string& kind, const std::string& input) {
  const Result<std::string> found = shard_answers(kind, input.c_str(), kRoom);
  if (!found.ok()) {
    FUZZ_CHECK(found.status().code() == Code::invalid_argument);
    FUZZ_CHECK(!found.status().text().empty());
    return;
  }
  const Json asked = Json::parse(input.c_str()), answered = Json::parse(*found);
  FUZZ_CHECK(answered.at("cases").size() == asked.at("cases").size());
  for (const Json& each : answered.at("cases")) {
    FUZZ_CHECK(each.is_object());
    if (each.contains("error")) FUZZ_CHECK(!each.at("error").get<std::string>().empty());
  }
  FUZZ_CHECK(*shard_answers(kind, input.c_str(), kRoom) == *found);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view input = fuzz::as_text(data, size);
  const std::string kind = kShardKinds[fuzz::take_number(input, 1) % std::size(kShardKinds)].name;
  check_input(kind, R"({"cases":[)" + std::string(input) + "]}");
  check_input(kind, std::string(input));
  return 0;
}
