// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Reads LATHE_SIM_* into Options.
#include "sim/driver/options.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <initializer_list>

#include "sim/clock/tools.h"
#include "sim/driver/environment.h"
#include "sim/model/letters.h"
#include "sim/model/model.h"

namespace sim::driver {
namespace {

// Variables in turn; the first that is wrong is remembered and ends the reading.
class Reader {
 public:
  explicit Reader(std::string* what) : what_(what) {}
  bool good() const { return good_; }

  static std::string text(const char* name) { return environment_text(name); }

  uint64_t number(const char* name, uint64_t low, uint64_t high, uint64_t fallback) {
    uint64_t value = fallback;
    if (good_) good_ = environment_number(name, low, high, &value, what_);
    return value;
  }

  // Returns the position of the variable's word among those allowed.
  size_t word(const char* name, std::initializer_list<const char*> allowed, size_t fallback) {
    const std::string given = text(name);
    if (!good_ || given.empty()) return fallback;
    std::string list;
    size_t at = 0;
    for (const char* each : allowed) {
      if (given == each) return at;
      list += (at++ == 0 ? "" : ", ") + std::string(each);
    }
    refuse(name, given, list);
    return fallback;
  }

  void refuse(const char* name, const std::string& given, const std::string& allowed) {
    good_ = false;
    *what_ = refusal(name, given, allowed);
  }

