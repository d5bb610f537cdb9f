// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Reports what a machine offers, one line per item. A library is proved to be there only by opening
// it.
#include <cstring>

#include "api/boundary.h"
#include "api/context.h"
#include "cache/tiers.h"
#include "codegen/base/env.h"
#include "codegen/nvdisasm.h"
#include "codegen/nvrtc.h"
#include "collective/nccl.h"
#include "device/driver.h"

namespace lathe {
namespace {

std::string line(const char* name, bool found, const std::string& where,
                 const std::string& remedy) {
  return text(name, "\t", found ? "found" : "missing", "\t", one_line(where), "\t",
              one_line(remedy), "\n");
}

// Writes where a thing is, by `where_of`, or why there is none and what to do.
template <typename Thing, typename WhereOf>
std::string line(const char* name, const Result<Thing>& thing, const char* remedy,
                 WhereOf where_of) {
  return thing.ok() ? line(name, true, where_of(**thing), "")
                    : line(name, false, thing.status().text(), remedy);
}

std::string driver_text(const Driver& driver) {
  return text(driver.path, " ", driver.version / 1000, ".", driver.version % 1000 / 10);
}

std::string driver_lines() {
  auto driver = open_driver(DeviceChoice::cuda);
  if (!driver.ok()) {
    // The text ends in "; remedy", which has a field of its own here.
    const std::string why = driver.status().text();
    return line("cuda driver", false, why.substr(0, why.find(';')),
                "install NVIDIA's driver, or use the simulator: LATHE_DEVICE=sim") +
           line("gpu", false, "no driver", "a GPU of compute capability 8.0 or later");
  }
  return line("cuda driver", true, driver_text(**driver), "") +
         line("gpu", Device::open(*driver, 0, ""), "a GPU of compute capability 8.0 or later",
              [](const Device& gpu) { return text(gpu.name(), " ", gpu.facts().arch); });
}

std::string simulator_line() {
  auto driver = open_driver(DeviceChoice::sim);
  if (driver.ok()) {
    // It has a profile from now on, which later contexts must know of.
    auto device = Device::open(*driver, 0, "");
    if (device.ok()) sim_opened((*device)->facts().arch);
  }
  return line("simulator", driver, "build it (LATHE_SIM=ON), or set LATHE_SIM_DIR to its folder",
              driver_text);
}

// The compiler for the driver there is: NVIDIA's, else the simulator's.
std::string compiler_line() {
  auto driver = open_driver(DeviceChoice::cuda);
  if (!driver.ok()) driver = open_driver(DeviceChoice::sim);
  return line("nvrtc", Compiler::open({}, driver.ok() ? (*driver)->version : 0),
              "install NVRTC of the driver's CUDA version or older, 12 at least (pip install "
              "nvidia-cuda-nvrtc-cu12), or set LATHE_NVRTC to its file",
              [](const Compiler& nvrtc) { return text(nvrtc.path(), " ", nvrtc.identity()); });
}

std::string nccl_line(const char* name, NcclChoice choice, const char* remedy) {
  return line(name, open_nccl(choice), remedy, [](const auto& nccl) {
    return text(nccl.path, " ", nccl.version / 10000, ".", nccl.version % 10000 / 100, ".",
                nccl.version % 100);
  });
}

// NCCL wants a GPU for each rank, unless it is told otherwise.
std::string shared_gpu_line() {
  const char* name = "ranks that share a gpu";
  constexpr int kFirst = NCCL_VERSION(2, 30, 0);
  const std::string drop_in =
      "set LATHE_NCCL to the simulator's libnccl.so.2, whose ranks are threads of one process";
  auto nccl = open_nccl(NcclChoice::real);
  if (!nccl.ok()) return line(name, false, "no NCCL", "install NCCL 2.30 or newer, or " + drop_in);
  if ((*nccl)->version < kFirst) {
    return line(name, false, "before 2.30 NCCL answers \"Duplicate GPU detected\"",
                "use a GPU for each rank or NCCL 2.30 or newer, or " + drop_in);
  }
  return line(name, true, "an experiment of NCCL's, from 2.30 on: about two ranks on each GPU",
              "set NCCL_MULTI_RANK_GPU_ENABLE=1 and a low NCCL_MAX_CTAS, as 8: ranks need "
              "multiprocessors at the same time, or they wait for each other for ever");
}

std::string nvdisasm_line() {
  const auto found = find_nvdisasm();
  if (found.ok()) return line("nvdisasm", true, *found, "");
  // The text ends in "; remedy".
  const std::string why = found.status().text();
  const size_t end = why.rfind("; ");
  return line("nvdisasm", false, why.substr(0, end),
              why.substr(end + 2) + "; needed for lathe dump --what sass only");
}

std::string contents(const std::string& where, const StoreStat& stat) {
  return text(where, " ", stat.entries, " entries, ", stat.bytes, " bytes");
}

std::string cache_lines() {
  const auto tiers = Tiers::open("");
  Store& store = tiers->store();
  std::string lines;
  if (environment("LATHE_CACHE_DIR") == "off") {
    lines = line("cache directory", true, store.problem(), "");
  } else if (!store.root().empty()) {
    lines = line("cache directory", true, contents(store.root(), store.stat()), "");
  } else {
    lines = line("cache directory", false, store.problem(),
                 "set LATHE_CACHE_DIR to a directory that can be written");
  }
  for (const auto& tier : tiers->read_only()) {
    const bool bundle = tier->origin() == Origin::bundle;
    const char* name = bundle ? "bundle" : "read-only cache";
    const char* variable = bundle ? "LATHE_BUNDLES" : "LATHE_CACHE_READONLY";
    lines += tier->problem().empty() ? line(name, true, contents(tier->name(), tier->stat()), "")
                                     : line(name, false, tier->problem(),
                                            text("mend it, or take it out of ", variable));
  }
  return lines;
}

std::string library_lines() {
  // In this order: the loader answers the real libraries' names with the simulator's, once open.
  std::string lines = driver_lines();
  lines += nccl_line("nccl", NcclChoice::real,
                     "install NCCL, or set LATHE_NCCL to its file; needed for several GPUs only");
  lines += shared_gpu_line();
  lines += simulator_line();
  lines += nccl_line("nccl of the simulator", NcclChoice::threads,
                     "build it (LATHE_SIM=ON), or set LATHE_SIM_DIR to its folder");
  return lines + compiler_line() + nvdisasm_line();
}

// Libraries stay open, so the first answer is the one that holds, and a second call for its size
// must not find another.
std::string doctor() {
  static const std::string libraries = library_lines();
  return libraries + cache_lines();
}

}  // namespace
}  // namespace lathe

using namespace lathe;

extern "C" lathe_status lathe_doctor(char* out, size_t bytes, size_t* needed) {
  return boundary([&]() -> Status {
    if (bytes > 0) LATHE_TRY(require(out, "text"));
    return give_text(doctor(), out, bytes, needed);
  });
}

extern "C" lathe_status lathe_nvdisasm(char* out, size_t bytes, size_t* needed) {
  return boundary([&]() -> Status {
    if (bytes > 0) LATHE_TRY(require(out, "path"));
    LATHE_ASSIGN(const std::string path, find_nvdisasm());
    return give_text(path, out, bytes, needed);
  });
}
