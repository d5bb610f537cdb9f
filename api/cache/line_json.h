// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The JSON of a manifest's line: bounded where it is read, and shown in refusals.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "codegen/base/status.h"

namespace lathe {

using LineJson = nlohmann::ordered_json;

// Reads a line, which is one object. Each refusal says what was found and what is allowed.
Result<LineJson> read_line_json(std::string_view line);

// Returns a value for messages.
std::string shown(const LineJson& value);
// "FIELD is VALUE; allowed is ALLOWED"
Status wrong(std::string_view field, const LineJson& value, std::string_view allowed);
// True for a whole number that fits.
bool is_int64(const LineJson& value);
// Returns the text of an option's value: a number, a truth or a text.
Result<std::string> option_text(std::string_view name, const LineJson& value);
// Refuses a field that is not among the known ones. `where` is "the line", "group".
Status check_fields(const LineJson& object, std::string_view where,
                    std::initializer_list<std::string_view> known);

}  // namespace lathe
