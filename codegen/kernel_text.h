// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Device text of a caller that is a kernel of its own. It is code, trusted as a shared library is;
// what is refused here would make the kernel depend on what its key does not hold.
#pragma once

#include <string>
#include <vector>

#include "codegen/mods.h"

namespace lathe {

// The headers that such a text may include are those below templates/ of this folder.
inline constexpr const char* kOpenHeaders = "lathe/";

// Beside the compiler's other options, for such a text: the PTX says which line of the text an
// instruction is of, and so do findings of the simulator's checkers and NVIDIA's profilers. The
// machine code stays what it is.
inline constexpr const char* kLineOption = "-lineinfo";

// The device's type of an element, as text outside of namespace lathe names it.
std::string scoped_device_type(Dtype dtype);

// Returns INVALID_ARGUMENT with the file, and the line where there is one, for a text that is
// empty, too large or no UTF-8.
Status check_kernel_bytes(const Mod& mod);

// Returns the headers that the text includes, each once. INVALID_ARGUMENT with file and line if it
// includes any other file, asks for a file or the time, changes lines' numbers, or lacks one of
// `functions`.
Result<std::vector<std::string>> check_kernel_text(const Mod& mod,
                                                   const std::vector<std::string>& functions);

}  // namespace lathe
