// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Opening of the NCCL library, real or drop-in, and the wording of its errors.
#include "collective/nccl.h"

#include <dlfcn.h>
#include <limits.h>

#include <cstdlib>
#include <mutex>
#include <vector>

#include "cache/driver.h"
#include "codegen/base/env.h"
#include "codegen/base/text.h"

namespace lathe {
namespace {

constexpr const char* kLibrary = "libnccl.so.2";
// Communicators that can be given up after a timeout exist from here on.
constexpr int kOldestVersion = NCCL_VERSION(2, 14, 0);

std::string real_path(const std::string& path) {
  char buffer[PATH_MAX];
  return realpath(path.c_str(), buffer) != nullptr ? buffer : path;
}

struct Asked {
  std::vector<std::string> files;  // the first that opens is taken
  std::string remedy;
};

Asked ask_for(NcclChoice choice) {
  if (choice == NcclChoice::threads) {
    return {sim_library_paths(kLibrary), "set LATHE_SIM_DIR to the simulator's folder"};
  }
  return {{environment("LATHE_NCCL").value_or(kLibrary)},
          "install NCCL 2.14 or newer, or name its file in LATHE_NCCL"};
}

Result<void*> open_first(const Asked& asked) {
  std::string tried;
  for (const std::string& file : asked.files) {
    if (void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
    const char* why = dlerror();
    tried += (tried.empty() ? "" : "; ") + (why == nullptr ? file : std::string(why));
  }
  return Status(Code::nccl, text("cannot open NCCL: ", tried, "; ", asked.remedy));
}

// The dynamic loader answers a bare name with whatever was loaded under it before, and both
// libraries bear the same name: the drop-in must not pass for the real one.
Status check_not_drop_in(const std::string& loaded) {
  for (const std::string& drop_in : sim_library_paths(kLibrary)) {
    if (real_path(loaded) != real_path(drop_in)) continue;
    return {Code::nccl, text("the name ", kLibrary, " leads to the simulator's ", loaded,
                             "; name the real library's file in LATHE_NCCL")};
  }
  return {};
}

// The library stays open for the rest of the process: it keeps threads and state of its own.
Result<std::shared_ptr<const Nccl>> load(NcclChoice choice) {
  const Asked asked = ask_for(choice);
  LATHE_ASSIGN(void* const handle, open_first(asked));
  auto nccl = std::make_shared<Nccl>();
  Dl_info info{};
  void* const symbol = dlsym(handle, "ncclGetVersion");
  if (symbol != nullptr && dladdr(symbol, &info) != 0 && info.dli_fname)
    nccl->path = info.dli_fname;
  std::string missing;
#define LATHE_NCCL_FIND(name)                                             \
  nccl->name = reinterpret_cast<decltype(&::name)>(dlsym(handle, #name)); \
  if (nccl->name == nullptr) missing += missing.empty() ? #name : ", " #name;
  LATHE_NCCL_FUNCTIONS(LATHE_NCCL_FIND)
#undef LATHE_NCCL_FIND
  if (!missing.empty()) {
    dlclose(handle);
    return Status(Code::nccl, text(nccl->path, " lacks ", missing, "; ", asked.remedy));
  }
  if (choice == NcclChoice::real) LATHE_TRY(check_not_drop_in(nccl->path));
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
  static std::shared_ptr<const Nccl> tables[2];
  const std::lock_guard lock(mutex);
  std::shared_ptr<const Nccl>& table = tables[static_cast<int>(choice)];
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
