// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Writing safetensors, whole or not at all.
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "api/cli/failure.h"
#include "api/cli/safetensors.h"

namespace lathe::cli {
namespace {

namespace fs = std::filesystem;

// Where a rename must land: behind a link lies the file that is meant.
fs::path target_of(const fs::path& path) {
  std::error_code error;
  const fs::path target = fs::weakly_canonical(path, error);
  return error ? path : target;
}

// Removes the unfinished file on every way out.
class Temporary {
 public:
  explicit Temporary(const fs::path& target)
      : path_(target.string() + ".tmp." + std::to_string(getpid())) {}
  ~Temporary() {
    std::error_code error;
    if (!done_) fs::remove(path_, error);
  }
  const fs::path& path() const { return path_; }
  bool rename_to(const fs::path& target) {
    std::error_code error;
    fs::rename(path_, target, error);
    done_ = !error;
    return done_;
  }

 private:
  fs::path path_;
  bool done_ = false;
};

}  // namespace

void write_safetensors(std::ostream& out, const TensorMap& tensors) {
  auto header = nlohmann::ordered_json::object();
  uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    const uint64_t end = offset + tensor.data.size();
    header[name] = {{"dtype", info(tensor.spec.dtype).stored},
                    {"shape", tensor.spec.shape},
                    {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  for (const auto& [name, tensor] : tensors) {
    out.write(reinterpret_cast<const char*>(tensor.data.data()),
              static_cast<std::streamsize>(tensor.data.size()));
  }
}

void write_safetensors_file(const fs::path& path, const TensorMap& tensors) {
  const fs::path target = target_of(path);
  Temporary temporary(target);
  std::ofstream file(temporary.path(), std::ios::binary | std::ios::trunc);
  if (file) write_safetensors(file, tensors);
  file.close();
  if (!file || !temporary.rename_to(target)) {
    fail("output file " + in_quotes(path.string()) + " cannot be written: is the disk full?");
  }
}

void check_output_path(const fs::path& path) {
  const fs::path target = target_of(path);
  std::error_code error;
  const auto status = fs::status(target, error);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    refuse("--output is " + in_quotes(path.string()) + ", which is not a regular file");
  }
  const fs::path folder = target.parent_path().empty() ? fs::path(".") : target.parent_path();
  if (!fs::is_directory(folder, error)) {
    refuse("--output is " + in_quotes(path.string()) + ", but there is no folder " +
           in_quotes(folder.string()));
  }
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    refuse("--output is " + in_quotes(path.string()) + ", but the folder " +
           in_quotes(folder.string()) + " is not writable");
  }
}

}  // namespace lathe::cli
