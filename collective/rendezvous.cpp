// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The unique id's way from rank 0 to the others: greeting, reply, acknowledgement.
//
//   rank -> rank 0   8 bytes kMagic, world, rank (32 bits), digest of the run (64 bits)
//   rank 0 -> rank   8 bytes kMagic, verdict, world (32 bits), the id
//   rank -> rank 0   one byte: the id has arrived, this rank need not be served again
// Numbers travel with the highest byte first.
#include "collective/rendezvous.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "codegen/base/env.h"
#include "codegen/base/text.h"
#include "collective/rendezvous_folder.h"
#include "collective/socket.h"

namespace lathe {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr char kMagic[8] = {'l', 'a', 't', 'h', 'e', '-', 'i', '1'};
constexpr size_t kGreetingBytes = 24;
constexpr size_t kReplyBytes = 16 + NCCL_UNIQUE_ID_BYTES;
// How long one connection may hold up the others, or an attempt the next.
constexpr milliseconds kPatience(2000);

enum Verdict : uint32_t { kWelcome = 0, kOtherWorld = 1, kOtherRun = 2, kNoSuchRank = 3 };

void put(unsigned char* to, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) to[i] = static_cast<unsigned char>(value >> 8 * (bytes - 1 - i));
}

uint64_t get(const unsigned char* from, int bytes) {
  uint64_t out = 0;
  for (int i = 0; i < bytes; ++i) out = out << 8 | from[i];
  return out;
}

// FNV-1a: runs need only be told apart, not kept apart.
uint64_t digest(const std::string& run) {
  uint64_t out = 14695981039346656037u;
  for (const unsigned char c : run) out = (out ^ c) * 1099511628211u;
  return out;
}

Deadline sooner(Deadline deadline) { return std::min(deadline, Clock::now() + kPatience); }

// Serves one connection; the rank that now has the id, or -1 and what was wrong with the peer.
int serve_one(const Socket& peer, const Launch& launch, const UniqueId& id, Deadline deadline,
              std::string& refused) {
  std::array<unsigned char, kGreetingBytes> greeting;
  if (!peer.receive_all(greeting.data(), greeting.size(), deadline) ||
      std::memcmp(greeting.data(), kMagic, sizeof kMagic) != 0) {
    refused = "a connection that is not from lathe";
    return -1;
  }
  const uint64_t world = get(&greeting[8], 4), rank = get(&greeting[12], 4);
  Verdict verdict = kWelcome;
  if (get(&greeting[16], 8) != digest(launch.run)) {
    verdict = kOtherRun;
    refused = text("rank ", rank, " of another run");
  } else if (world != static_cast<uint64_t>(launch.world)) {
    verdict = kOtherWorld;
    refused = text("a rank ", rank, " of ", world);
  } else if (rank == 0 || rank >= world) {
    verdict = kNoSuchRank;
    refused = text("a second rank ", rank);
  }
  std::array<unsigned char, kReplyBytes> reply{};
  std::memcpy(reply.data(), kMagic, sizeof kMagic);
  put(&reply[8], verdict, 4);
  put(&reply[12], static_cast<uint64_t>(launch.world), 4);
  if (verdict == kWelcome) std::memcpy(&reply[16], id.bytes, sizeof id.bytes);
  char arrived = 0;
  if (!peer.send_all(reply.data(), reply.size(), deadline) || verdict != kWelcome ||
      !peer.receive_all(&arrived, 1, deadline)) {
    return -1;
  }
  return static_cast<int>(rank);
}

Status serve(const Launch& launch, const UniqueId& id, int timeout_ms) {
  const Deadline deadline = Clock::now() + milliseconds(timeout_ms);
  LATHE_ASSIGN(const Socket listener, listen_on(launch.port, deadline));
  std::vector<bool> served(launch.world, false);
  std::string refused;
  for (int left = launch.world - 1; left > 0;) {
    const Socket peer = accept_from(listener, deadline);
    if (!peer.open()) break;
    const int rank = serve_one(peer, launch, id, sooner(deadline), refused);
    if (rank < 0 || served[rank]) continue;
    served[rank] = true;
    --left;
  }
  std::string missing;
  for (int rank = 1; rank < launch.world; ++rank) {
    if (!served[rank]) missing += text(missing.empty() ? "" : ", ", rank);
  }
  if (missing.empty()) return {};
  std::string out = text("rank 0 waited ", timeout_ms, " ms on port ", launch.port, " for rank ",
                         missing, " of ", launch.world);
  if (!refused.empty()) out += text("; refused was ", refused);
  return {Code::timeout, out};
}

// One attempt: true with the id, or false and what is in the way. Definite failures go to `status`.
bool ask(const Launch& launch, UniqueId& id, Deadline deadline, std::string& why, Status& status) {
  const Socket peer = connect_to(launch.address, launch.port, deadline, why);
  if (!peer.open()) return false;
  std::array<unsigned char, kGreetingBytes> greeting;
  std::memcpy(greeting.data(), kMagic, sizeof kMagic);
  put(&greeting[8], static_cast<uint64_t>(launch.world), 4);
  put(&greeting[12], static_cast<uint64_t>(launch.rank), 4);
  put(&greeting[16], digest(launch.run), 8);
  std::array<unsigned char, kReplyBytes> reply;
  if (!peer.send_all(greeting.data(), greeting.size(), deadline) ||
      !peer.receive_all(reply.data(), reply.size(), deadline) ||
      std::memcmp(reply.data(), kMagic, sizeof kMagic) != 0) {
    why = "the answer is not rank 0's";
    return false;
  }
  switch (get(&reply[8], 4)) {
    case kWelcome:
      break;
    case kOtherRun:  // it may end and make room for ours
      why = "rank 0 there belongs to another run";
      return false;
    case kOtherWorld:
      status = {Code::invalid_argument, text("rank ", launch.rank, " is told of ", launch.world,
                                             " ranks, rank 0 of ", get(&reply[12], 4))};
      return false;
    default:
      status = {Code::invalid_argument, text("rank 0 refuses rank ", launch.rank)};
      return false;
  }
  std::memcpy(id.bytes, &reply[16], sizeof id.bytes);
  const char arrived = 1;
  (void)peer.send_all(&arrived, 1, deadline);
  return true;
}

Status fetch(const Launch& launch, UniqueId& id, int timeout_ms) {
  const Deadline deadline = Clock::now() + milliseconds(timeout_ms);
  std::string why = "no answer";
  milliseconds pause(10);
  do {
    Status status;
    if (ask(launch, id, sooner(deadline), why, status)) return {};
    LATHE_TRY(status);
    std::this_thread::sleep_for(pause);
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
  return launch.rank == 0 ? serve(launch, id, timeout_ms) : fetch(launch, id, timeout_ms);
}

Result<std::shared_ptr<Group>> group_from_environment(std::shared_ptr<const Device> device,
                                                      NcclChoice choice, int timeout_ms) {
  if (timeout_ms == 0) timeout_ms = Group::kDefaultTimeoutMs;
  LATHE_ASSIGN(const Launch launch, launch_from_environment());
  if (choice == NcclChoice::threads && launch.world > 1) {
    return Status(Code::unsupported,
                  text(launch.launcher, " started ", launch.world,
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
