// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover what is refused of a kernel's text and its description: each refusal has a line
// and mostly a column, the thing, what was found and what is allowed.
#include <doctest/doctest.h>

#include <regex>

#include "ops/schema.h"
#include "tests/ops/own/texts.h"

namespace {

// A text whose line 2, 3, ... are `description`, and which has a kernel behind it.
std::string text_of(const std::string& description, const std::string& code = "") {
  return "/* lathe\n" + description + "*/\n" +
         (code.empty() ? "template <class Config> __device__ void kernel(const Params& p) {}\n"
                       : code);
}

constexpr const char* kX = "tensors.x = { in = \"f32\", shape = \"T\" }\n";
constexpr const char* kY = "tensors.y = { out = \"x\", shape = \"T\" }\n";
constexpr const char* kLaunch = "launch = { grid = 1, block = 32 }\n";

struct Broken {
  std::string text;
  const char* place;  // "2:5", or "2" where no column is known, or "" for the whole file
  const char* what;   // parts of the message, with | between them
};

std::string on_x(const std::string& x) { return text_of("tensors.x = " + x + "\n" + kY + kLaunch); }
std::string with_launch(const std::string& launch) {
  return text_of(std::string(kX) + kY + launch);
}
std::string with_more(const std::string& more) {
  return text_of(std::string(kX) + kY + kLaunch + more);
}
std::string with_code(const std::string& code) {
  return text_of(std::string(kX) + kY + kLaunch,
                 code + "\ntemplate <class Config> __device__ void kernel(const Params& p) {}\n");
}

const Broken kBroken[] = {
    // The text as a whole.
    {"", "", "has 0 bytes|allowed are 1 to 262144"},
    {std::string(300000, ' '), "", "has 300000 bytes|allowed are 1 to 262144"},
    {"a\n\xff\n", "2", "no UTF-8|allowed is text in UTF-8"},
    {std::string("a\nb\0c", 5), "2", "zero byte|allowed is text"},
    {"__global__ void f() {}\n", "1:1", "there is no description|begins with its description"},
    {"\n// lathe\n\n", "4:1", "there is no description"},
    {"/* lathe\nname = \"x\"\n", "1:1", "the description has no end"},
    {"int x; /* lathe\n*/\n", "1:1", "there is no description"},
    // TOML.
    {text_of("tensors = {\n"), "", "no TOML"},
    {text_of("tensors.x = { in = f32 }\n"), "2", "no TOML"},
    {text_of("name = \"a\"\nname = \"b\"\n"), "3", "no TOML"},
    {text_of("name = 'a\n"), "2", "no TOML"},
    // Sections.
    {text_of("tensor.x = 1\n"), "2:1",
     "the description has no 'tensor'; did you mean 'tensors'?|allowed are name, summary"},
    {text_of("tensors = 5\n"), "2:1", "tensors is 5|allowed is a section"},
    {text_of(std::string("name = \"a b\"\n") + kX + kY + kLaunch), "2:8", "'a b' is no name"},
    {text_of("summary = 3\n"), "2:1", "summary is 3|allowed is a text in quotes"},
    {text_of("reference = 7\n"), "2:1", "reference is 7; allowed is a text in quotes"},
    {text_of("reference = \"../x.py\"\n"), "2:1",
     "reference is '../x.py'; allowed is a file beside the kernel's that ends in .py"},
    {text_of("reference = \"x.c\"\n"), "2:1", "reference is 'x.c'"},
    {text_of("summary = \"\"\n"), "2:1", "summary has 0 bytes|allowed are 1 to 1000"},
    {text_of("summary = \"\"\"a\nb\"\"\"\n"), "2:1", "on several lines"},
    // Tensors.
    {on_x("5"), "2:9", "x is 5|allowed is { in"},
    {on_x("{ in = \"f32\" }"), "2:9", "x has no shape|such as \"T D\""},
    {on_x("{ shape = \"T\" }"), "2:9", "x has none of in, out, inout"},
    {on_x("{ in = \"f32\", out = \"f32\", shape = \"T\" }"), "2:9", "x has two of in, out, inout"},
    {on_x("{ in = \"f32\", shape = \"T\", stride = true }"), "2:40",
     "tensor x has no 'stride'; did you mean 'strided'?"},
    {on_x("{ in = \"f64\", shape = \"T\" }"), "2:15", "in has 'f64'|allowed are f32, f16, bf16"},
    {on_x("{ in = [\"f32\", \"f32\"], shape = \"T\" }"), "2:15", "in has 'f32' twice"},
    {on_x("{ in = [], shape = \"T\" }"), "2:15", "in has 0 values"},
    {on_x("{ in = \"f32\", shape = \"\" }"), "2:27", "shape has 0 bytes"},
    {on_x("{ in = \"f32\", shape = \"A B C E F G\" }"), "2:27", "allowed are 1 to 5 dims"},
    {on_x("{ in = \"f32\", shape = \"T 0\" }"), "2:27", "extent 0|allowed are 1 to 999999999"},
    {on_x("{ in = \"f32\", shape = \"T-1\" }"), "2:", "'T-1' is no name"},
    {on_x("{ in = \"f32\", shape = \"int\" }"), "2:", "'int' is a word of C++"},
    {on_x("{ in = \"f32\", shape = \"T\", aligned = 3 }"), "2:40",
     "aligned is 3|allowed are 1, 2, 4, 8 and 16"},
    {on_x("{ in = \"f32\", shape = \"T\", optional = 1 }"), "2:40",
     "optional is 1|allowed are true and false"},
    {on_x("{ in = \"f32\", shape = \"T\", optional = true, needs = \"z\" }"), "2:57",
     "needs has 'z'|allowed are tensors before x"},
    // Maps.
    {on_x("{ in = \"f32\", shape = \"T\", map = 5 }"), "2:40",
     "map is 5|allowed is { box = \"64 kTile\", swizzle = 128 }"},
    {on_x("{ in = \"f32\", shape = \"T\", map = { swizzle = 32 } }"), "2:40", "map has no box"},
    {on_x("{ in = \"f32\", shape = \"T\", map = { bx = 32 } }"), "2:48",
     "map has no 'bx'; did you mean 'box'?|allowed are box, swizzle"},
    {on_x("{ in = \"f32\", shape = \"T\", map = { box = \"64 8\" } }"), "2:48",
     "box has 2 extents; allowed are 1, one for each dim of x [T], the last dim first"},
    {on_x("{ in = \"f32\", shape = \"T 4\", map = { box = 32 } }"), "2:50",
     "box has 1 extents; allowed are 2, one for each dim of x [T,4]"},
    {on_x("{ in = \"f32\", shape = \"T\", map = { box = 257 } }"), "2:48",
     "box is 257; allowed are 1 to 256"},
    {on_x("{ in = \"f32\", shape = \"T\", map = { box = 0 } }"), "2:48",
     "box is 0; allowed are 1 to 256"},
    {on_x("{ in = \"f32\", shape = \"T\", map = { box = \"T\" } }"), "2:55",
     "T varies from call to call"},
    {on_x("{ in = \"f32\", shape = \"T 4\", map = { box = \"4 kTyle\" } }"), "2:59",
     "'kTyle' is not known here"},
    {on_x("{ in = \"f32\", shape = \"T\", map = { box = 8, swizzle = 48 } }"), "2:57",
     "swizzle is 48; allowed are 0, 32, 64 and 128 bytes"},
    {text_of(std::string("tensors.min = { in = \"f32\", shape = \"T\" }\n") + kY + kLaunch), "2:9",
     "'min' has a meaning of its own"},
    {text_of(std::string("tensors._x = { in = \"f32\", shape = \"T\" }\n")), "2:9",
     "'_x' is no name"},
    {text_of(std::string(kX) + kLaunch), "2:1", "no tensor that is written|out or inout"},
    {text_of(std::string(kX) + "tensors.y = { out = [\"f32\", \"f16\"], shape = \"T\" }\n"), "3:15",
     "an output has 2 dtypes"},
    {text_of(std::string(kX) + "tensors.y = { out = \"x\", shape = \"T K\" }\n" + kLaunch), "2:1",
     "only outputs have the dim K|[dims] K"},
    {text_of(std::string(kX) + kY + "tensors.T = { in = \"f32\", shape = \"T\" }\n"), "4:9",
     "'T' is a name that is taken already"},
    {text_of(std::string(kX) + "tensors.x_t = { in = \"f32\", shape = \"T\" }\n"), "3:9",
     "'x_t' is a name that is taken already"},
    // Options, dims, constants.
    {with_more("options.eps = 1e-6\n"), "5:9", "eps is a number with a point|allowed is { default"},
    {with_more("options.eps = { allowed = \">0\" }\n"), "5:9", "eps has no default"},
    {with_more("options.eps = { default = 1.0, allowed = \"small\" }\n"), "5:32",
     "allowed has 'small'|\">0\""},
    {with_more("options.eps = { default = 0.0, allowed = \">0\" }\n"), "5:17",
     "default is 0|allowed are >0"},
    {with_more("options.eps = { default = 1e60 }\n"), "5:17", "float32 does not hold"},
    {with_more("options.n = { default = 1, allowed = \"0.5\" }\n"), "5:28", "allowed has '0.5'"},
    {with_more("options.a = { default = \"none\" }\n"), "5:9", "is a word and has no allowed"},
    {with_more("options.a = { default = \"gelu\", allowed = \"none|silu\" }\n"), "5:15",
     "default is gelu|allowed are none|silu"},
    {with_more("options.e = { default = 1.0, compiled = true }\n"), "5:30",
     "constants are whole numbers"},
    {with_more("options.output_y = { default = 1 }\n"), "5:9",
     "'output_y' is no option of a kernel"},
    {with_more("dims.K = \"T\"\n"), "5:6", "dim 'K' is in no tensor's shape|allowed are T"},
    {with_more("dims.T = \"T + 1\"\n"), "5:11", "'T' is not known here"},
    {with_more("constants.D = \"dim\"\n"), "5:11", "'D' is no dim; allowed are T"},
    {with_more("constants.k = []\n"), "5:11", "k has 0 values"},
    {with_more("constants.k = [1, 1]\n"), "5:19", "k has 1 twice"},
    {with_more("constants.k = [1.5]\n"), "5:16", "k has a number with a point"},
    {with_more("constants.k = [4294967296]\n"), "5:16", "whole numbers of 32 bits"},
    {with_more("constants.k = \"T / 2\"\n"), "5:16",
     "T varies from call to call|T = \"dim\" compiles it in"},
    {with_more("constants.k = \"m\"\nconstants.m = 1\n"), "5:16", "'m' is not known here"},
    {with_more("constants.a = [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]\nconstants.b = "
               "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]\nconstants.c = [1,2]\n"),
     "5:1", "more than 256 combinations"},
    // Launches, workspace, cost, refusals.
    {text_of(std::string(kX) + kY), "1:1", "neither [launch] and [[kernel]]"},
    {with_more("kernel = [{ grid = 1, block = 32 }]\n"), "4:1", "both [launch] and [[kernel]]"},
    {with_launch("launch = { block = 32 }\n"), "4:1", "[launch] has no grid"},
    {with_launch("launch = { grid = 1 }\n"), "4:1", "[launch] has no block"},
    {with_launch("launch = { grid = [1, 1, 1, 1], block = 32 }\n"), "4:12",
     "grid has 4 extents|allowed are 1 to 3"},
    {with_launch("launch = { grid = 1, block = [1, 1, 1, 1] }\n"), "4:22",
     "block has 4 extents|allowed are 1 to 3"},
    {with_launch("launch = { grid = \"T\", block = \"T\" }\n"), "4:33",
     "T varies from call to call"},
    {with_launch("launch = { grid = \"T *\", block = 32 }\n"), "4:23", "the expression ends here"},
    {with_launch("launch = { grid = true, block = 32 }\n"), "4:19",
     "grid is true; allowed are a whole number"},
    {with_launch("launch = { grid = 1, block = 32, smem = 4 }\n"), "4:34",
     "[launch] has no 'smem'|shared"},
    {with_launch("kernel = [{ grid = 1, block = 32 }, { grid = 1, block = 32 }]\n"),
     "4:", "two kernels have the function kernel"},
    {with_more("workspace.w = { dtype = \"f32\" }\n"), "5:11", "w has no count"},
    {with_more("workspace.w = { dtype = \"f3\", count = 1 }\n"), "5:17",
     "dtype is 'f3'|allowed are f32"},
    {with_more("cost.time = 1\n"), "5:6", "[cost] has no 'time'"},
    {with_more("refuse.\"T %\" = \"x\"\n"), "5:12", "[refuse]: the expression ends here"},
    {with_more("refuse.\"T > 5\" = 7\n"), "5:8", "T > 5 is 7|a text in quotes"},
    // The code.
    {with_code("#include \"lathe/vectors.cuh\""), "6",
     "no header 'lathe/vectors.cuh'; did you mean 'lathe/vector.cuh'?"},
    {with_code("#include \"/etc/passwd\""), "6", "no header '/etc/passwd'|allowed are lathe/"},
    {with_code("%:include \"/etc/passwd\""), "6", "written in another way"},
    {with_code("#\\\ninclude \"/etc/passwd\""), "6", "written in another way"},
    {with_code("#if __has_include(\"/etc/passwd\")\n#endif"), "6", "asks for no file"},
    {with_code("#line 7 \"x\""), "6", "#line changes what messages call the text"},
    {with_code("\nconst char* t = __TIME__;"), "7", "has no time"},
    {with_code("const char* r = R\"(x)\";"), "6", "a kernel's text has no raw strings"},
    {with_code("/* open"), "6", "ends the comments that it begins"},
    {text_of(std::string(kX) + kY + kLaunch, "int nothing;\n"), "",
     "has no function kernel|template <class Config>"},
};

TEST_CASE("broken texts are refused with line, reason and remedy") {
  CHECK(std::size(kBroken) >= 60);
  for (const Broken& broken : kBroken) {
    CAPTURE(broken.text.substr(0, 300));
    const auto made = lathe::parse_operator(broken.text, "dir/k.cuh");
    REQUIRE_FALSE(made.ok());
    CHECK(made.status().code() == lathe::Code::invalid_argument);
    const std::string& said = made.status().text();
    CAPTURE(said);
    const std::string place =
        *broken.place ? std::string("dir/k.cuh:") + broken.place : "dir/k.cuh";
    CHECK(said.starts_with(place));
    CHECK(said.find('\n') == said.npos);
    std::string_view parts = broken.what;
    while (!parts.empty()) {
      const size_t end = parts.find('|');
      // Allowed words of an option have bars themselves.
      const std::string_view part = parts.substr(0, end);
      CHECK_MESSAGE(said.find(part) != said.npos, part);
      parts.remove_prefix(end == parts.npos ? parts.size() : end + 1);
    }
  }
}

TEST_CASE("a good text makes tables as they are written") {
  const auto made = lathe::parse_operator(
      text_of("summary = \"s\"\n[tensors]\nx = { in = [\"f16\", \"f32\"], shape = \"T D\", strided "
              "= true }\n"
              "b = { in = \"x\", shape = \"D\", optional = true, what = \"A bias.\" }\n"
              "y = { out = \"x\", shape = \"T G 4\", aligned = 8 }\nn = { inout = \"i32\", shape = "
              "\"N+1\" }\n"
              "[options]\neps = { default = 1e-6, allowed = \">0\" }\nmode = { default = \"a\", "
              "allowed = \"a|b\" }\n"
              "on = { default = true }\n[dims]\nG = \"ceil_div(D, 4)\"\n[constants]\nD = \"dim\"\n"
              "kernel = [{ function = \"f\", grid = 1, block = 32 }]\n",
              "void f();\n"),
      "a/b/my-kernel.v2.cuh");
  // [constants] takes what follows, so the launch above is one of its values.
  REQUIRE_FALSE(made.ok());
  const auto good = lathe::parse_operator(
      text_of("summary = \"s\"\n[tensors]\nx = { in = [\"f16\", \"f32\"], shape = \"T D\", strided "
              "= true }\n"
              "b = { in = \"x\", shape = \"D\", optional = true, what = \"A bias.\" }\n"
              "y = { out = \"b\", shape = \"T G 4\", aligned = 8 }\nn = { inout = \"i32\", shape = "
              "\"N+1\" }\n"
              "[options]\neps = { default = 1e-6, allowed = \">0\" }\nmode = { default = \"a\", "
              "allowed = \"a|b\" }\n"
              "on = { default = true }\n[dims]\nG = \"ceil_div(D, 4)\"\n[constants]\nD = \"dim\"\n"
              "[[kernel]]\nfunction = \"f\"\ngrid = 1\nblock = 32\n",
              "void f();\n"),
      "a/b/my-kernel.v2.cuh");
  REQUIRE_MESSAGE(good.ok(), good.status().text());
  const lathe::Operator& op = **good;
  CHECK(std::regex_match(op.name, std::regex("mykernel@[0-9a-f]{16}")));
  CHECK(std::string(op.sentence) == "s");
  REQUIRE(op.tensors.size() == 4);
  CHECK(std::string(op.tensors[0].shape) == "T,D");
  CHECK(std::string(op.tensors[0].dtypes) == "f16|f32");
  CHECK(op.tensors[0].is_strided);
  CHECK(op.tensors[1].is_optional);
  CHECK(std::string(op.tensors[1].sentence) == "A bias.");
  CHECK(std::string(op.tensors[2].dtypes) == "=x");  // what b has
  CHECK(op.least_alignment == 8);
  CHECK(std::string(op.produces) == "y,n");
  REQUIRE(op.options.size() == 3);
  CHECK(std::string(op.options[0].fallback) == "1e-06");
  CHECK(op.options[0].type == lathe::OptionType::number);
  CHECK(std::string(op.options[2].allowed) == "0|1");
  const lathe::Shape shape = lathe::parse_shape(op.tensors[2].shape, op.dims);
  CHECK(lathe::shape_text(shape) == "[T,G,4]");
  CHECK(shape.info(shape.dims[0].dim).varies);
  CHECK_FALSE(lathe::parse_shape("D", op.dims).info(lathe::own_dim(1)).varies);
}

TEST_CASE("a text in front of which a mark of order stands is the text without it") {
  const std::string text = own_texts::shifted();
  const auto plain = lathe::parse_operator(text, "k.cuh"),
             marked = lathe::parse_operator("\xef\xbb\xbf" + text, "k.cuh");
  REQUIRE(plain.ok());
  REQUIRE_MESSAGE(marked.ok(), marked.status().text());
  CHECK(std::string((*plain)->name) == (*marked)->name);
}

}  // namespace
