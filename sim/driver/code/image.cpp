// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Recognises what kind of code an image is, checks its target and parses it.
#include "sim/driver/code/image.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "sim/driver/code/fat_binary.h"
#include "sim/model/letters.h"

namespace sim::driver {
namespace {

constexpr uint32_t kFatWrapperMagic = 0x466243B1;

struct FatWrapper {
  uint32_t magic, version;
  const void* data;
};

// Returns true if code for `target` runs on the device: plain targets up to its own, "a" and "f"
// ones only on the very same.
bool runs_on(const std::string& target, const Profile& profile) {
  if (target == profile.arch) return true;
  if (target.rfind("sm_", 0) != 0) return false;
  const std::string digits = target.substr(3);
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos) return false;
  return std::stoi(digits) <= profile.major * 10 + profile.minor;
}

// 84 for ".version 8.4"; 0 if it is not said.
int ptx_version_of(const std::string& text) {
  constexpr std::string_view kWord = ".version";
  const size_t word = text.find(kWord);
  if (word == std::string::npos) return 0;
  const size_t at = text.find_first_not_of(" \t", word + kWord.size());
  if (at == std::string::npos) return 0;
  int major = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data() + at, last, major);
  if (error != std::errc() || last - end < 2 || *end != '.' || !is_digit(end[1])) return 0;
  return 10 * major + (end[1] - '0');
}

// "sm_90a" for ".target sm_90a, debug"; "" if it is not said.
std::string target_of(const std::string& text) {
  const size_t at = text.find(".target");
  const size_t from = at == std::string::npos ? at : text.find_first_not_of(" \t", at + 7);
  if (from == std::string::npos) return "";
  return text.substr(from, text.find_first_of(" \t\r\n,/", from) - from);
}

std::string spelt(int version) {
  return std::to_string(version / 10) + "." + std::to_string(version % 10);
}

void fill(void** values, int buffer, int size, const std::string& text) {
  if (size < 0) return;
  const size_t capacity = reinterpret_cast<uintptr_t>(values[size]) & 0xffffffffu;
  size_t used = 0;
  if (buffer >= 0 && values[buffer] != nullptr && capacity > 0) {
    used = std::min(text.size(), capacity - 1);
    auto* to = static_cast<char*>(values[buffer]);
    std::memcpy(to, text.data(), used);
    to[used] = '\0';
  }
  values[size] = reinterpret_cast<void*>(static_cast<uintptr_t>(used));
}

}  // namespace

