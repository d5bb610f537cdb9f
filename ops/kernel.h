// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Holds a kernel of an operator: its spec and, once a plan has it, the loaded code. This header
// includes no driver, so the functions of integers that choose kernels may fill slots.
#pragma once

#include <memory>
#include <string>

#include "codegen/base/status.h"
#include "codegen/launch_shape.h"
#include "codegen/spec.h"

struct CUstream_st;

namespace lathe {

class Kernel;
struct BuiltKernel;
struct MappedTensor;
struct TensorMap;

// Returns a spec of a template whose blocks have dynamic shared memory. The template's struct
// `smem` computes the size.
inline KernelSpec shared_spec(const Template& from, const char* smem, int smem_bytes, int threads,
                              std::vector<Constant> constants = {}) {
  KernelSpec spec = KernelSpec::of(from, threads, std::move(constants));
  spec.smem = smem;
  spec.smem_bytes = smem_bytes;
  return spec;
}

// Adds the alignment of the caller's rows to the spec of a kernel that reads or writes them, if it
// is less than what kernels expect.
inline void add_alignment(int alignment, KernelSpec* spec) {
  if (alignment >= 16) return;
  spec->constants.push_back(Constant::integer("alignment", "kAlignment", alignment));
}

// Holds a kernel as a plan has it.
struct PlanKernel {
  std::shared_ptr<const BuiltKernel> built;
  std::shared_ptr<const Kernel> loaded;           // null in a context without a device
  std::string spec_text, key_hex, family_reason;  // lent to callers
};

// A slot holds a kernel that an operator may need. It is empty if a problem does not need the
// kernel.
class KernelSlot {
 public:
  KernelSlot() = default;
  KernelSlot(KernelSpec spec) : spec_(std::move(spec)), full_(true) {}

  explicit operator bool() const { return full_; }
  bool has_value() const { return full_; }
  const KernelSpec& operator*() const { return spec_; }
  const KernelSpec* operator->() const { return &spec_; }

  // Takes over the loaded kernel and its compiled properties from the plan.
  void bind(const PlanKernel& kernel);
  // Returns the registers of a thread of the compiled kernel; 255, the maximum, if not known.
  int registers() const { return registers_; }

  // Encodes map number `index` of the spec for a tensor of a call.
  Status encode(size_t index, const MappedTensor& tensor, TensorMap* out) const;

  // `params` is the kernel's parameter struct. Nothing is launched for a grid without blocks.
  Status launch(const Grid& grid, const void* params, CUstream_st* stream) const;
  // Launches with all blocks in x; the caller has compared their number with 2^31 - 1.
  Status launch(int64_t blocks, const void* params, CUstream_st* stream) const {
    return launch(Grid{static_cast<unsigned>(blocks), 1, 1}, params, stream);
  }

 private:
  KernelSpec spec_;
  bool full_ = false;
  int registers_ = 255;
  std::shared_ptr<const Kernel> loaded_;
};

// Holds beside the kernel those constants of its spec that grids and launches compute with: a
// launch has no time to look up constants by name. Numbers is made of a spec.
template <typename Numbers>
class NumberedSlot : public KernelSlot {
 public:
  NumberedSlot() = default;
  NumberedSlot(KernelSpec spec) : KernelSlot(std::move(spec)), numbers_(**this) {}

  const Numbers& numbers() const { return numbers_; }

 private:
  Numbers numbers_;
};

}  // namespace lathe
