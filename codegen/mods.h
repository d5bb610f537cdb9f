// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Mods: device text of a caller that becomes part of a kernel. A mod is refused by reading its
// text, or by compiling it alone and reading what the compiler made of it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "codegen/base/status.h"
#include "codegen/nvrtc.h"
#include "codegen/spec.h"

namespace lathe {

inline constexpr size_t kMostModBytes = 256 * 1024;

// Returns INVALID_ARGUMENT with option, file and line for a text that is empty, too large or no
// UTF-8, or that has what no pure function needs: directives that open files or say more than
// #define and #if, assembly, ##, names of the templates, the time. After it the compiler opens no
// file for the text.
Status check_mod_text(const Mod& mod);
// Drops the byte order mark that editors put before a file of UTF-8.
void drop_byte_order_mark(std::string* text);

// True if the text has this identifier outside comments and literals. `line` gets where first.
bool mod_mentions(std::string_view text, std::string_view identifier, int* line = nullptr);

// The compiler reads this for "caller/<name>.cuh": the text, then the end of its macros, and a
// check that it left its namespace as it found it.
std::string mod_header_text(const Mod& mod);
// Returns the compiler's log with the caller's file in place of that name.
std::string name_mod_file(std::string log, const Mod& mod);

// A kernel that calls each function of one mod of `spec` once, with any arguments and captures,
// and stores the results: nothing else of it may touch memory.
KernelSpec mod_probe_spec(const KernelSpec& spec, const Mod& mod);
// Returns INVALID_ARGUMENT with option and file if the text does not compile (the compiler's log,
// with the file's lines), lacks a function, has one of another signature, or is not pure.
Status probe_mod(const KernelSpec& probe, const Compiler& compiler, const std::string& arch);
// Says what is impure in the probe's PTX: "writes memory (st.global)" and the like; empty if
// nothing is wrong.
std::string impurity_of(std::string_view ptx);

}  // namespace lathe
