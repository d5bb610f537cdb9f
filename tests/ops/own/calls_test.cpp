// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests run kernels of a caller's own through lathe.h on the simulator: results against
// float64, what plans and runs refuse, names, keys and lines of problems.
#include <cmath>
#include <fstream>
#include <sstream>

#include "tests/harness/check.h"
#include "tests/numbers.h"
#include "tests/ops/own/texts.h"

using namespace apitest;
using namespace own_texts;

namespace {

using Kernel = own_texts::Kernel;  // the harness has one as well

std::string example(const std::string& name) {
  std::ifstream file(std::string(LATHE_EXAMPLES) + "/own_kernels/" + name);
  std::ostringstream text;
  text << file.rdbuf();
  REQUIRE_MESSAGE(file.good(), name);
  return text.str();
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

// The plan of a call, or the text of its refusal.
std::string refusal(const Call& call, lathe_status status = LATHE_INVALID_ARGUMENT) {
  const Problem problem = declare(call);
  lathe_plan* made = nullptr;
  const lathe_status found = lathe_plan_create(&made, shared_context(), problem.get());
  Plan plan(made);
  CHECK(found == status);
  return found == LATHE_OK ? "" : lathe_last_error();
}

Call rms_call(const Kernel& kernel, lathe_dtype dtype, int64_t rows, int64_t width, bool residual) {
  Call call;
  call.op = name_of(kernel);
  call.draw("x", dtype, {rows, width}, 1);
  call.draw("weight", dtype, {width}, 2);
  if (residual) call.draw("residual", dtype, {rows, width}, 3);
  call.want("y", dtype, {rows, width});
  if (residual) call.want("sum", dtype, {rows, width});
  call.set("eps", 1e-3);
  return call;
}

void check_rms(const Call& call, lathe_dtype dtype, int64_t rows, int64_t width, bool residual) {
  const Answer answer = run(call);
  const Values &x = call.tensors.at("x").values, &weight = call.tensors.at("weight").values;
  Values y, sum;
  for (int64_t t = 0; t < rows; ++t) {
    double squares = 0;
    for (int64_t d = 0; d < width; ++d) {
      const auto at = static_cast<size_t>(t * width + d);
      sum.push_back(x[at] + (residual ? call.tensors.at("residual").values[at] : 0.0));
      squares += sum.back() * sum.back();
    }
    const double factor = 1 / std::sqrt(squares / static_cast<double>(width) + 1e-3);
    for (int64_t d = 0; d < width; ++d) {
      y.push_back(sum[static_cast<size_t>(t * width + d)] * factor *
                  weight[static_cast<size_t>(d)]);
    }
  }
  const double half = numbers::half_ulp(dtype);
  check_near(answer.at("y"), y, 1e-6, 1.01 * half + 4e-6, "y");
  if (residual) check_near(answer.at("sum"), sum, 1e-6, 1.01 * half, "sum");
  check_no_spills(answer);
}

TEST_CASE("an example, all dtypes and several widths, against float64") {
  const Kernel kernel = parse(example("rms_norm.cuh"), "rms_norm.cuh");
  struct Size {
    lathe_dtype dtype;
    int64_t rows, width;
    bool residual;
  };
  for (const Size& size : {Size{LATHE_F32, 3, 516, false},
                           {LATHE_BF16, 5, 1024, true},
                           {LATHE_F16, 1, 8, true},
                           {LATHE_BF16, 2, 2056, false}}) {
    CAPTURE(size.width);
    check_rms(rms_call(kernel, size.dtype, size.rows, size.width, size.residual), size.dtype,
              size.rows, size.width, size.residual);
  }
  // No row: nothing is launched.
  CHECK(run(rms_call(kernel, LATHE_BF16, 0, 64, false)).launches.empty());
}

// Two kernels with an array between them, strides, a dim that follows from others, an optional
// tensor, options of each type.
// clang-format off
const char* const kMoments = R"text(/* lathe
name = "moments"
[tensors]
x = { in = ["f32", "bf16"], shape = "T D", strided = true }
bias = { in = "f32", shape = "D", optional = true }
total = { inout = "f32", shape = "1" }
y = { out = "f32", shape = "G 2" }
[options]
scale = { default = 1.0, allowed = "any" }
shift = { default = 0, allowed = ">=0" }
mode = { default = "sum", allowed = "sum|most" }
times = { default = 1, allowed = "1|2|3", compiled = true }
[dims]
G = "ceil_div(T, 4)"
[constants]
kRows = 4
kThreads = [64, 32]
kLanes = "kThreads / 2"
[workspace]
partial = { dtype = "f32", count = "T" }
[[kernel]]
function = "rows"
grid = ["T", 1]
block = "kThreads"
[[kernel]]
function = "groups"
grid = "G"
block = 32
shared = "4 * kRows"
[refuse]
"T > 100" = "more than 100 rows are too many"
"times == 3 && given(bias)" = "three times goes without a bias"
*/
#include "lathe/reduce.cuh"
template <class Config>
__device__ void rows(const Params& p) {
  static_assert(Config::kLanes * 2 == Config::kThreads && Config::kRows == 4, "");
  float sum = 0;
  for (long long d = threadIdx.x; d < p.D; d += Config::kThreads) {
    const float x = lathe::to_float(p.x[blockIdx.x * p.x_stride[0] + d * p.x_stride[1]]);
    float value = x * Config::times;
    if constexpr (Config::has_bias) value += p.bias[d];
    sum += value;
  }
  __shared__ lathe::BlockReduce<Config::kThreads> reduce;
  sum = reduce.sum(sum);
  if (threadIdx.x == 0) p.partial[blockIdx.x] = sum * p.scale + p.shift;
}
template <class Config>
__device__ void groups(const Params& p) {
  extern __shared__ float rows_of[];
  const long long row = 4LL * blockIdx.x + threadIdx.x;
  if (threadIdx.x < 4) rows_of[threadIdx.x] = row < p.T ? p.partial[row] : 0.0f;
  __syncthreads();
  if (threadIdx.x != 0) return;
  float sum = 0, most = rows_of[0];
  for (int i = 0; i < 4; ++i) {
    sum += rows_of[i];
    if (4LL * blockIdx.x + i < p.T) most = fmaxf(most, rows_of[i]);
  }
  p.y[2 * blockIdx.x] = p.mode == 0 ? sum : most;
  p.y[2 * blockIdx.x + 1] = p.T;
  if (blockIdx.x == 0) p.total[0] += 1.0f;
}
)text";
// clang-format on

Call moments_call(const Kernel& kernel, int64_t rows, int64_t width, bool bias) {
  Call call;
  call.op = name_of(kernel);
  call.draw("x", LATHE_BF16, {rows, width}, 4);
  call.tensors["x"].placement = {.token_gap = 3, .offset = 5, .guard = 8};
  if (bias) call.draw("bias", LATHE_F32, {width}, 5);
  call.tensors["total"] = {LATHE_F32, {1}, {41.0}, true};
  call.want("y", LATHE_F32, {(rows + 3) / 4, 2});
  call.alignment = 2;
  return call;
}

Values moments_of(const Call& call, int64_t rows, int64_t width, double times, double scale,
                  double shift, bool most) {
  Values partial, out;
  for (int64_t t = 0; t < rows; ++t) {
    double sum = 0;
    for (int64_t d = 0; d < width; ++d) {
      sum += call.tensors.at("x").values[static_cast<size_t>(t * width + d)] * times;
      if (call.tensors.contains("bias"))
        sum += call.tensors.at("bias").values[static_cast<size_t>(d)];
    }
    partial.push_back(sum * scale + shift);
  }
  for (int64_t g = 0; g < (rows + 3) / 4; ++g) {
    double sum = 0, largest = -1e300;
    for (int64_t t = 4 * g; t < std::min(4 * g + 4, rows); ++t) {
      sum += partial[static_cast<size_t>(t)];
      largest = std::max(largest, partial[static_cast<size_t>(t)]);
    }
    out.push_back(most ? largest : sum);
    out.push_back(static_cast<double>(rows));
  }
  return out;
}

TEST_CASE("kernels in order, strides, workspace, options, dims that follow") {
  const Kernel kernel = parse(kMoments);
  Call call = moments_call(kernel, 6, 40, true);
  call.options = {{"scale", "0.5"}, {"shift", "3"}, {"mode", "most"}, {"times", "2"}};
  Answer answer = run(call);
  check_near(answer.at("y"), moments_of(call, 6, 40, 2, 0.5, 3, true), 2e-5, 1e-6, "y");
  CHECK(answer.at("total") == Values{42.0});
  REQUIRE(answer.kernels.size() == 2);
  CHECK(answer.kernels[0].spec.starts_with(
      "moments_rows x=bf16 bias=f32 has_bias=1 total=f32 y=f32 times=2 "
      "kRows=4 kThreads=64 kLanes=32 kernel="));
  CHECK(answer.kernels[1].spec.ends_with(" threads=32 smem=16"));
  REQUIRE(answer.launches.size() == 2);

  call = moments_call(kernel, 9, 7, false);
  answer = run(call);
  check_near(answer.at("y"), moments_of(call, 9, 7, 1, 1, 0, false), 1e-5, 1e-6, "y");
}

TEST_CASE("what does not fit is refused where it is known") {
  const Kernel kernel = parse(kMoments);
  Call call = moments_call(kernel, 6, 40, true);
  call.set("times", int64_t{3});
  CHECK(contains(refusal(call),
                 "three times goes without a bias (refused where times == 3 && given(bias))"));
  call = moments_call(kernel, 101, 40, true);
  call.fixed = true;
  CHECK(contains(refusal(call), ": more than 100 rows are too many"));
  call.fixed = false;
  try {
    run(call);
    FAIL("101 rows ran");
  } catch (const std::exception& error) {
    CHECK_MESSAGE(contains(error.what(), ": more than 100 rows are too many"), error.what());
  }
  call = moments_call(kernel, 6, 40, true);
  call.tensors["y"].shape = {3, 2};
  call.fixed = true;
  CHECK(contains(refusal(call), "G is 3; allowed is 2, by G = ceil_div(T, 4)"));
  call.fixed = false;
  CHECK_THROWS_WITH_AS(run(call), doctest::Contains("G is 3; allowed is 2"), std::exception);
  call = moments_call(kernel, 6, 40, true);
  call.tensors["x"].dtype = LATHE_F16;
  CHECK_THROWS_WITH_AS(declare(call), doctest::Contains("x has dtype f16; allowed are f32|bf16"),
                       std::exception);
  call = moments_call(kernel, 6, 40, true);
  call.options["mode"] = "least";
  CHECK_THROWS_WITH_AS(declare(call),
                       doctest::Contains("option mode is 'least'; allowed are sum|most"),
                       std::exception);
  call = moments_call(kernel, 6, 40, true);
  call.tensors["bias"].shape = {41};
  CHECK(contains(refusal(call), "bias has extent 41 at 0 of [D], so D is 41; x says D is 40"));
}

TEST_CASE("launches and constants that do not fit are refused") {
  struct Case {
    const char *more, *launch, *what;
    lathe_status status = LATHE_INVALID_ARGUMENT;
  };
  const Case kCases[] = {
      {"", "grid = 1\nblock = 1025\n", "block = 1025 is 1025; allowed are 1 to 1024"},
      {"", "grid = 1\nblock = [64, 32]\n",
       "block has 64 * 32 * 1 = 2048 threads; allowed are 1 to 1024"},
      {"", "grid = 1\nblock = [1, 1, 65]\n", "block = 65 is 65; allowed are 1 to 64"},
      {"", "grid = 1\nblock = \"32 * (2 - 2)\"\n",
       "block = 32 * (2 - 2) is 0; allowed are 1 to 1024"},
      {"", "grid = 1\nblock = 32\nshared = 400000\n",
       "shared = 400000 is 400000; allowed are 0 to 232448"},
      {"", "grid = 1\nblock = 32\ncluster = 16\n", "cluster = 16 is 16; allowed are 1 to 8"},
      {"constants.k = \"3000000000\"\n", "grid = 1\nblock = 32\n",
       "k is 3000000000; allowed are whole numbers of 32 bits"},
      {"constants.k = \"1 / (bytes(x) - 4)\"\n", "grid = 1\nblock = 32\n",
       "'1 / (bytes(x) - 4)' divides by 0"},
      {"constants.D = \"dim\"\n[refuse]\n\"D < 100\" = \"rows are short\"\n",
       "grid = 1\nblock = 32\n", "rows are short"},
      {"[refuse]\n\"sm >= 80\" = \"it needs an older GPU\"\n", "grid = 1\nblock = 32\n",
       "it needs an older GPU", LATHE_UNSUPPORTED},
      {"constants.k = [1, 2]\n[refuse]\n\"k < 3\" = \"no k is left\"\n", "grid = 1\nblock = 32\n",
       "no k is left"}};
  for (const Case& each : kCases) {
    CAPTURE(each.what);
    const std::string text =
        std::string(
            "/* lathe\ntensors.x = { in = \"f32\", shape = \"T D\" }\n"
            "tensors.y = { out = \"x\", shape = \"T D\" }\n") +
        each.more + "[launch]\n" + each.launch +
        "*/\ntemplate <class Config> __device__ void kernel(const Params&) {}\n";
    const Kernel kernel = parse(text);
    Call call;
    call.op = name_of(kernel);
    call.draw("x", LATHE_F32, {2, 8}, 1);
    call.want("y", LATHE_F32, {2, 8});
    const std::string said = refusal(call, each.status);
    CHECK_MESSAGE(contains(said, each.what), said);
  }
}

Call shifted_call(const std::string& op, int64_t rows = 3) {
  Call call;
  call.op = op;
  call.draw("x", LATHE_F32, {rows, 50}, 7);
  call.want("y", LATHE_F32, {rows, 50});
  return call;
}

std::string key_of(const PlannedCall& planned) {
  lathe_kernel_info info = {};
  info.size = sizeof info;
  REQUIRE(lathe_plan_kernel(planned.plan(), 0, &info) == LATHE_OK);
  return info.key;
}

TEST_CASE("a call is refused whose grid or workspace passes what there is") {
  const std::string grids = shifted("[workspace]\nw = { dtype = \"f32\", count = \"T - 2\" }\n");
  const Kernel kernel = parse(grids);
  CHECK_THROWS_WITH_AS(
      run(shifted_call(name_of(kernel), 1)),
      doctest::Contains("workspace w has T - 2 = -1 elements; allowed are 0 and more"),
      std::exception);
  std::string text = shifted();
  const std::string grid = "\"ceil_div(T * D, 64)\"";
  text.replace(text.find(grid), grid.size(), "[1, \"T * 65536\"]");
  const Kernel high = parse(text);
  CHECK_THROWS_WITH_AS(
      run(shifted_call(name_of(high), 1)),
      doctest::Contains("grid has T * 65536 = 65536 blocks in y; allowed are 0 to 65535"),
      std::exception);
  text.replace(text.find("T * 65536"), 9, "9223372036854775807 * T");
  const Kernel wide = parse(text);
  CHECK_THROWS_WITH_AS(run(shifted_call(name_of(wide), 2)),
                       doctest::Contains("'9223372036854775807 * T' passes 64 bits"),
                       std::exception);
}

TEST_CASE("two texts of one name are two operators; one text is one, whatever its file") {
  const Kernel one = parse(shifted(), "a/k.cuh"), two = parse(shifted("", "2.0f"), "b/k.cuh"),
               again = parse(shifted(), "c/d/k.cuh"), other = parse(shifted(), "other.cuh");
  CHECK(name_of(one) != name_of(two));
  CHECK(name_of(one) == name_of(again));
  CHECK(lathe_operator_describe(one.get()) == lathe_operator_describe(again.get()));
  CHECK(name_of(one).starts_with("k@"));
  CHECK(name_of(other).starts_with("other@"));
  Values expected = shifted_call(name_of(one)).tensors.at("x").values;
  const Answer first = run(shifted_call(name_of(one))), second = run(shifted_call(name_of(two)));
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK(first.at("y")[i] == doctest::Approx(expected[i] + 1).epsilon(1e-6));
    CHECK(second.at("y")[i] == doctest::Approx(expected[i] + 2).epsilon(1e-6));
  }
  const PlannedCall planned(shared_context(), shifted_call(name_of(one))),
      twice(shared_context(), shifted_call(name_of(two))),
      elsewhere(shared_context(), shifted_call(name_of(other)));
  CHECK(key_of(planned) != key_of(twice));
  CHECK(key_of(planned) == key_of(elsewhere));  // no path and no file's name is in a key
  CHECK(elsewhere.compiled() == 0);
}

