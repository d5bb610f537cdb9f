// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests check what ranks tell each other before they run, and groups that come out of groups.
#include "collective/agreement.h"

#include <doctest/doctest.h>

#include <array>
#include <numeric>
#include <string>

#include "collective/exchange.h"
#include "collective/small_gather.h"
#include "tests/collective/threads.h"

using namespace lathe;
using namespace threads;

namespace {

// Every rank's group and what `body` made of it.
std::vector<Status> with_groups(const std::shared_ptr<const Device>& device, int world,
                                const std::function<Status(Group&)>& body) {
  const auto id = make_unique_id(**open_nccl(NcclChoice::threads));
  REQUIRE_MESSAGE(id.ok(), id.status().text());
  std::vector<Status> out(static_cast<size_t>(world));
  run_ranks(world, [&](int rank) {
    auto group = Group::create(device, *open_nccl(NcclChoice::threads), *id, world, rank, 20000);
    out[static_cast<size_t>(rank)] = group.ok() ? body(**group) : group.status();
  });
  return out;
}

using Digests = std::vector<NamedDigest>;

std::vector<Status> agree_on(const std::shared_ptr<const Device>& device,
                             const std::vector<Digests>& ranks) {
  return with_groups(device, static_cast<int>(ranks.size()), [&](Group& group) {
    return agree(group, ranks[static_cast<size_t>(group.rank())]);
  });
}

}  // namespace

TEST_CASE("agreement: equal digests pass, a difference has a name and a rank on every rank") {
  const auto device = simulator();
  if (device == nullptr) return;
  const Digests plan = {{"operator", 1}, {"balance", 2}, {"cu_seqlens", 3}};
  Digests lengths = plan, balance = plan, other = {{"operator", 9}};
  lengths[2].value = 4;
  balance[1].value = 7;
  for (const Status& status : agree_on(device, {plan, plan, plan})) CHECK(status.ok());
  CHECK(agree_on(device, {plan})[0].ok());
  struct Case {
    std::vector<Digests> ranks;
    const char* says;
  };
  const Case cases[] = {
      {{plan, plan, lengths},
       "cu_seqlens must be equal on all ranks: that of rank 2 is not that of rank 0"},
      {{lengths, plan, plan}, "cu_seqlens must be equal on all ranks: that of rank 1 and 2"},
      {{plan, balance, lengths, balance},
       "balance must be equal on all ranks: that of rank 1 and 3"},
      {{plan, other}, "operator must be equal on all ranks: that of rank 1"}};
  for (const Case& each : cases) {
    for (const Status& status : agree_on(device, each.ranks)) {
      CHECK(status.code() == Code::invalid_argument);
      CHECK_MESSAGE(status.text().find(each.says) == 0, status.text());
    }
  }
}

TEST_CASE("agreement: the digest of values is that of their order too") {
  const std::array<int64_t, 3> a = {0, 4, 9}, b = {0, 9, 4};
  CHECK(digest_of(a) == digest_of(a));
  CHECK(digest_of(a) != digest_of(b));
  CHECK(digest_of(a) != digest_of(std::span(a).first(2)));
  CHECK(digest_of("ring") != digest_of("allgather"));
}

TEST_CASE("agreement: a rank that does not come is a timeout, and the group is of no more use") {
  const auto device = simulator();
  if (device == nullptr) return;
  const auto id = make_unique_id(**open_nccl(NcclChoice::threads));
  REQUIRE(id.ok());
  run_ranks(2, [&](int rank) {
    auto group = Group::create(device, *open_nccl(NcclChoice::threads), *id, 2, rank,
                               rank == 0 ? 700 : 20000);
    REQUIRE_MESSAGE(group.ok(), group.status().text());
    if (rank == 0) {
      const Digests plan = {{"operator", 1}};
      const Status status = agree(**group, plan);
      CHECK(status.code() == Code::timeout);
      CHECK_MESSAGE(status.text() ==
                        "rank 0 of 2 waited 700 ms for the other ranks in the agreement on a plan",
                    status.text());
      CHECK(agree(**group, plan).text() == status.text());
      return;
    }
    while ((*group)->async_error().ok()) std::this_thread::yield();
    CHECK((*group)->async_error().code() == Code::nccl);
  });
}

