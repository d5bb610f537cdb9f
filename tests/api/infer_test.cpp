// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover lathe_problem_infer, lathe_problem_open and lathe_problem_tensor_info: the
// outputs that follow from inputs and options, and values that are refused before a device sees
// them.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "api/lathe.h"

namespace {

using Shape = std::vector<int64_t>;

// A problem that is built, inferred and looked at.
struct Inferred {
  lathe_problem* problem = nullptr;
  const lathe_operator_info* op;
  std::map<std::string, DLTensor> values;
  std::map<std::string, Shape> shapes;
  std::map<std::string, std::vector<int32_t>> words;

  explicit Inferred(const char* name) : op(lathe_operator_find(name)) {
    REQUIRE(lathe_problem_create(&problem, name) == LATHE_OK);
  }
  ~Inferred() { lathe_problem_destroy(problem); }
  Inferred(const Inferred&) = delete;
  Inferred& operator=(const Inferred&) = delete;

  Inferred& tensor(const char* name, lathe_dtype dtype, const Shape& shape) {
    const lathe_status status =
        lathe_problem_tensor(problem, name, dtype, static_cast<int>(shape.size()), shape.data());
    REQUIRE_MESSAGE(status == LATHE_OK, lathe_last_error());
    shapes[name] = shape;
    return *this;
  }
  // Declares a tensor of integers whose values are at hand.
  Inferred& integers(const char* name, const Shape& shape, std::vector<int32_t> numbers) {
    tensor(name, LATHE_I32, shape);
    words[name] = std::move(numbers);
    DLTensor& value = values[name];
    value = {};
    value.data = words[name].data();
    value.device = {kDLCPU, 0};
    value.ndim = static_cast<int32_t>(shape.size());
    value.dtype = {kDLInt, 32, 1};
    value.shape = shapes[name].data();
    return *this;
  }
  Inferred& option(const char* name, const char* value) {
    REQUIRE_MESSAGE(lathe_problem_set_string(problem, name, value) == LATHE_OK, lathe_last_error());
    return *this;
  }

  lathe_status infer() {
    std::vector<const DLTensor*> pointers;
    for (size_t i = 0; i < op->tensor_count; ++i) {
      const auto found = values.find(op->tensors[i].name);
      pointers.push_back(found == values.end() ? nullptr : &found->second);
    }
    return lathe_problem_infer(problem, values.empty() ? nullptr : pointers.data());
  }
  void refused(const std::string& part) {
    CHECK(infer() == LATHE_INVALID_ARGUMENT);
    const std::string text = lathe_last_error();
    CHECK_MESSAGE(text.find(part) != std::string::npos, text);
  }