std::string line_of(const Problem& problem) {
  size_t needed = 0;
  REQUIRE(lathe_problem_text(problem.get(), nullptr, 0, &needed) == LATHE_OK);
  std::string line(needed, '\0');
  REQUIRE(lathe_problem_text(problem.get(), line.data(), needed, nullptr) == LATHE_OK);
  line.pop_back();
  return line;
}

TEST_CASE("a line holds the text, and needs nothing else") {
  std::string line, name;
  {
    const Kernel kernel = parse(shifted(), "dir/mine.cuh");
    name = name_of(kernel);
    line = line_of(declare(shifted_call(name)));
  }
  CHECK_FALSE(contains(line, "dir/"));
  CHECK(lathe_operator_find(name.c_str()) == nullptr);  // nobody holds it any more
  lathe_problem* made = nullptr;
  CHECK(lathe_problem_create(&made, name.c_str()) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(lathe_last_error(), "there is no operator '" + name + "'"));

  REQUIRE_MESSAGE(lathe_problem_parse(&made, line.data(), line.size()) == LATHE_OK,
                  lathe_last_error());
  const Problem problem(made);
  CHECK(line_of(problem) == line);
  REQUIRE(lathe_operator_find(name.c_str()) != nullptr);
  lathe_plan* plan = nullptr;
  REQUIRE_MESSAGE(lathe_plan_create(&plan, shared_context(), made) == LATHE_OK, lathe_last_error());
  const Plan owner(plan);

  const auto refused = [](const std::string& wrong, const char* what) {
    lathe_problem* none = nullptr;
    CHECK(lathe_problem_parse(&none, wrong.data(), wrong.size()) == LATHE_INVALID_ARGUMENT);
    CHECK_MESSAGE(contains(lathe_last_error(), what), lathe_last_error());
  };
  std::string wrong = line;
  wrong.replace(wrong.find(name), name.size(), "mine@0123456789abcdef");
  refused(wrong, "the name of the line's kernel");
  wrong = line;
  wrong.replace(wrong.find("1.0f"), 4, "3.0f");
  refused(wrong, "the name of the line's kernel");
  refused(R"({"op":"k","kernel":7,"tensors":{}})",
          "kernel is 7; allowed is the whole text of a kernel");
  refused(R"({"op":"k","kernel":"x","tensors":{}})", "k:1:1: there is no description");
}

