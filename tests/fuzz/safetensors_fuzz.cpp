// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This target fuzzes safetensors files. Whatever the bytes: reading refuses with a sentence, or
// gives tensors whose shapes and bytes agree, whose header read alone says the same, and which
// written and read again are the same tensors.

#include <cstring>
#include <sstream>

#include "api/cli/failure.h"
#include "api/cli/inputs/safetensors.h"
#include "tests/fuzz/memory_file.h"

using namespace lathe;
using namespace lathe::cli;

namespace {

bool same(const TensorMap& a, const TensorMap& b) {
  const auto equal = [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.spec.dtype == y.second.spec.dtype &&
           x.second.spec.shape == y.second.spec.shape && x.second.data == y.second.data;
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), equal);
}

void check_tensors(const TensorMap& tensors, const Specs& header) {
  FUZZ_CHECK(tensors.size() == header.size());
  for (const auto& [name, tensor] : tensors) {
    const auto bytes =
        static_cast<size_t>(element_count(tensor.spec.shape)) * info(tensor.spec.dtype).bytes;
    FUZZ_CHECK(tensor.data.size() == bytes);
    FUZZ_CHECK(header.at(name).dtype == tensor.spec.dtype);
    FUZZ_CHECK(header.at(name).shape == tensor.spec.shape);
  }
  std::ostringstream out;
  write_safetensors(out, tensors);
  FUZZ_CHECK(same(read_safetensors(fuzz::MemoryFile(out.str()).path()), tensors));
}

void check_file(std::string_view bytes) {
  const fuzz::MemoryFile file(bytes);
  try {
    const TensorMap tensors = read_safetensors(file.path());
    check_tensors(tensors, read_safetensors_header(file.path()));
  } catch (const Failure& failure) {
    FUZZ_CHECK(failure.code == kBadInput);
    FUZZ_CHECK(std::strlen(failure.what()) > 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input = fuzz::as_text(data, size);
  check_file(input);
  // The same as a header of the right length, with as much data as the first two bytes say.
  std::string_view rest = input;
  const uint64_t data_bytes = fuzz::take_number(rest, 2) % 4096, header_bytes = rest.size();
  std::string file(reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes));
  file += rest;
  check_file(file + std::string(data_bytes, 'x'));
  return 0;
}
