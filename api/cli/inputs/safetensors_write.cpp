// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Writing safetensors, whole or not at all.
#include <nlohmann/json.hpp>
#include <ostream>

#include "api/cli/inputs/safetensors.h"
#include "api/cli/output.h"

namespace lathe::cli {
namespace {

// The length of the header and the header, filled up so that the data begins at 8 bytes.
std::string head_of(const TensorMap& tensors) {
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
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

}  // namespace

void write_safetensors(std::ostream& out, const TensorMap& tensors) {
  out << head_of(tensors);
  for (const auto& [name, tensor] : tensors) {
    out.write(reinterpret_cast<const char*>(tensor.data.data()),
              static_cast<std::streamsize>(tensor.data.size()));
  }
}

void write_safetensors_file(const std::filesystem::path& path, const TensorMap& tensors) {
  const std::string head = head_of(tensors);
  std::vector<const void*> pieces = {head.data()};
  std::vector<size_t> bytes = {head.size()};
  for (const auto& [name, tensor] : tensors) {
    pieces.push_back(tensor.data.data());
    bytes.push_back(tensor.data.size());
  }
  write_output("--output", path.string(), pieces, bytes);
}

}  // namespace lathe::cli
