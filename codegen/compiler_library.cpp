// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Finding and identifying libnvrtc.
#include "codegen/compiler_library.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/auxv.h>

#include <cstddef>
#include <cstring>
#include <mutex>

#include "codegen/base/env.h"
#include "codegen/base/text.h"

namespace lathe {
namespace {

// Where the bootstrap unpacks the wheels: beside the library, or at the root of its build tree.
constexpr const char* kPlaces[] = {"/", "/../../.deps/lib/", "/../.deps/lib/"};
constexpr const char* kToolKit = "/usr/local/cuda/lib64/";

// The loader's own lock orders the name that dlopen writes before those who read it, but no tool
// that looks for races sees that lock.
std::mutex names_mutex;

// The files to try, in order.
std::vector<std::string> candidates(const std::string& path) {
  if (!path.empty()) return {path};
  if (const auto named = environment("LATHE_NVRTC")) return {*named};
  std::vector<std::string> files = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
  const auto add_both = [&](const std::string& folder) {
    for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12"}) files.push_back(folder + name);
  };
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&build_id_of), &self) != 0 &&
      self.dli_fname != nullptr) {
    const std::string own = self.dli_fname;
    const size_t slash = own.rfind('/');
    const std::string folder = slash == own.npos ? "." : own.substr(0, slash);
    for (const char* place : kPlaces) add_both(folder + place);
  }
  add_both(kToolKit);
  return files;
}

// Whether the process has a compiler already, whoever loaded it.
bool compiler_is_loaded() {
  const auto visit = [](dl_phdr_info* object, size_t, void*) {
    const char* slash = std::strrchr(object->dlpi_name, '/');
    const char* name = slash == nullptr ? object->dlpi_name : slash + 1;
    return std::strstr(name, "nvrtc") == nullptr ? 0 : 1;  // its soname may be the usual one
  };
  const std::lock_guard<std::mutex> guard(names_mutex);
  return dl_iterate_phdr(visit, nullptr) != 0;
}

// Where the loader looks for names that this library asks for: LD_LIBRARY_PATH as it was when the
// process began, run paths, the system's folders.
std::vector<std::string> loader_folders() {
#ifdef __GLIBC__
  Dl_info self{};
  void* object = nullptr;  // a link_map, which is what glibc's handles are
  Dl_serinfo size{};
  if (dladdr1(reinterpret_cast<const void*>(&build_id_of), &self, &object, RTLD_DL_LINKMAP) == 0 ||
      dlinfo(object, RTLD_DI_SERINFOSIZE, &size) != 0) {
    return {};
  }
  std::vector<std::max_align_t> room(size.dls_size / sizeof(std::max_align_t) + 1);
  auto* found = reinterpret_cast<Dl_serinfo*>(room.data());
  if (dlinfo(object, RTLD_DI_SERINFOSIZE, found) != 0 ||
      dlinfo(object, RTLD_DI_SERINFO, found) != 0) {
    return {};
  }
  std::vector<std::string> folders;
  for (unsigned i = 0; i < found->dls_cnt; ++i) folders.push_back(found->dls_serpath[i].dls_name);
  return folders;
#else
  return {};
#endif
}

}  // namespace

std::string build_id_of(const void* address) {
  struct Search {
    ElfW(Addr) base;
    std::string id;
  };
  Dl_info where{};
  if (dladdr(address, &where) == 0) return {};
  Search search{reinterpret_cast<ElfW(Addr)>(where.dli_fbase), {}};
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* data) {
        auto* wanted = static_cast<Search*>(data);
        if (object->dlpi_addr != wanted->base) return 0;
        for (int i = 0; i < object->dlpi_phnum; ++i) {
          const ElfW(Phdr)& segment = object->dlpi_phdr[i];
          if (segment.p_type != PT_NOTE) continue;
          const auto* note = reinterpret_cast<const char*>(object->dlpi_addr + segment.p_vaddr);
          const char* end = note + segment.p_memsz;
          while (note + sizeof(ElfW(Nhdr)) <= end) {
            ElfW(Nhdr) header;
            std::memcpy(&header, note, sizeof(header));
            const char* name = note + sizeof(header);
            const char* bytes = name + (header.n_namesz + 3u) / 4u * 4u;
            if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 &&
                std::memcmp(name, "GNU", 4) == 0) {
              constexpr char kHex[] = "0123456789abcdef";
              for (unsigned b = 0; b < header.n_descsz; ++b) {
                wanted->id += kHex[static_cast<unsigned char>(bytes[b]) >> 4];
                wanted->id += kHex[bytes[b] & 15];
              }
              return 1;
            }
            note = bytes + (header.n_descsz + 3u) / 4u * 4u;
          }
        }
        return 1;
      },
      &search);
  return search.id;
}

CompilerSearch compiler_search() {
  CompilerSearch search;
  if (getauxval(AT_SECURE) != 0 || compiler_is_loaded()) return search;
  search.candidates = candidates({});
  search.folders = loader_folders();
  search.answerable = !search.folders.empty();
  return search;
}

Result<void*> open_compiler_library(const std::string& path, std::string* asked) {
  std::string tried;
  void* library = nullptr;
  const std::lock_guard<std::mutex> guard(names_mutex);
  for (const std::string& file : candidates(path)) {
    library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library != nullptr && asked != nullptr) *asked = file;
    if (library != nullptr) break;
    const char* why = dlerror();
    tried += text("\n  ", file, ": ", why == nullptr ? "not found" : why);
  }
  if (library == nullptr) {
    return Status(Code::compile_failed,
                  "the compiler library NVRTC could not be opened; set LATHE_NVRTC to "
                  "libnvrtc.so.13 or .so.12. Tried:" +
                      tried);
  }
  return library;
}

}  // namespace lathe
