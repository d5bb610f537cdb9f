// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// ptxas and nvdisasm, where they are found: beside nvcc, or in the wheels nvidia-cuda-nvcc and
// nvidia-cuda-nvdisasm.
#pragma once

#include <string>

namespace sim::clock {

struct Listing {
  std::string text;     // of nvdisasm, with words and lines of PTX; empty: see why
  std::string made_by;  // versions
  std::string log;      // of ptxas: registers, spills, its remarks on performance
  std::string why;      // there is no text
};

// Returns the path of ptxas: what LATHE_SIM_PTXAS names, or what is found; empty if there is none.
std::string find_assembler();

// Assembles PTX for an architecture ("sm_90a") and lists the machine code. It runs programs in
// processes of their own, in a folder that is deleted afterwards, so it takes seconds; listings are
// kept for later calls of the process. May be called by several threads.
Listing list_machine_code(const std::string& ptx, const std::string& arch);

}  // namespace sim::clock