  lathe_tensor_info info(const char* name) const {
    lathe_tensor_info out = {};
    out.size = sizeof out;
    for (size_t i = 0; i < op->tensor_count; ++i) {
      if (std::strcmp(op->tensors[i].name, name) != 0) continue;
      REQUIRE(lathe_problem_tensor_info(problem, i, &out) == LATHE_OK);
    }
    return out;
  }
  Shape shape(const char* name) const {
    const lathe_tensor_info of = info(name);
    return {of.shape, of.shape + of.rank};
  }
  // Names of what a run writes.
  std::set<std::string> written() const {
    std::set<std::string> out;
    for (size_t i = 0; i < op->tensor_count; ++i) {
      const lathe_tensor_info of = info(op->tensors[i].name);
      if (of.declared && of.written) out.insert(of.name);
    }
    return out;
  }
};

Inferred& conv(Inferred& out) {
  return out.tensor("x", LATHE_F16, {2, 20, 16}).tensor("weight", LATHE_F32, {16, 4});
}

TEST_CASE("a forward's outputs follow from its inputs and options") {
  Inferred plain("causal_conv1d");
  REQUIRE(conv(plain).infer() == LATHE_OK);
  CHECK(plain.written() == std::set<std::string>{"y"});
  CHECK(plain.shape("y") == Shape{2, 20, 16});
  CHECK(plain.info("y").dtype == LATHE_F16);

  Inferred state("causal_conv1d");
  REQUIRE(conv(state).option("output_final_state", "1").infer() == LATHE_OK);
  CHECK(state.written() == std::set<std::string>{"y", "final_state"});
  CHECK(state.shape("final_state") == Shape{2, 16, 4});
}

TEST_CASE("a result in parts follows from an option in place of the whole") {
  Inferred made("causal_conv1d");
  REQUIRE(conv(made).option("split", "4,12").option("output_final_state", "1").infer() == LATHE_OK);
  CHECK(made.written() == std::set<std::string>{"y_0", "y_1", "final_state"});
  CHECK(made.shape("y_0") == Shape{2, 20, 4});
  CHECK(made.shape("y_1") == Shape{2, 20, 12});
  Inferred whole("causal_conv1d");
  REQUIRE(conv(whole).option("split", "none").infer() == LATHE_OK);
  CHECK(whole.written() == std::set<std::string>{"y"});
}

TEST_CASE("with the gradient of the result, gradients of the inputs that are there follow") {
  Inferred made("causal_conv1d");
  conv(made).tensor("bias", LATHE_F32, {16}).tensor("residual", LATHE_F16, {2, 20, 16});
  REQUIRE(made.tensor("dy", LATHE_F16, {2, 20, 16}).infer() == LATHE_OK);
  CHECK(made.written() == std::set<std::string>{"y", "dx", "dweight", "dbias"});
  CHECK(made.info("dweight").dtype == LATHE_F32);
  // dresidual is dy itself: wanted, and no tensor of the run.
  CHECK_FALSE(made.info("dresidual").declared);
  CHECK(std::string(made.info("dresidual").alias_of) == "dy");
  CHECK(made.info("dinitial_state").alias_of == nullptr);
}

TEST_CASE("outputs that are declared are what is wanted") {
  Inferred made("causal_conv1d");
  conv(made).tensor("dy", LATHE_F16, {2, 20, 16}).tensor("dx", LATHE_F16, {2, 20, 16});
  REQUIRE(made.infer() == LATHE_OK);
  CHECK(made.written() == std::set<std::string>{"dx"});
}

TEST_CASE("results of an earlier forward are read, and nothing computes them again") {
  Inferred made("flash_attention");
  for (const char* name : {"q", "k", "v", "dout", "out"}) {
    made.tensor(name, LATHE_BF16, {1, 8, 2, 16});
  }
  made.tensor("lse", LATHE_F32, {1, 2, 8}).option("saved_forward", "1");
  REQUIRE(made.infer() == LATHE_OK);
  CHECK(made.written() == std::set<std::string>{"dq", "dk", "dv"});
  CHECK(made.info("out").read);
  CHECK_FALSE(made.info("out").written);
}

TEST_CASE("what changes in place is read and written, if something changes it") {
  for (const bool appends : {false, true}) {
    Inferred made("flash_attention_decode");
    made.tensor("q", LATHE_BF16, {2, 1, 4, 16});
    made.tensor("k_cache", LATHE_BF16, {6, 4, 2, 16}).tensor("v_cache", LATHE_BF16, {6, 4, 2, 16});
    made.tensor("block_table", LATHE_I32, {2, 3}).tensor("cache_seqlens", LATHE_I32, {2});
    for (const char* name : {"k_new", "v_new"}) {
      if (appends) made.tensor(name, LATHE_BF16, {2, 1, 2, 16});
    }
    REQUIRE(made.infer() == LATHE_OK);
    CHECK(made.info("k_cache").read);
    CHECK(made.info("k_cache").written == (appends ? 1 : 0));
  }
}

TEST_CASE("extents that follow from others, from options and from values") {
  Inferred open("kda");
  for (const char* name : {"q", "k", "v", "g"}) open.tensor(name, LATHE_F32, {1, 70, 2, 16});
  open.tensor("beta", LATHE_F32, {1, 70, 2}).tensor("cu_seqlens", LATHE_I32, {4});
  open.option("output_chunk_states", "1").option("chunk_size", "32").option("state_v_first", "1");
  REQUIRE(open.infer() == LATHE_OK);
  // Without the offsets' values as many chunks as there can be.
  CHECK(open.shape("chunk_states") == Shape{1, 70 / 32 + 3, 2, 16, 16});

  Inferred known("kda");
  for (const char* name : {"q", "k", "v", "g"}) known.tensor(name, LATHE_F32, {1, 70, 2, 16});
  known.tensor("beta", LATHE_F32, {1, 70, 2}).integers("cu_seqlens", {4}, {0, 32, 33, 70});
  known.option("output_chunk_states", "1").option("chunk_size", "32");
  REQUIRE_MESSAGE(known.infer() == LATHE_OK, lathe_last_error());
  CHECK(known.shape("chunk_states")[1] == 1 + 1 + 2);
}

TEST_CASE("open extents vary, widths and heads do not, tokens are what ranks cut") {
  Inferred made("flash_attention");
  for (const char* name : {"q", "k", "v"}) made.tensor(name, LATHE_BF16, {3, 8, 2, 16});
  REQUIRE(made.infer() == LATHE_OK);
  REQUIRE(lathe_problem_open(made.problem) == LATHE_OK);
  CHECK(made.shape("q") == Shape{-1, -1, 2, 16});
  CHECK(made.shape("lse") == Shape{-1, 2, -1});
  CHECK(made.info("q").token_dim == 1);
  CHECK(made.info("q").token_axis == LATHE_QUERIES);
  CHECK(made.info("k").token_axis == LATHE_KEYS);
  CHECK(made.info("lse").token_dim == 2);
  CHECK(std::string(made.info("q").dims[2]) == "H");
}

TEST_CASE("values that a kernel trusts are refused where they are wrong") {
  const auto packed = [](Inferred& made, std::vector<int32_t> offsets) -> Inferred& {
    made.tensor("x", LATHE_F32, {1, 20, 8}).tensor("weight", LATHE_F32, {8, 4});
    const auto count = static_cast<int64_t>(offsets.size());
    return made.integers("cu_seqlens", {count}, std::move(offsets));
  };
  const std::pair<std::vector<int32_t>, const char*> cases[] = {
      {{1, 20}, "cu_seqlens begins with 1; allowed is 0"},
      {{0, 12, 9, 20}, "decreases from 12 to 9 at entry 2"},
      {{0, 19}, "ends with 19; allowed is T = 20"}};
  for (const auto& [offsets, text] : cases) {
    Inferred made("causal_conv1d");
    packed(made, offsets).refused(text);
  }
  Inferred good("causal_conv1d");
  CHECK(packed(good, {0, 0, 20, 20}).infer() == LATHE_OK);
}

TEST_CASE("values must be on the host, contiguous and of the declared shape") {
  Inferred made("causal_conv1d");
  made.tensor("x", LATHE_F32, {1, 4, 8}).tensor("weight", LATHE_F32, {8, 4});
  made.integers("cu_seqlens", {2}, {0, 4});
  DLTensor& value = made.values.at("cu_seqlens");
  value.device = {kDLCUDA, 0};
  made.refused("the values of cu_seqlens are on device type 2; allowed is kDLCPU (1)");
  value.device = {kDLCPU, 0};
  value.dtype = {kDLInt, 64, 1};
  made.refused("cu_seqlens has dtype i64; allowed is i32");
  value.dtype = {kDLInt, 32, 1};
  int64_t three = 3, two = 2;
  value.shape = &three;
  made.refused("the values of cu_seqlens have extent 3 at 0; declared is 2");
  value.shape = &two;
  value.strides = &two;
  made.refused("the values of cu_seqlens have stride 2 at 0; they must be contiguous");
  value.strides = nullptr;
  value.data = nullptr;
  made.refused("the values of cu_seqlens are at NULL");
}

TEST_CASE("inputs that are missing or disagree are refused by name") {
  Inferred missing("kda");
  missing.tensor("q", LATHE_F32, {1, 4, 2, 16}).refused("k is not declared, but kda requires it");
  Inferred extents("causal_conv1d");
  extents.tensor("x", LATHE_F32, {1, 4, 8}).tensor("weight", LATHE_F32, {9, 4});
  extents.refused("weight has extent 9 at 0 of [D,W], so D is 9; x says D is 8");
  Inferred states("causal_conv1d");
  conv(states).tensor("initial_state", LATHE_F16, {3, 16, 4});
  states.refused("initial_state has N = 3 and x has B = 2");
  CHECK(lathe_problem_infer(nullptr, nullptr) == LATHE_INVALID_ARGUMENT);
  CHECK(lathe_problem_open(nullptr) == LATHE_INVALID_ARGUMENT);
}

TEST_CASE("a tensor beyond the table and a struct without a size are refused") {
  Inferred made("causal_conv1d");
  lathe_tensor_info info = {};
  CHECK(lathe_problem_tensor_info(made.problem, 0, &info) == LATHE_INVALID_ARGUMENT);
  info.size = sizeof info;
  CHECK(lathe_problem_tensor_info(made.problem, made.op->tensor_count, &info) ==
        LATHE_INVALID_ARGUMENT);
  CHECK(lathe_problem_tensor_info(made.problem, 0, nullptr) == LATHE_INVALID_ARGUMENT);
}

}  // namespace
