// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Finds nvdisasm, the CUDA tool kit's disassembler. Nothing but `lathe dump --what sass` needs it.
#pragma once

#include <string>

#include "codegen/base/status.h"

namespace lathe {

// Returns the file that LATHE_NVDISASM names, or the first one that can be run in PATH,
// CUDA_HOME/bin, /usr/local/cuda/bin and bin/ beside the folder of NVRTC, as tool kits and wheels
// have it. UNSUPPORTED with the remedy if there is none.
Result<std::string> find_nvdisasm();

}  // namespace lathe
