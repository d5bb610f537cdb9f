// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Loads code into a device, and launches it: the one function on the warm path.
#include "device/kernel.h"

#include <elf.h>

#include <cstring>

#include "codegen/base/log.h"
#include "codegen/base/text.h"

namespace lathe {
namespace {

// Dynamic shared memory that every device grants without being asked.
constexpr int kDefaultSharedBytes = 48 << 10;
constexpr uint16_t kMachineCuda = 190;
constexpr const char* kEntryName = "entry";

// The architecture is in the key text; flag layouts inside differ between ABI versions.
bool is_cubin(const std::string& bytes) {
  Elf64_Ehdr header;
  if (bytes.size() < sizeof(header)) return false;
  std::memcpy(&header, bytes.data(), sizeof(header));
  return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_machine == kMachineCuda;
}

CUresult load_cubin(const Driver& driver, const std::string& cubin, CUlibrary& library) {
  if (!is_cubin(cubin)) return CUDA_ERROR_INVALID_IMAGE;
  return driver.cuLibraryLoadData(&library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
}

// An error has the driver's log behind it.
Status load_ptx(const Driver& driver, const std::string& ptx, CUlibrary& library) {
  char log[4096] = {};
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof(log) - 1)};
  const CUresult result =
      driver.cuLibraryLoadData(&library, ptx.c_str(), options, values, 2, nullptr, nullptr, 0);
  Status status = check(driver, result, "cuLibraryLoadData(PTX)");
  if (status.ok() || log[0] == '\0') return status;
  return Status(status.code(), text(status.text(), "\n", log));
}

Status load_library(const Driver& driver, const std::string& cubin, const std::string& ptx,
                    const KernelSpec& spec, CUlibrary& library) {
  const CUresult result = load_cubin(driver, cubin, library);
  if (result != CUDA_ERROR_NO_BINARY_FOR_GPU && result != CUDA_ERROR_INVALID_IMAGE)
    return check(driver, result, "cuLibraryLoadData(cubin)");
  if (ptx.empty()) {
    const Status status = check(driver, result, "cuLibraryLoadData(cubin)");
    return Status(status.code(), text(status.text(), "; ", spec.kernel, " has no PTX to fall to"));
  }
  log_message(LogLevel::info,
              text(spec.kernel, ": ", driver.path, " has no use for the cubin, taking the PTX"));
  return load_ptx(driver, ptx, library);
}

}  // namespace

Result<std::shared_ptr<const Kernel>> Kernel::load(std::shared_ptr<const Device> device,
                                                   const std::string& cubin, const std::string& ptx,
                                                   std::shared_ptr<const KernelSpec> spec) {
  const Driver& driver = device->driver();
  const Device::Scope scope(*device);
  LATHE_TRY(scope.status());

  std::shared_ptr<Kernel> kernel(new Kernel);
  kernel->device_ = device;
  kernel->spec_ = std::move(spec);
  kernel->block_x_ = static_cast<unsigned>(kernel->spec_->threads /
                                           (kernel->spec_->block_y * kernel->spec_->block_z));
  if (!kernel->spec_->tensor_maps.empty() && !driver.cuTensorMapEncodeTiled) {
    return Status(Code::unsupported,
                  text(driver.path, " has no entry point cuTensorMapEncodeTiled"));
  }
  for (const TensorMapRecipe& recipe : kernel->spec_->tensor_maps) {
    kernel->forms_.emplace_back(recipe);
  }
  LATHE_TRY(load_library(driver, cubin, ptx, *kernel->spec_, kernel->library_));
  CUkernel handle = nullptr;
  LATHE_TRY(check(driver, driver.cuLibraryGetKernel(&handle, kernel->library_, kEntryName),
                  "cuLibraryGetKernel(entry)"));
  LATHE_TRY(
      check(driver, driver.cuKernelGetFunction(&kernel->function_, handle), "cuKernelGetFunction"));
  const int smem_bytes = kernel->spec_->smem_bytes;
  if (smem_bytes > kDefaultSharedBytes) {
    const std::string call =
        text("cuFuncSetAttribute(dynamic shared memory of ", smem_bytes, " bytes)");
    LATHE_TRY(
        check(driver,
              driver.cuFuncSetAttribute(
                  kernel->function_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, smem_bytes),
              call.c_str()));
  }
  // Lazy loading would move cost, memory and a synchronisation into the first launch.
  if (driver.cuFuncLoad)
    LATHE_TRY(check(driver, driver.cuFuncLoad(kernel->function_), "cuFuncLoad"));
  return std::shared_ptr<const Kernel>(std::move(kernel));
}

Kernel::~Kernel() {
  // At the end of a process the driver may be gone before us: its answer does not matter.
  if (library_) device_->driver().cuLibraryUnload(library_);
}

Status Kernel::encode(size_t index, const MappedTensor& tensor, TensorMap* out) const {
  return encode_tensor_map(device_->driver(), forms_[index], tensor, out);
}

Status Kernel::launch(const Grid& grid, const void* params, CUstream stream) const {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return {};
  CUlaunchConfig config = {};
  config.gridDimX = grid.x;
  config.gridDimY = grid.y;
  config.gridDimZ = grid.z;
  config.blockDimX = block_x_;
  config.blockDimY = static_cast<unsigned>(spec_->block_y);
  config.blockDimZ = static_cast<unsigned>(spec_->block_z);
  config.sharedMemBytes = static_cast<unsigned>(spec_->smem_bytes);
  config.hStream = stream;
  CUlaunchAttribute cluster;
  const unsigned blocks = grid.cluster > 0 ? grid.cluster : static_cast<unsigned>(spec_->cluster);
  if (blocks > 1) {
    cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    cluster.value.clusterDim = {blocks, 1, 1};
    config.attrs = &cluster, config.numAttrs = 1;
  }
  void* args[] = {const_cast<void*>(params)};
  const Driver& driver = device_->driver();
  const CUresult result = driver.cuLaunchKernelEx(&config, function_, args, nullptr);
  if (result == CUDA_SUCCESS) return {};
  return check(driver, result, "cuLaunchKernelEx");
}

}  // namespace lathe