 private:
  std::string* what_;
  bool good_ = true;
};

constexpr struct {
  const char* name;
  uint32_t bits;
} kChecks[] = {{"memcheck", kMemcheck},   {"initcheck", kInitcheck},   {"racecheck", kRacecheck},
               {"synccheck", kSynccheck}, {"asynccheck", kAsynccheck}, {"aligncheck", kAligncheck},
               {"regcheck", kRegcheck},   {"all", kCheckAll}};

uint32_t read_checks(Reader& reader, uint32_t fallback) {
  static constexpr char kName[] = "LATHE_SIM_CHECK";
  const std::string given = Reader::text(kName);
  if (given.empty()) return fallback;
  if (given == "all") return kCheckAll;
  if (given == "none") return kCheckNone;
  uint32_t bits = 0;
  for (size_t from = 0; from <= given.size();) {
    const size_t comma = std::min(given.find(',', from), given.size());
    const std::string word = given.substr(from, comma - from);
    uint32_t found = 0;
    for (const auto& check : kChecks) found |= word == check.name ? check.bits : 0;
    if (found == 0) {
      reader.refuse(kName, given,
                    "none, or some of all,memcheck,initcheck,racecheck,synccheck,asynccheck,"
                    "aligncheck,regcheck");
      return fallback;
    }
    bits |= found;
    from = comma + 1;
  }
  return bits;
}

// Returns the profile of a device by its name, else the first of an architecture, else the usual
// one.
Profile read_profile(Reader& reader, const std::string& chosen) {
  static constexpr char kGpu[] = "LATHE_SIM_GPU", kArch[] = "LATHE_SIM_ARCH";
  const std::string gpu = Reader::text(kGpu), arch = chosen.empty() ? Reader::text(kArch) : chosen;
  const Profile* found = find_profile(arch.empty() ? "sm_90a" : arch);
  if (found == nullptr) {
    reader.refuse(kArch, arch, "sm_80, sm_86, sm_89, sm_90, sm_90a");
    return {};
  }
  if (gpu.empty()) return *found;
  const Profile* named = find_gpu(gpu);
  if (named == nullptr) {
    reader.refuse(kGpu, gpu, gpu_names());
    return {};
  }
  Profile profile = *named;
  // sm_90 is the same device without what only sm_90a has.
  const bool fits = arch.empty() || (found->major == named->major && found->minor == named->minor);
  if (!fits) reader.refuse(kArch, arch, "what " + gpu + " is, " + named->arch);
  if (!arch.empty()) profile.arch = arch;
  return profile;
}

// Returns the newest PTX that a driver translates, as 84 for 8.4: release notes of the PTX ISA.
int newest_ptx(int driver_version) {
  static constexpr struct {
    int driver, ptx;
  } kVersions[] = {{13010, 91}, {13000, 90}, {12090, 88}, {12080, 87}, {12070, 86}, {12050, 85},
                   {12040, 84}, {12030, 83}, {12020, 82}, {12010, 81}, {12000, 80}};
  for (const auto& each : kVersions) {
    if (driver_version >= each.driver) return each.ptx;
  }
  return 0;
}

// Gigabytes per second, then microseconds; what is not given is the device's own.
void read_link(Reader& reader, Options* out) {
  static constexpr char kName[] = "LATHE_SIM_LINK";
  const model::Gpu* gpu = model::find_gpu(out->profile.gpu);
  out->link_bytes = gpu == nullptr ? 0 : gpu->link_bytes;
  out->link_latency = model::kLinkLatency;
  const std::string given = Reader::text(kName);
  if (given.empty()) return;
  double rate = 0, microseconds = 0;
  const char* const last = given.data() + given.size();
  std::from_chars_result read = std::from_chars(given.data(), last, rate);
  bool good = read.ec == std::errc() && rate > 0 && std::isfinite(rate);
  if (good && read.ptr != last && *read.ptr == ',') {
    read = std::from_chars(read.ptr + 1, last, microseconds);
    good = read.ec == std::errc() && microseconds >= 0 && std::isfinite(microseconds);
    out->link_latency = 1e-6 * microseconds;
  }
  if (!good || read.ptr != last) reader.refuse(kName, given, "GB/s above 0[,microseconds from 0]");
  out->link_bytes = 1e9 * rate;
}

// Returns the beginning of the names of pictures, which show what the variable `base` asks for.
std::string read_picture(Reader& reader, const char* name, const char* base,
                         const std::string& where) {
  const std::string begin = Reader::text(name);
  if (reader.good() && !begin.empty() && where.empty()) {
    reader.refuse(name, begin, std::string("with ") + base);
  }
  return begin;
}

}  // namespace

bool read_options(Options* out, std::string* what) {
  Reader reader(what);
  out->report = Reader::text("LATHE_SIM_REPORT");
  out->counters = Reader::text("LATHE_SIM_COUNTERS");
  out->profile = read_profile(reader, out->arch);
  if (const uint64_t count = reader.number("LATHE_SIM_MULTIPROCESSORS", 0, 1024, 0); count > 0) {
    out->profile.multiprocessors = static_cast<int>(count);
  }
  out->timeline = Reader::text("LATHE_SIM_TIMELINE");
  out->ptxas = clock::find_assembler();
  out->timeline_picture =
      read_picture(reader, "LATHE_SIM_TIMELINE_PICTURE", "LATHE_SIM_TIMELINE", out->timeline);
  out->clock = Reader::text("LATHE_SIM_CLOCK");
  out->clock_picture =
      read_picture(reader, "LATHE_SIM_CLOCK_PICTURE", "LATHE_SIM_CLOCK", out->clock);
  if (const std::string allowed = isa_refused(); reader.good() && !allowed.empty()) {
    reader.refuse("LATHE_SIM_ISA", Reader::text("LATHE_SIM_ISA"), allowed);
  }
  if (reader.good()) read_link(reader, out);
  if (reader.good()) out->check = read_checks(reader, out->check);
  out->driver_version =
      static_cast<int>(reader.number("LATHE_SIM_DRIVER_VERSION", 12000, 13010, 13000));
  // Without a choice any PTX runs that the simulator understands.
  if (!Reader::text("LATHE_SIM_DRIVER_VERSION").empty()) {
    out->ptx_version = newest_ptx(out->driver_version);
  }
  out->devices = static_cast<int>(reader.number("LATHE_SIM_DEVICES", 1, 64, 1));
  out->seed = reader.number("LATHE_SIM_SEED", 0, UINT64_MAX, 0);
  out->threads = static_cast<int>(reader.number("LATHE_SIM_THREADS", 0, 1024, 0));
  out->memory_bytes = reader.number("LATHE_SIM_MEMORY_BYTES", 1, UINT64_MAX, 0);
  out->instruction_limit = reader.number("LATHE_SIM_INSTRUCTION_LIMIT", 0, UINT64_MAX, 0);
  out->async_policy =
      static_cast<AsyncPolicy>(reader.word("LATHE_SIM_ASYNC", {"eager", "lazy", "random"}, 1));
  out->tensor_sum = static_cast<TensorSum>(
      reader.word("LATHE_SIM_TENSOR_SUM", {"exact", "sequential", "coarse"}, 0));
  out->profile_lines = reader.number("LATHE_SIM_PROFILE", 0, 1, 0) != 0;
  out->sample_blocks = reader.number("LATHE_SIM_SAMPLE_BLOCKS", 0, UINT32_MAX, 0);
  if (reader.good() && out->sample_blocks > 0 && out->timeline.empty() && out->counters.empty() &&
      out->clock.empty()) {
    reader.refuse(
        "LATHE_SIM_SAMPLE_BLOCKS", std::to_string(out->sample_blocks),
        "with LATHE_SIM_TIMELINE, LATHE_SIM_COUNTERS or LATHE_SIM_CLOCK, as results are wrong");
  }
  out->sample_instructions = reader.number("LATHE_SIM_SAMPLE_INSTRUCTIONS", 0, UINT64_MAX, 0);
  out->quiet = reader.number("LATHE_SIM_QUIET", 0, 1, 0) != 0;
  out->error_exitcode = static_cast<int>(reader.number("LATHE_SIM_ERROR_EXITCODE", 0, 255, 0));
  return reader.good();
}

}  // namespace sim::driver
