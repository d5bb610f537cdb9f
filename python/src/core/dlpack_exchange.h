/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange table of DLPack 1.3, which a tensor type lends as a capsule "dlpack_exchange_api" in
 * its attribute __dlpack_c_exchange_api__, and the tensors of DLPack 1 that carry a version.
 * Distributions' dlpack.h is older than both. */
#ifndef LATHE_PYTHON_DLPACK_EXCHANGE_H
#define LATHE_PYTHON_DLPACK_EXCHANGE_H

#include <dlpack/dlpack.h>
#include <stdint.h>

#define EXCHANGE_ATTRIBUTE "__dlpack_c_exchange_api__"
#define EXCHANGE_CAPSULE "dlpack_exchange_api"

typedef struct {
  uint32_t major, minor;
} ExchangeVersion;

#define VERSIONED_READ_ONLY 1u

typedef struct VersionedTensor {
  ExchangeVersion version;
  void* manager;
  void (*deleter)(struct VersionedTensor* self);
  uint64_t flags; /* VERSIONED_READ_ONLY */
  DLTensor tensor;
} VersionedTensor;

/* Functions return 0, or -1 with a Python exception. Each is called with the interpreter's lock. */
typedef struct ExchangeTable {
  ExchangeVersion version;
  struct ExchangeTable* previous;
  int (*allocate)(DLTensor* prototype, VersionedTensor** out, void* error_context,
                  void (*set_error)(void* error_context, const char* kind, const char* message));
  int (*managed_from_object)(void* object, VersionedTensor** out);
  int (*object_from_managed)(VersionedTensor* tensor, void** out);
  /* May be NULL. What it gives is lent as long as the object lives and is not changed. */
  int (*tensor_from_object)(void* object, DLTensor* out);
  int (*current_work_stream)(DLDeviceType device, int32_t ordinal, void** out);
} ExchangeTable;

#endif /* LATHE_PYTHON_DLPACK_EXCHANGE_H */
