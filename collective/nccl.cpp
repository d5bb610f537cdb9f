// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Opens the NCCL library, real or drop-in, and words its errors.
#include "collective/nccl.h"

#include <dlfcn.h>
#include <limits.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

#include "codegen/base/env.h"
#include "codegen/base/text.h"
#include "device/driver.h"

namespace lathe {
namespace {

constexpr const char* kLibrary = "libnccl.so.2";
// This is the first version whose communicators can be aborted after a timeout.
constexpr int kOldestVersion = NCCL_VERSION(2, 14, 0);

std::string real_path(const std::string& path) {
  char buffer[PATH_MAX];
  return realpath(path.c_str(), buffer) != nullptr ? buffer : path;
}

// Says which library to open: the first of `files` that opens and, if `only_real`, is not the
// drop-in.
struct Asked {
  std::vector<std::string> files;
  bool only_real = false;
  std::string remedy;
};

// Lists the loader's choice, then the usual places of NCCL. The wheels unpack beside the library or
// at the root of its build tree.
std::vector<std::string> usual_files() {
  std::vector<std::string> files = {kLibrary};
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&usual_files), &self) != 0 && self.dli_fname) {
    const std::string path = real_path(self.dli_fname);
    const std::string folder = path.substr(0, path.rfind('/') + 1);
    for (const char* place : {"", "../../.deps/lib/", "../.deps/lib/"}) {
      files.push_back(folder + place + kLibrary);
    }
  }
  for (const char* folder :
       {"/usr/local/cuda/lib64/", "/usr/lib/x86_64-linux-gnu/", "/usr/lib/aarch64-linux-gnu/",
        "/usr/lib64/", "/usr/lib/", "/usr/local/lib/"}) {
    files.push_back(std::string(folder) + kLibrary);
  }
  return files;
}

Asked ask_for(NcclChoice choice) {
  if (choice == NcclChoice::threads) {
    return {sim_library_paths(kLibrary), false, "set LATHE_SIM_DIR to the simulator's folder"};
  }
  const std::string remedy = "install NCCL 2.14 or newer, or name its file in LATHE_NCCL";
  // A file named on purpose is taken, the drop-in too: it lets threads share one device.
  if (const auto named = environment("LATHE_NCCL")) return {{*named}, false, remedy};
  return {usual_files(), true, remedy};
}

std::string path_of(void* library) {
  Dl_info info{};
  void* const symbol = dlsym(library, "ncclGetVersion");
  if (symbol == nullptr || dladdr(symbol, &info) == 0 || !info.dli_fname) return {};
  return info.dli_fname;
}

bool is_drop_in(const std::string& path) {
  for (const std::string& drop_in : sim_library_paths(kLibrary)) {
    if (real_path(path) == real_path(drop_in)) return true;
  }
  return false;
}

// The dynamic loader answers a bare name with whatever was loaded under it before, and both
// libraries bear the same name: the drop-in must not pass for the real one.
Result<void*> open_first(const Asked& asked) {
  std::string tried;
  for (const std::string& file : asked.files) {
    std::string why;
    if (void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      const std::string loaded = path_of(handle);
      if (!asked.only_real || !is_drop_in(loaded)) return handle;
      dlclose(handle);
      why = text("the name ", file, " leads to the simulator's ", loaded);
    } else if (const char* error = dlerror()) {
      why = error;
    }
    tried += (tried.empty() ? "" : "; ") + (why.empty() ? file : why);
  }
  return Status(Code::nccl, text("cannot open NCCL: ", tried, "; ", asked.remedy));
}

// The library stays open for the rest of the process: it keeps threads and state of its own.
Result<std::shared_ptr<const Nccl>> load(NcclChoice choice) {
  const Asked asked = ask_for(choice);
  LATHE_ASSIGN(void* const handle, open_first(asked));
  auto nccl = std::make_shared<Nccl>();
  nccl->path = path_of(handle);
  std::string missing;
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    return function != nullptr;
  };
#define LATHE_NCCL_FIND(name) \
  if (!find(#name, nccl->name)) missing += missing.empty() ? #name : ", " #name;
  LATHE_NCCL_FUNCTIONS(LATHE_NCCL_FIND)
#undef LATHE_NCCL_FIND
  (void)find("ncclCommSplit", nccl->ncclCommSplit);
  if (!missing.empty()) {
    dlclose(handle);
    return Status(Code::nccl, text(nccl->path, " lacks ", missing, "; ", asked.remedy));
  }
  LATHE_TRY(check(*nccl, nullptr, nccl->ncclGetVersion(&nccl->version), "ncclGetVersion"));
  if (nccl->version < kOldestVersion) {
    return Status(Code::nccl, text(nccl->path, " is version ", nccl->version, ", must be at least ",
                                   kOldestVersion, "; ", asked.remedy));
  }
  return std::shared_ptr<const Nccl>(std::move(nccl));
}

}  // namespace

Result<std::shared_ptr<const Nccl>> open_nccl(NcclChoice choice) {
  static std::mutex mutex;
  static auto* const tables = new std::map<std::string, std::shared_ptr<const Nccl>>;
  const std::lock_guard lock(mutex);
  // A program may name a file after it has asked for any.
  const bool real = choice == NcclChoice::real;
  const std::string key = real ? "real " + environment("LATHE_NCCL").value_or("") : "threads";
  std::shared_ptr<const Nccl>& table = (*tables)[key];
  if (table == nullptr) {
    LATHE_ASSIGN(table, load(choice));
  }
  return table;
}

Status check(const Nccl& nccl, ncclComm_t comm, ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return {};
  const char* sentence = nccl.ncclGetErrorString(result);
  // Without a communicator the last error of the process is meant; there is none after a timeout.
  const char* detail = nccl.ncclGetLastError(comm);
  std::string out =
      text(call, ": ", sentence == nullptr ? "" : sentence, " (", static_cast<int>(result), ")");
  if (detail != nullptr && *detail != '\0') out += text(": ", detail);
  return {Code::nccl, out};
}

}  // namespace lathe
