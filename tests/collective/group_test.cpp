// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the life of a group against a communicator that is slow, stuck or broken.
#include "collective/group.h"

#include <doctest/doctest.h>

#include "tests/collective/fakes.h"

using namespace lathe;

namespace {

ncclComm_t comm_of(fakes::Rank& rank) { return reinterpret_cast<ncclComm_t>(&rank); }

Result<std::shared_ptr<Group>> create(fakes::Rank& rank, int world, int place, int timeout_ms) {
  fakes::current = &rank;
  return Group::create(fakes::device(), fakes::nccl(), UniqueId{}, world, place, timeout_ms);
}

bool says(const Status& status, const std::string& words) {
  return status.text().find(words) != std::string::npos;
}

void check_nothing_left(const fakes::Rank& rank) {
  for (const std::string& what : rank.violations) FAIL_CHECK(what);
  CHECK(fakes::streams_alive == 0);
  CHECK(fakes::events_alive == 0);
}

// The communicator was aborted, after its end had begun or without that.
void check_aborted(const fakes::Rank& rank, bool finalized) {
  CHECK(rank.aborted);
  CHECK(rank.finalized == finalized);
  CHECK_FALSE(rank.destroyed);
  check_nothing_left(rank);
}

}  // namespace

TEST_CASE("a unique id is passed on as it is") {
  const Result<UniqueId> id = make_unique_id(*fakes::nccl());
  REQUIRE(id.ok());
  for (const char byte : id->internal) CHECK(byte == 7);
}

TEST_CASE("a slow communicator is waited for, and left in order") {
  fakes::Rank rank;
  rank.behaviour.busy_polls = 5;
  {
    auto group = create(rank, 4, 2, 10000);
    REQUIRE_MESSAGE(group.ok(), group.status().text());
    CHECK((*group)->rank() == 2);
    CHECK((*group)->world() == 4);
    CHECK((*group)->exchange_stream() != nullptr);
    CHECK((*group)->async_error().ok());
  }
  CHECK(rank.finalized);
  CHECK(rank.destroyed);
  CHECK_FALSE(rank.aborted);
  check_nothing_left(rank);
}

TEST_CASE("a rank that never comes is a timeout that says who waited and how long") {
  fakes::Rank rank;
  rank.behaviour.never_ready = true;
  const auto group = create(rank, 4, 2, 30);
  CHECK(group.status().code() == Code::timeout);
  CHECK_MESSAGE(says(group.status(), "rank 2 of 4 waited 30 ms"), group.status().text());
  CHECK(rank.aborted);
  CHECK_FALSE(rank.destroyed);
  check_nothing_left(rank);
}

TEST_CASE("a communicator that cannot be made says why") {
  fakes::Rank rank;
  rank.behaviour.init = ncclSystemError;
  auto group = create(rank, 2, 1, 30);
  CHECK(group.status().code() == Code::nccl);
  CHECK(says(group.status(), "rank 1 of 2"));
  CHECK(says(group.status(), "the fake's last words"));
  CHECK_FALSE(rank.initialised);

  rank.behaviour = {};
  rank.behaviour.busy_polls = 2;
  rank.behaviour.async = ncclRemoteError;  // what the waiting ends with
  group = create(rank, 2, 1, 10000);
  CHECK(group.status().code() == Code::nccl);
  CHECK(rank.aborted);
  check_nothing_left(rank);
}

TEST_CASE("an error on the way is reported and makes leaving an abort") {
  fakes::Rank rank;
  {
    auto group = create(rank, 2, 0, 50);
    REQUIRE(group.ok());
    rank.behaviour.async = ncclRemoteError;
    const Status status = (*group)->async_error();
    CHECK(status.code() == Code::nccl);
    CHECK(says(status, "rank 0 of 2"));
    CHECK(says(status, "the fake's last words"));
  }
  check_aborted(rank, false);
}

TEST_CASE("leaving while a peer is stuck aborts after the timeout") {
  fakes::Rank rank;
  {
    auto group = create(rank, 2, 0, 30);
    REQUIRE(group.ok());
    rank.behaviour.never_ready = true;
  }
  check_aborted(rank, true);
}

TEST_CASE("a call whose peers never connect is a timeout and ends the communicator") {
  fakes::Rank rank;
  auto group = create(rank, 2, 0, 30);
  REQUIRE(group.ok());
  CHECK((*group)->complete(ncclSuccess, "x").ok());
  CHECK((*group)->complete(ncclInProgress, "x").ok());
  CHECK((*group)->complete(ncclInvalidArgument, "x").code() == Code::nccl);
  CHECK((*group)->usable().ok());
  rank.behaviour.never_ready = true;
  const Status status = (*group)->complete(ncclInProgress, "the hop");
  CHECK(status.code() == Code::timeout);
  CHECK(says(status, "the hop of rank 0 of 2 waited 30 ms"));
  CHECK(rank.aborted);
  // The error that ended the group stays the answer.
  CHECK((*group)->usable().text() == status.text());
  CHECK((*group)->async_error().code() == Code::timeout);
}

TEST_CASE("abort is final and may be repeated") {
  fakes::Rank rank;
  auto group = create(rank, 2, 0, 0);
  REQUIRE(group.ok());
  CHECK((*group)->abort().ok());
  CHECK((*group)->abort().ok());
  CHECK(rank.aborted);
  CHECK(says((*group)->usable(), "aborted"));
  *group = nullptr;
  CHECK_FALSE(rank.destroyed);
  check_nothing_left(rank);
}

TEST_CASE("an adopted communicator is asked for its place and otherwise left alone") {
  fakes::Rank rank;
  rank.rank = 3;
  rank.world = 5;
  fakes::current = &rank;
  {
    auto group = Group::adopt(fakes::device(), fakes::nccl(), comm_of(rank));
    REQUIRE(group.ok());
    CHECK((*group)->rank() == 3);
    CHECK((*group)->world() == 5);
    CHECK((*group)->abort().code() == Code::invalid_argument);
  }
  CHECK_FALSE(rank.finalized);
  CHECK_FALSE(rank.destroyed);
  CHECK_FALSE(rank.aborted);
  check_nothing_left(rank);

  rank.device = 1;
  const auto elsewhere = Group::adopt(fakes::device(), fakes::nccl(), comm_of(rank));
  CHECK(elsewhere.status().code() == Code::invalid_argument);
  CHECK(says(elsewhere.status(), "device 1, must be on the context's, 0"));
  CHECK_FALSE(Group::adopt(fakes::device(), fakes::nccl(), nullptr).ok());
}

TEST_CASE("the two streams are ordered by one record and one wait each way") {
  fakes::Rank rank;
  auto group = create(rank, 1, 0, 0);
  REQUIRE(group.ok());
  const auto caller = reinterpret_cast<CUstream>(uintptr_t{0x42});
  CHECK((*group)->exchange_after(caller).ok());
  CHECK((*group)->stream_after_exchange(caller).ok());
  const auto& mine = rank.streams[caller];
  const auto& exchange = rank.streams[(*group)->exchange_stream()];
  REQUIRE(mine.size() == 2);
  REQUIRE(exchange.size() == 2);
  CHECK(fakes::waits_for(exchange[0], mine[0]));
  CHECK(fakes::waits_for(mine[1], exchange[1]));
}
