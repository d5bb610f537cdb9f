// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Opens NVRTC inside the process that calls: dlopen, identity, one compile. The code is linked into
// the library and into the compile process (codegen/process/), so it uses neither the environment
// nor the log.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "codegen/base/status.h"

namespace lathe {

// The structs that travel to the compile process and back list their fields
// (codegen/process/wire.h).

// A file to try. `asked` is the name or path in the order of search that led to it.
struct CompilerCandidate {
  std::string asked, file;
  static auto fields(auto& self) { return std::tie(self.asked, self.file); }
};

struct CompilerFacts {
  std::string asked;     // of the candidate that opened
  std::string path;      // as the loader names the object
  std::string identity;  // "nvrtc 13.0 65be0db3...": version and GNU build id
  int major = 0, minor = 0;
  std::vector<std::string> archs;  // "sm_90", ...
  static auto fields(auto& self) {
    return std::tie(self.asked, self.path, self.identity, self.major, self.minor, self.archs);
  }
};

// Text that an #include of the unit may name.
struct CompileHeader {
  std::string name, text;
  static auto fields(auto& self) { return std::tie(self.name, self.text); }
};

struct CompileJob {
  std::string unit;
  std::vector<std::string> options;
  std::vector<CompileHeader> headers;
};

struct CompileOutcome {
  std::string error;  // NVRTC's word for what went wrong; empty: nothing did
  std::string log, cubin, ptx;
  static auto fields(auto& self) { return std::tie(self.error, self.log, self.cubin, self.ptx); }
};

// True if a driver of this CUDA version (12040 is 12.4; 0: there is none, and all is well) loads
// what a compiler of this major version makes. NVIDIA's rule ("CUDA minor version compatibility"):
// a driver loads machine code (cubin) of every minor version of its own major version and of older
// major versions, never of a newer one. With PTX it is stricter: a driver translates PTX of its own
// version and older. A cubin is what lathe loads first, so the major version decides.
bool driver_loads(int compiler_major, int driver_version);

// The version in CompilerFacts::identity; 0.0 if there is none.
struct CompilerVersion {
  int major = 0, minor = 0;
  auto operator<=>(const CompilerVersion&) const = default;
};
CompilerVersion version_of_identity(std::string_view identity);

// The loader orders the names that dlopen writes before those who read them, by a lock that no tool
// sees which looks for races. Held while a library is opened or the loaded ones are listed.
std::mutex& loader_mutex();

// The GNU build id of the loaded object that holds `address`, in hex; empty if it has none.
std::string build_id_of(const void* address);

// Thread-safe. The shared object stays loaded for the life of the process: it starts threads and
// registers handlers that outlive any one object.
class NvrtcLibrary {
 public:
  // Returns the first candidate that opens and whose code the driver loads. Fails naming what was
  // tried.
  static Result<std::shared_ptr<const NvrtcLibrary>> open(
      const std::vector<CompilerCandidate>& candidates, int driver_version);
  ~NvrtcLibrary();

  const CompilerFacts& facts() const { return facts_; }
  CompileOutcome compile(const CompileJob& job) const;

 private:
  NvrtcLibrary();
  bool resolve_all(void* library);  // false: some function is missing
  void take_facts();
  struct Api;
  std::unique_ptr<Api> api_;
  CompilerFacts facts_;
};

}  // namespace lathe
