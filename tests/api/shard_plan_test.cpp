// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover lathe_shard_plan: the words around the pure functions, which tests/collective
// is about.
#include <doctest/doctest.h>

#include <string>

#include "api/lathe.h"
#include "tests/harness/support.h"

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
  CHECK(contains(found, "world_sizeismissing"));
  CHECK(contains(found, R"(world_sizeis\"two\";allowedarewholenumbersfrom1to65536)"));
  CHECK(contains(found, R"({"indices":[0,1,2],"rank_lengths":[1,1,1],"restore":[0,1,2]}]})"));
  CHECK(answer("merge", R"({"cases": [{"parts": [[1, "-inf"], [2, 0.5]]}, {"parts": []}]})") ==
        R"({"cases":[{"lse":0.5,"out":2.0},{"lse":"-inf","out":0.0}]})");
  CHECK(answer("merge", R"({"cases": [{"parts": [["nan", "-inf"], [2, 5], ["nan", "-inf"]]},
                                       {"parts": [[2, -10000], [4, -10000]]}]})") ==
        R"({"cases":[{"lse":5.0,"out":2.0},{"lse":-9999.30685281944,"out":3.0}]})");
  CHECK(answer("planner", R"({"cases": []})") == R"({"cases":[]})");
}

TEST_CASE("lathe_shard_plan: strict balancers refuse what does not divide, with the numbers") {
  const auto refused = [](const std::string& input, std::initializer_list<const char*> all) {
    const std::string found = answer(
        "balancers", (R"({"cases": [{"strict": true, "world_size": 2, )" + input + "}]}").c_str());
    for (const char* part : all) CHECK_MESSAGE(contains(found, part), found);
  };
  refused(R"("kind": "none", "cu_seqlens": [0, 7])", {"7", "world_size=2"});
  refused(R"("kind": "head_tail", "cu_seqlens": [0, 7])", {"7", "2*world_size=4"});
  refused(R"("kind": "per_document", "cu_seqlens": [0, 8, 14])", {"document1", "6", "=4"});
  refused(R"("kind": "ptrr", "block_size": 2, "cu_seqlens": [0, 6])",
          {"blocksis3", "world_size=2"});
  refused(R"("kind": "ptrr", "block_size": 4, "cu_seqlens": [0, 6])", {"6", "block_size=4"});
  refused(R"("kind": "ptrr_groups", "cost": [1, 2, 3])", {"blocksis3", "world_size=2"});
}

TEST_CASE("lathe_shard_plan: the ring that runs, and the one in which every block goes round") {
  // Nobody behind the last rank sees its keys: they stay, and the neighbour's gradients come home.
  const std::string found =
      answer("ring_schedule", R"({"cases": [{"world_size": 2, "causal": 1, "balance": "none"}]})");
  CHECK(contains(found, R"("dkv_send_to":1,"gradients_sent_to":1,"keys_sent_to":1,"kv":"all",)"));
  CHECK(contains(found, R"("mask":"skip","owner":1,"q":null,"rank":0,"recv_from":null,)"));
  CHECK(contains(found,
                 R"("gradients_sent_to":null,"keys_sent_to":null,"kv":"all","mask":"causal",)"
                 R"("owner":1,"q":"all","rank":1,"recv_from":0,"send_to":0,"step":0})"));
  CHECK(contains(found, R"("gradients_sent_to":0,"keys_sent_to":null,"kv":"all","mask":"full",)"
                        R"("owner":0,"q":"all","rank":1,)"));
}

TEST_CASE("lathe_shard_plan: halos mix a state with tokens of two ranks") {
  const std::string found =
      answer("conv_halo", R"({"cases": [{"layout": "contiguous", "world_size": 5, "width": 4,
                                         "cu_seqlens": [0, 3, 10]}]})");
  CHECK(contains(found, R"({"halo":[["init",0,3],["x",0],["x",1]],"interval":[2,4],"rank":1})"));
  CHECK(
      contains(found, R"({"halo":[["init",1,2],["init",1,3],["x",3]],"interval":[4,6],"rank":2})"));
  CHECK(contains(found, R"({"halo":[["x",3],["x",4],["x",5]],"interval":[6,8],"rank":3})"));
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

