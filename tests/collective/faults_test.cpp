// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover ranks that do not do what the others wait for: each rank of a ring gets an
// error in time, its stream goes on, and the process can make another group.
#include <doctest/doctest.h>

#include <array>
#include <barrier>
#include <chrono>
#include <stdexcept>
#include <string>

#include "collective/agreement.h"
#include "collective/exchange.h"
#include "collective/plans/conv_halo.h"
#include "tests/collective/threads.h"

using namespace lathe;
using namespace threads;

namespace {

constexpr int kTimeoutMs = 1000;

enum class Fault { none, throws, leaves, late, too_late, other_shape, other_plan, silent };

// One hop around the ring, and a sum: what an operator does.
Status run_ring(Group& group, size_t bytes, Memory& from, Memory& to, CUstream stream) {
  const int world = group.world(), rank = group.rank();
  const Transfer send{(rank + 1) % world, from.pointer(), bytes};
  const Transfer receive{(rank + world - 1) % world, to.pointer(), bytes};
  Hop hop{{&send, 1}, {&receive, 1}, "a hop of the ring", 3};
  LATHE_TRY(post_after(group, hop, stream));
  return group.stream_after_exchange(stream);
}

struct Outcome {
  Status called, error, later;  // of the run, of lathe_group_error, of the next run
  bool arrived = false;         // what was sent
};

// A OneRank holds what one rank does and sees; `fault` is what the rank does wrong.
class OneRank {
 public:
  OneRank(std::shared_ptr<const Device> device, std::shared_ptr<Group> group)
      : device_(std::move(device)), scope_(*device_), group_(std::move(group)) {
    REQUIRE(driver().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  }
  ~OneRank() { CHECK(driver().cuStreamDestroy(stream_) == CUDA_SUCCESS); }
  OneRank(const OneRank&) = delete;

  Outcome play(Fault fault) {
    Outcome out;
    Memory from(*device_, 8), to(*device_, 8);
    from.put(Rows(8, group_->rank()));
    out.called = act(fault, from, to);
    // No stream may hang, whatever became of the exchange.
    CHECK(driver().cuStreamSynchronize(stream_) == CUDA_SUCCESS);
    const int before = (group_->rank() + group_->world() - 1) % group_->world();
    out.arrived = to.get() == Rows(8, before);
    return out;
  }
  // Until there is an error: the test would end by its own limit.
  void await_error(Outcome& out) {
    while ((out.error = group_->async_error()).ok()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    Memory from(*device_, 8), to(*device_, 8);
    out.later = run_ring(*group_, 64, from, to, stream_);
    CHECK(driver().cuStreamSynchronize(stream_) == CUDA_SUCCESS);
  }

 private:
  const Driver& driver() const { return device_->driver(); }
  Status act(Fault fault, Memory& from, Memory& to) {
    using std::chrono::milliseconds;
    if (fault == Fault::throws) throw std::runtime_error("before the call");
    if (fault == Fault::silent) return {};
    if (fault == Fault::late) std::this_thread::sleep_for(milliseconds(100));
    if (fault == Fault::too_late) std::this_thread::sleep_for(milliseconds(2 * kTimeoutMs));
    if (fault == Fault::other_plan) return all_reduce_f32(*group_, to.pointer(), 8, stream_);
    return run_ring(*group_, fault == Fault::other_shape ? 32 : 64, from, to, stream_);
  }

  std::shared_ptr<const Device> device_;
  Device::Scope scope_;
  std::shared_ptr<Group> group_;
  CUstream stream_ = nullptr;
};

struct Case {
  Fault fault;
  int world, rank;  // who is at fault
};

bool expects_errors(Fault fault) { return fault != Fault::none && fault != Fault::late; }

using Groups = std::vector<std::shared_ptr<Group>>;

Groups make_groups(const std::shared_ptr<const Device>& device, int world, int timeout_ms) {
  const auto id = make_unique_id(**open_nccl(NcclChoice::threads));
  REQUIRE(id.ok());
  Groups groups(static_cast<size_t>(world));
  run_ranks(world, [&](int rank) {
    auto made =
        Group::create(device, *open_nccl(NcclChoice::threads), *id, world, rank, timeout_ms);
    CHECK_MESSAGE(made.ok(), made.status().text());
    if (made.ok()) groups[static_cast<size_t>(rank)] = *made;
  });
  return groups;
}

// Where all goes well nobody waits for the timeout, which a busy machine must not reach.
Groups make_groups(const std::shared_ptr<const Device>& device, const Case& what) {
  return make_groups(device, what.world, expects_errors(what.fault) ? kTimeoutMs : 60000);
}

// Runs all ranks on threads that end before the groups do, but for a rank that gives up its own.
std::vector<Outcome> play(const std::shared_ptr<const Device>& device, const Case& what,
                          Groups groups) {
  std::vector<Outcome> out(groups.size());
  std::barrier over(what.world);
  run_ranks(what.world, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    const Fault fault = rank == what.rank ? what.fault : Fault::none;
    if (fault == Fault::leaves) groups[r] = nullptr;
    if (groups[r] == nullptr) return over.arrive_and_drop();
    {
      OneRank mine(device, groups[r]);
      bool threw = false;
      try {
        out[r] = mine.play(fault);
      } catch (const std::runtime_error&) {
        threw = true;
      }
      if (expects_errors(what.fault) && !threw) mine.await_error(out[r]);
    }
    if (fault == Fault::throws) groups[r] = nullptr;  // as if unwound
    over.arrive_and_drop();
  });
  return out;
}

bool failed(const Status& status) {
  return status.code() == Code::nccl || status.code() == Code::timeout;
}

}  // namespace

TEST_CASE("faults: every rank of a ring gets an error in time, and the next group works") {
  const auto device = simulator();
  if (device == nullptr) return;
  std::vector<Case> cases;
  for (const Fault fault : {Fault::none, Fault::throws, Fault::leaves, Fault::late, Fault::too_late,
                            Fault::other_shape, Fault::other_plan, Fault::silent}) {
    for (int world = 2; world <= 4; ++world) cases.push_back({fault, world, world / 2});
  }
  std::vector<Groups> groups;
  for (const Case& each : cases) groups.push_back(make_groups(device, each));
  std::vector<std::vector<Outcome>> outcomes(cases.size());
  // Their waits are side by side.
  run_ranks(static_cast<int>(cases.size()), [&](int index) {
    const auto at = static_cast<size_t>(index);
    outcomes[at] = play(device, cases[at], std::move(groups[at]));
  });
  for (size_t at = 0; at < cases.size(); ++at) {
    CAPTURE(static_cast<int>(cases[at].fault));
    CAPTURE(cases[at].world);
    const Fault fault = cases[at].fault;
    for (size_t rank = 0; rank < outcomes[at].size(); ++rank) {
      CAPTURE(rank);
      const Outcome& out = outcomes[at][rank];
      if (!expects_errors(fault)) {
        CHECK_MESSAGE(out.called.ok(), out.called.text());
        CHECK(out.arrived);
        continue;
      }
      const bool gone = fault == Fault::throws || fault == Fault::leaves;
      if (gone && static_cast<int>(rank) == cases[at].rank) continue;
      CHECK_MESSAGE(failed(out.error), out.error.text());
      CHECK_MESSAGE(out.error.text().find("rank ") != std::string::npos, out.error.text());
      CHECK_MESSAGE(failed(out.later), out.later.text());
    }
  }
  const Case next = {Fault::none, 3, 0};
  const auto fine = play(device, next, make_groups(device, next));
  for (const Outcome& out : fine) CHECK(out.arrived);
}

TEST_CASE("faults: a timeout names the rank, its peer, the step and the bytes, and is kept") {
  const auto device = simulator();
  if (device == nullptr) return;
  const Case silent = {Fault::silent, 3, 1};
  const auto out = play(device, silent, make_groups(device, silent));
  bool told = false;
  for (size_t rank = 0; rank < out.size(); ++rank) {
    CAPTURE(out[rank].error.text());
    if (out[rank].error.code() != Code::timeout) continue;
    told = true;
    const std::string r = std::to_string(rank), peer = std::to_string((rank + 2) % 3);
    CHECK(out[rank].error.text() == "rank " + r +
                                        " of 3 waited 1000 ms for an exchange from rank " + peer +
                                        " (step 3, 128 bytes); it was aborted");
    CHECK(out[rank].later.text() == out[rank].error.text());
  }
  CHECK(told);
}

TEST_CASE("faults: an exchange of one group that waits for one of another") {
  const auto device = simulator();
  if (device == nullptr) return;
  const Groups first = make_groups(device, 2, kTimeoutMs);
  const Groups second = make_groups(device, 2, kTimeoutMs);
  run_ranks(2, [&](int rank) {
    Group& a = *first[static_cast<size_t>(rank)];
    Group& b = *second[static_cast<size_t>(rank)];
    const Device::Scope scope(*device);
    Memory data(*device, 8);
    CUstream stream = nullptr;
    REQUIRE(device->driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    if (rank == 0) {  // the other one takes part in neither
      CHECK(all_reduce_f32(a, data.pointer(), 8, stream).ok());
      CHECK(all_reduce_f32(b, data.pointer(), 8, stream).ok());
      CHECK(device->driver().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    }
    for (Group* group : {&a, &b}) {
      Status status;
      while ((status = group->async_error()).ok()) std::this_thread::yield();
      CHECK_MESSAGE(failed(status), status.text());
    }
    CHECK(device->driver().cuStreamDestroy(stream) == CUDA_SUCCESS);
  });
}

TEST_CASE("faults: an adopted communicator is reported and left to its owner") {
  const auto device = simulator();
  if (device == nullptr) return;
  const auto owners = make_groups(device, 2, 60000);
  run_ranks(2, [&](int rank) {
    const Device::Scope scope(*device);
    Group& owner = *owners[static_cast<size_t>(rank)];
    auto adopted = Group::adopt(device, *open_nccl(NcclChoice::threads), owner.comm());
    REQUIRE_MESSAGE(adopted.ok(), adopted.status().text());
    CHECK((*adopted)->abort().code() == Code::invalid_argument);
    if (rank == 1) return;
    Memory data(*device, 8);
    CHECK(all_reduce_f32(**adopted, data.pointer(), 8, (*adopted)->exchange_stream()).ok());
    const Status status = (*adopted)->fail({Code::timeout, "too long"});
    CHECK(status.text() == "too long");
    CHECK((*adopted)->usable().text() == "too long");
    CHECK(owner.async_error().ok());  // not aborted with it
    CHECK(owner.abort().ok());
    CHECK(device->driver().cuStreamSynchronize((*adopted)->exchange_stream()) == CUDA_SUCCESS);
  });
}
