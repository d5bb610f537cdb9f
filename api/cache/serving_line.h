// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The lines of a manifest that say a model which is served, a line for each kind of its layers:
//
//   {"model": "hybrid", "dtype": "bf16", "batch": [1, 512], "tokens": [1, 65536], "drafts": [1, 4]}
//   {"layer": "kda", "extents": {"H": 12, "K": 128, "W": 4}, "with": ["A_log", "output_gate"]}
//
// A line with "model" says what the layers below it have, as far as these do not say otherwise.
#pragma once

#include "api/cache/line_json.h"
#include "ops/serving.h"

namespace lathe {

// True for a line of a model or of a layer.
bool is_serving_line(const LineJson& line);

// Reads such a line. That of a model takes the place of *model. Returns the layer's problems; none
// for a model.
Result<std::vector<lathe_problem>> read_serving_line(const LineJson& line, ServedLayer* model);

}  // namespace lathe
