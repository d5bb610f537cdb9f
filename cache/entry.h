// One entry of the cache: header, key text, metadata, cubin and PTX under a checksum
// (format version 1, final; see the table in entry.cpp).
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "cache/key.h"
#include "codegen/base/status.h"

namespace lathe {

struct Entry {
  Key key;
  std::map<std::string, std::string> metadata;  // registers, spill_stores, spec, threads, ...
  std::string cubin;
  std::string ptx;
};

std::string encode_entry(const Entry& entry);
// Fails with CACHE_IO and what is wrong: magic, version, length, checksum, text.
Result<Entry> decode_entry(std::string_view bytes);

}  // namespace lathe
