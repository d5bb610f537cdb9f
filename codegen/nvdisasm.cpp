// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "codegen/nvdisasm.h"

#include <unistd.h>

#include <filesystem>
#include <ranges>

#include "codegen/base/env.h"
#include "codegen/base/printable.h"
#include "codegen/base/text.h"
#include "codegen/compiler_library.h"

namespace lathe {
namespace {

namespace fs = std::filesystem;

bool can_be_run(const fs::path& file) {
  std::error_code error;
  return fs::is_regular_file(file, error) && access(file.c_str(), X_OK) == 0;
}

std::vector<fs::path> folders() {
  std::vector<fs::path> out;
  for (const auto& each : std::views::split(environment_raw("PATH").value_or(""), ':')) {
    const fs::path folder(std::string(each.begin(), each.end()));
    // A relative folder would run whatever lies where the caller happens to be.
    if (folder.is_absolute()) out.push_back(folder);
  }
  if (const auto home = environment_raw("CUDA_HOME")) out.push_back(fs::path(*home) / "bin");
  out.push_back("/usr/local/cuda/bin");
  for (const CompilerCandidate& candidate : compiler_files({}, 0)) {
    std::error_code error;
    if (candidate.file.find('/') == candidate.file.npos) continue;
    const fs::path library = fs::canonical(candidate.file, error);
    if (!error) out.push_back(library.parent_path().parent_path() / "bin");
  }
  return out;
}

}  // namespace

Result<std::string> find_nvdisasm() {
  const char* const remedy = "pip install nvidia-cuda-nvdisasm, or set LATHE_NVDISASM to its file";
  if (const auto named = environment("LATHE_NVDISASM")) {
    if (can_be_run(*named)) return *named;
    return Status(Code::unsupported, text("LATHE_NVDISASM is ", in_quotes(*named),
                                          ", which is no program that can be run; ", remedy));
  }
  for (const fs::path& folder : folders()) {
    if (const fs::path file = folder / "nvdisasm"; can_be_run(file)) return file.string();
  }
  return Status(Code::unsupported, text("nvdisasm was not found in PATH, CUDA_HOME/bin, "
                                        "/usr/local/cuda/bin and beside NVRTC; ",
                                        remedy));
}

}  // namespace lathe
