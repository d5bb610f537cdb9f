// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover problems as lines of text: what a line says, what comes back from it, what is
// refused.
#include <doctest/doctest.h>

#include <cstring>

#include "ops/problem.h"
#include "tests/api/manifest_text.h"

namespace {

using manifest::parse;
using manifest::text_of;
using test::Builder;
using test::contains;
using test::error;

constexpr const char* kScore =
    "// \xC3\xA4 \"quoted\"\tand \\.\r\n"
    "__device__ float score_mod(float score, int, int, int, int) { return score; }\n";

TEST_CASE("a line says what was declared, in the order of the table") {
  Builder conv("causal_conv1d");
  conv.set("activation", "silu");
  conv.tensors({{"y", LATHE_BF16, {-1, -1, 64}},
                {"weight", LATHE_F32, {64, 4}},
                {"x", LATHE_BF16, {2, -1, 64}}});
  CHECK(text_of(conv.problem.get()) ==
        R"({"op":"causal_conv1d","tensors":{"x":["bf16",[2,-1,64]],"weight":["f32",[64,4]],)"
        R"("y":["bf16",[-1,-1,64]]},"options":{"activation":"silu"}})");

  Builder attention("flash_attention");
  attention.tensor({"q", LATHE_F16, {-1, 2, 40}});
  attention.set("softmax_scale", "2.50e-1").set("causal", "01").set("window_left", "-1");
  REQUIRE_MESSAGE(attention.status == LATHE_OK, error());
  REQUIRE(lathe_problem_alignment(attention.problem.get(), 8) == LATHE_OK);
  REQUIRE_MESSAGE(lathe_problem_set_text(attention.problem.get(), "score_mod", kScore,
                                         std::strlen(kScore)) == LATHE_OK,
                  error());
  CHECK(text_of(attention.problem.get()) ==
        R"({"op":"flash_attention","tensors":{"q":["f16",[-1,2,40]]},)"
        R"("options":{"softmax_scale":0.25,"causal":1,"window_left":-1},"alignment":8,)"
        R"("mods":{"score_mod":"// \u00e4 \"quoted\"\tand \\.\r\n__device__ float )"
        R"(score_mod(float score, int, int, int, int) { return score; }\n"}})");

  Builder bare("kda");
  CHECK(text_of(bare.problem.get()) == R"({"op":"kda","tensors":{}})");
}

TEST_CASE("a short buffer gets the beginning") {
  Builder bare("kda");
  char few[6] = "xxxxx";
  size_t needed = 0;
  REQUIRE(lathe_problem_text(bare.problem.get(), few, sizeof few, &needed) == LATHE_OK);
  CHECK(std::string(few) == R"({"op")");
  CHECK(needed == std::strlen(R"({"op":"kda","tensors":{}})") + 1);
}

TEST_CASE("what is not canonical is read, and becomes it") {
  const auto becomes = [](const std::string& line, const std::string& canonical) {
    CAPTURE(line);
    const auto problem = parse(line);
    REQUIRE_MESSAGE(problem, error());
    CHECK(text_of(problem.get()) == canonical);
  };
  const std::string plain = R"({"op":"flash_attention","tensors":{},"options":{"causal":1}})";
  becomes(plain, plain);
  becomes(R"(  {"options" : {"causal" : true}, "tensors":{}, "op":"flash_attention"} )", plain);
  becomes(R"({"op":"flash_attention","tensors":{},"options":{"causal":"01"},"alignment":16})",
          plain);
  becomes(R"({"op":"flash_attention","tensors":{},"options":{"causal":1},"mods":{}})", plain);
  becomes(R"({"op":"flash_attention","tensors":{},"options":{"causal":1},"snippets":{}})", plain);
  const std::string mods = R"({"mask_mod":"bool mask_mod() { return 1; }"}})";
  becomes(R"({"op":"flash_attention","tensors":{},"snippets":)" + mods,
          R"({"op":"flash_attention","tensors":{},"mods":)" + mods);
  // An integer where a number is expected, and numbers beyond what a double tells apart.
  becomes(R"({"op":"flash_attention","tensors":{},"options":{"softmax_scale":2}})",
          R"({"op":"flash_attention","tensors":{},"options":{"softmax_scale":2.0}})");
  becomes(
      R"({"op":"flash_attention","tensors":{},"options":{"softmax_scale":0.1000000000000000055}})",
      R"({"op":"flash_attention","tensors":{},"options":{"softmax_scale":0.1}})");
  const std::string group =
      R"({"op":"flash_attention","tensors":{},"group":{"world":4,"flags":["reduce_parameter_grads","allgather"]}})";
  becomes(group, group);
  becomes(
      R"({"op":"flash_attention","tensors":{},"group":{"flags":["allgather","reduce_parameter_grads"],"world":4}})",
      group);
  becomes(R"({"op":"kda","tensors":{},"group":{"world":1}})",
          R"({"op":"kda","tensors":{},"group":{"world":1,"flags":[]}})");
}

