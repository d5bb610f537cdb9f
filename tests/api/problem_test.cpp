// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover bad problems, by table: each refusal names the tensor or option, what was found
// and what is allowed.
#include "ops/problem.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "ops/conv/run.h"
#include "ops/resolve.h"
#include "tests/harness/support.h"

namespace {

using test::Builder;
using test::contains;
using test::error;

const std::vector<test::Declaration> kForward = {{"x", LATHE_BF16, {-1, -1, 64}},
                                                 {"weight", LATHE_F32, {64, 4}},
                                                 {"y", LATHE_BF16, {-1, -1, 64}}};

struct Bad {
  const char* what;
  std::function<void(Builder&)> declare;  // on top of kForward
  std::vector<const char*> text;          // all in the refusal
};

// Declares, then checks the whole as lathe_plan_create does. Empty: accepted.
std::string refusal(const std::function<void(Builder&)>& declare, bool with_forward = true) {
  Builder builder("causal_conv1d");
  if (with_forward) builder.tensors(kForward);
  declare(builder);
  if (builder.status != LATHE_OK) {
    CHECK(builder.status == LATHE_INVALID_ARGUMENT);
    return error();
  }
  const auto resolved = lathe::resolve(*builder.problem);
  if (resolved.ok()) return "";
  CHECK(resolved.status().code() == lathe::Code::invalid_argument);
  return resolved.status().text();
}

const Bad kBad[] = {
    {"unknown tensor",
     [](Builder& b) {
       b.tensor({"z", LATHE_BF16, {1}});
     },
     {"no tensor 'z'", "weight", "dinitial_state"}},
    {"declared twice",
     [](Builder& b) {
       b.tensor({"x", LATHE_BF16, {-1, -1, 64}});
     },
     {"x is declared twice"}},
    {"an alias",
     [](Builder& b) {
       b.tensor({"dresidual", LATHE_BF16, {-1, -1, 64}});
     },
     {"dresidual", "use dy"}},
    {"an integer activation",
     [](Builder& b) {
       b.tensor({"residual", LATHE_I32, {-1, -1, 64}});
     },
     {"residual", "i32", "f32|f16|bf16"}},
    {"a float offset",
     [](Builder& b) {
       b.tensor({"cu_seqlens", LATHE_F32, {3}});
     },
     {"cu_seqlens", "f32", "i32|i64"}},
    {"a dtype that is none",
     [](Builder& b) {
       b.tensor({"bias", static_cast<lathe_dtype>(17), {64}});
     },
     {"bias", "17", "f32|f16|bf16"}},
    {"residual of another dtype",
     [](Builder& b) {
       b.tensor({"residual", LATHE_F16, {-1, -1, 64}});
     },
     {"residual", "f16", "bf16", "of x"}},
    {"bias of another dtype than weight",
     [](Builder& b) {
       b.tensor({"bias", LATHE_BF16, {64}});
     },
     {"bias", "bf16", "f32", "of weight"}},
    {"a state of another dtype",
     [](Builder& b) {
       b.tensor({"initial_state", LATHE_F32, {-1, 64, 4}});
     },
     {"initial_state", "f32", "bf16"}},
    {"a wrong rank",
     [](Builder& b) {
       b.tensor({"bias", LATHE_F32, {64, 1}});
     },
     {"bias", "rank 2", "[D]"}},
    {"an extent below -1",
     [](Builder& b) {
       b.tensor({"bias", LATHE_F32, {-2}});
     },
     {"bias", "[-2]", "0 to 2147483647"}},
    {"an extent past 2^31",
     [](Builder& b) {
       b.tensor({"residual", LATHE_BF16, {-1, 2147483648, 64}});
     },
     {"residual", "2147483648", "2147483647"}},
    {"no offset at all",
     [](Builder& b) {
       b.tensor({"cu_seqlens", LATHE_I32, {0}});
     },
     {"cu_seqlens", "[0]", "1 to"}},
    {"channels that disagree",
     [](Builder& b) {
       b.tensor({"bias", LATHE_F32, {63}});
     },
     {"bias", "63", "says D is 64"}},
    {"widths that disagree",
     [](Builder& b) {
       b.tensor({"initial_state", LATHE_BF16, {-1, 64, 3}});
     },
     {"initial_state", "W is 3", "weight says W is 4"}},
    {"packed with a batch",
     [](Builder& b) {
       b.tensor({"residual", LATHE_BF16, {2, -1, 64}}).tensor({"cu_seqlens", LATHE_I32, {3}});
     },
     {"cu_seqlens", "B = 2", "B = 1"}},
    {"states that are not of the batch",
     [](Builder& b) {
       b.tensor({"residual", LATHE_BF16, {2, -1, 64}})
           .tensor({"initial_state", LATHE_BF16, {3, 64, 4}});
     },
     {"N = 3", "B = 2"}},
    {"a gradient without dy",
     [](Builder& b) {
       b.tensor({"dx", LATHE_BF16, {-1, -1, 64}});
     },
     {"dx", "without dy"}},
    {"a weight gradient alone",
     [](Builder& b) {
       b.tensor({"dweight", LATHE_F32, {64, 4}});
     },
     {"dweight", "without dy"}},
    {"a bias gradient without a bias",
     [](Builder& b) {
       b.tensors({{"dy", LATHE_BF16, {-1, -1, 64}},
                  {"dx", LATHE_BF16, {-1, -1, 64}},
                  {"dweight", LATHE_F32, {64, 4}},
                  {"dbias", LATHE_F32, {64}}});
     },
     {"dbias", "without bias"}},
    {"a state gradient without a state",
     [](Builder& b) {
       b.tensors({{"dy", LATHE_BF16, {-1, -1, 64}},
                  {"dx", LATHE_BF16, {-1, -1, 64}},
                  {"dinitial_state", LATHE_BF16, {-1, 64, 4}}});
     },
     {"dinitial_state", "without initial_state"}},
    {"an unknown option",
     [](Builder& b) { b.set("activate", "silu"); },
     {"no option 'activate'", "activation", "output_final_state"}},
    {"a value that is not allowed",
     [](Builder& b) { b.set("activation", "gelu"); },
     {"activation", "gelu", "none|silu"}},
    {"an integer that is not allowed",
     [](Builder& b) { b.set("output_final_state", "2"); },
     {"output_final_state", "'2'", "0|1"}},
    {"text for an integer",
     [](Builder& b) { b.set("output_final_state", "1x"); },
     {"output_final_state", "1x", "0|1"}},
    {"an option set twice",
     [](Builder& b) { b.set("activation", "silu").set("activation", "none"); },
     {"activation", "twice", "silu", "none"}},
    {"a final state that is wanted and not declared",
     [](Builder& b) { b.set("output_final_state", "1"); },
     {"output_final_state is 1", "final_state is not declared"}},
    {"a final state that is declared and not wanted",
     [](Builder& b) {
       b.tensor({"final_state", LATHE_BF16, {-1, 64, 4}}).set("output_final_state", "0");
     },
     {"output_final_state is 0", "final_state is declared"}},
};

TEST_CASE("each bad problem is refused, with names and values") {
  CHECK(refusal([](Builder&) {}) == "");
  for (const Bad& bad : kBad) {
    INFO(bad.what);
    const std::string text = refusal(bad.declare);
    INFO(text);
    CHECK(text != "");
    for (const char* part : bad.text) {
      INFO(part);
      CHECK(contains(text, part));
    }
  }
}

TEST_CASE("widths outside 2 to 8, or unknown, are refused") {
  for (int64_t width : {0, 1, 9, 64, -1}) {
    const std::string text = refusal(
        [&](Builder& b) {
          b.tensors({{"x", LATHE_F32, {-1, -1, 8}},
                     {"weight", LATHE_F32, {8, width}},
                     {"y", LATHE_F32, {-1, -1, 8}}});
        },
        false);
    INFO(text);
    CHECK(contains(text, "W = " + std::to_string(width)));
    CHECK(contains(text, "2 to 8"));
  }
}

TEST_CASE("required tensors and something to compute") {
  const auto no_weight = [](Builder& b) {
    b.tensors({{"x", LATHE_F32, {-1, -1, 8}}, {"y", LATHE_F32, {-1, -1, 8}}});
  };
  CHECK(contains(refusal(no_weight, false), "weight is not declared"));
  const auto no_output = [](Builder& b) {
    b.tensors({{"x", LATHE_F32, {-1, -1, 8}}, {"weight", LATHE_F32, {8, 4}}});
  };
  CHECK(contains(refusal(no_output, false),
                 "declare at least one of y,y_0,dx,dweight,dinitial_state"));
}

TEST_CASE("setters check type and finiteness") {
  Builder builder("causal_conv1d");
  lathe_problem* problem = builder.problem.get();
  CHECK(lathe_problem_set_double(problem, "activation", NAN) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "activation is nan"));
  CHECK(lathe_problem_set_double(problem, "output_final_state", INFINITY) ==
        LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "finite"));
  CHECK(lathe_problem_set_double(problem, "output_final_state", 1.0) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "an integer"));
  CHECK(lathe_problem_set_int(problem, "activation", 1) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "none|silu"));
  CHECK(lathe_problem_set_int(problem, "output_final_state", 2) == LATHE_INVALID_ARGUMENT);
  CHECK(lathe_problem_set_int(problem, "output_final_state", 1) == LATHE_OK);
  for (int bytes : {0, 3, 32, -1}) {
    CHECK(lathe_problem_alignment(problem, bytes) == LATHE_INVALID_ARGUMENT);
    CHECK(contains(error(), std::to_string(bytes)));
  }
  CHECK(lathe_problem_alignment(problem, 8) == LATHE_OK);
}

