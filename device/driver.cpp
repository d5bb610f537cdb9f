// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Finding the driver library and its entry points. The simulator is another file with the same
// interface: nothing past the choice of the file knows which one was opened.
#include "device/driver.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "codegen/base/env.h"
#include "codegen/base/text.h"

namespace lathe {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";
// The interface that is asked for: what came later is found by its exported name, or is optional.
constexpr int kInterfaceVersion = 12000;
constexpr const char* kAbsent = "No such file";
constexpr const char* kRemedy = "; set LATHE_DEVICE=sim or device kind SIM to use the simulator";

Status no_device(const std::string& what) { return Status(Code::no_device, what); }

// The folder of the object that holds this code: liblathe.so, or a program that links it in.
std::string own_folder() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0 || !info.dli_fname) return {};
  char* resolved = realpath(info.dli_fname, nullptr);
  std::string path = resolved ? resolved : info.dli_fname;
  std::free(resolved);
  const size_t slash = path.rfind('/');
  return slash == path.npos ? std::string(".") : path.substr(0, slash);
}

std::vector<std::string> candidates(DeviceChoice choice) {
  if (choice == DeviceChoice::cuda) return {kLibrary};
  return sim_library_paths(kLibrary);
}

std::string list(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

std::string path_of(void* library, const std::string& opened_as) {
  struct link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && *map->l_name)
    return map->l_name;
  return opened_as;
}

struct Symbol {
  const char* name;      // for cuGetProcAddress: "cuMemAlloc"
  const char* exported;  // of the interface that the header describes: "cuMemAlloc_v2"
  void** to;
};

bool is_optional(const char* name) {
  return std::strcmp(name, "cuFuncLoad") == 0 || std::strcmp(name, "cuTensorMapEncodeTiled") == 0;
}

// The elapsed time has one signature in both its versions; elsewhere an older one differs.
bool may_be_plain(const char* name) { return std::strcmp(name, "cuEventElapsedTime") == 0; }

#define LATHE_TEXT(name) #name
#define LATHE_EXPANDED(name) LATHE_TEXT(name)

Status fill(void* library, Driver& driver) {
  const Symbol symbols[] = {
#define LATHE_DRIVER_SYMBOL(name) \
  {#name, LATHE_EXPANDED(name), reinterpret_cast<void**>(&driver.name)},
      LATHE_DRIVER_FUNCTIONS(LATHE_DRIVER_SYMBOL)
#undef LATHE_DRIVER_SYMBOL
  };
  const auto find = reinterpret_cast<decltype(&::cuGetProcAddress)>(
      dlsym(library, LATHE_EXPANDED(cuGetProcAddress)));
  for (const Symbol& symbol : symbols) {
    void* found = nullptr;
    CUdriverProcAddressQueryResult result = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (!find || find(symbol.name, &found, kInterfaceVersion, CU_GET_PROC_ADDRESS_DEFAULT,
                      &result) != CUDA_SUCCESS)
      found = nullptr;
    if (!found) found = dlsym(library, symbol.exported);
    if (!found && may_be_plain(symbol.name)) found = dlsym(library, symbol.name);
    if (!found && !is_optional(symbol.name))
      return no_device(text(driver.path, " has no entry point ", symbol.name,
                            ": a driver for CUDA 12.0 or later is needed"));
    *symbol.to = found;
  }
  return {};
}

// The drivers that this process has opened, by choice.
struct Opened {
  std::mutex mutex;
  std::shared_ptr<const Driver> drivers[2];
  void* libraries[2] = {};
};

Opened& opened() {
  static Opened* instance = new Opened;  // never destroyed: kernels may be unloaded at exit
  return *instance;
}

void* open_library(DeviceChoice choice, std::string& path, std::string& tried) {
  std::vector<std::string> names = candidates(choice);
  // Asked for by its bare name, a library that is already open under it is taken: the real driver
  // must not be answered with the simulator.
  if (choice == DeviceChoice::cuda && opened().libraries[static_cast<int>(DeviceChoice::sim)])
    names = {"/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/lib/aarch64-linux-gnu/libcuda.so.1",
             "/usr/lib64/libcuda.so.1", "/usr/lib/libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"};
  for (const std::string& name : names) {
    void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library) {
      path = path_of(library, name);
      return library;
    }
    // A file that is not there needs no words of the loader's; one that does not load does.
    const char* why = dlerror();
    if (why && std::strncmp(why, name.c_str(), name.size()) == 0 && std::strstr(why, kAbsent)) {
      continue;
    }
    tried += (tried.empty() ? "" : "; ") + std::string(why ? why : name);
  }
  return nullptr;
}

