// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Declares a loaded kernel: library, function, geometry. Launching costs one driver call.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "codegen/launch_shape.h"
#include "codegen/spec.h"
#include "device/driver.h"
#include "device/tensor_map.h"

namespace lathe {

class Kernel {
 public:
  // Loads the cubin, or the PTX where the driver has no code for this device; either may be empty.
  // Sets shared memory once and forces the code in, so that the first launch loads nothing.
  static Result<std::shared_ptr<const Kernel>> load(std::shared_ptr<const Device> device,
                                                    const std::string& cubin,
                                                    const std::string& ptx,
                                                    std::shared_ptr<const KernelSpec> spec);
  ~Kernel();
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  // `params` is the kernel's parameter struct. The device's context must be current. No allocation,
  // lock or synchronisation; ok at once for a grid with a zero dimension.
  Status launch(const Grid& grid, const void* params, CUstream stream) const;

  // Encodes map number `index` of the spec. Returns UNSUPPORTED if the driver has no tensor maps.
  Status encode(size_t index, const MappedTensor& tensor, TensorMap* out) const;

  const KernelSpec& spec() const { return *spec_; }

 private:
  Kernel() = default;
  std::shared_ptr<const Device> device_;
  std::shared_ptr<const KernelSpec> spec_;
  std::vector<TensorMapForm> forms_;  // of the spec's maps
  CUlibrary library_ = nullptr;
  CUfunction function_ = nullptr;
  unsigned block_x_ = 0;
};

}  // namespace lathe
