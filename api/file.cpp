// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Writes a caller's own files as the library publishes bundles.
#include "api/boundary.h"
#include "cache/store/new_file.h"

using namespace lathe;

extern "C" {

lathe_status lathe_file_check(const char* path) {
  return boundary({{path, "path"}}, [&]() -> Status {
    return NewFile("file", path).create();  // and removed again
  });
}

lathe_status lathe_file_write(const char* path, const void* const* pieces, const size_t* bytes,
                              size_t count) {
  return boundary({{path, "path"}}, [&]() -> Status {
    if (count > 0) LATHE_TRY(require(pieces, "pieces"));
    if (count > 0) LATHE_TRY(require(bytes, "bytes"));
    NewFile file("file", path);
    LATHE_TRY(file.create());
    for (size_t i = 0; i < count; ++i) {
      if (bytes[i] == 0) continue;
      LATHE_TRY(require(pieces[i], "a piece"));
      LATHE_TRY(file.write({static_cast<const char*>(pieces[i]), bytes[i]}));
    }
    return file.put_in_place();
  });
}

}  // extern "C"
