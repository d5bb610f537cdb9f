// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Nodes of graphs that a program makes by hand, where the runtime says it in other words than the
// driver.
#include <type_traits>

#include "sim/runtime/copy.h"
#include "sim/runtime/registry.h"

namespace sim::runtime {
namespace {

Result read_kernel(const cudaKernelNodeParams* given, CUDA_KERNEL_NODE_PARAMS* out) {
  if (given == nullptr) return cudaErrorInvalidValue;
  CUkernel kernel = nullptr;
  const Result result = find_kernel(given->func, &kernel);
  if (result.failed()) return result;
  *out = {.gridDimX = given->gridDim.x,
          .gridDimY = given->gridDim.y,
          .gridDimZ = given->gridDim.z,
          .blockDimX = given->blockDim.x,
          .blockDimY = given->blockDim.y,
          .blockDimZ = given->blockDim.z,
          .sharedMemBytes = given->sharedMemBytes,
          .kernelParams = given->kernelParams,
          .extra = given->extra,
          .kern = kernel};
  return cudaSuccess;
}

Result read_fill(const cudaMemsetParams* given, CUDA_MEMSET_NODE_PARAMS* out) {
  if (given == nullptr) return cudaErrorInvalidValue;
  *out = {.dst = address(given->dst),
          .pitch = given->pitch,
          .value = given->value,
          .elementSize = given->elementSize,
          .width = given->width,
          .height = given->height};
  return cudaSuccess;
}

// A copy between two places, either of which a variable's name may stand for.
struct Range {
  const void* to;
  const void* from;
  size_t bytes;
  cudaMemcpyKind kind;
  enum { kNone, kTo, kFrom } symbol = kNone;
  size_t offset = 0;  // in the variable
};

Result read_range(const Range& given, CUDA_MEMCPY3D* out) {
  void *to = const_cast<void*>(given.to), *from = const_cast<void*>(given.from);
  if (given.symbol != Range::kNone) {
    void** named = given.symbol == Range::kTo ? &to : &from;
    const Result result = find_range(*named, given.offset, given.bytes, named);
    if (result.failed()) return result;
  }
  cudaMemcpy3DParms params = {};
  params.srcPtr = {from, given.bytes, given.bytes, 1};
  params.dstPtr = {to, given.bytes, given.bytes, 1};
  params.extent = {given.bytes, 1, 1};
  params.kind = given.kind;
  return read_box(params, out);
}

Result read_copy(const cudaMemcpy3DParms* given, CUDA_MEMCPY3D* out) {
  return given == nullptr ? Result(cudaErrorInvalidValue) : read_box(*given, out);
}

// Runs body(const Driver&, what, the current context) with the driver's description of what a node
// does, as `read` makes it of `given`.
template <typename What, typename Given, typename F>
cudaError_t with_node(Result (*read)(Given, What*), std::type_identity_t<Given> given,
                      F body) noexcept {
  return with_context([&](const Driver& driver) -> Result {
    What what = {};
    CUcontext context = nullptr;
    Result result = read(given, &what);
    if (!result.failed()) result = driver.cuCtxGetCurrent(&context);
    return result.failed() ? result : Result(body(driver, &what, context));
  });
}

cudaError_t add_range(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                      size_t count, const Range& range) {
  return with_node(read_range, range, [&](const Driver& driver, auto* what, CUcontext context) {
    return driver.cuGraphAddMemcpyNode(node, graph, after, count, what, context);
  });
}

cudaError_t set_range(cudaGraphNode_t node, const Range& range) {
  return with_node(read_range, range, [&](const Driver& driver, auto* what, CUcontext) {
    return driver.cuGraphMemcpyNodeSetParams(node, what);
  });
}

cudaError_t set_range(cudaGraphExec_t exec, cudaGraphNode_t node, const Range& range) {
  return with_node(read_range, range, [&](const Driver& driver, auto* what, CUcontext context) {
    return driver.cuGraphExecMemcpyNodeSetParams(exec, node, what, context);
  });
}

}  // namespace
}  // namespace sim::runtime

using namespace sim::runtime;

SIM_RUNTIME cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                               const cudaGraphNode_t* after, size_t after_count,
                                               const cudaKernelNodeParams* params) {
  return with_node(read_kernel, params, [&](const Driver& driver, auto* what, CUcontext) {
    return driver.cuGraphAddKernelNode(node, graph, after, after_count, what);
  });
}

SIM_RUNTIME cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node,
                                                     const cudaKernelNodeParams* params) {
  return with_node(read_kernel, params, [&](const Driver& driver, auto* what, CUcontext) {
    return driver.cuGraphKernelNodeSetParams(node, what);
  });
}

SIM_RUNTIME cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                         const cudaKernelNodeParams* params) {
  return with_node(read_kernel, params, [&](const Driver& driver, auto* what, CUcontext) {
    return driver.cuGraphExecKernelNodeSetParams(exec, node, what);
  });
}

