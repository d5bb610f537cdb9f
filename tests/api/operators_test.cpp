// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The operator table agrees with itself.
#include <doctest/doctest.h>

#include <cstring>
#include <set>

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
    for (size_t o = 0; o < op.info.option_count; ++o) {
      const lathe_operator_option& option = op.info.options[o];
      INFO(option.name);
      CHECK(split(option.allowed, '|').front() == option.fallback);
    }
  }
}

TEST_CASE("shapes, dtypes and needs name what exists") {
  for (const Operator& op : operators()) {
    for (size_t t = 0; t < op.info.tensor_count; ++t) {
      const lathe_operator_tensor& tensor = op.info.tensors[t];
      INFO(op.info.name, " ", tensor.name);
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
        CHECK(op.info.tensors[of].dtypes[0] != '=');
        // What follows an optional tensor needs it.
        CHECK((!op.info.tensors[of].optional ||
               listed(op.rules[t].needs, ',', op.info.tensors[of].name)));
      }
      for (std::string_view needed : split(op.rules[t].needs, ',')) {
        CHECK(find_tensor(op, needed) >= 0);
      }
      if (tensor.alias_of) CHECK(find_tensor(op, tensor.alias_of) >= 0);
    }
    for (std::string_view output : split(op.produces, ',')) {
      const int index = find_tensor(op, output);
      REQUIRE(index >= 0);
      CHECK(op.info.tensors[index].role != LATHE_INPUT);
    }
  }
}

TEST_CASE("the indices that fill parameters are those of the table") {
  const Operator& forward = *find_operator("causal_conv1d");
  CHECK(find_tensor(forward, "x") == conv::x);
  CHECK(find_tensor(forward, "weight") == conv::weight);
  CHECK(find_tensor(forward, "bias") == conv::bias);
  CHECK(find_tensor(forward, "residual") == conv::residual);
  CHECK(find_tensor(forward, "initial_state") == conv::initial_state);
  CHECK(find_tensor(forward, "cu_seqlens") == conv::cu_seqlens);
  CHECK(find_tensor(forward, "dy") == conv::dy);
  CHECK(find_tensor(forward, "dfinal_state") == conv::dfinal_state);
  CHECK(find_tensor(forward, "y") == conv::y);
  CHECK(find_tensor(forward, "final_state") == conv::final_state);
  CHECK(find_tensor(forward, "dx") == conv::dx);
  CHECK(find_tensor(forward, "dweight") == conv::dweight);
  CHECK(find_tensor(forward, "dbias") == conv::dbias);
  CHECK(find_tensor(forward, "dresidual") == conv::dresidual);
  CHECK(find_tensor(forward, "dinitial_state") == conv::dinitial_state);
  const Operator& update = *find_operator("causal_conv1d_update");
  CHECK(find_tensor(update, "x") == conv_update::x);
  CHECK(find_tensor(update, "weight") == conv_update::weight);
  CHECK(find_tensor(update, "bias") == conv_update::bias);
  CHECK(find_tensor(update, "residual") == conv_update::residual);
  CHECK(find_tensor(update, "state") == conv_update::state);
  CHECK(find_tensor(update, "y") == conv_update::y);
  // The translation of a problem reads these by one index for both operators.
  CHECK(static_cast<int>(conv::weight) == static_cast<int>(conv_update::weight));
  CHECK(static_cast<int>(conv::bias) == static_cast<int>(conv_update::bias));
  CHECK(static_cast<int>(conv::residual) == static_cast<int>(conv_update::residual));
}

TEST_CASE("the indices of flash_attention are those of the table") {
  const Operator& op = *find_operator("flash_attention");
  const char* const names[] = {
      "q",    "k",    "v",         "alibi_slopes", "sinks",     "cu_seqlens_q", "cu_seqlens_k",
      "dout", "dlse", "capture_0", "capture_1",    "capture_2", "capture_3",    "out",
      "lse",  "dq",   "dk",        "dv",           "dsinks"};
  REQUIRE(std::size(names) == attention::count);
  for (int i = 0; i < attention::count; ++i) CHECK(find_tensor(op, names[i]) == i);
}

TEST_CASE("the indices of flash_attention_decode are those of the table") {
  const Operator& op = *find_operator("flash_attention_decode");
  const char* const names[] = {
      "q",         "k_cache",   "v_cache",      "block_table", "cache_seqlens",
      "k_new",     "v_new",     "alibi_slopes", "sinks",       "capture_0",
      "capture_1", "capture_2", "capture_3",    "out",         "lse"};
  REQUIRE(std::size(names) == attention_decode::count);
  for (int i = 0; i < attention_decode::count; ++i) CHECK(find_tensor(op, names[i]) == i);
}

