// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "codegen/compiler_library.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <mutex>

#include "codegen/base/env.h"
#include "codegen/base/text.h"

namespace lathe {
namespace {

// The bootstrap unpacks the wheels here: beside the library, or at the root of its build tree.
constexpr const char* kPlaces[] = {"/", "/../../.deps/lib/", "/../.deps/lib/"};
constexpr const char* kToolKit = "/usr/local/cuda/lib64/";

// Returns the folders to look in after the loader's.
std::vector<std::string> places() {
  std::vector<std::string> folders;
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&compiler_search), &self) != 0 &&
      self.dli_fname != nullptr) {
    const std::string own = self.dli_fname;
    const size_t slash = own.rfind('/');
    const std::string folder = slash == own.npos ? "." : own.substr(0, slash);
    for (const char* place : kPlaces) folders.push_back(folder + place);
  }
  folders.push_back(kToolKit);
  return folders;
}

// Returns the files to try, in order.
std::vector<std::string> candidates(const std::string& path, int driver_version) {
  if (!path.empty()) return {path};
  if (const auto named = environment("LATHE_NVRTC")) return {*named};
  std::vector<std::string> files, too_new;
  for (const int major : {13, 12}) {
    const std::string name = text("libnvrtc.so.", major);
    auto& list = driver_loads(major, driver_version) ? files : too_new;
    list.push_back(name);
    for (const std::string& folder : places()) list.push_back(folder + name);
  }
  files.push_back("libnvrtc.so");
  files.insert(files.end(), too_new.begin(), too_new.end());
  return files;
}

// True if the process has a compiler already, whoever loaded it.
bool compiler_is_loaded() {
  const auto visit = [](dl_phdr_info* object, size_t, void*) {
    const char* slash = std::strrchr(object->dlpi_name, '/');
    const char* name = slash == nullptr ? object->dlpi_name : slash + 1;
    return std::strstr(name, "nvrtc") == nullptr ? 0 : 1;  // its soname may be the usual one
  };
  const std::lock_guard<std::mutex> guard(loader_mutex());
  return dl_iterate_phdr(visit, nullptr) != 0;
}

// Returns where the loader looks for names that this library asks for: LD_LIBRARY_PATH as it was
// when the process began, run paths, the system's folders.
std::vector<std::string> loader_folders() {
#ifdef __GLIBC__
  Dl_info self{};
  void* object = nullptr;  // a link_map, which is what glibc's handles are
  Dl_serinfo size{};
  if (dladdr1(reinterpret_cast<const void*>(&compiler_search), &self, &object, RTLD_DL_LINKMAP) ==
          0 ||
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

// Those that another program's loader would not search: all but the system's, which come last. Any
// program's loader searches these, behind its list of known libraries.
std::vector<std::string> own_folders() {
  std::vector<std::string> folders = loader_folders();
  while (!folders.empty() &&
         (folders.back().starts_with("/lib") || folders.back().starts_with("/usr/lib"))) {
    folders.pop_back();
  }
  return folders;
}

// The file of the loaded object that dlopen answers this name with; empty if there is none.
std::string loaded_file(const std::string& name) {
  const std::lock_guard<std::mutex> guard(loader_mutex());
  void* const object = dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (object == nullptr) return {};
  link_map* map = nullptr;
  const bool found = dlinfo(object, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr;
  const std::string file = found ? map->l_name : "";
  dlclose(object);
  return file;
}

}  // namespace

std::vector<CompilerCandidate> compiler_candidates(const std::string& path, int driver_version) {
  std::vector<CompilerCandidate> all;
  for (const std::string& file : candidates(path, driver_version)) all.push_back({file, file});
  return all;
}

std::vector<CompilerCandidate> compiler_files(const std::string& path, int driver_version) {
  std::vector<CompilerCandidate> all;
  const std::vector<std::string> folders = own_folders();
  for (const std::string& name : candidates(path, driver_version)) {
    if (name.find('/') == name.npos) {
      if (const std::string loaded = loaded_file(name); !loaded.empty()) {
        all.push_back({name, loaded});
      }
      for (const std::string& folder : folders) {
        const std::string file = folder + '/' + name;
        if (access(file.c_str(), F_OK) == 0) all.push_back({name, file});
      }
    }
    all.push_back({name, name});
  }
  return all;
}

CompilerSearch compiler_search(int driver_version) {
  CompilerSearch search;
  if (getauxval(AT_SECURE) != 0 || compiler_is_loaded()) return search;
  search.candidates = candidates({}, driver_version);
  search.folders = loader_folders();
  search.answerable = !search.folders.empty();
  return search;
}

}  // namespace lathe
