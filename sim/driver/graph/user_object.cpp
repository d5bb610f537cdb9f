// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles user objects: what a caller wants to live as long as the graphs that use it.
#include <algorithm>

#include "sim/driver/entry.h"
#include "sim/driver/graph/capture.h"

using namespace sim::driver;

namespace {

struct UserObject : Object {
  CUhostFn destroy = nullptr;
  void* pointer = nullptr;
  unsigned references = 0;  // the caller's own; graphs hold shared pointers
  ~UserObject() override { destroy(pointer); }
};

// The caller's references keep the object in driver.graphs.
CUresult give_up(Driver& driver, UserObject& object, unsigned count) {
  if (count == 0 || count > object.references) return CUDA_ERROR_INVALID_VALUE;
  object.references -= count;
  if (object.references == 0) driver.graphs.erase(object.handle);
  return CUDA_SUCCESS;
}

}  // namespace

SIM_API cuUserObjectCreate(CUuserObject* out, void* pointer, CUhostFn destroy, unsigned count,
                           unsigned flags) {
  return with_driver([&](Driver& driver, Lock&) -> CUresult {
    if (out == nullptr || destroy == nullptr || count == 0 ||
        flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    auto object = driver.add(std::make_shared<UserObject>());
    object->destroy = destroy;
    object->pointer = pointer;
    object->references = count;
    driver.graphs[object->handle] = object;
    *out = reinterpret_cast<CUuserObject>(object->handle);
    return CUDA_SUCCESS;
  });
}

SIM_API cuUserObjectRetain(CUuserObject handle, unsigned count) {
  return with_driver([&](Driver& driver, Lock&) -> CUresult {
    auto object = driver.find<UserObject>(handle);
    if (!object || count == 0) return CUDA_ERROR_INVALID_VALUE;
    object->references += count;
    driver.graphs[object->handle] = object;
    return CUDA_SUCCESS;
  });
}

SIM_API cuUserObjectRelease(CUuserObject handle, unsigned count) {
  std::shared_ptr<UserObject>
      object;  // dies after the lock, as its destructor is the caller's code
  return with_driver([&](Driver& driver, Lock&) -> CUresult {
    object = driver.find<UserObject>(handle);
    return object ? give_up(driver, *object, count) : CUDA_ERROR_INVALID_VALUE;
  });
}

SIM_API cuGraphRetainUserObject(CUgraph graph_handle, CUuserObject handle, unsigned count,
                                unsigned flags) {
  return with_driver([&](Driver& driver, Lock&) -> CUresult {
    auto graph = driver.find<Graph>(graph_handle);
    auto object = driver.find<UserObject>(handle);
    const bool move = flags == CU_GRAPH_USER_OBJECT_MOVE;
    if (!graph || !object || count == 0 || (flags != 0 && !move)) return CUDA_ERROR_INVALID_VALUE;
    if (move) {
      const CUresult result = give_up(driver, *object, count);
      if (result != CUDA_SUCCESS) return result;
    }
    graph->held.insert(graph->held.end(), count, object);
    return CUDA_SUCCESS;
  });
}

SIM_API cuGraphReleaseUserObject(CUgraph graph_handle, CUuserObject handle, unsigned count) {
  std::vector<std::shared_ptr<Object>> gone;  // dies after the lock
  return with_driver([&](Driver& driver, Lock&) -> CUresult {
    auto graph = driver.find<Graph>(graph_handle);
    if (!graph || count == 0) return CUDA_ERROR_INVALID_VALUE;
    auto& held = graph->held;
    const auto is_it = [&](const auto& object) {
      return object->handle == reinterpret_cast<uint64_t>(handle);
    };
    if (std::count_if(held.begin(), held.end(), is_it) < static_cast<std::ptrdiff_t>(count)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned i = 0; i < count; ++i) {
      const auto at = std::find_if(held.begin(), held.end(), is_it);
      gone.push_back(*at);
      held.erase(at);
    }
    return CUDA_SUCCESS;
  });
}
