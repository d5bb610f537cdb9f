// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover manifests that say a model: which problems its layers stand for, and what is
// refused. Which kernels these need, and that a server finds them, tests of the package show.
#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "tests/api/manifest_text.h"

namespace {

using manifest::text_of;
using test::contains;
using test::error;
using Json = nlohmann::json;

struct Manifest {
  lathe_manifest* handle = nullptr;
  Manifest() { REQUIRE(lathe_manifest_create(&handle) == LATHE_OK); }
  ~Manifest() { lathe_manifest_destroy(handle); }
  Manifest(const Manifest&) = delete;

  lathe_status read(const std::string& line) {
    return lathe_manifest_read(handle, line.data(), line.size());
  }
  // Returns the problems, and the numbers of their lines.
  std::vector<Json> problems(std::vector<size_t>* lines = nullptr) const {
    std::vector<Json> out;
    for (size_t i = 0; i < lathe_manifest_count(handle); ++i) {
      const lathe_problem* problem = nullptr;
      size_t line = 0;
      REQUIRE(lathe_manifest_problem(handle, i, &problem, &line) == LATHE_OK);
      out.push_back(Json::parse(text_of(problem)));
      if (lines) lines->push_back(line);
    }
    return out;
  }
};

constexpr const char* kModel =
    R"({"model":"hybrid","dtype":"bf16","batch":[1,64],"tokens":[1,4096],"drafts":[1,3]})";
constexpr const char* kKda =
    R"({"layer":"kda","extents":{"H":2,"K":16,"W":4},"with":["A_log","dt_bias"],)"
    R"("dtypes":{"g":"f32"},"options":{"use_gate_in_kernel":1,"null_slot":0}})";

std::vector<Json> problems_of(const std::vector<std::string>& lines) {
  Manifest manifest;
  for (const std::string& line : lines) {
    const bool good = manifest.read(line) == LATHE_OK;
    REQUIRE_MESSAGE(good, error());
  }
  return manifest.problems();
}

std::vector<Json> of_operator(const std::vector<Json>& all, const std::string& op) {
  std::vector<Json> out;
  std::ranges::copy_if(all, std::back_inserter(out),
                       [&](const Json& each) { return each["op"] == op; });
  return out;
}

TEST_CASE("a layer stands for all calls that serving it makes") {
  const std::vector<Json> all = problems_of({kModel, kKda});
  std::set<std::string> ops;
  for (const Json& each : all) ops.insert(each["op"].get<std::string>());
  CHECK(ops == std::set<std::string>{"causal_conv1d", "causal_conv1d_update", "kda", "kda_decode",
                                     "kda_recurrent"});
  // What a call may have comes and goes, each in both ways.
  for (const auto& [op, tensor] : {std::pair("kda", "source_indices"),
                                   {"kda", "has_initial_state"},
                                   {"kda", "cu_checkpoints"},
                                   {"kda_recurrent", "cu_seqlens"},
                                   {"kda_recurrent", "num_accepted_tokens"},
                                   {"kda_decode", "source_indices"},
                                   {"causal_conv1d_update", "num_accepted_tokens"}}) {
    CAPTURE(op);
    CAPTURE(tensor);
    size_t with = 0, without = 0;
    for (const Json& each : of_operator(all, op)) {
      ++(each["tensors"].contains(tensor) ? with : without);
    }
    CHECK((with > 0 && without > 0));
  }
  for (const Json& each : all) {
    CAPTURE(each.dump());
    const Json& tensors = each["tensors"];
    if (tensors.contains("g")) {
      CHECK(tensors["g"][0] == "f32");
      CHECK((tensors.contains("A_log") && each["options"]["null_slot"] == 0));
    }
    if (tensors.contains("state_pool")) {
      CHECK(tensors["state_pool"][0] == (tensors.contains("g") ? "f32" : "bf16"));
    }
    if (tensors.contains("qkv")) CHECK(tensors["qkv"][0] == "bf16");
    if (tensors.contains("qkv")) CHECK(tensors["qkv"][1].back() == 96);
    // Checkpoints come together or not at all: the operator says so.
    CHECK(tensors.contains("cu_checkpoints") == tensors.contains("checkpoint_slots"));
  }
}

TEST_CASE("drafts bring forms of their own, and lengths that are declared") {
  const auto forms = [](const std::string& drafts) {
    std::set<std::string> out;
    const std::string model = R"({"model":"m","dtype":"bf16","drafts":)" + drafts + "}";
    for (const Json& each : of_operator(problems_of({model, kKda}), "kda_decode")) {
      out.insert(each["tensors"]["qkv"][1].dump());
    }
    return out;
  };
  CHECK(forms("[1,1]") == std::set<std::string>{"[-1,96]"});
  CHECK(forms("[1,3]") ==
        std::set<std::string>{"[-1,96]", "[-1,-1,96]", "[-1,1,96]", "[-1,2,96]", "[-1,3,96]"});
}

TEST_CASE("models, layers and problems follow one another; each problem is there once") {
  const std::string other = R"({"model":"other","dtype":"f16"})";
  const std::string plain =
      R"({"op":"causal_conv1d","tensors":{"x":["f32",[1,-1,8]],"weight":["f32",[8,4]]}})";
  const std::string layer = R"({"layer":"attention","extents":{"H":4,"HK":2,"D":32}})";
  Manifest manifest;
  for (const std::string& line :
       {plain, std::string(kModel), layer, std::string(" \t"), layer, other, layer, plain}) {
    const bool good = manifest.read(line) == LATHE_OK;
    REQUIRE_MESSAGE(good, error());
  }
  std::vector<size_t> lines;
  const std::vector<Json> all = manifest.problems(&lines);
  CHECK(std::set<size_t>(lines.begin(), lines.end()) == std::set<size_t>{1, 3, 7});
  std::set<std::string> texts;
  for (const Json& each : all) texts.insert(each.dump());
  CHECK(texts.size() == all.size());
  CHECK(all.front()["tensors"].contains("y"));  // inputs alone ask for what a run makes of them
  for (size_t i = 1; i < all.size(); ++i) {
    CHECK(all[i]["tensors"]["q"][0] == (lines[i] == 3 ? "bf16" : "f16"));
  }
}

TEST_CASE("what is refused is named, with its line and what is allowed") {
  const struct {
    std::string line;
    std::vector<std::string> words;
  } cases[] = {
      {R"({"model":7})", {"model is 7", "a text"}},
      {R"({"model":""})", {"model is \"\"", "1 to 100"}},
      {R"({"model":"m","speed":1})", {"'speed'", "dtype, dtypes, extents"}},
      {R"({"model":"m","layer":"kda"})", {"the field 'model'", "layer"}},
      {R"({"model":"m","dtype":"f8"})", {"dtype is \"f8\"", "f32, f16, bf16"}},
      {R"({"model":"m","dtypes":{"q":[]}})", {"dtype of q is []", "1 to 16"}},
      {R"({"model":"m","dtypes":{"qq":"f16"}})", {"dtypes names 'qq'"}},
      {R"({"model":"m","batch":[0,4]})", {"batch is [0,4]", "[least, most]", "from 1"}},
      {R"({"model":"m","tokens":[5,4]})", {"tokens is [5,4]"}},
      {R"({"model":"m","drafts":[1,65]})", {"drafts is [1,65]", "from 1 to 64"}},
      {R"({"model":"m","alignment":3})", {"alignment is 3", "1, 2, 4, 8 or 16"}},
      {R"({"model":"m","extents":{"B":4}})", {"extents has 'B'", "vary"}},
      {R"({"model":"m","extents":{"H":0}})", {"extent H is 0", "from 1"}},
      {R"({"model":"m","extents":{"H":99999999999}})", {"extent H is 99999999999"}},
      {R"({"model":"m","options":{"speed":1}})", {"options has 'speed'"}},
      {R"({"model":"m","options":{"score_mod":"/etc/passwd"}})",
       {"score_mod", "a line of its own"}},
      {R"({"model":"m","with":"q"})", {"with is \"q\"", "a list"}},
      {R"({"layer":"moe"})", {"layer is 'moe'", "kda, conv, attention", "flash_attention_decode"}},
      {R"({"layer":"kda","extents":{"H":2,"W":4}})",
       {"extent K of kda's q", "\"K\": N in extents"}},
      {R"({"layer":"kda","extents":{"H":2,"K":16,"W":4},"with":["sinks"]})",
       {"with names 'sinks'", "kda_decode"}},
      {R"({"layer":"kda","extents":{"H":2,"K":16,"W":4},"options":{"causal":1}})",
       {"options has 'causal'"}},
      {R"({"layer":"kda","extents":{"H":2,"K":16,"W":9}})", {"W = 9"}},
      {R"({"layer":"kda","extents":{"H":2,"K":16,"W":4},"options":{"chunk_size":48}})",
       {"chunk_size is '48'"}},
      {R"({"layer":"attention","dtype":"f16","extents":{"H":2,"HK":3,"D":16}})", {"HK"}},
  };
  for (const auto& [line, words] : cases) {
    CAPTURE(line);
    Manifest manifest;
    REQUIRE(manifest.read("") == LATHE_OK);
    REQUIRE(manifest.read(line) == LATHE_INVALID_ARGUMENT);
    CAPTURE(error());
    CHECK(error().rfind("line 2: ", 0) == 0);
    for (const std::string& word : words) CHECK(contains(error(), word));
    CHECK(error().size() < 1500);
  }
}

TEST_CASE("a model's line that is refused changes nothing") {
  Manifest manifest;
  REQUIRE(manifest.read(kModel) == LATHE_OK);
  REQUIRE(manifest.read(R"({"model":"m","dtype":"f16","drafts":[0,1]})") != LATHE_OK);
  REQUIRE(manifest.read(R"({"layer":"conv","extents":{"D":32,"W":4}})") == LATHE_OK);
  for (const Json& each : manifest.problems()) CHECK(each["tensors"]["x"][0] == "bf16");
}

TEST_CASE("too many calls are refused at once") {
  std::string many = "[";
  for (int i = 1; i <= 16; ++i) many += (i > 1 ? "," : "") + std::to_string(8 * i);
  many += "]";
  Manifest manifest;
  const std::string line = R"({"layer":"attention","extents":{"H":)" + many + R"(,"HK":)" + many +
                           R"(,"D":)" + many + R"(,"DV":)" + many + "}}";
  REQUIRE(manifest.read(line) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "more than 65536 calls"));
}