// {"n0":0,"n1":0,...}: reading these took hours.
std::string many_names(int count) {
  std::string out = "{";
  for (int i = 0; i < count; ++i) out += (i ? ",\"n" : "\"n") + std::to_string(i) + "\":0";
  return out + "}";
}

TEST_CASE("what is refused is named, with what is allowed") {
  const struct {
    std::string line;
    std::vector<std::string> words;
  } cases[] = {
      {"", {"no JSON"}},
      {"{\"op\":", {"no JSON"}},
      {R"({"op":"kda","tensors":{}} {})", {"no JSON"}},
      {"[1]", {"JSON array", "object"}},
      {"null", {"JSON null"}},
      {std::string(100000, '['), {"5 deep", "allowed are 4"}},
      {std::string((8 << 20) + 1, ' '), {"8388609 bytes", "8388608"}},
      {R"({"tensors":{}})", {"op is missing", "causal_conv1d"}},
      {R"({"op":"kda2","tensors":{}})", {"no operator 'kda2'", "kda_recurrent"}},
      {R"({"op":7,"tensors":{}})", {"op is 7"}},
      {R"({"op":"kda"})", {"tensors is missing"}},
      {R"({"op":"kda","tensors":[]})", {"tensors is []", "an object"}},
      {R"({"op":"kda","tensors":{},"speed":1})",
       {"the field 'speed'", "op, kernel, tensors, options"}},
      {R"({"op":"kda","op":"kda","tensors":{}})", {"'op' twice"}},
      {R"({"op":"kda","tensors":{"q":["bf16",[1]],"q":["bf16",[1]]}})", {"'q' twice"}},
      {R"({"op":"kda","tensors":{"q":"bf16"}})", {"tensor q is \"bf16\"", "[dtype, [extents]]"}},
      {R"({"op":"kda","tensors":{"q":["f8",[1,1,1,1]]}})", {"q's dtype is \"f8\"", "bf16"}},
      {R"({"op":"kda","tensors":{"q":["i32",[1,1,1,1]]}})", {"q has dtype i32"}},
      {R"({"op":"kda","tensors":{"q":["bf16",[1,1,1.5,1]]}})", {"q's extent 2 is 1.5"}},
      {R"({"op":"kda","tensors":{"q":["bf16",[18446744073709551615,1,1,1]]}})",
       {"extent 0 is 1844"}},
      {R"({"op":"kda","tensors":{"q":["bf16",[-2,1,1,1]]}})", {"[-2, 1, 1, 1]", "or -1"}},
      {R"({"op":"kda","tensors":{"q":["bf16",[1]]}})", {"q has rank 1"}},
      {R"({"op":"kda","tensors":{"Q":["bf16",[1]]}})", {"no tensor 'Q'"}},
      {R"({"op":"kda","tensors":{"q\u0000":["bf16",[1,1,1,1]]}})", {"a name in tensors"}},
      {R"({"op":"kda","tensors":{},"options":{"scale":NaN}})", {"no JSON"}},
      {R"({"op":"kda","tensors":{},"options":{"scale":1e999}})", {"no JSON", "1e999"}},
      {R"({"op":"kda","tensors":{},"options":{"scale":"nan"}})", {"scale is 'nan'"}},
      {R"({"op":"kda","tensors":{},"options":{"scale":null}})",
       {"scale is null", "a number or a text"}},
      {R"({"op":"kda","tensors":{},"options":{"scale":[1]}})", {"scale is [1]"}},
      {R"({"op":"kda","tensors":{},"options":{"segments":2.5}})",
       {"option segments is set to 2.5", "takes an integer"}},
      {R"({"op":"kda","tensors":{},"options":{"segments":18446744073709551615}})",
       {"1844", "[1,33)"}},
      {R"({"op":"kda","tensors":{},"options":{"speed":1}})", {"no option 'speed'"}},
      {R"({"op":"kda","tensors":{},"alignment":3})", {"alignment is 3", "16"}},
      {R"({"op":"kda","tensors":{},"alignment":"16"})", {"alignment is \"16\""}},
      {R"({"op":"kda","tensors":{},"mods":{"score_mod":"x"}})", {"'score_mod'", "none"}},
      {R"({"op":"kda","tensors":{},"snippets":{"score_mod":"x"}})", {"'score_mod'", "none"}},
      {R"({"op":"flash_attention","tensors":{},"mods":{},"snippets":{}})",
       {"mods and snippets", "older name"}},
      {R"({"op":"flash_attention","tensors":{},"mods":{"score_mod":1}})", {"score_mod is 1"}},
      {R"({"op":"flash_attention","tensors":{},"mods":{"score_mod":"a\u0000"}})", {"zero byte"}},
      {R"({"op":"flash_attention","tensors":{},"options":{"score_mod":"/etc/passwd"}})",
       {"score_mod is \"/etc/passwd\"", "mods"}},
      {R"({"op":"kda","tensors":{},"group":4})", {"group is 4", "world"}},
      {R"({"op":"kda","tensors":{},"group":{}})", {"no world", "65536"}},
      {R"({"op":"kda","tensors":{},"group":{"world":0}})", {"world is 0"}},
      {R"({"op":"kda","tensors":{},"group":{"world":65537}})", {"world is 65537"}},
      {R"({"op":"kda","tensors":{},"group":{"world":2,"rank":1}})", {"the field 'rank'"}},
      {R"({"op":"kda","tensors":{},"group":{"world":2,"flags":["fast"]}})",
       {"\"fast\"", "allgather"}},
      {R"({"op":"flash_attention","tensors":{},"group":{"world":2,"flags":["allgather","allgather"]}})",
       {"each once"}},
      {R"({"op":"flash_attention","tensors":{},"group":{"world":2,"flags":["allgather","dispatch"]}})",
       {"only one"}},
      {R"({"op":"causal_conv1d_update","tensors":{},"group":{"world":2}})", {"cannot be split"}},
      {"{\"op\":\"kda\",\"tensors\":{},\"options\":{\"scale\":\"\xFF\"}}", {"no JSON"}},
      {std::string("{\"op\":\"kda\",\"tensors\":{}}\0garbage", 33), {"byte 25 of the line is 0"}},
      {"\xEF\xBB\xBF{\"op\":\"kda\",\"tensors\":{}}", {"byte order mark"}},
      {R"({"\u001b[31mX":1})", {R"(the field '\x1b[31mX')"}},
      {R"({"a\nb":1,"a\nb":1})", {R"('a\x0ab' twice)"}},
      {R"({"op":"kda","tensors":{"q\n\u009b":1}})", {R"(tensor q\x0a\xc2\x9b is 1)"}},
      {R"({"op":"kda","tensors":)" + many_names(200000) + "}", {"more than 256 names"}},
  };
  for (const auto& each : cases) {
    CAPTURE(each.line.substr(0, 120));
    CHECK_FALSE(parse(each.line));
    for (const std::string& word : each.words) CHECK_MESSAGE(contains(error(), word), error());
    CHECK(error().size() < 1000);
  }
  lathe_problem* problem = nullptr;
  CHECK(lathe_problem_parse(nullptr, "{}", 2) == LATHE_INVALID_ARGUMENT);
  CHECK(lathe_problem_parse(&problem, nullptr, 2) == LATHE_INVALID_ARGUMENT);
  CHECK(lathe_problem_text(nullptr, nullptr, 0, nullptr) == LATHE_INVALID_ARGUMENT);
}

TEST_CASE("a text that is no UTF-8 is refused, and is named") {
  Builder attention("flash_attention");
  const std::string bad = std::string("// \xE9\n") + kScore;
  REQUIRE(lathe_problem_set_text(attention.problem.get(), "score_mod", bad.data(), bad.size()) ==
          LATHE_INVALID_ARGUMENT);
  CHECK_MESSAGE(contains(error(), "score_mod"), error());
  CHECK_MESSAGE(contains(error(), "UTF-8"), error());
}

// Returns the specs of a problem's kernels, without compiling any.
std::vector<std::string> kernels_of(const test::Context& context, const lathe_problem* problem) {
  lathe_warming* warming = nullptr;
  REQUIRE(lathe_warming_create(&warming) == LATHE_OK);
  CHECK_MESSAGE(lathe_warming_add(warming, context.get(), problem) == LATHE_OK, error());
  std::vector<std::string> specs;
  for (size_t i = 0; i < lathe_warming_kernel_count(warming); ++i) {
    lathe_warming_kernel_info kernel = {};
    kernel.size = sizeof kernel;
    REQUIRE(lathe_warming_kernel(warming, i, &kernel) == LATHE_OK);
    CHECK(std::string(kernel.from).empty());
    specs.emplace_back(kernel.spec);
  }
  lathe_warming_destroy(warming);
  return specs;
}

TEST_CASE("the size of a group is enough to choose kernels, and not to run them") {
  const test::Folder folder;
  const auto context = test::make_context(LATHE_DEVICE_NONE, folder.path);
  const auto line = [](const std::string& rest) {
    return R"({"op":"flash_attention","tensors":{"q":["bf16",[-1,-1,8,64]],"k":["bf16",[-1,-1,8,64]],)"
           R"("v":["bf16",[-1,-1,8,64]],"out":["bf16",[-1,-1,8,64]],"lse":["f32",[-1,8,-1]]})" +
           rest + "}";
  };
  const auto alone = parse(line(""));
  const std::vector<std::string> plain = kernels_of(context, alone.get());
  for (const char* rest :
       {R"(,"group":{"world":4})", R"(,"group":{"world":4,"flags":["allgather"]})",
        R"(,"group":{"world":4,"flags":["dispatch"]})",
        R"(,"group":{"world":4,"flags":["exchange_heads"]})",
        R"(,"options":{"head_ranks":2},"group":{"world":4,"flags":["exchange_heads"]})"}) {
    CAPTURE(rest);
    const auto problem = parse(line(rest));
    REQUIRE_MESSAGE(problem, error());
    CHECK(kernels_of(context, problem.get()) != plain);
  }

  const auto conv =
      parse(R"({"op":"causal_conv1d","tensors":{"x":["f32",[1,-1,16]],"weight":["f32",[16,4]],)"
            R"("y":["f32",[1,-1,16]]},"group":{"world":2}})");
  REQUIRE_MESSAGE(conv, error());
  lathe_plan* plan = nullptr;
  REQUIRE_MESSAGE(lathe_plan_create(&plan, context.get(), conv.get()) == LATHE_OK, error());
  const test::Plan kept(plan);
  lathe_shard* shard = nullptr;
  REQUIRE(lathe_shard_create(&shard, 2, 0, 8, nullptr) == LATHE_OK);
  const test::Shard cut(shard);
  CHECK(lathe_shard_prepare(shard, plan) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "no more of its group than its 2 ranks"));
  CHECK(lathe_plan_run_sharded(plan, shard, nullptr, nullptr, 0, nullptr) ==
        LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "lathe_problem_group"));
}

}  // namespace
