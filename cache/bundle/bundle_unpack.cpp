// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Out of bundles: entries into a cache, and the tuned choices of several into one list.
#include <set>

#include "cache/bundle/bundle.h"
#include "cache/tuned.h"
#include "codegen/base/text.h"

namespace lathe {

std::vector<std::string> unite_tuned(const std::vector<std::string>& records) {
  constexpr std::string_view kBar = " | ";
  std::vector<TunedRecord> known;
  std::set<std::string> out;
  for (const std::string& record : records) {
    const size_t bar = record.find(kBar);
    if (bar == record.npos || record.find('\n') != record.npos) continue;
    auto parsed = parse_tuned_record(std::string_view(record).substr(bar + kBar.size()));
    // A record that cannot be read may be of a later version: it is kept.
    if (!parsed.ok())
      out.insert(record);
    else
      known.push_back(std::move(*parsed));
  }
  for (const TunedRecord& record : merged(std::move(known)))
    out.insert(text(record.gpu, kBar, text_of(record)));
  return {out.begin(), out.end()};
}

Result<BundleReport> unpack_bundle(const Bundle& bundle, Store& store) {
  BundleReport report;
  report.bytes = bundle.bytes();
  uint64_t refused = 0;
  for (const BundleItem& item : bundle.items()) {
    const Bundle::Found found = bundle.read(item);
    if (!found.entry) {
      ++report.bad;
      report.problems += item.key.hex() + ": " + found.why + "\n";
      continue;
    }
    ++report.entries;
    if (store.read(item.key).ok()) {
      ++report.present;
    } else if (store.put(*found.entry)) {
      ++report.added;
    } else {
      ++refused;
    }
  }
  if (refused == 0) return report;
  return Status(Code::cache_io, text("cache directory ", store.root(), " did not take ", refused,
                                     " of ", report.entries, " entries of bundle ", bundle.path()));
}

}  // namespace lathe
