// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Finds the driver.
#include "sim/nccl/table.h"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>

#include "sim/nccl/state.h"

namespace sim::nccl {
namespace {

Table table;
std::string failure;
bool good = false;

// Returns the driver beside this library, if the process has loaded it: a wheel's has a name of its
// own, and a real driver may be loaded too.
void* loaded_beside() {
  Dl_info self{};
  if (dladdr(&table, &self) == 0 || self.dli_fname == nullptr) return nullptr;
  const std::string own = self.dli_fname;
  const size_t slash = own.rfind('/');
  if (slash == std::string::npos) return nullptr;
  return dlopen((own.substr(0, slash) + "/libcuda.so.1").c_str(), RTLD_NOW | RTLD_NOLOAD);
}

void* open_driver() {
  const char* named = std::getenv("LATHE_SIM_DRIVER");
  if (named != nullptr && *named != '\0') return dlopen(named, RTLD_NOW | RTLD_LOCAL);
  if (void* beside = loaded_beside()) return beside;
  void* loaded = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return loaded != nullptr ? loaded : dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
}

void load() {
  (void)read_timeout(&failure);
  if (!failure.empty()) return;
  void* library = open_driver();
  if (library == nullptr) {
    const char* reason = dlerror();
    failure = std::string("no CUDA driver: ") + (reason != nullptr ? reason : "libcuda.so.1");
    return;
  }
#define SIM_NCCL_LOAD(name, symbol)                                             \
  table.name = reinterpret_cast<decltype(table.name)>(dlsym(library, #symbol)); \
  if (table.name == nullptr) {                                                  \
    failure = "the CUDA driver has no " #symbol;                                \
    return;                                                                     \
  }
  SIM_NCCL_DRIVER(SIM_NCCL_LOAD)
#undef SIM_NCCL_LOAD
#define SIM_NCCL_FIND(name, symbol) \
  table.name = reinterpret_cast<decltype(table.name)>(dlsym(library, #symbol));
  SIM_NCCL_TIMELINE(SIM_NCCL_FIND)
#undef SIM_NCCL_FIND
  const CUresult result = table.init(0);
  good = result == CUDA_SUCCESS;
  if (!good) failure = "cuInit answers " + std::to_string(result);
}

}  // namespace

const Table* driver_table(std::string* what) {
  static std::once_flag once;
  std::call_once(once, load);
  if (!good) *what = failure;
  return good ? &table : nullptr;
}

const Table& cu() { return table; }

std::string cuda_name(CUresult error) {
  const char* name = nullptr;
  table.get_error_name(error, &name);
  return name != nullptr ? name : "CUDA error " + std::to_string(error);
}

}  // namespace sim::nccl
