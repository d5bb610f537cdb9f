// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Opening of the NCCL library, real or drop-in, and the wording of its errors.
#include "collective/nccl.h"

#include <dlfcn.h>
#include <limits.h>

#include <cstdlib>
#include <mutex>

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
  std::string file;
  std::string remedy;
};

Result<Asked> ask_for(NcclChoice choice) {
  if (choice == NcclChoice::threads) {
    LATHE_ASSIGN(std::string file, sim_library_path(kLibrary));
    return Asked{file, "LATHE_SIM_DIR names the simulator's folder"};
  }
  const std::string remedy = "install NCCL 2.14 or newer, or name its file in LATHE_NCCL";
  return Asked{environment("LATHE_NCCL").value_or(kLibrary), remedy};
}

// The dynamic loader answers a bare name with whatever was loaded under it before, and both
// libraries bear the same name: the drop-in must not pass for the real one.
Status check_not_drop_in(const std::string& loaded) {
  const Result<std::string> drop_in = sim_library_path(kLibrary);
  if (!drop_in.ok() || real_path(loaded) != real_path(*drop_in)) return {};
  return {Code::nccl, text("the name ", kLibrary, " leads to the simulator's ", loaded,
                           "; name the real library's file in LATHE_NCCL")};
}

// Runs while the library stays open for the rest of the process: it keeps threads and state of its
// own, and closing it under them is not supported.
Result<std::shared_ptr<const Nccl>> load(NcclChoice choice) {
  LATHE_ASSIGN(const Asked asked, ask_for(choice));
  void* handle = dlopen(asked.file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    return Status(Code::nccl, text("cannot open ", asked.file, ": ",
                                   why == nullptr ? "unknown error" : why, "; ", asked.remedy));
  }
  auto nccl = std::make_shared<Nccl>();
  nccl->path = asked.file;
  std::string missing;
#define LATHE_NCCL_FIND(name)                                                     \
  nccl->name = reinterpret_cast<decltype(&::name)>(dlsym(handle, #name));         \
  if (nccl->name == nullptr) missing += missing.empty() ? #name : ", " #name;
  LATHE_NCCL_FUNCTIONS(LATHE_NCCL_FIND)
#undef LATHE_NCCL_FIND
  if (!missing.empty()) {
    dlclose(handle);
    return Status(Code::nccl, text(asked.file, " lacks ", missing, "; ", asked.remedy));
  }
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(nccl->ncclGetVersion), &info) != 0 && info.dli_fname) {
    nccl->path = info.dli_fname;
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
  std::string out = text(call, ": ", sentence == nullptr ? "" : sentence, " (",
                         static_cast<int>(result), ")");
  if (detail != nullptr && *detail != '\0') out += text(": ", detail);
  return {Code::nccl, out};
}

}  // namespace lathe
