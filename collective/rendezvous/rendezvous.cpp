// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the ranks' side of a rendezvous over TCP, and chooses between the ways to meet.
#include "collective/rendezvous/rendezvous.h"

#include <algorithm>
#include <thread>

#include "codegen/base/env.h"
#include "codegen/base/invalid.h"
#include "collective/rendezvous/rendezvous_talk.h"
#include "collective/rendezvous/socket.h"

namespace lathe {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// kPatience limits how long one attempt may delay the next.
constexpr milliseconds kPatience(2000);

// Makes one attempt. Returns true with the id, or false with the reason in `why`, or a failure that
// another attempt cannot cure.
Result<bool> ask(const Launch& launch, NameLookup& host, UniqueId& id, Deadline deadline,
                 std::string& why) {
  LATHE_ASSIGN(const Nonce nonce, draw_nonce());
  const std::vector<Address> addresses = host.addresses(deadline, why);
  if (addresses.empty()) return false;
  const Socket peer = connect_to(addresses, deadline, why);
  if (!peer.open()) return false;
  RankTalk talk(launch, nonce);
  while (!talk.over()) {
    std::string bytes;
    if (!peer.send_all(talk.output, deadline) ||
        !peer.receive_all(bytes, talk.wanted(), deadline)) {
      break;
    }
    talk.output.clear();
    talk.take(bytes);
  }
  if (talk.has_id()) {
    (void)peer.send_all(talk.output, deadline);
    id = talk.id();
    return true;
  }
  why = talk.why();
  LATHE_TRY(talk.status());
  return false;
}

Status fetch(const Launch& launch, UniqueId& id, int timeout_ms) {
  const Deadline deadline = Clock::now() + milliseconds(timeout_ms);
  NameLookup host(launch.address, launch.port);
  std::string why = "no answer";
  milliseconds pause(10);
  do {
    const Deadline soon = std::min(deadline, Clock::now() + kPatience);
    LATHE_ASSIGN(const bool has_id, ask(launch, host, id, soon, why));
    if (has_id) return {};
    std::this_thread::sleep_until(std::min(deadline, Clock::now() + pause));
    pause = std::min(pause * 2, milliseconds(500));
  } while (Clock::now() < deadline);
  return {Code::timeout, text("rank ", launch.rank, " of ", launch.world, " tried ", timeout_ms,
                              " ms to reach rank 0 at ", launch.address, " port ", launch.port,
                              " (MASTER_ADDR, MASTER_PORT + 1): ", why)};
}

}  // namespace

Result<Launch> launch_from_environment() {
  return parse_launch([](const char* name) { return environment_raw(name); });
}

Status share_unique_id(const Launch& launch, UniqueId& id, int timeout_ms) {
  if (launch.world == 1) return {};
  if (!launch.folder.empty()) return share_by_folder(launch, id, timeout_ms);
  return launch.rank == 0 ? serve_unique_id(launch, id, timeout_ms) : fetch(launch, id, timeout_ms);
}

Result<std::shared_ptr<Group>> group_from_environment(std::shared_ptr<const Device> device,
                                                      NcclChoice choice, int timeout_ms) {
  if (timeout_ms == 0) timeout_ms = Group::kDefaultTimeoutMs;
  LATHE_ASSIGN(const Launch launch, launch_from_environment());
  if (choice == NcclChoice::threads && launch.world > 1) {
    return unsupported(text(launch.launcher, " started ", launch.world,
                            " processes, but the simulator's ranks are threads of one process"));
  }
  LATHE_ASSIGN(auto nccl, open_nccl(choice));
  const Deadline deadline = Clock::now() + milliseconds(timeout_ms);
  UniqueId id{};
  if (launch.rank == 0 || launch.nccl_finds_peers) {
    LATHE_ASSIGN(id, make_unique_id(*nccl));
  }
  if (!launch.nccl_finds_peers) LATHE_TRY(share_unique_id(launch, id, timeout_ms));
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now()).count();
  return Group::create(std::move(device), std::move(nccl), id, launch.world, launch.rank,
                       static_cast<int>(std::max<long long>(left, 1)));
}

}  // namespace lathe
