// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// An entry source is a tier of the cache from which entries can be copied.
#pragma once

#include <vector>

#include "cache/store/entry.h"

namespace lathe {

class EntrySource {
 public:
  virtual ~EntrySource() = default;
  // Returns the keys of all entries, in order.
  virtual std::vector<Digest> keys() = 0;
  // NOT_CACHED, or CACHE_IO and what is wrong with the entry. Neither counts, touches nor mends.
  virtual Result<Entry> read(const Digest& key) = 0;
};

}  // namespace lathe