TEST_CASE("an unknown operator is answered with those there are") {
  Builder builder("causal_conv");
  CHECK(builder.status == LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "causal_conv1d, causal_conv1d_update"));
  CHECK(!builder.problem);
}

TEST_CASE("the update cannot be split over a group") {
  Builder builder("causal_conv1d_update");
  auto* group = reinterpret_cast<lathe_group*>(&builder);  // refused before it is looked at
  CHECK(lathe_problem_group(builder.problem.get(), group, 0) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "causal_conv1d_update cannot be split"));
  Builder forward("causal_conv1d");
  CHECK(lathe_problem_group(forward.problem.get(), group, 6) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "flags are 6"));
}

TEST_CASE("accesses are as wide as alignment and channels allow") {
  using lathe::Dtype;
  CHECK(lathe::vector_bytes(Dtype::bf16, 16, 4096) == 16);
  CHECK(lathe::vector_bytes(Dtype::bf16, 16, 60) == 8);
  CHECK(lathe::vector_bytes(Dtype::bf16, 16, 2) == 4);
  CHECK(lathe::vector_bytes(Dtype::bf16, 16, 7) == 2);
  CHECK(lathe::vector_bytes(Dtype::bf16, 4, 4096) == 4);
  CHECK(lathe::vector_bytes(Dtype::bf16, 1, 4096) == 2);
  CHECK(lathe::vector_bytes(Dtype::f32, 16, 7) == 4);
  CHECK(lathe::vector_bytes(Dtype::f32, 2, 4096) == 4);
  CHECK(lathe::vector_bytes(Dtype::f32, 16, lathe::kUnknown) == 4);
  CHECK(lathe::vector_bytes(Dtype::f16, 16, 0) == 16);
}

}  // namespace