namespace {

// Each rank's color and key, and whom the group that comes out has, by rank of the parent.
struct Split {
  std::vector<std::pair<int, int>> wishes;
  std::vector<std::vector<int>> members;
};

Status split_and_gather(Group& parent, const Split& split) {
  const auto [color, key] = split.wishes[static_cast<size_t>(parent.rank())];
  auto made = Group::split(parent, color, key);
  LATHE_TRY(made.status());
  const std::vector<int>& members = split.members[static_cast<size_t>(parent.rank())];
  CHECK((*made == nullptr) == members.empty());
  if (*made == nullptr) return {};
  const int mine = parent.rank();
  auto all = small_gather(**made, &mine, sizeof(mine), "a test");
  LATHE_TRY(all.status());
  REQUIRE(all->size() == members.size() * sizeof(int));
  std::vector<int> found(members.size());
  std::memcpy(found.data(), all->data(), all->size());
  CHECK(found == members);
  CHECK(members[static_cast<size_t>((*made)->rank())] == mine);
  CHECK((*made)->timeout_ms() == parent.timeout_ms());
  return {};
}

}  // namespace

TEST_CASE("split: colors become groups, ordered by key and then by rank, with NCCL's and our own") {
  const auto device = simulator();
  if (device == nullptr) return;
  const Split splits[] = {{{{0, 0}, {0, 0}}, {{0, 1}, {0, 1}}},
                          {{{1, 5}, {0, 0}, {1, 2}, {0, 0}}, {{2, 0}, {1, 3}, {2, 0}, {1, 3}}},
                          {{{-1, 0}, {7, 0}, {7, -1}}, {{}, {2, 1}, {2, 1}}},
                          {{{3, 0}}, {{0}}}};
  Nccl old = **open_nccl(NcclChoice::threads);
  old.ncclCommSplit = nullptr;
  const auto without = std::make_shared<const Nccl>(old);
  for (const bool by_nccl : {true, false}) {
    const auto nccl = by_nccl ? *open_nccl(NcclChoice::threads) : without;
    for (const Split& split : splits) {
      const auto id = make_unique_id(*nccl);
      REQUIRE(id.ok());
      const int world = static_cast<int>(split.wishes.size());
      run_ranks(world, [&](int rank) {
        auto parent = Group::create(device, nccl, *id, world, rank, 20000);
        REQUIRE_MESSAGE(parent.ok(), parent.status().text());
        const Status status = split_and_gather(**parent, split);
        CHECK_MESSAGE(status.ok(), status.text());
      });
    }
  }
}

TEST_CASE("split: a rank that does not take part is a timeout on the others") {
  const auto device = simulator();
  if (device == nullptr) return;
  Nccl old = **open_nccl(NcclChoice::threads);
  old.ncclCommSplit = nullptr;
  for (const auto& nccl : {*open_nccl(NcclChoice::threads), std::make_shared<const Nccl>(old)}) {
    const auto id = make_unique_id(*nccl);
    REQUIRE(id.ok());
    run_ranks(3, [&](int rank) {
      auto parent = Group::create(device, nccl, *id, 3, rank, rank == 0 ? 700 : 20000);
      REQUIRE_MESSAGE(parent.ok(), parent.status().text());
      if (rank == 2) {
        while ((*parent)->async_error().ok()) std::this_thread::yield();
        return;
      }
      const Code code = Group::split(**parent, 0, 0).status().code();
      CHECK((code == Code::timeout || code == Code::nccl));
      CHECK_FALSE((*parent)->async_error().ok());
    });
  }
}