namespace {

struct Bad {
  const char* kind;
  std::string input;  // one case
  const char* part;   // of the refusal, without blanks
};

std::string numbers(int64_t count, int64_t step) {
  std::string out = "[0";
  for (int64_t i = 1; i <= count; ++i) out += "," + std::to_string(i * step);
  return out + "]";
}
std::string repeated(const std::string& word, int count) {
  std::string out = "[" + word;
  for (int i = 1; i < count; ++i) out += "," + word;
  return out + "]";
}
std::string balancers(const char* kind, int world, const std::string& cu_seqlens) {
  return R"({"kind": ")" + std::string(kind) + R"(", "world_size": )" + std::to_string(world) +
         R"(, "block_size": 1, "cu_seqlens": )" + cu_seqlens + "}";
}
std::string pair(const char* q, const char* left, const char* offset) {
  return R"({"q": )" + std::string(q) + R"(, "kv": [0, 5], "offset": )" + offset + R"(, "left": )" +
         left + R"(, "right": 0})";
}

constexpr const char* kPlanner = R"({"world_size": 1, "shards": [[[0, 0, 8]]], "eps": [1, 20],
                                     "align": 1, "q_bytes": 1, "kv_bytes": 1, )";

}  // namespace

TEST_CASE("lathe_shard_plan: every number has a range, and no sum wraps") {
  const std::string whole = R"("shards": [[[0, 0, 9223372036854775807]],
                                          [[0, 9223372036854775807, 1]]], "dst": [[0], [0]])";
  const Bad bad[] = {
      {"range_rule", pair("[-9223372036854775808, 5]", "0", "0"),
       "qis-9223372036854775808;allowed"},
      {"range_rule", pair("[0, 2147483648]", "0", "0"), "qis2147483648;allowed"},
      {"range_rule", pair("[-2147483647, 2147483647]", "0", "0"), "qis[-2147483647,2147483647]"},
      {"range_rule", pair("[5, 0]", "0", "0"), "qis[5,0]"},
      {"range_rule", pair("[0, 1, 2]", "0", "0"), "qis[0,1,2]"},
      {"range_rule", pair("[0, 5]", "9223372036854775807", "0"), "leftis9223372036854775807"},
      {"range_rule", pair("[0, 5]", "-2", "0"), "leftis-2;allowed"},
      {"range_rule", pair("[0, 5]", "0", "-9223372036854775808"), "offsetis-9223372036854775808"},
      {"range_rule", pair("[0, 5]", "1.5", "0"), "leftis1.5;allowed"},
      {"range_rule", pair("[0, true]", "0", "0"), "qistrue;allowed"},
      {"range_rule", pair("[0, 18446744073709551615]", "0", "0"), "qis18446744073709551615"},
      {"dispatch_kv", "{" + whole + "}", "is9223372036854775807;allowed"},
      {"dispatch_kv", R"({"shards": [[[0, 0, 2147483647]], [[0, 2147483647, 1]]],
                          "dst": [[0], [0]]})",
       "document0has2147483648tokens"},
      {"dispatch_kv", R"({"shards": [[[0, 0]]], "dst": [[0]]})", "[0,0]"},
      {"dispatch_query", R"({"seq_len": [[9223372036854775807, 1]], "dispatch": [[0, 0]]})",
       "seq_lenis9223372036854775807;allowed"},
      {"dispatch_query", R"({"seq_len": [[2147483647, 1]], "dispatch": [[0, 0]]})",
       "seq_len[0]has2147483648tokens"},
      {"dispatch_query", R"({"seq_len": [[1.5]], "dispatch": [[0]]})", "seq_lenis1.5"},
      {"dispatch_query", R"({"seq_len": [[1]], "dispatch": [[[0], 0]]})", "dispatch"},
      {"planner", kPlanner + std::string(R"("eps": [9223372036854775807, 1]})"), "epsis92233"},
      {"planner", kPlanner + std::string(R"("q_bytes": 4611686018427387904})"), "q_bytesis46116"},
      {"planner", kPlanner + std::string(R"("align": 9223372036854775807})"), "alignis92233"},
      {"planner", R"({"world_size": 5, "shards": [[[0, 0, 2147483647]], [[1, 0, 2147483647]],
                      [[2, 0, 2147483647]], [[3, 0, 2147483647]], [[4, 0, 2147483647]]],
                      "eps": [1, 20], "align": 128, "q_bytes": 1, "kv_bytes": 1})",
       "pairsofqueriesandkeys"},
      {"gather_slices", R"({"world_size": 1, "cu_seqlens": [0, 2147483648]})",
       "cu_seqlensis2147483648;allowed"},
      {"conv_halo", R"({"layout": "contiguous", "world_size": 1, "cu_seqlens": [0, 4],
                        "width": 4294967300})",
       "widthis4294967300;allowedarewholenumbersfrom2to8"},
      {"ring_schedule", R"({"world_size": 4294967298, "balance": "none"})",
       "world_sizeis4294967298;allowed"},
      {"balancers", R"({"kind": "ptrr_groups", "world_size": 1, "cost": [1, "x"]})", "costis"},
      {"balancers", R"({"kind": "none", "world_size": 1, "cu_seqlens": [0, 4], "strict": 2})",
       "strictis2;allowedaretrueandfalse"},
  };
  for (const Bad& each : bad) {
    CAPTURE(each.kind);
    CAPTURE(each.input);
    const std::string found = answer(each.kind, (R"({"cases": [)" + each.input + "]}").c_str());
    CHECK_MESSAGE(contains(found, R"({"error":)"), found);
    CHECK_MESSAGE(contains(found, each.part), found);
  }
}

