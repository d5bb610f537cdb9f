// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The unique id's way through a folder that all ranks see, where there is no address to meet at.
#pragma once

#include <string>

#include "collective/group.h"
#include "collective/launch.h"

namespace lathe {

// As share_unique_id, through launch.folder. Ranks whose calls overlap in time meet, however often
// each of them has failed before. TIMEOUT names the ranks that did not come, or the file that rank
// 0 did not write; INVALID_ARGUMENT a folder in which nothing can be written.
Status share_by_folder(const Launch& launch, UniqueId& id, int timeout_ms);

// The names of the files of a run, without the folder: rank 0's answer, and a rank's question.
std::string answer_name(const std::string& run);
std::string question_name(const std::string& run, int rank);

}  // namespace lathe