SIM_RUNTIME cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                               const cudaGraphNode_t* after, size_t after_count,
                                               const cudaMemsetParams* params) {
  return with_node(read_fill, params, [&](const Driver& driver, auto* what, CUcontext context) {
    return driver.cuGraphAddMemsetNode(node, graph, after, after_count, what, context);
  });
}

SIM_RUNTIME cudaError_t cudaGraphMemsetNodeSetParams(cudaGraphNode_t node,
                                                     const cudaMemsetParams* params) {
  return with_node(read_fill, params, [&](const Driver& driver, auto* what, CUcontext) {
    return driver.cuGraphMemsetNodeSetParams(node, what);
  });
}

SIM_RUNTIME cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                         const cudaMemsetParams* params) {
  return with_node(read_fill, params, [&](const Driver& driver, auto* what, CUcontext context) {
    return driver.cuGraphExecMemsetNodeSetParams(exec, node, what, context);
  });
}

SIM_RUNTIME cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                               const cudaGraphNode_t* after, size_t after_count,
                                               const cudaMemcpy3DParms* params) {
  return with_node(read_copy, params, [&](const Driver& driver, auto* what, CUcontext context) {
    return driver.cuGraphAddMemcpyNode(node, graph, after, after_count, what, context);
  });
}

SIM_RUNTIME cudaError_t cudaGraphMemcpyNodeSetParams(cudaGraphNode_t node,
                                                     const cudaMemcpy3DParms* params) {
  return with_node(read_copy, params, [&](const Driver& driver, auto* what, CUcontext) {
    return driver.cuGraphMemcpyNodeSetParams(node, what);
  });
}

SIM_RUNTIME cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                         const cudaMemcpy3DParms* params) {
  return with_node(read_copy, params, [&](const Driver& driver, auto* what, CUcontext context) {
    return driver.cuGraphExecMemcpyNodeSetParams(exec, node, what, context);
  });
}

SIM_RUNTIME cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph,
                                                 const cudaGraphNode_t* after, size_t after_count,
                                                 void* to, const void* from, size_t bytes,
                                                 cudaMemcpyKind kind) {
  return add_range(node, graph, after, after_count, {to, from, bytes, kind});
}

SIM_RUNTIME cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void* to,
                                                       const void* from, size_t bytes,
                                                       cudaMemcpyKind kind) {
  return set_range(node, {to, from, bytes, kind});
}

SIM_RUNTIME cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t exec,
                                                           cudaGraphNode_t node, void* to,
                                                           const void* from, size_t bytes,
                                                           cudaMemcpyKind kind) {
  return set_range(exec, node, {to, from, bytes, kind});
}

SIM_RUNTIME cudaError_t cudaGraphAddMemcpyNodeToSymbol(cudaGraphNode_t* node, cudaGraph_t graph,
                                                       const cudaGraphNode_t* after,
                                                       size_t after_count, const void* symbol,
                                                       const void* from, size_t bytes,
                                                       size_t offset, cudaMemcpyKind kind) {
  return add_range(node, graph, after, after_count,
                   {symbol, from, bytes, kind, Range::kTo, offset});
}

SIM_RUNTIME cudaError_t cudaGraphMemcpyNodeSetParamsToSymbol(cudaGraphNode_t node,
                                                             const void* symbol, const void* from,
                                                             size_t bytes, size_t offset,
                                                             cudaMemcpyKind kind) {
  return set_range(node, {symbol, from, bytes, kind, Range::kTo, offset});
}

SIM_RUNTIME cudaError_t cudaGraphExecMemcpyNodeSetParamsToSymbol(
    cudaGraphExec_t exec, cudaGraphNode_t node, const void* symbol, const void* from, size_t bytes,
    size_t offset, cudaMemcpyKind kind) {
  return set_range(exec, node, {symbol, from, bytes, kind, Range::kTo, offset});
}

SIM_RUNTIME cudaError_t cudaGraphAddMemcpyNodeFromSymbol(cudaGraphNode_t* node, cudaGraph_t graph,
                                                         const cudaGraphNode_t* after,
                                                         size_t after_count, void* to,
                                                         const void* symbol, size_t bytes,
                                                         size_t offset, cudaMemcpyKind kind) {
  return add_range(node, graph, after, after_count,
                   {to, symbol, bytes, kind, Range::kFrom, offset});
}

SIM_RUNTIME cudaError_t cudaGraphMemcpyNodeSetParamsFromSymbol(cudaGraphNode_t node, void* to,
                                                               const void* symbol, size_t bytes,
                                                               size_t offset, cudaMemcpyKind kind) {
  return set_range(node, {to, symbol, bytes, kind, Range::kFrom, offset});
}

SIM_RUNTIME cudaError_t cudaGraphExecMemcpyNodeSetParamsFromSymbol(cudaGraphExec_t exec,
                                                                   cudaGraphNode_t node, void* to,
                                                                   const void* symbol, size_t bytes,
                                                                   size_t offset,
                                                                   cudaMemcpyKind kind) {
  return set_range(exec, node, {to, symbol, bytes, kind, Range::kFrom, offset});
}