TEST_CASE("lathe_shard_plan: range_rule answers to its older name too") {
  const std::string input = R"({"cases": [)" + pair("[0, 5]", "-1", "0") + "]}";
  const std::string found = answer("range_rule", input.c_str());
  CHECK_MESSAGE(contains(found, R"("kind":"partial")"), found);
  CHECK(answer("pair_rule", input.c_str()) == found);
}

// Each of these took minutes, or more memory than there is.
TEST_CASE("lathe_shard_plan: a case that would not end is refused, and others end") {
  const std::string wide = R"(, "dst": [)" + repeated("0", 40000) + "]}";
  const Bad bad[] = {
      {"ring_schedule", R"({"world_size": 65536, "balance": "none"})", "allowedare"},
      {"balancers", balancers("none", 2, "[0, 2147483647]"), "allowedare"},
      {"balancers", balancers("ptrr", 2, "[0, 2147483647]"), "allowedare"},
      {"dispatch_query",
       R"({"seq_len": )" + repeated("[1]", 40000) + R"(, "dispatch": )" + repeated("[0]", 40000) +
           "}",
       "allowedare"},
      {"dispatch_kv", R"({"shards": [)" + repeated("[0,0,0]", 40000) + "]" + wide, "allowedare"},
  };
  for (const Bad& each : bad) {
    CAPTURE(each.kind);
    const std::string found = answer(each.kind, (R"({"cases": [)" + each.input + "]}").c_str());
    CHECK_MESSAGE(contains(found, R"({"error":)"), found.substr(0, 1000));
    CHECK_MESSAGE(contains(found, each.part), found.substr(0, 1000));
  }
  // 1000 documents of three tokens over very many ranks: not a step for each of them.
  const std::string many = answer(
      "balancers",
      (R"({"cases": [)" + balancers("per_document", 1 << 16, numbers(1000, 3)) + "]}").c_str());
  CHECK(contains(many, R"("indices":[2,5,8,)"));
  const std::string ragged = answer("cp_context_ragged",
                                    R"({"cases": [{"layout": "head_tail", "world_size": 65536,
                                                   "cu_seqlens": [0, 2147483647]}]})");
  CHECK(contains(ragged, R"("part_bounds":[0,16383,)"));
}

TEST_CASE("lathe_shard_plan: many cases in one call share a bound") {
  const std::string each = balancers("none", 1, "[0, 1000000]");
  const std::string found =
      answer("balancers", (R"({"cases": [)" + each + "," + each + "," + each + "]}").c_str());
  CHECK(contains(found, R"({"indices":[0,1,2,)"));
  CHECK(contains(found, R"({"error":)"));
}
