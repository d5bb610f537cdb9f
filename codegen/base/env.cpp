// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Holds the environment table and its reader.
#include "codegen/base/env.h"

#include <sys/auxv.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "codegen/base/log.h"
#include "codegen/base/printable.h"
#include "codegen/base/text.h"

namespace lathe {

const std::vector<EnvironmentVariable>& environment_table() {
  static const std::vector<EnvironmentVariable> table = {
      {"LATHE_CACHE_DIR", "$XDG_CACHE_HOME/lathe, else $HOME/.cache/lathe",
       "Root of the kernel cache; off: none, kernels stay in memory."},
      {"XDG_CACHE_HOME", "$HOME/.cache", "Parent of the kernel cache, if an absolute path."},
      {"HOME", "the cache is kept in memory only", "Home directory, for the default cache."},
      {"LATHE_CACHE_READONLY", "none",
       "Caches that are only read, searched after one's own: directories with : between them."},
      {"LATHE_BUNDLES", "none",
       "Bundles, searched last before a kernel is compiled: files with : between them."},
      {"LATHE_FAMILY", "auto",
       "Kernels to choose from: portable (those that run on every GPU), or sm90 (Hopper's where "
       "they cover the case, else portable); auto takes the faster ones, which are Hopper's as far "
       "as they were measured. Read when a context is made."},
      {"LATHE_JIT", "on", "off: a kernel that is not cached is an error, nothing is compiled."},
      {"LATHE_RECORD", "nothing is recorded",
       "File to which each problem is appended that a plan is made for: a manifest of `lathe "
       "warm`."},
      {"LATHE_COMPILE_LOG", "nothing is logged",
       "File to which a line is appended for each kernel that a plan compiles: the kernel, its "
       "key, "
       "milliseconds and the call."},
      {"LATHE_CACHE_MAX_BYTES", "2147483648",
       "What kernels on disk may add up to before those used longest ago go; 0: no limit."},
      {"LATHE_TUNED", "what lathe tune stored in the cache directory",
       "off: no tuned choices; a file: those in it, and no others."},
      {"LATHE_LOCK_TIMEOUT_MS", "60000",
       "How long to wait for another process that compiles the same kernel, or for a turn "
       "to compile."},
      {"LATHE_NVRTC", "libnvrtc.so.13, then .so.12, as the driver allows",
       "Path of the compiler library."},
      {"LATHE_NVDISASM", "nvdisasm in PATH, CUDA_HOME, /usr/local/cuda or beside NVRTC",
       "Path of the disassembler, for lathe dump --what sass."},
      {"LATHE_COMPILE_PROCESS", "on",
       "off: NVRTC runs in the user's own process, where no limit holds for a user's text."},
      {"LATHE_COMPILE_MAX_BYTES", "4294967296",
       "Address space that a compile process may take; 0: no limit."},
      {"LATHE_COMPILE_SECONDS", "60",
       "Processor time for compiling a unit with a user's text, and a tenth of what it may take on "
       "the clock; 0: no limit."},
      {"LATHE_DEVICE", "auto", "auto, cuda or sim: which driver library is opened."},
      {"LATHE_SIM_DIR", "the folder sim beside the library",
       "Folder of the simulator's libcuda.so.1 and libnccl.so.2."},
      {"LATHE_NCCL", "libnccl.so.2", "Path of the communication library."},
      {"LATHE_RENDEZVOUS_DIR", "ranks meet at MASTER_ADDR",
       "Folder that all ranks of a launcher see, through which they meet."},
      {"LATHE_RENDEZVOUS_SECRET", "everybody who reaches rank 0's port is believed to be a rank",
       "Secret that all ranks of a launcher prove to each other where they meet at MASTER_ADDR."},
      {"NVRTC_APPEND_FLAGS", "none",
       "Read by the compiler itself; part of every cache key when set."},
  };
  return table;
}

std::optional<std::string> environment(const char* name) {
  for (const EnvironmentVariable& variable : environment_table()) {
    if (std::strcmp(variable.name, name) == 0) return environment_raw(name);
  }
  return std::nullopt;
}

int64_t environment_number(const char* name, int64_t fallback) {
  const auto value = environment(name);
  if (!value) return fallback;
  int64_t out = 0;
  const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), out);
  if (error == std::errc() && end == value->data() + value->size() && out >= 0) return out;
  log_message(LogLevel::warning, text(name, " is ", in_quotes(*value),
                                      ", allowed are whole numbers from 0; using ", fallback));
  return fallback;
}

std::optional<std::string> environment_raw(const char* name) {
  if (getauxval(AT_SECURE) != 0) return std::nullopt;
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

}  // namespace lathe
