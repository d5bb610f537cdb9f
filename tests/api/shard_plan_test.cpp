// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// lathe_shard_plan: the words around the pure functions, which tests/collective is about.
#include <doctest/doctest.h>

#include <string>

#include "api/lathe.h"
#include "tests/api/support.h"

namespace {

using test::contains;
using test::error;

std::string answer(const char* kind, const char* input) {
  const char* out = nullptr;
  REQUIRE_MESSAGE(lathe_shard_plan(kind, input, &out) == LATHE_OK, error());
  std::string text = out;
  std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
  return text;
}

}  // namespace

TEST_CASE("lathe_shard_plan: answers in the order of the cases, refusals among them") {
  const std::string found = answer("balancers", R"({"cases": [
      {"kind": "head_tail", "world_size": 2, "cu_seqlens": [0, 4]},
      {"kind": "head_tail", "world_size": 2, "cu_seqlens": [0, 6], "strict": true},
      {"kind": "stripes", "world_size": 2, "cu_seqlens": [0, 6]},
      {"kind": "head_tail", "cu_seqlens": [0, 6]},
      {"kind": "none", "world_size": "two", "cu_seqlens": [0, 6]},
      {"kind": "none", "world_size": 3, "cu_seqlens": [0, 3]}]})");
  CHECK(contains(found,
                 R"({"indices":[0,3,1,2],"rank_lengths":[2,2],"restore":[0,2,3,1]},{"error":)"));
  CHECK(contains(found, "6,whichisnotamultipleof2*world_size=4"));
  CHECK(contains(found, "'stripes'"));
  CHECK(contains(found, "world_size'notfound"));
  CHECK(contains(found, "typemustbenumber"));
  CHECK(contains(found, R"({"indices":[0,1,2],"rank_lengths":[1,1,1],"restore":[0,1,2]}]})"));
  CHECK(answer("merge", R"({"cases": [{"parts": [[1, "-inf"], [2, 0.5]]}, {"parts": []}]})") ==
        R"({"cases":[{"lse":0.5,"out":2.0},{"lse":"-inf","out":0.0}]})");
  CHECK(answer("planner", R"({"cases": []})") == R"({"cases":[]})");
}

TEST_CASE("lathe_shard_plan: what is no question is refused whole, and nothing is lent") {
  const char* out = nullptr;
  const auto refused = [&](const char* kind, const char* input, const char* part) {
    CHECK(lathe_shard_plan(kind, input, &out) == LATHE_INVALID_ARGUMENT);
    CHECK_MESSAGE(contains(error(), part), error());
    CHECK(out == nullptr);
  };
  refused("rings", R"({"cases": []})", "'rings'; allowed are cp_context, ");
  refused("merge", "{", "not JSON");
  refused("merge", "[]", "no list 'cases'");
  refused("merge", R"({"cases": {}})", "no list 'cases'");
  refused(nullptr, "{}", "kind is NULL");
  refused("merge", nullptr, "input is NULL");
  CHECK(lathe_shard_plan("merge", R"({"cases": []})", nullptr) == LATHE_INVALID_ARGUMENT);
}
