// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The operator table agrees with itself.
#include <doctest/doctest.h>

#include <cstring>
#include <set>

#include "api/lathe.h"
#include "ops/schema.h"

namespace lathe {
namespace {

TEST_CASE("names are found and unique") {
  std::set<std::string> seen;
  REQUIRE(lathe_operator_count() == operators().size());
  for (size_t i = 0; i < lathe_operator_count(); ++i) {
    const lathe_operator_info* info = lathe_operator_at(i);
    REQUIRE(info);
    CHECK(seen.insert(info->name).second);
    CHECK(lathe_operator_find(info->name) == info);
    CHECK(std::strlen(info->sentence) > 10);
    std::set<std::string> words;
    for (size_t t = 0; t < info->tensor_count; ++t) {
      CHECK(words.insert(info->tensors[t].name).second);
      CHECK(info->tensors[t].sentence[0] != '\0');
    }
    for (size_t o = 0; o < info->option_count; ++o) {
      CHECK(words.insert(info->options[o].name).second);
      CHECK(info->options[o].sentence[0] != '\0');
    }
    CHECK(info->tensor_count <= kMaxTensors);
  }
  CHECK(lathe_operator_at(lathe_operator_count()) == nullptr);
  CHECK(lathe_operator_find("causal_conv2d") == nullptr);
  CHECK(lathe_operator_find(nullptr) == nullptr);
}

TEST_CASE("defaults are allowed, the first of the list") {
  for (const Operator& op : operators()) {
    for (const OptionInfo& option : op.options) {
      INFO(option.name);
      CHECK(split(option.allowed, '|').front() == option.fallback);
    }
  }
}

TEST_CASE("shapes, dtypes and needs name what exists") {
  for (const Operator& op : operators()) {
    for (const TensorInfo& tensor : op.tensors) {
      INFO(op.name, " ", tensor.name);
      for (std::string_view each : split(tensor.shape, '|')) {
        const Shape shape = parse_shape(each);
        CHECK(shape.rank >= 1);
        CHECK(shape.rank <= kMaxRank);
        CHECK(shape_text(shape) == "[" + std::string(each) + "]");
        // The rank tells the alternatives apart, and of states the option.
        bool told = false;
        for (const int number : {0, 1, 2, 3}) {
          const Shape found = shape_of_rank(tensor.shape, shape.rank, number);
          told = told || shape_text(found) == shape_text(shape);
        }
        CHECK(told);
      }
      if (tensor.dtypes[0] == '=') {
        const int of = find_tensor(op, tensor.dtypes + 1);
        REQUIRE(of >= 0);
        CHECK(op.tensors[of].dtypes[0] != '=');
        // A tensor that follows an optional tensor needs that tensor.
        CHECK((!op.tensors[of].is_optional || listed(tensor.needed, ',', op.tensors[of].name)));
      }
      for (std::string_view needed : split(tensor.needed, ',')) {
        CHECK(find_tensor(op, needed) >= 0);
      }
      if (tensor.alias_of) CHECK(find_tensor(op, tensor.alias_of) >= 0);
    }
    for (std::string_view output : split(op.produces, ',')) {
      const int index = find_tensor(op, output);
      REQUIRE(index >= 0);
      CHECK(op.tensors[index].role != Role::input);
    }
  }
}

TEST_CASE("what changes a tensor is another one, and the tensor is in and out") {
  for (const Operator& op : operators()) {
    for (const TensorInfo& tensor : op.tensors) {
      const char* by = tensor.changed_by;
      if (!by) continue;
      CHECK(tensor.role == Role::inout);
      REQUIRE(find_tensor(op, by) >= 0);
      CHECK(op.tensors[find_tensor(op, by)].role != Role::inout);
    }
  }
}

const char* shapes_of(const Operator& op, const char* tensor) {
  return op.tensors[static_cast<size_t>(find_tensor(op, tensor))].shape;
}

TEST_CASE("of shapes of one rank an option picks by number") {
  const char* states = shapes_of(*find_operator("kda_recurrent"), "initial_state");
  CHECK(shape_text(shape_of_rank(states, 4)) == "[N,HV,K,V]");
  CHECK(shape_text(shape_of_rank(states, 4, 1)) == "[N,HV,V,K]");
  const char* chunks = shapes_of(*find_operator("kda"), "chunk_states");
  CHECK(shape_text(shape_of_rank(chunks, 5)) == "[B,NT,HV,K,V]");
  CHECK(shape_text(shape_of_rank(chunks, 5, 1)) == "[B,NT,HV,V,K]");
  for (const char* name : {"shard", "unshard"}) {
    const Operator& op = *find_operator(name);
    const char* some = shapes_of(op, op.name[0] == 's' ? "y" : "x");
    for (int rank = 1; rank <= 4; ++rank) {
      for (int axis = 0; axis < rank; ++axis) {
        const Shape whole = shape_of_rank(shapes_of(op, "buffer"), rank, axis);
        REQUIRE(whole.rank == rank);
        CHECK(whole.dims[axis].dim == Dim::T);
        CHECK(shape_of_rank(some, rank, axis).dims[axis].dim == Dim::S);
      }
    }
  }
}

TEST_CASE("an option that chooses a shape, and a gradient that runs the backward, exist") {
  for (const Operator& op : operators()) {
    INFO(op.name);
    if (*op.shape_option) CHECK(find_option(op, op.shape_option) >= 0);
    if (!*op.backward) continue;
    REQUIRE(find_tensor(op, op.backward) >= 0);
    CHECK(op.tensors[find_tensor(op, op.backward)].role == Role::input);
  }
}

TEST_CASE("an unknown name is answered with the nearest one") {
  const auto has = [](const std::string& text, const char* part) {
    CHECK_MESSAGE(text.find(part) != std::string::npos, text);
  };
  has(no_such_operator("causal_conv2d"), "did you mean 'causal_conv1d'?; there are causal_conv1d,");
  has(no_such_tensor(*find_operator("kda"), "initial_stat"), "did you mean 'initial_state'?");
  has(no_such_option(*find_operator("kda"), "chunk_sice"), "did you mean 'chunk_size'?");
  has(no_such_option(*find_operator("flash_attention_delta"), "x"), "it has none");
}

TEST_CASE("activations and pools are strided, all else is contiguous") {
  for (const Operator& op : operators()) {
    for (const TensorInfo& tensor : op.tensors) {
      const std::string shape = tensor.shape;
      // States of KDA are too in pools, which serving keeps with gaps, and where they are decoded.
      const bool decoded = std::string_view(op.name) == "kda_recurrent";
      const bool pool = shape.starts_with("S,HV,") || (decoded && shape.starts_with("N,HV,"));
      // So are rotary columns and lists.
      const bool sparse =
          shape.ends_with(",H,R") || shape.ends_with(",HK,R") || shape.ends_with(",HK,topk");
      // One call leaves these tensors for another.
      const bool saved = std::string_view(tensor.name).starts_with("saved_");
      const bool rows = (shape != "B,Sq|Tq" && shape.starts_with("B,S")) ||
                        shape.starts_with("B,T,D") || shape.starts_with("B,D|") ||
                        shape == "S,D,LS" || shape.starts_with("B,HV") ||
                        shape.starts_with("B,T,H") || shape.starts_with("P,") || pool || sparse ||
                        shape.ends_with(",bytes") ||
                        (shape.starts_with("T") && (shape.ends_with("D") || shape.ends_with("DV")));
      // Shard operators move such tensors.
      const bool moved = std::string_view(op.name).ends_with("shard") && shape != "S";
      CHECK(tensor.is_strided == ((rows && !saved) || moved));
    }
  }
}

}  // namespace
}  // namespace lathe
