// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This header reads what nvcc's start-up code hands over: one fat binary, or the parts that its
// linker made one of.
#pragma once

#include "sim/runtime/entry.h"

namespace sim::runtime {

// The content of a program's section .nvFatBinSegment, as __cudaRegisterFatBinary gets it.
struct FatWrapper {
  unsigned magic;
  unsigned version;
  const void* image;
  const void* const* parts;  // version 2: the fat binaries that were linked; a null ends the list
};

// Loads the code as a library. The linked image of nvcc -rdc=true is machine code, so its parts are
// linked once more here. A context is current. What is wrong with the code is told on stderr.
Result load_fat_binary(const FatWrapper& wrapper, CUlibrary* out);

}  // namespace sim::runtime
