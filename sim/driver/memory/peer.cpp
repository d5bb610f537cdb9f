// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles peer access: which devices' kernels may use the memory of which others. Without
// it such an access is out of bounds; copies between devices always work.
#include <algorithm>

#include "sim/driver/context.h"
#include "sim/driver/entry.h"

namespace sim::driver {
namespace {

// Returns whether a context of one device still has access to one of the other.
bool any_access(const Device& from, const Device& to) {
  for (const Context* context : from.contexts) {
    for (const Context* peer : context->peers) {
      if (peer->device == &to) return true;
    }
  }
  return false;
}

void drop(Context& context, Context& peer) {
  std::erase(context.peers, &peer);
  if (!any_access(*context.device, *peer.device)) {
    context.device->memory->look_into(*peer.device->memory, false);
  }
}

bool has(const Context& context, const Context& peer) {
  return std::find(context.peers.begin(), context.peers.end(), &peer) != context.peers.end();
}

}  // namespace

void forget_peers(Driver& driver, Context& context) {
  while (!context.peers.empty()) drop(context, *context.peers.back());
  for (auto& device : driver.devices) {
    for (Context* other : device->contexts) {
      if (has(*other, context)) drop(*other, context);
    }
  }
}

}  // namespace sim::driver

using namespace sim::driver;

SIM_API cuDeviceCanAccessPeer(int* out, CUdevice ordinal, CUdevice peer) {
  return with_device(ordinal, [&](Driver& driver, Lock&, Device&) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (peer < 0 || peer >= static_cast<int>(driver.devices.size())) {
      return CUDA_ERROR_INVALID_DEVICE;
    }
    *out = peer != ordinal ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

SIM_API cuDeviceGetP2PAttribute(int* out, CUdevice_P2PAttribute attribute, CUdevice ordinal,
                                CUdevice peer) {
  return with_device(ordinal, [&](Driver& driver, Lock&, Device&) -> CUresult {
    if (out == nullptr || peer == ordinal) return CUDA_ERROR_INVALID_VALUE;
    if (peer < 0 || peer >= static_cast<int>(driver.devices.size())) {
      return CUDA_ERROR_INVALID_DEVICE;
    }
    switch (attribute) {
      case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
      case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
        *out = 0;
        return CUDA_SUCCESS;
      case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
      case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
        *out = 1;
        return CUDA_SUCCESS;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  });
}

SIM_API cuCtxEnablePeerAccess(CUcontext handle, unsigned flags) {
  return with_context([&](Driver& driver, Lock&, Context& context) -> CUresult {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    auto peer = find_context(driver, handle);
    if (!peer || peer.get() == &context) return CUDA_ERROR_INVALID_CONTEXT;
    if (peer->device == context.device) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (has(context, *peer)) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    context.peers.push_back(peer.get());
    context.device->memory->look_into(*peer->device->memory, true);
    return CUDA_SUCCESS;
  });
}

SIM_API cuCtxDisablePeerAccess(CUcontext handle) {
  return with_context([&](Driver& driver, Lock&, Context& context) -> CUresult {
    auto peer = find_context(driver, handle);
    if (!peer) return CUDA_ERROR_INVALID_CONTEXT;
    if (!has(context, *peer)) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    drop(context, *peer);
    return CUDA_SUCCESS;
  });
}
