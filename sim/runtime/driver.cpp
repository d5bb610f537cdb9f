// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file finds the driver and its calls.
#include "sim/runtime/driver.h"

#include <dlfcn.h>

#include <string>
#include <vector>

#include "sim/runtime/error.h"

namespace sim::runtime {
namespace {

struct Loaded {
  Driver driver = {};
  cudaError_t error = cudaSuccess;
};

// Returns null and says in `why` what is wrong with each place.
void* open_driver(std::string* why) {
  if (void* already = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD)) return already;
  Dl_info self;
  const bool known = dladdr(reinterpret_cast<const void*>(&open_driver), &self) != 0;
  const std::string own = known ? self.dli_fname : "";
  const size_t slash = own.rfind('/');
  std::vector<std::string> places = {"libcuda.so.1"};
  if (slash != std::string::npos)
    places.insert(places.begin(), own.substr(0, slash + 1) + places[0]);
  for (const std::string& place : places) {
    if (void* library = dlopen(place.c_str(), RTLD_NOW)) return library;
    *why += std::string(why->empty() ? "" : "; ") + dlerror();
  }
  return nullptr;
}

#define SIM_TEXT_OF(name) #name
#define SIM_TEXT(name) SIM_TEXT_OF(name)

cudaError_t find_calls(void* library, Driver* driver) {
  const auto find = [&](const char* name) {
    void* entry = dlsym(library, name);
    if (entry == nullptr) say(std::string("the driver lacks ") + name);
    return entry;
  };
  bool complete = true;
#define SIM_FIND(name)                                                           \
  driver->name = reinterpret_cast<decltype(driver->name)>(find(SIM_TEXT(name))); \
  complete = complete && driver->name != nullptr;
  SIM_RUNTIME_DRIVER(SIM_FIND)
#undef SIM_FIND
  return complete ? cudaSuccess : cudaErrorInsufficientDriver;
}

const Loaded& loaded() {
  static const Loaded& once = []() -> Loaded& {
    auto* made = new Loaded;  // never destroyed: calls come until the end of the process
    std::string why;
    void* library = open_driver(&why);
    if (library == nullptr) {
      say("no driver can be opened: " + why);
      made->error = cudaErrorInsufficientDriver;
      return *made;
    }
    made->error = find_calls(library, &made->driver);
    if (made->error == cudaSuccess) made->error = runtime_error(made->driver.cuInit(0));
    return *made;
  }();
  return once;
}

}  // namespace

cudaError_t load_driver(const Driver** out) {
  const Loaded& it = loaded();
  *out = it.error == cudaSuccess ? &it.driver : nullptr;
  return it.error;
}

const Driver& driver() { return loaded().driver; }

}  // namespace sim::runtime