CUresult JitOptions::read(unsigned count, const CUjit_option* options, void** values) {
  if (count > 0 && (options == nullptr || values == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  values_ = values;
  for (unsigned at = 0; at < count; ++at) {
    const int index = static_cast<int>(at);
    if (options[at] >= CU_JIT_NUM_OPTIONS) return CUDA_ERROR_INVALID_VALUE;
    if (options[at] == CU_JIT_INFO_LOG_BUFFER) info_buffer_ = index;
    if (options[at] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES) info_size_ = index;
    if (options[at] == CU_JIT_ERROR_LOG_BUFFER) error_buffer_ = index;
    if (options[at] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) error_size_ = index;
    if (options[at] == CU_JIT_WALL_TIME) wall_time_ = index;
  }
  const bool unsized =
      (info_buffer_ >= 0 && info_size_ < 0) || (error_buffer_ >= 0 && error_size_ < 0);
  return unsized ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

void JitOptions::write(const std::string& info, const std::string& error, double seconds) {
  fill(values_, info_buffer_, info_size_, info);
  fill(values_, error_buffer_, error_size_, error);
  if (wall_time_ >= 0) {
    const float milliseconds = static_cast<float>(seconds * 1000);
    std::memcpy(&values_[wall_time_], &milliseconds, sizeof milliseconds);
  }
}

CUresult find_ptx(const char* bytes, const Profile& profile, std::string* text, std::string* log) {
  uint32_t magic = 0;
  if (bytes[0] != '\0' && bytes[1] != '\0' && bytes[2] != '\0') std::memcpy(&magic, bytes, 4);
  if (magic == kFatWrapperMagic) {
    FatWrapper wrapper;
    std::memcpy(&wrapper, bytes, sizeof wrapper);
    bytes = static_cast<const char*>(wrapper.data);
    std::memcpy(&magic, bytes, 4);
  }
  if (std::memcmp(&magic, "\177ELF", 4) == 0) {
    *log = "the image is machine code; the simulator runs PTX only";
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  if (magic != kFatMagic) {
    *text = bytes;
    return CUDA_SUCCESS;
  }
  std::string why;
  const auto runs = [&](const std::string& ptx) { return runs_on(target_of(ptx), profile); };
  *text = ptx_in_fat_binary(bytes, runs, &why);
  if (!text->empty()) return CUDA_SUCCESS;
  *log = why;
  return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

CUresult read_file(const char* path, std::string* out) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::FILE* file = std::fopen(path, "rbe");
  if (file == nullptr) return CUDA_ERROR_FILE_NOT_FOUND;
  char buffer[65536];
  size_t got = 0;
  while ((got = std::fread(buffer, 1, sizeof buffer, file)) > 0) out->append(buffer, got);
  std::fclose(file);
  return CUDA_SUCCESS;
}

CUresult parse_image(const void* image, const Profile& profile, int newest_ptx,
                     std::shared_ptr<const sim::Module>* out, std::string* log) {
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::string text;
  const CUresult found = find_ptx(static_cast<const char*>(image), profile, &text, log);
  if (found != CUDA_SUCCESS) return found;
  if (text.find(".version") == std::string::npos) {
    *log = "the image is neither PTX (it has no .version), nor ELF, nor a fat binary";
    return text.empty() ? CUDA_ERROR_INVALID_IMAGE : CUDA_ERROR_INVALID_PTX;
  }
  if (const int version = ptx_version_of(text); newest_ptx > 0 && version > newest_ptx) {
    *log = "the PTX is of version " + spelt(version) + ", the driver translates versions up to " +
           spelt(newest_ptx);
    return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  }
  std::shared_ptr<const sim::Module> code = sim::Module::parse(text, log);
  if (!code) return CUDA_ERROR_INVALID_PTX;
  if (!runs_on(code->target(), profile)) {
    *log = "the code is for " + code->target() + ", the device is " + profile.arch;
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  *out = std::move(code);
  return CUDA_SUCCESS;
}

CUresult load_code(Driver& driver, Lock& lock, const Profile& profile, const void* image,
                   GivenOptions given,
                   const std::function<CUresult(CUresult, const std::shared_ptr<const sim::Module>&,
                                                std::string*)>& use) {
  JitOptions jit;
  CUresult result = jit.read(given.count, given.options, given.values);
  if (result != CUDA_SUCCESS) return result;
  const Clock::time_point start = Clock::now();
  std::shared_ptr<const sim::Module> code;
  std::string log;
  lock.unlock();
  result = parse_image(image, profile, driver.options.ptx_version, &code, &log);
  lock.lock();
  result = use(result, code, &log);
  const std::chrono::duration<double> seconds = Clock::now() - start;
  jit.write("", result == CUDA_SUCCESS ? "" : log, seconds.count());
  return result;
}

CUresult instantiate(Driver& driver, Context& context, std::shared_ptr<const sim::Module> code,
                     std::shared_ptr<Module>* out, std::string* log) {
  Device& device = *context.device;
  std::shared_ptr<const Image> image = load_image(code, *device.memory, log);
  if (!image) return CUDA_ERROR_OUT_OF_MEMORY;
  auto module = driver.add(std::make_shared<Module>());
  module->context = &context;
  module->code = code;
  module->image = image;
  for (const Variable& variable : code->variables()) {
    auto it = image->symbols.find(variable.name);
    if (it == image->symbols.end() || variable.bytes == 0) continue;
    Block block;
    block.base = it->second;
    block.bytes = variable.bytes;
    block.kind = MemoryKind::symbol;
    block.id = driver.next_block++;
    block.context = &context;
    block.device = &device;
    driver.blocks[block.base] = block;
  }
  for (const Kernel& kernel : code->kernels()) {
    auto function = driver.add(std::make_shared<Function>());
    function->module = module.get();
    function->code = code;
    function->kernel = &kernel;
    function->max_dynamic_shared =
        std::max(0, device.profile.shared_per_block - static_cast<int>(kernel.static_shared_bytes));
    module->functions[kernel.name] = function;
  }
  context.modules[module->handle] = module;
  *out = module;
  return CUDA_SUCCESS;
}

}  // namespace sim::driver
