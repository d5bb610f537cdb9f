// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Every rank sends a message of one size, whatever it is about to do: the number of digests, then
// for each the digest of its name and the digest itself.
#include "collective/agreement.h"

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "codegen/base/digest.h"
#include "codegen/base/invalid.h"
#include "collective/small_gather.h"

namespace lathe {
namespace {

struct Entry {
  uint64_t name = 0, value = 0;
  bool operator==(const Entry&) const = default;
};
struct Message {
  uint64_t count = 0;
  std::array<Entry, kMostDigests> entries;
};

// Returns the ranks whose entry is not that of rank 0: "", "2", "1 and 3", "1, 2 and 3".
std::string ranks_that_differ(const std::vector<Message>& all, size_t entry) {
  std::vector<size_t> ranks;
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank].entries[entry] != all[0].entries[entry]) ranks.push_back(rank);
  }
  std::string out;
  for (size_t i = 0; i < ranks.size(); ++i) {
    out += text(i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  }
  return out;
}

}  // namespace

uint64_t digest_of(std::string_view text) {
  uint64_t out = 0;
  std::memcpy(&out, digest(text).bytes.data(), sizeof(out));
  return out;
}

uint64_t digest_of(std::span<const int64_t> values) {
  return digest_of(std::string_view(reinterpret_cast<const char*>(values.data()),
                                    values.size() * sizeof(int64_t)));
}

Status agree(Group& group, std::span<const NamedDigest> digests) {
  if (digests.size() > kMostDigests) {
    return {Code::internal,
            text(digests.size(), " digests to agree on, of at most ", kMostDigests)};
  }
  if (group.world() == 1) return {};
  Message mine;
  mine.count = digests.size();
  for (size_t at = 0; at < digests.size(); ++at) {
    mine.entries[at] = {digest_of(std::string_view(digests[at].name)), digests[at].value};
  }
  LATHE_ASSIGN(const std::string bytes,
               small_gather(group, &mine, sizeof(mine), "the agreement on a plan"));
  std::vector<Message> all(static_cast<size_t>(group.world()));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  for (size_t at = 0; at < kMostDigests; ++at) {
    const std::string ranks = ranks_that_differ(all, at);
    if (ranks.empty()) continue;
    // A rank that is about to do something else may not know the name; then it reports a general
    // one.
    return invalid(text(at < digests.size() ? digests[at].name : "what the ranks are about to run",
                        " must be equal on all ranks: that of rank ", ranks,
                        " is not that of rank 0"));
  }
  return {};
}

}  // namespace lathe
