// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The compile process's program (worker.cpp), embedded by worker_image.S.
#pragma once

extern "C" {
extern const char lathe_worker_image[];
extern const char lathe_worker_image_end[];
}
