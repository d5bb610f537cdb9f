// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// `lathe new` writes a kernel of the user's own to begin with: it runs as it is.
#include <cstdio>
#include <filesystem>

#include "api/cli/options.h"
#include "api/cli/output.h"

namespace lathe::cli {
namespace {

// NAME stands for the kernel's name.
constexpr std::string_view kSkeleton = R"text(/* lathe
name = "NAME"
summary = "y = scale * x + bias, row by row."

[tensors]                 # dims are names; tensors that use one dim have one extent
x    = { in = ["f32", "f16", "bf16"], shape = "T D", aligned = 16, what = "The input." }
bias = { in = "x", shape = "D", aligned = 16, optional = true, what = "Added to each row." }
y    = { out = "x", shape = "T D", aligned = 16, what = "The result." }

[options]                 # --set scale=2
scale = { default = 1.0, allowed = "any", what = "The factor of x." }

[constants]               # compiled in, as Config::...; a list is tuned, its first value is the default
D = "dim"
kThreads = [128, 256, 64]
kCount = "16 / bytes(x)"

[launch]                  # integer expressions
grid = "T"
block = "kThreads"

[cost]                    # for `lathe explain`
flops = "2 * T * D"

[refuse]
"D % kCount != 0" = "a row must be whole vectors of 16 bytes"
*/
#include "lathe/vector.cuh"

// p.x, p.bias, p.y are pointers, p.T a long long, p.scale a float.
template <class Config>
__device__ void kernel(const Params& p) {
  constexpr int kCount = Config::kCount;
  const long long row = static_cast<long long>(blockIdx.x) * Config::D;
  for (int d = threadIdx.x * kCount; d < Config::D; d += Config::kThreads * kCount) {
    float value[kCount], bias[kCount] = {};
    lathe::load(p.x + row + d, value);
    if constexpr (Config::has_bias) lathe::load(p.bias + d, bias);
#pragma unroll
    for (int i = 0; i < kCount; ++i) value[i] = p.scale * value[i] + bias[i];
    lathe::store(p.y + row + d, value);
  }
}
)text";

std::string skeleton(const std::string& name) {
  std::string out(kSkeleton);
  const size_t at = out.find("NAME");
  return out.replace(at, 4, name);
}

int write_new(const std::string& kernel) {
  const std::string ending(kKernelEnding);
  const std::string path = kernel.ends_with(ending) ? kernel : kernel + ending;
  const std::string name = std::filesystem::path(path).stem().string();
  const std::string text = skeleton(name);
  // The library says what is wrong with the name.
  const auto checked =
      made<OperatorHandle>(lathe_operator_parse, text.data(), text.size(), path.c_str());
  std::error_code error;
  if (std::filesystem::symlink_status(path, error).type() !=
      std::filesystem::file_type::not_found) {
    refuse("KERNEL is ", in_quotes(kernel), ", but ", in_quotes(path),
           " is there already; allowed is a file that is not");
  }
  check_output("KERNEL", path);
  write_output("KERNEL", path, text);
  std::printf(
      "wrote %s; try\n"
      "  lathe ops %s\n"
      "  lathe explain %s --tensor x=bf16:4096,1024 --arch sm_90a\n",
      path.c_str(), path.c_str(), path.c_str());
  return kDone;
}

}  // namespace

Action add_new(CLI::App* app) {
  auto* verb = app->add_subcommand("new", "write a kernel of your own to begin with");
  const auto kernel = std::make_shared<std::string>();
  verb->add_option("KERNEL", *kernel, "its name, or its file, ending in .cuh")->required();
  return [kernel] { return write_new(*kernel); };
}

}  // namespace lathe::cli
