// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles the linker: PTX texts become one. Its result is PTX, which loads like any
// image.
#include <cstdio>
#include <cstring>

#include "sim/driver/code/image.h"
#include "sim/driver/entry.h"

using namespace sim::driver;

namespace {

// Its handle is kept with the other objects that belong to the caller.
struct Link : Object {
  JitOptions jit;
  std::string text, log;
  Clock::time_point start = Clock::now();
};

// Without the header lines of a later module, which must not be repeated.
std::string without_header(const std::string& text) {
  std::string out;
  for (size_t from = 0; from < text.size();) {
    const size_t end = std::min(text.find('\n', from), text.size());
    const std::string line = text.substr(from, end - from);
    const size_t word = line.find_first_not_of(" \t");
    const bool header = word != std::string::npos && (line.compare(word, 8, ".version") == 0 ||
                                                      line.compare(word, 7, ".target") == 0 ||
                                                      line.compare(word, 13, ".address_size") == 0);
    if (!header) out += line;
    out += '\n';
    from = end + 1;
  }
  return out;
}

CUresult refuse(Link& link, CUresult code, const std::string& text) {
  link.log += text + "\n";
  const std::chrono::duration<double> seconds = Clock::now() - link.start;
  link.jit.write("", link.log, seconds.count());
  return code;
}

CUresult add(Link& link, const Profile& profile, CUjitInputType type, const std::string& image,
             const char* name) {
  const std::string called = name == nullptr ? "an input" : name;
  std::string text;
  if (type == CU_JIT_INPUT_PTX) {
    text = image.c_str();  // up to its NUL
  } else if (type == CU_JIT_INPUT_FATBINARY || type == CU_JIT_INPUT_CUBIN) {
    std::string log;
    const CUresult result = find_ptx(image.data(), profile, &text, &log);
    if (result != CUDA_SUCCESS) return refuse(link, result, called + ": " + log);
  } else {
    return refuse(link, CUDA_ERROR_NOT_SUPPORTED, called + ": only PTX is linked");
  }
  if (text.find(".version") == std::string::npos) {
    return refuse(link, CUDA_ERROR_INVALID_PTX, called + ": not PTX, it has no .version");
  }
  link.text += link.text.empty() ? text : without_header(text);
  if (link.text.back() != '\n') link.text += '\n';
  return CUDA_SUCCESS;
}

template <typename F>
CUresult with_link(CUlinkState state, F body) {
  return with_context([&](Driver& driver, Lock& lock, Context& context) -> CUresult {
    auto link = driver.find<Link>(state);
    return link ? body(driver, lock, context, link) : CUDA_ERROR_INVALID_HANDLE;
  });
}

}  // namespace

SIM_API cuLinkCreate_v2(unsigned count, CUjit_option* options, void** values, CUlinkState* out) {
  return with_context([&](Driver& driver, Lock&, Context&) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto link = std::make_shared<Link>();
    const CUresult result = link->jit.read(count, options, values);
    if (result != CUDA_SUCCESS) return result;
    driver.add(link);
    driver.links[link->handle] = link;
    *out = handle_of<CUlinkState>(link);
    return CUDA_SUCCESS;
  });
}

// Options of one input say how to compile it, which changes nothing here.
SIM_API cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t bytes,
                         const char* name, unsigned, CUjit_option*, void**) {
  return with_link(state, [&](Driver&, Lock&, Context& context, auto& link) -> CUresult {
    if (data == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    return add(*link, context.device->profile, type,
               std::string(static_cast<const char*>(data), bytes), name);
  });
}

SIM_API cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path, unsigned,
                         CUjit_option*, void**) {
  return with_link(state, [&](Driver&, Lock&, Context& context, auto& link) -> CUresult {
    std::string image;
    const CUresult result = read_file(path, &image);
    return result != CUDA_SUCCESS ? result : add(*link, context.device->profile, type, image, path);
  });
}

// The text is tried here, so that what is wrong with it is in the linker's log.
SIM_API cuLinkComplete(CUlinkState state, void** image, size_t* bytes) {
  return with_link(state, [&](Driver& all, Lock& lock, Context& context, auto& link) -> CUresult {
    if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (link->text.empty()) return refuse(*link, CUDA_ERROR_INVALID_IMAGE, "nothing to link");
    const sim::Profile profile = context.device->profile;
    std::shared_ptr<const sim::Module> code;
    std::string log;
    lock.unlock();
    const CUresult result =
        parse_image(link->text.c_str(), profile, all.options.ptx_version, &code, &log);
    lock.lock();
    if (result != CUDA_SUCCESS) return refuse(*link, result, log);
    const std::chrono::duration<double> seconds = Clock::now() - link->start;
    link->jit.write("", "", seconds.count());
    *image = link->text.data();
    if (bytes != nullptr) *bytes = link->text.size() + 1;
    return CUDA_SUCCESS;
  });
}

SIM_API cuLinkDestroy(CUlinkState state) {
  return with_link(state, [](Driver& driver, Lock&, Context&, auto& link) -> CUresult {
    driver.links.erase(link->handle);
    driver.objects.erase(link->handle);
    return CUDA_SUCCESS;
  });
}