TEST_CASE("what changes a tensor is another one, and the tensor is in and out") {
  for (const Operator& op : operators()) {
    for (size_t t = 0; t < op.info.tensor_count; ++t) {
      const char* by = op.info.tensors[t].changed_by;
      if (!by) continue;
      CHECK(op.info.tensors[t].role == LATHE_INOUT);
      REQUIRE(find_tensor(op, by) >= 0);
      CHECK(op.info.tensors[find_tensor(op, by)].role != LATHE_INOUT);
    }
  }
}

TEST_CASE("the indices of kda_recurrent are those of the table") {
  const Operator& op = *find_operator("kda_recurrent");
  const char* const names[] = {"q",
                               "k",
                               "v",
                               "g",
                               "beta",
                               "A_log",
                               "dt_bias",
                               "initial_state",
                               "cu_seqlens",
                               "state_pool",
                               "state_indices",
                               "num_accepted_tokens",
                               "o",
                               "final_state"};
  REQUIRE(std::size(names) == kda_recurrent::count);
  for (int i = 0; i < kda_recurrent::count; ++i) CHECK(find_tensor(op, names[i]) == i);
  // States by value first are the second shape of their rank.
  const char* states = op.info.tensors[kda_recurrent::initial_state].shape;
  CHECK(shape_text(shape_of_rank(states, 4)) == "[N,HV,K,V]");
  CHECK(shape_text(shape_of_rank(states, 4, 1)) == "[N,HV,V,K]");
}

TEST_CASE("the indices of kda are those of the table") {
  const Operator& op = *find_operator("kda");
  const char* const names[] = {"q",
                               "k",
                               "v",
                               "g",
                               "beta",
                               "A_log",
                               "dt_bias",
                               "initial_state",
                               "cu_seqlens",
                               "do",
                               "dht",
                               "saved_values",
                               "saved_states",
                               "o",
                               "final_state",
                               "chunk_states",
                               "dq",
                               "dk",
                               "dv",
                               "dg",
                               "dbeta",
                               "dA_log",
                               "ddt_bias",
                               "dinitial_state"};
  REQUIRE(std::size(names) == kda::count);
  for (int i = 0; i < kda::count; ++i) CHECK(find_tensor(op, names[i]) == i);
  const char* chunks = op.info.tensors[kda::chunk_states].shape;
  CHECK(shape_text(shape_of_rank(chunks, 5)) == "[B,NT,HV,K,V]");
  CHECK(shape_text(shape_of_rank(chunks, 5, 1)) == "[B,NT,HV,V,K]");
}

TEST_CASE("the indices of shard and unshard are those of the table, the axis picks the shape") {
  const char* const names[] = {"x", "indices", "y", "buffer"};
  REQUIRE(std::size(names) == shard_rows::count);
  for (const char* name : {"shard", "unshard"}) {
    const Operator& op = *find_operator(name);
    for (int i = 0; i < shard_rows::count; ++i) CHECK(find_tensor(op, names[i]) == i);
    for (int rank = 1; rank <= 4; ++rank) {
      for (int axis = 0; axis < rank; ++axis) {
        const Shape whole = shape_of_rank(op.info.tensors[shard_rows::buffer].shape, rank, axis);
        REQUIRE(whole.rank == rank);
        CHECK(whole.dims[axis].letter == Letter::T);
        const int some = op.info.name[0] == 's' ? shard_rows::y : shard_rows::x;
        CHECK(shape_of_rank(op.info.tensors[some].shape, rank, axis).dims[axis].letter ==
              Letter::S);
      }
    }
  }
}

TEST_CASE("activations and pools are strided, all else is contiguous") {
  for (const Operator& op : operators()) {
    for (size_t t = 0; t < op.info.tensor_count; ++t) {
      const std::string shape = op.info.tensors[t].shape;
      // States of KDA are too where they are decoded: serving keeps them in pools with gaps.
      const bool pool = std::string_view(op.info.name) == "kda_recurrent" &&
                        shape.find(",HV,") != std::string::npos;
      // So are rotary columns and lists.
      const bool sparse =
          shape.ends_with(",H,R") || shape.ends_with(",HK,R") || shape.ends_with(",HK,topk");
      // What one call leaves for another.
      const bool saved = std::string_view(op.info.tensors[t].name).starts_with("saved_");
      const bool rows = (shape != "B,Sq|Tq" && shape.starts_with("B,S")) || shape == "B,T,D" ||
                        shape == "B,D" || shape.starts_with("B,T,H") || shape.starts_with("P,") ||
                        pool || sparse ||
                        (shape.starts_with("T") && (shape.ends_with("D") || shape.ends_with("DV")));
      // Whatever is moved.
      const bool moved = std::string_view(op.info.name).ends_with("shard") && shape != "S";
      CHECK(op.rules[t].strided == ((rows && !saved) || moved));
    }
  }
}

}  // namespace
}  // namespace lathe
