// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These functions turn the bytes that a caller hands over into parsed PTX.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "sim/driver/state.h"

namespace sim::driver {

// This class holds the JIT options that have an effect here: log buffers and wall time.
class JitOptions {
 public:
  // Returns CUDA_ERROR_INVALID_VALUE for options that do not exist.
  CUresult read(unsigned count, const CUjit_option* options, void** values);
  // Fills the caller's buffers and the sizes used.
  void write(const std::string& info, const std::string& error, double seconds);

 private:
  void** values_ = nullptr;
  int info_buffer_ = -1, info_size_ = -1, error_buffer_ = -1, error_size_ = -1, wall_time_ = -1;
};

// Parses NUL-terminated PTX, or the PTX inside a fat binary. Returns 200 if it is none of the known
// formats, 209 for machine code only or code for another device, 218 for what does not parse, 222
// for PTX newer than `newest_ptx` (Options::ptx_version). Callers do not hold the lock: large
// modules take a while.
CUresult parse_image(const void* image, const Profile& profile, int newest_ptx,
                     std::shared_ptr<const sim::Module>* out, std::string* log);

// This struct holds the options of a call that loads code, as its caller gives them.
struct GivenOptions {
  unsigned count;
  CUjit_option* options;
  void** values;
};
// Parses an image without the lock, then hands `use` the result of that, the code and the log, and
// answers the caller's JIT options. Returns what `use` does.
CUresult load_code(Driver& driver, Lock& lock, const Profile& profile, const void* image,
                   GivenOptions given,
                   const std::function<CUresult(CUresult, const std::shared_ptr<const sim::Module>&,
                                                std::string*)>& use);

// Finds the PTX text in an image: the image itself, or inside a fat binary the one that suits the
// device best. Returns 209 for machine code only.
CUresult find_ptx(const char* bytes, const Profile& profile, std::string* text, std::string* log);

// Reads all of a file; returns 301 if there is none.
CUresult read_file(const char* path, std::string* out);

// Makes a module of this code in the context, its variables allocated and initialised.
CUresult instantiate(Driver& driver, Context& context, std::shared_ptr<const sim::Module> code,
                     std::shared_ptr<Module>* out, std::string* log);

}  // namespace sim::driver
