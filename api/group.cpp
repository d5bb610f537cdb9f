// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes groups from a unique id or a launcher's environment, and adopts communicators.
#include "ops/group.h"

#include <cstring>

#include "api/boundary.h"
#include "collective/plans/shard.h"
#include "collective/rendezvous/rendezvous.h"

namespace lathe {
namespace {

static_assert(LATHE_UNIQUE_ID_BYTES == NCCL_UNIQUE_ID_BYTES);

// Ranks on the simulator are threads of one process.
NcclChoice choice_of(const lathe_context& context) {
  return context.kind == LATHE_DEVICE_SIM ? NcclChoice::threads : NcclChoice::real;
}

constexpr int kDefaultTimeoutMs = 60000;

Status check_place(int world, int rank, int timeout_ms) {
  if (world < 1 || world > kMostWorld) {
    return invalid(text("world is ", world, "; allowed are 1 to ", kMostWorld));
  }
  if (rank < 0 || rank >= world) {
    return invalid(text("rank is ", rank, "; allowed are 0 to ", world - 1));
  }
  if (timeout_ms < 0) return invalid(text("timeout_ms is ", timeout_ms, ", but must be 0 or more"));
  return {};
}

// Runs `make`, which gives a Group, with the device current, and hands it out.
template <typename Make>
lathe_status give_group(lathe_group** out, lathe_context* context, Make make) {
  return boundary({{out, "out"}, {context, "context"}}, [&]() -> Status {
    LATHE_TRY(require_device(*context, "a group"));
    auto group = std::make_unique<lathe_group>();
    group->context = context;
    LATHE_ASSIGN(group->group, make());
    *out = group.release();
    return {};
  });
}

}  // namespace
}  // namespace lathe

using namespace lathe;

extern "C" {

lathe_status lathe_unique_id(lathe_context* context, char out[LATHE_UNIQUE_ID_BYTES]) {
  return boundary({{context, "context"}, {out, "out"}}, [&]() -> Status {
    LATHE_ASSIGN(const auto nccl, open_nccl(choice_of(*context)));
    LATHE_ASSIGN(const UniqueId unique, make_unique_id(*nccl));
    std::memcpy(out, unique.internal, sizeof(unique.internal));
    return {};
  });
}

lathe_status lathe_group_create(lathe_group** out, lathe_context* context,
                                const char id[LATHE_UNIQUE_ID_BYTES], int world, int rank,
                                int timeout_ms) {
  return give_group(out, context, [&]() -> Result<std::shared_ptr<Group>> {
    LATHE_TRY(require(id, "id"));
    LATHE_TRY(check_place(world, rank, timeout_ms));
    UniqueId unique;
    std::memcpy(unique.internal, id, sizeof(unique.internal));
    LATHE_ASSIGN(auto nccl, open_nccl(choice_of(*context)));
    return Group::create(context->device, std::move(nccl), unique, world, rank,
                         timeout_ms ? timeout_ms : kDefaultTimeoutMs);
  });
}

lathe_status lathe_group_adopt(lathe_group** out, lathe_context* context, void* nccl_comm) {
  return give_group(out, context, [&]() -> Result<std::shared_ptr<Group>> {
    LATHE_TRY(require(nccl_comm, "nccl_comm"));
    LATHE_ASSIGN(auto nccl, open_nccl(choice_of(*context)));
    return Group::adopt(context->device, std::move(nccl), static_cast<ncclComm_t>(nccl_comm));
  });
}

lathe_status lathe_group_from_env(lathe_group** out, lathe_context* context, int timeout_ms) {
  return give_group(out, context, [&]() -> Result<std::shared_ptr<Group>> {
    LATHE_TRY(check_place(1, 0, timeout_ms));
    return group_from_environment(context->device, choice_of(*context),
                                  timeout_ms ? timeout_ms : kDefaultTimeoutMs);
  });
}

lathe_status lathe_group_split(lathe_group** out, lathe_group* group, int color, int key) {
  return boundary({{out, "out"}, {group, "group"}}, [&]() -> Status {
    auto made = std::make_unique<lathe_group>();
    made->context = group->context;
    LATHE_ASSIGN(made->group, Group::split(*group->group, color, key));
    *out = made->group ? made.release() : nullptr;
    return {};
  });
}

void lathe_group_destroy(lathe_group* group) { delete group; }

int lathe_group_rank(const lathe_group* group) { return group ? group->group->rank() : 0; }

int lathe_group_world(const lathe_group* group) { return group ? group->group->world() : 1; }

lathe_status lathe_group_error(const lathe_group* group) {
  return boundary({{group, "group"}}, [&] { return group->group->async_error(); });
}

lathe_status lathe_group_abort(lathe_group* group) {
  return boundary({{group, "group"}}, [&] { return group->group->abort(); });
}

}  // extern "C"
