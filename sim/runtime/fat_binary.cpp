// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file loads fat binaries.
#include "sim/runtime/fat_binary.h"

#include <array>
#include <cstring>

namespace sim::runtime {
namespace {

constexpr unsigned kWrapperMagic = 0x466243b1;
constexpr unsigned kLinked = 2;  // FatWrapper::version

// The driver's words about code that it refuses.
class Log {
 public:
  Log() : values_{text_.data(), reinterpret_cast<void*>(text_.size())} {}
  unsigned count() const { return kOptions.size(); }
  CUjit_option* options() { return kOptions.data(); }
  void** values() { return values_; }
  Result tell(Result result) const {
    if (result.failed() && text_[0] != '\0')
      say(std::string("the program's code: ") + text_.data());
    return result;
  }

 private:
  static inline std::array<CUjit_option, 2> kOptions = {CU_JIT_ERROR_LOG_BUFFER,
                                                        CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  std::array<char, 4096> text_ = {};
  void* values_[2];
};

Result load(const void* image, CUlibrary* out) {
  Log log;
  return log.tell(driver().cuLibraryLoadData(out, image, log.options(), log.values(), log.count(),
                                             nullptr, nullptr, 0));
}

size_t bytes_of(const void* fat_binary) {
  struct Header {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes;  // after the header
  } header;
  std::memcpy(&header, fat_binary, sizeof header);
  return header.header_bytes + header.bytes;
}

Result link(const void* const* parts, CUlinkState state, CUlibrary* out) {
  for (; *parts != nullptr; ++parts) {
    const Result result =
        driver().cuLinkAddData(state, CU_JIT_INPUT_FATBINARY, const_cast<void*>(*parts),
                               bytes_of(*parts), nullptr, 0, nullptr, nullptr);
    if (result.failed()) return result;
  }
  void* image = nullptr;
  size_t bytes = 0;
  const Result result = driver().cuLinkComplete(state, &image, &bytes);
  return result.failed() ? result : load(image, out);
}

}  // namespace

Result load_fat_binary(const FatWrapper& wrapper, CUlibrary* out) {
  if (wrapper.magic != kWrapperMagic) {
    say("__cudaRegisterFatBinary: this is no fat binary of nvcc");
    return cudaErrorInvalidKernelImage;
  }
  if (wrapper.version != kLinked) return load(wrapper.image, out);
  Log log;
  CUlinkState state = nullptr;
  const Result made = driver().cuLinkCreate(log.count(), log.options(), log.values(), &state);
  if (made.failed()) return made;
  const Result result = log.tell(link(wrapper.parts, state, out));
  driver().cuLinkDestroy(state);
  return result;
}

}  // namespace sim::runtime
