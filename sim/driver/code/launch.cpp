// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles kernel launches: every check the hardware's driver makes, then the grid as work
// in a stream.
#include <cstring>

#include "sim/clock/kernel_time.h"
#include "sim/driver/code/function.h"
#include "sim/driver/code/sampled.h"
#include "sim/driver/entry.h"
#include "sim/driver/report/report.h"
#include "sim/driver/report/timeline.h"
#include "sim/driver/work.h"
#include "sim/exec/heap.h"
#include "sim/model/model.h"

namespace sim::driver {
namespace {

constexpr uint32_t kPortableCluster = 8, kLargestCluster = 16;

struct Request {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t cluster[3] = {0, 0, 0};
  uint32_t shared = 0;
  bool cooperative = false;
  bool early = false;  // may start before the end of the launch in front
};

uint64_t product(const uint32_t (&size)[3]) { return uint64_t{size[0]} * size[1] * size[2]; }

CUresult read_attributes(const CUlaunchConfig& config, Request* request) {
  if (config.numAttrs > 0 && config.attrs == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned at = 0; at < config.numAttrs; ++at) {
    const CUlaunchAttribute& attribute = config.attrs[at];
    switch (attribute.id) {
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        request->cooperative = attribute.value.cooperative != 0;
        break;
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        request->cluster[0] = attribute.value.clusterDim.x;
        request->cluster[1] = attribute.value.clusterDim.y;
        request->cluster[2] = attribute.value.clusterDim.z;
        if (product(request->cluster) == 0) return CUDA_ERROR_INVALID_VALUE;
        break;
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        request->early = attribute.value.programmaticStreamSerializationAllowed != 0;
        break;
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
      case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
        return CUDA_ERROR_NOT_SUPPORTED;
      default:
        if (attribute.id < 0 || attribute.id > CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        break;  // hints: what they allow, such as an early start, is never required
    }
  }
  return CUDA_SUCCESS;
}

CUresult check_block(const Request& request, const Function& function) {
  if (product(request.grid) == 0 || product(request.block) == 0) return CUDA_ERROR_INVALID_VALUE;
  if (request.grid[0] > 2147483647u || request.grid[1] > 65535 || request.grid[2] > 65535 ||
      request.block[0] > 1024 || request.block[1] > 1024 || request.block[2] > 64 ||
      product(request.block) > 1024) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Kernel& kernel = *function.kernel;
  const auto& required = kernel.required_block;
  if (required[0] != 0 && std::memcmp(required, request.block, sizeof required) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (kernel.max_threads != 0 && product(request.block) > kernel.max_threads) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (request.shared > static_cast<uint32_t>(function.max_dynamic_shared)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

// Settles the cluster's size: the launch's, or the one the kernel was compiled for.
CUresult check_cluster(Request* request, const Function& function, const Profile& profile) {
  const Kernel& kernel = *function.kernel;
  const auto& required = kernel.required_cluster;
  if (request->cluster[0] == 0) {
    for (int axis = 0; axis < 3; ++axis) {
      request->cluster[axis] = required[0] != 0 ? required[axis] : 1;
    }
  } else if (required[0] != 0 && std::memcmp(required, request->cluster, sizeof required) != 0) {
    return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  }
  const uint64_t size = product(request->cluster);
  if (size == 1) return CUDA_SUCCESS;
  if (!profile.clusters) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  const uint32_t most = function.non_portable_cluster ? kLargestCluster : kPortableCluster;
  if (size > most || (kernel.max_cluster_rank != 0 && size > kernel.max_cluster_rank)) {
    return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  }
  for (int axis = 0; axis < 3; ++axis) {
    if (request->grid[axis] % request->cluster[axis] != 0) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  }
  return CUDA_SUCCESS;
}

CUresult read_extra(void** extra, std::vector<uint8_t>* params) {
  const uint8_t* buffer = nullptr;
  const size_t* bytes = nullptr;
  for (; extra[0] != CU_LAUNCH_PARAM_END; extra += 2) {
    if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = static_cast<const uint8_t*>(extra[1]);
    } else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      bytes = static_cast<const size_t*>(extra[1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (buffer == nullptr || bytes == nullptr || *bytes < params->size()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::copy(buffer, buffer + params->size(), params->begin());
  return CUDA_SUCCESS;
}

CUresult read_params(const Kernel& kernel, void** each, void** extra,
                     std::vector<uint8_t>* params) {
  params->assign(kernel.param_bytes, 0);
  if (each != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (extra != nullptr) return read_extra(extra, params);
  if (kernel.params.empty()) return CUDA_SUCCESS;
  if (each == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t at = 0; at < kernel.params.size(); ++at) {
    if (each[at] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(params->data() + kernel.params[at].offset, each[at], kernel.params[at].bytes);
  }
  return CUDA_SUCCESS;
}

void tell_launch(const Grid& grid, const Outcome& outcome, const std::string& name) {
  const model::Gpu* gpu = model::find_gpu(name);
  if (gpu == nullptr) return;
  const uint64_t blocks = product(grid.grid), ran = outcome.counters.sampled_blocks;
  const model::Prediction prediction = model::predict(outcome.counters, blocks, *gpu);
  const uint64_t sectors =
      outcome.counters.unique_load_sectors + outcome.counters.unique_store_sectors;
  tell(
      {"launch", grid.kernel->name, prediction.bound, 32 * sectors, 1e6 * prediction.seconds, ran});
}

CUresult run(const Grid& grid, Context& context, const Options& options, uint32_t stack_bytes,
             const Past& past) {
  const Device& device = *context.device;
  Traces traces;
  if (wants_clock()) traces.most = clock::blocks_to_trace(grid, device.profile);
  const Settings settings = {.seed = options.seed,
                             .threads = options.threads,
                             .check = options.check,
                             .instruction_limit = options.instruction_limit,
                             .async_policy = options.async_policy,
                             .tensor_sum = options.tensor_sum,
                             .stack_bytes = stack_bytes,
                             .profile = options.profile_lines,
                             .sample_blocks = options.sample_blocks,
                             .give_way = [&] { return give_way(Driver::get(), context); },
                             .traces = traces.most > 0 ? &traces : nullptr};
  const Outcome outcome = settings.sample_blocks > 0
                              ? run_sampled(grid, device, settings, options.sample_instructions)
                              : run_grid(grid, device.profile, *device.memory, settings);
  report_launch(grid, outcome, device.profile.gpu);
  if (traces.most > 0) report_clock(grid, device.profile, outcome, traces, options.clock_picture);
  tell_launch(grid, outcome, device.profile.gpu);
  if (past) *past = outcome.past;
  return static_cast<CUresult>(outcome.error);
}

// Every check of a launch; then the work it is, in the function's context.
CUresult make_action(Driver& driver, Context& context, Function& function, Request request,
                     void** each, void** extra, const Past& before, const Past& past, Action* out) {
  const Device& device = *context.device;
  const Kernel& kernel = *function.kernel;
  CUresult result = check_block(request, function);
  if (result != CUDA_SUCCESS) return result;
  if (!registers_suffice(driver.options, function, device.profile,
                         static_cast<int>(product(request.block)))) {
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  }
  result = check_cluster(&request, function, device.profile);
  if (result != CUDA_SUCCESS) return result;
  const int resident = most_blocks_per_multiprocessor(
      kernel, device.profile, static_cast<int>(product(request.block)), request.shared);
  if (resident == 0) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  if (request.cooperative &&
      product(request.grid) > uint64_t(resident) * uint64_t(device.profile.multiprocessors)) {
    return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  }
  Grid grid;
  std::copy(request.grid, request.grid + 3, grid.grid);
  std::copy(request.block, request.block + 3, grid.block);
  std::copy(request.cluster, request.cluster + 3, grid.cluster);
  grid.dynamic_shared_bytes = request.shared;
  grid.cooperative = request.cooperative;
  result = read_params(kernel, each, extra, &grid.params);
  if (result != CUDA_SUCCESS) return result;
  const std::shared_ptr<const Image> image = function.module->image;
  grid.kernel = &kernel;
  grid.image = image.get();
  const auto stack = static_cast<uint32_t>(context.limits[CU_LIMIT_STACK_SIZE]);
  if (!context.heap) {
    context.heap =
        std::make_shared<Heap>(device.memory.get(), context.limits[CU_LIMIT_MALLOC_HEAP_SIZE]);
  }
  grid.heap = context.heap.get();
  *out = [grid, image, stack, heap = context.heap, before, past, &context,
          &options = driver.options]() mutable {
    grid.before = before ? *before : nullptr;
    return run(grid, context, options, stack, past);
  };
  return CUDA_SUCCESS;
}

CUresult launch(CUfunction handle, CUstream stream_handle, const Request& request, void** each,
                void** extra) {
  return with_context([&](Driver& driver, Lock&, Context& context) -> CUresult {
    std::shared_ptr<Function> function;
    CUresult result = resolve_function(driver, context, handle, &function);
    if (result != CUDA_SUCCESS) return result;
    std::shared_ptr<Stream> stream;
    result = resolve_stream(driver, context, stream_handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (function->module->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
    // Whatever else is in the stream between two launches keeps them apart.
    const bool next = request.early && stream->last && stream->last == stream->past_of;
    const Past past = stream->capture ? nullptr : std::make_shared<Past::element_type>();
    Action action;
    result = make_action(driver, *stream->context, *function, request, each, extra,
                         next ? stream->past : nullptr, past, &action);
    if (result != CUDA_SUCCESS) return result;
    result = submit(driver, *stream, std::move(action));
    if (result != CUDA_SUCCESS || !past) return result;
    stream->past = past;
    stream->past_of = stream->last;
    return result;
  });
}

}  // namespace

CUresult kernel_action(Driver& driver, Context& context, const CUDA_KERNEL_NODE_PARAMS& given,
                       Action* out) {
  std::shared_ptr<Function> function;
  const auto handle = given.func != nullptr ? given.func : reinterpret_cast<CUfunction>(given.kern);
  const CUresult result = resolve_function(driver, context, handle, &function);
  if (result != CUDA_SUCCESS) return result;
  const Request request = {{given.gridDimX, given.gridDimY, given.gridDimZ},
                           {given.blockDimX, given.blockDimY, given.blockDimZ},
                           {},
                           given.sharedMemBytes,
                           false};
  return make_action(driver, *function->module->context, *function, request, given.kernelParams,
                     given.extra, nullptr, nullptr, out);
}

}  // namespace sim::driver

using namespace sim::driver;

SIM_API cuLaunchKernel(CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                       CUstream stream, void** params, void** extra) {
  const Request request = {
      {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, {}, shared, false};
  return launch(f, stream, request, params, extra);
}

SIM_API cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** params, void** extra) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Request request = {{config->gridDimX, config->gridDimY, config->gridDimZ},
                     {config->blockDimX, config->blockDimY, config->blockDimZ},
                     {},
                     config->sharedMemBytes,
                     false};
  const CUresult result = read_attributes(*config, &request);
  return result != CUDA_SUCCESS ? result : launch(f, config->hStream, request, params, extra);
}

SIM_API cuLaunchCooperativeKernel(CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                  unsigned block_x, unsigned block_y, unsigned block_z,
                                  unsigned shared, CUstream stream, void** params) {
  const Request request = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, {}, shared, true};
  return launch(f, stream, request, params, nullptr);
}
