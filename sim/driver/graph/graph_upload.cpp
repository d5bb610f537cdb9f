// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles the instantiation of graphs with a structure of parameters, and uploads: a
// graph has nothing to upload here.
#include "sim/driver/entry.h"
#include "sim/driver/graph/capture.h"
#include "sim/driver/work.h"

#undef cuGraphInstantiateWithParams
#undef cuGraphUpload

using namespace sim::driver;

namespace {

constexpr cuuint64_t kKnownFlags =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
    CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

}  // namespace

SIM_API cuGraphInstantiateWithParams(CUgraphExec* out, CUgraph graph,
                                     CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  if (params == nullptr || (params->flags & ~kKnownFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const CUresult result = cuGraphInstantiateWithFlags(out, graph, params->flags);
  params->hErrNode_out = nullptr;
  params->result_out =
      result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}

SIM_API cuGraphInstantiateWithParams_ptsz(CUgraphExec* out, CUgraph graph,
                                          CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  return cuGraphInstantiateWithParams(out, graph, params);
}

SIM_API cuGraphUpload(CUgraphExec handle, CUstream stream_handle) {
  return with_context([&](Driver& driver, Lock&, Context& context) -> CUresult {
    if (!driver.find<GraphExec>(handle)) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Stream> stream;
    return resolve_stream(driver, context, stream_handle, &stream);
  });
}

SIM_API cuGraphUpload_ptsz(CUgraphExec handle, CUstream stream) {
  return cuGraphUpload(handle, stream == nullptr ? CU_STREAM_PER_THREAD : stream);
}
