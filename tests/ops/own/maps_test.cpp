// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests run kernels of a caller's own that copy through tensor maps, and see what is refused:
// boxes that hardware does not copy, strides that no map has, ranks and architectures. Blocks of
// two and three dimensions are here too.
#include "tests/harness/check.h"
#include "tests/harness/support.h"
#include "tests/ops/own/texts.h"

using namespace apitest;
using namespace own_texts;

namespace {

using Kernel = own_texts::Kernel;  // the harness has one as well

// Copies x to y through shared memory, box by box. `coordinates` are the box's, the last dim first.
std::string copying(const std::string& dtypes, const std::string& shape, const std::string& map,
                    const std::string& grid, const std::string& coordinates,
                    const std::string& more = "") {
  return "/* lathe\n[tensors]\nx.in = " + dtypes + "\nx.shape = \"" + shape + "\"\nx.map = " + map +
         "\ny.out = \"x\"\ny.shape = \"" + shape + "\"\ny.map = " + map + "\n" + more +
         "[launch]\ngrid = " + grid +
         "\nblock = 64\nshared = 16384\n*/\n"
         "#include \"lathe/tma.cuh\"\n"
         "template <class Config> __device__ void kernel(const Params& p) {\n"
         "  extern __shared__ __align__(1024) char tile[];\n"
         "  __shared__ unsigned long long barrier;\n"
         "  const unsigned at = lathe::shared_address(tile);\n"
         "  const unsigned full = lathe::shared_address(&barrier);\n"
         "  const int i = blockIdx.x, j = blockIdx.y, k = blockIdx.z;\n"
         "  if (threadIdx.x != 0) return;\n"
         "  lathe::mbarrier_init(full, 1), lathe::fence_mbarrier_init();\n"
         "  lathe::mbarrier_arrive_expect(full, kBytes<Config>);\n"
         "  lathe::copy_box(at, p.x_map, full, " +
         coordinates +
         ");\n"
         "  lathe::mbarrier_wait(full, 0);\n"
         "  lathe::store_box(p.y_map, at, " +
         coordinates +
         ");\n"
         "  lathe::store_commit(), lathe::store_wait_read();\n}\n";
}

// The same with how many bytes a box has, which the kernel needs before it.
std::string copying_box(const std::string& elements, std::string text) {
  const std::string before = "template <class Config> __device__ void kernel";
  return text.insert(text.find(before),
                     "template <class Config> constexpr unsigned kBytes = sizeof(typename "
                     "Config::x_t) * (" +
                         elements + ");\n");
}

std::string cube() {
  return copying_box(
      "16 * 3 * 2",
      copying("[\"f32\", \"bf16\", \"i32\", \"i64\", \"u8\"]", "A B C", "{ box = \"16 3 2\" }",
              "[\"ceil_div(C, 16)\", \"ceil_div(B, 3)\", \"ceil_div(A, 2)\"]",
              "16 * i, 3 * j, 2 * k"));
}

Call copy_call(const Kernel& kernel, lathe_dtype dtype, const std::vector<int64_t>& shape) {
  Call call;
  call.op = name_of(kernel);
  Values values;
  for (size_t i = 0; i < Call::count(shape); ++i) values.push_back(static_cast<double>(i % 113));
  call.put("x", dtype, shape, values);
  call.want("y", dtype, shape);
  return call;
}

void check_copied(const Kernel& kernel, lathe_dtype dtype, const std::vector<int64_t>& shape) {
  const Call call = copy_call(kernel, dtype, shape);
  const Answer answer = run(call);
  CHECK(answer.findings == std::vector<std::string>());
  CHECK(answer.at("y") == call.tensors.at("x").values);
}

std::string refusal(const Call& call, lathe_context* context = shared_context(),
                    lathe_status status = LATHE_INVALID_ARGUMENT) {
  const Problem problem = declare(call);
  lathe_plan* made = nullptr;
  const lathe_status found = lathe_plan_create(&made, context, problem.get());
  Plan plan(made);
  CHECK(found == status);
  return found == LATHE_OK ? "" : lathe_last_error();
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

TEST_CASE("boxes of three dims, of all dtypes, whole and not") {
  const Kernel kernel = parse(cube());
  check_copied(kernel, LATHE_F32, {4, 6, 32});
  check_copied(kernel, LATHE_F32, {3, 5, 20});
  check_copied(kernel, LATHE_BF16, {1, 4, 24});
  check_copied(kernel, LATHE_I32, {5, 1, 8});
  check_copied(kernel, LATHE_I64, {2, 2, 18});
  check_copied(kernel, LATHE_U8, {2, 4, 48});
}

TEST_CASE("boxes of one, two, four and five dims, swizzled and by a constant") {
  const Kernel line = parse(copying_box(
      "256", copying("\"f32\"", "N", "{ box = 256 }", "\"ceil_div(N, 256)\"", "256 * i")));
  check_copied(line, LATHE_F32, {1000});
  for (const char* swizzle : {"32", "64", "128"}) {
    const std::string width = std::to_string(std::stoi(swizzle) / 2);
    const Kernel plane = parse(copying_box(
        width + " * 8",
        copying("\"bf16\"", "T D", "{ box = \"kWidth kRows\", swizzle = \"kSwizzle\" }",
                "[\"ceil_div(D, kWidth)\", \"ceil_div(T, kRows)\"]",
                "Config::kWidth * i, Config::kRows * j",
                "[constants]\nkRows = 8\nkWidth = " + width + "\nkSwizzle = " + swizzle + "\n")));
    check_copied(plane, LATHE_BF16, {21, 72});
  }
  const Kernel four = parse(copying_box(
      "8 * 2 * 2 * 2", copying("\"f32\"", "A B C D", "{ box = [8, 2, 2, \"1 + 1\"] }",
                               "[\"ceil_div(D, 8)\", \"ceil_div(C, 2)\"]", "8 * i, 2 * j, 0, 0")));
  check_copied(four, LATHE_F32, {2, 2, 3, 12});
  const Kernel five = parse(
      copying_box("8 * 2", copying("\"f32\"", "A B C D E", "{ box = \"8 1 1 1 2\" }",
                                   "[\"ceil_div(E, 8)\", \"D\", \"C\"]", "8 * i, j, k, 0, 0")));
  check_copied(five, LATHE_F32, {2, 1, 2, 3, 12});
}

TEST_CASE("the tensors' memory and what is around it") {
  std::string text = cube();
  text.replace(text.find("x.map"), 5, "x.strided = true\nx.map");
  const Kernel kernel = parse(text);
  Call call = copy_call(kernel, LATHE_F32, {2, 3, 20});
  call.tensors["x"].placement = {.token_gap = 4, .guard = 8};
  CHECK(run(call).at("y") == call.tensors.at("x").values);
  // A row of 21 elements is 84 bytes: no map has such a stride.
  call.tensors["x"].placement = {.token_gap = 1, .guard = 8};
  CHECK_THROWS_WITH_AS(run(call), doctest::Contains("x has stride 63 at 0, 252 bytes"),
                       std::exception);
  // A tensor without elements has no map, and no block here.
  check_copied(kernel, LATHE_F32, {2, 0, 20});
  CHECK(run(copy_call(kernel, LATHE_F32, {0, 3, 20})).launches.empty());
  // Of one element: whatever the strides are.
  check_copied(kernel, LATHE_F32, {1, 1, 4});
}

TEST_CASE("strides, boxes and architectures that do not fit are refused") {
  const Kernel kernel = parse(cube());
  Call call = copy_call(kernel, LATHE_F32, {2, 3, 5});
  call.fixed = true;
  CHECK_MESSAGE(contains(refusal(call),
                         "x has a tensor map and a stride of 5 elements of 4 bytes "
                         "at 1; allowed are multiples of 16 bytes below 2^40"),
                lathe_last_error());
  call.fixed = false;
  CHECK_THROWS_WITH_AS(run(call), doctest::Contains("a stride of 5 elements of 4 bytes at 1"),
                       std::exception);
  call = copy_call(kernel, LATHE_F32, {2, 3, 20});
  call.alignment = 8;
  CHECK_MESSAGE(contains(refusal(call, shared_context(), LATHE_UNSUPPORTED),
                         "accesses rows of x, y in pieces of 16"),
                lathe_last_error());

  struct Case {
    const char *map, *what;
  };
  const Case kCases[] = {
      {"{ box = \"k 4\" }", "the map of x: box = k is 512; allowed are 1 to 256"},
      {"{ box = \"4 k\" }", "the map of x: box = k is 512; allowed are 1 to 256"},
      {"{ box = \"64 4\", swizzle = \"k / 8\" }",
       "the map of x has rows of 256 bytes (its first extent); allowed are multiples of 16 up to "
       "the swizzle's 64"},
      {"{ box = \"64 4\", swizzle = \"k / 32\" }",
       "the map of x: swizzle = k / 32 is 16; allowed are 0, 32, 64 and 128 bytes"},
      {"{ box = \"6 4\" }",
       "the map of x has rows of 24 bytes (its first extent); allowed are "
       "multiples of 16"}};
  for (const Case& each : kCases) {
    CAPTURE(each.map);
    const Kernel wrong = parse(copying_box(
        "1", copying("\"f32\"", "T D", each.map, "1", "0, 0", "[constants]\nk = 512\n")));
    CHECK_MESSAGE(contains(refusal(copy_call(wrong, LATHE_F32, {4, 64})), each.what),
                  lathe_last_error());
  }
  const apitest::Context old = test::make_context(LATHE_DEVICE_NONE, "off", "sm_80");
  CHECK_MESSAGE(
      contains(refusal(copy_call(kernel, LATHE_F32, {2, 3, 20}), old.get(), LATHE_UNSUPPORTED),
               "x has a tensor map, and sm_80 has none; allowed are sm_90 and later"),
      lathe_last_error());
}

TEST_CASE("blocks of two and three dimensions") {
  const Kernel kernel = parse(
      "/* lathe\n[tensors]\nx = { in = \"f32\", shape = \"T D\" }\ny = { out = \"f32\", shape = "
      "\"D T\" }\n[constants]\nkSide = [8, 16]\n[launch]\ngrid = [\"ceil_div(D, kSide)\", "
      "\"ceil_div(T, kSide)\"]\nblock = [\"kSide\", \"kSide / 2\", 2]\n*/\n"
      "template <class Config> __device__ void kernel(const Params& p) {\n"
      "  static_assert(Config::kThreads == Config::kSide * Config::kSide, \"\");\n"
      "  const int column = blockIdx.x * blockDim.x + threadIdx.x;\n"
      "  const int row = blockIdx.y * Config::kSide + threadIdx.z * blockDim.y + threadIdx.y;\n"
      "  if (row < p.T && column < p.D) p.y[column * p.T + row] = p.x[row * p.D + column];\n}\n");
  Call call;
  call.op = name_of(kernel);
  call.draw("x", LATHE_F32, {19, 23}, 1);
  call.want("y", LATHE_F32, {23, 19});
  const Answer answer = run(call);
  const Values& x = call.tensors.at("x").values;
  for (size_t row = 0; row < 19; ++row) {
    for (size_t column = 0; column < 23; ++column) {
      REQUIRE(answer.at("y")[column * 19 + row] == x[row * 23 + column]);
    }
  }
  CHECK(contains(answer.kernels[0].spec, " block_y=4 block_z=2 threads=64 "));
  CHECK(answer.launches[0]["block"] == nlohmann::json({8, 4, 2}));
}

}  // namespace
