// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Reads and writes safetensors: 8 bytes of header length, a JSON header, the tensors' bytes without
// a gap.
#pragma once

#include <filesystem>
#include <iosfwd>

#include "api/cli/inputs/tensors.h"

namespace lathe::cli {

// Both refuse (exit 2) whatever the format forbids, naming file and tensor.
TensorMap read_safetensors(const std::filesystem::path& path);
Specs read_safetensors_header(const std::filesystem::path& path);

// In order of their names, the data 8-byte aligned, without metadata.
void write_safetensors(std::ostream& out, const TensorMap& tensors);
// Writes the same into the file of --output: output.h.
void write_safetensors_file(const std::filesystem::path& path, const TensorMap& tensors);

}  // namespace lathe::cli
