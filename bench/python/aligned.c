/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* posix_memalign, from which torch's CPU allocator takes its memory, with the alignment that
 * torch's GPU allocator gives: a workspace must begin at a multiple of 256. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

__attribute__((visibility("default"))) int posix_memalign(void** out, size_t alignment,
                                                          size_t bytes) {
  if (alignment < 256) alignment = 256;
  void* memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (!memory) return ENOMEM;
  *out = memory;
  return 0;
}