TEST_CASE("lines that were damaged are read or refused, and nothing else") {
  std::mt19937 random(39);
  size_t refused = 0;
  for (int i = 0; i < 400; ++i) {
    std::string line = i % 2 ? kKda : kModel;
    for (unsigned n = 1 + random() % 3; n > 0; --n) {
      const size_t at = random() % line.size();
      if (random() % 2) {
        line.erase(at, 1 + random() % 4);
      } else {
        line.insert(at, 1, "\"{}[],:019-.e\\ux\x01\xff"[random() % 18]);
      }
      if (line.empty()) line = "{";
    }
    Manifest manifest;
    const lathe_status status = manifest.read(line);
    CAPTURE(line);
    REQUIRE((status == LATHE_OK || status == LATHE_INVALID_ARGUMENT));
    if (status == LATHE_OK) continue;
    ++refused;
    CHECK(error().rfind("line 1: ", 0) == 0);
  }
  CHECK(refused > 200);
}

TEST_CASE("arguments") {
  Manifest manifest;
  CHECK(lathe_manifest_create(nullptr) == LATHE_INVALID_ARGUMENT);
  CHECK(lathe_manifest_read(nullptr, "", 0) == LATHE_INVALID_ARGUMENT);
  CHECK(lathe_manifest_read(manifest.handle, nullptr, 0) == LATHE_INVALID_ARGUMENT);
  const lathe_problem* problem = nullptr;
  CHECK(lathe_manifest_problem(manifest.handle, 0, &problem, nullptr) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "the manifest has 0 problems"));
  CHECK(lathe_manifest_count(nullptr) == 0);
  lathe_manifest_destroy(nullptr);
}

}  // namespace