TEST_CASE("problems and plans outlive the handle") {
  Kernel kernel = parse(shifted());
  const std::string name = name_of(kernel);
  Call call = shifted_call(name);
  PlannedCall planned(shared_context(), call);
  kernel.reset();
  CHECK(lathe_operator_find(name.c_str()) != nullptr);  // the plan holds it
  planned.run();
  CHECK(planned.outputs().at("y")[0] ==
        doctest::Approx(call.tensors.at("x").values[0] + 1).epsilon(1e-6));
}

TEST_CASE("what the compiler says names the caller's file and line") {
  std::string text = shifted("", "nothing_of_this_name");
  const auto line =
      1 + std::count(text.begin(), text.begin() + static_cast<long>(text.find("nothing_of")), '\n');
  const Kernel kernel = parse(text, "dir/wrong.cuh");
  const std::string said = refusal(shifted_call(name_of(kernel)));
  CHECK(said.starts_with("dir/wrong.cuh does not compile for "));
  CHECK_MESSAGE(contains(said, "dir/wrong.cuh(" + std::to_string(line) + "): error"), said);
  CHECK(contains(said, "nothing_of_this_name"));
}

TEST_CASE("a kernel that writes outside its tensors is found") {
  std::string text = shifted();
  const std::string guard = "  if (i >= p.T * p.D) return;\n";
  text.erase(text.find(guard), guard.size());
  const Kernel kernel = parse(text);
  // The read before it passes the end first, which ends the kernel as it would on a GPU.
  CHECK_THROWS_WITH_AS(execute(shared_context(), shifted_call(name_of(kernel))),
                       doctest::Contains("illegal address"), std::exception);
}

TEST_CASE("ranks are refused, and NULL is") {
  const Kernel kernel = parse(shifted());
  CHECK(lathe_operator_describe(kernel.get())->ranks == 0);
  CHECK(lathe_operator_describe(nullptr) == nullptr);
  lathe_operator* made = nullptr;
  CHECK(lathe_operator_parse(nullptr, "x", 1, "k") == LATHE_INVALID_ARGUMENT);
  CHECK(lathe_operator_parse(&made, nullptr, 1, "k") == LATHE_INVALID_ARGUMENT);
  CHECK(lathe_operator_parse(&made, "x", 1, nullptr) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(lathe_last_error(), "kernel.cuh:1:1: there is no description"));
  CHECK(made == nullptr);
  lathe_operator_destroy(nullptr);
}

}  // namespace