// Not through the environment: other threads may read it, and children inherit it.
void choose_arch(void* library, const std::string& arch) {
  using Choose = void (*)(const char*);
  const auto choose = reinterpret_cast<Choose>(dlsym(library, "lathe_sim_choose_arch"));
  if (choose != nullptr) choose(arch.c_str());
}

Status initialise(const Driver& driver, DeviceChoice choice) {
  const CUresult result = driver.cuInit(0);
  if (result == CUDA_SUCCESS) return {};
  if (result == CUDA_ERROR_NOT_INITIALIZED) return check(driver, result, "cuInit");
  const char* remedy = choice == DeviceChoice::cuda ? kRemedy : "";
  if (result == CUDA_ERROR_STUB_LIBRARY)
    return no_device(text(driver.path, " is the tool kit's stub, not a driver", remedy));
  return no_device(text("no CUDA device: ", check(driver, result, "cuInit").text(), " in ",
                        driver.path, remedy));
}

}  // namespace

std::vector<std::string> sim_library_paths(const std::string& file) {
  if (const auto chosen = environment("LATHE_SIM_DIR")) {
    // dlopen searches for a name without a slash elsewhere: the path must be absolute.
    char* resolved = realpath(chosen->c_str(), nullptr);
    const std::string folder = resolved ? resolved : *chosen;
    std::free(resolved);
    return {folder + "/" + file};
  }
  const std::string folder = own_folder();
  return {folder + "/../sim/" + file, folder + "/../lib/lathe/sim/" + file,
          folder + "/sim/" + file};
}

Result<std::shared_ptr<const Driver>> open_driver(DeviceChoice choice,
                                                  const std::string& sim_arch) {
  Opened& all = opened();
  const std::lock_guard<std::mutex> guard(all.mutex);
  std::shared_ptr<const Driver>& known = all.drivers[static_cast<int>(choice)];
  if (known) return known;

  auto driver = std::make_shared<Driver>();
  std::string tried;
  void* library = open_library(choice, driver->path, tried);
  if (!library) {
    if (choice == DeviceChoice::cuda) {
      if (tried.empty()) return no_device(text(kLibrary, " was not found", kRemedy));
      return no_device(text("no CUDA driver: ", tried, kRemedy));
    }
    if (tried.empty()) tried = text("there is none of ", list(candidates(choice)));
    return no_device(text("no simulator: ", tried,
                          "; set LATHE_SIM_DIR to the folder of the simulator's ", kLibrary));
  }
  LATHE_TRY(fill(library, *driver));
  if (choice == DeviceChoice::sim) choose_arch(library, sim_arch);
  LATHE_TRY(initialise(*driver, choice));
  LATHE_TRY(check(*driver, driver->cuDriverGetVersion(&driver->version), "cuDriverGetVersion"));
  all.libraries[static_cast<int>(choice)] = library;
  known = std::move(driver);
  return known;
}

Status check(const Driver& driver, CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return {};
  const char *name = nullptr, *sentence = nullptr;
  if (driver.cuGetErrorName(result, &name) != CUDA_SUCCESS || !name) name = "unknown error";
  if (driver.cuGetErrorString(result, &sentence) != CUDA_SUCCESS || !sentence) sentence = "";
  // Every driver that is open here has been initialised, so there is one way to this answer.
  if (result == CUDA_ERROR_NOT_INITIALIZED) {
    sentence =
        "CUDA was initialised in the parent of this process before fork(), so this process cannot "
        "use it; start it with exec (Python: the start method \"spawn\"), or fork before the first "
        "context";
  }
  return Status(Code::cuda, text(call, ": ", name, " (", static_cast<int>(result), ")",
                                 *sentence ? ": " : "", sentence));
}

}  // namespace lathe
