// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Joins a group from a launcher's environment. Rank 0 serves the unique id, over TCP or through a
// folder.
#pragma once

#include <memory>
#include <string>

#include "collective/group.h"
#include "collective/launch.h"

namespace lathe {

// Runs parse_launch on this process's environment.
Result<Launch> launch_from_environment();

// Carries rank 0's id to every rank of the launch; `id` is read on rank 0 and written on the
// others. TIMEOUT names the ranks that did not come, or the address that did not answer. The caller
// may repeat the call. A peer of another run, of another world size or with another secret is
// refused and named.
Status share_unique_id(const Launch& launch, UniqueId& id, int timeout_ms);

// Returns a group of the ranks that the launcher started. With the drop-in, whose ranks are threads
// of one process, only a world of 1 can come from the environment.
Result<std::shared_ptr<Group>> group_from_environment(std::shared_ptr<const Device> device,
                                                      NcclChoice choice, int timeout_ms);

// Does what share_unique_id does, through launch.folder. Ranks whose calls overlap in time meet,
// however often each of them has failed before. TIMEOUT names the ranks that did not come, or the
// file that rank 0 did not write; INVALID_ARGUMENT names a folder in which nothing can be written.
Status share_by_folder(const Launch& launch, UniqueId& id, int timeout_ms);

// Return the file names of a run, without the folder: rank 0's answer, and a rank's question.
std::string answer_name(const std::string& run);
std::string question_name(const std::string& run, int rank);

// Listens at the launch's address and gives the id to each other rank as soon as that rank
// connects. TIMEOUT names the ranks that did not come.
Status serve_unique_id(const Launch& launch, const UniqueId& id, int timeout_ms);

}  // namespace lathe
