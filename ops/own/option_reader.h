// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Reads an option of a description: { default = 1e-6, allowed = ">0", what = "...", compiled = ...}
#pragma once

#include "ops/own/toml_reader.h"

namespace lathe::own {

// The type follows from the default: a whole number, a number with a point, a word, true or false.
Result<OptionText> read_option_text(const TomlReader& reader, const Entry& entry);

// Returns the option as a row of an operator's table; the row lends the texts.
OptionInfo option_row(const OptionText& option);

}  // namespace lathe::own
