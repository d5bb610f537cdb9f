// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles kernel launches: every check the hardware's driver makes, then the grid as work
// in a stream.
#include "sim/clock/kernel_time.h"
#include "sim/driver/code/function.h"
#include "sim/driver/code/request.h"
#include "sim/driver/code/sampled.h"
#include "sim/driver/entry.h"
#include "sim/driver/order.h"
#include "sim/driver/report/report.h"
#include "sim/driver/work.h"
#include "sim/exec/heap.h"

namespace sim::driver {
namespace {

// Tells the grid where it stands among the work of its device.
void place(Driver& driver, Context& context, Grid* grid) {
  const Operation* const operation = thread_state().operation;
  if (operation == nullptr) return;
  const Lock lock(driver.mutex);
  grid->order = operation->completion->order;
  grid->world =
      world_for(driver, *context.device, *operation, grid->kernel->code->tells_dependents);
}

// Says whether the launch in front of this one is over, for griddepcontrol.wait. Empty: it was
// before this one began.
std::function<bool()> primary_of(Driver& driver) {
  const Operation* const operation = thread_state().operation;
  if (operation == nullptr || !operation->primary) return nullptr;
  const CompletionPtr front = operation->primary_done;
  const Lock lock(driver.mutex);
  if (front->done) return nullptr;
  return [&driver, front] {
    const Lock held(driver.mutex);
    return front->done;
  };
}

CUresult run(Grid grid, Context& context, Driver& driver, uint32_t stack_bytes) {
  const Device& device = *context.device;
  const Options& options = driver.options;
  Traces traces;
  if (wants_clock()) traces.most = clock::blocks_to_trace(grid, device.profile);
  place(driver, context, &grid);
  const Settings settings = {
      .seed = options.seed,
      .threads = options.threads,
      .check = options.check,
      .instruction_limit = options.instruction_limit,
      .async_policy = options.async_policy,
      .tensor_sum = options.tensor_sum,
      .stack_bytes = stack_bytes,
      .profile = options.profile_lines,
      .sample_blocks = options.sample_blocks,
      .give_way = [&](bool urgent) { return give_way(driver, context, urgent); },
      .primary_over = primary_of(driver),
      .traces = traces.most > 0 ? &traces : nullptr};
  const Outcome outcome = settings.sample_blocks > 0
                              ? run_sampled(grid, device, settings, options.sample_instructions)
                              : run_grid(grid, device.profile, *device.memory, settings);
  report_launch(grid, outcome, device.profile.gpu);
  ClockTime clock;
  if (wants_clock()) {
    clock = report_clock(grid, device.profile, outcome, traces, options.clock_picture);
  }
  record_launch(grid, outcome, device.profile, clock);
  return static_cast<CUresult>(outcome.error);
}

// Every check of a launch; then the work it is, in the function's context.
CUresult make_action(Driver& driver, Context& context, Function& function, Request request,
                     void** each, void** extra, std::shared_ptr<Dependence> dependence,
                     Action* out) {
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
  grid.dependence = std::move(dependence);
  *out = [grid, image, stack, heap = context.heap, &context, &driver] {
    return run(grid, context, driver, stack);
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
    const bool next = request.early && stream->last && stream->last == stream->dependence_of;
    const auto dependence = stream->capture ? nullptr : std::make_shared<Dependence>();
    Action action;
    result =
        make_action(driver, *stream->context, *function, request, each, extra, dependence, &action);
    if (result != CUDA_SUCCESS) return result;
    const CompletionPtr front = stream->last;
    result = submit(driver, *stream, std::move(action));
    if (result != CUDA_SUCCESS || !dependence) return result;
    if (next) {
      stream->queue.back()->primary = stream->dependence;
      stream->queue.back()->primary_done = front;
    }
    stream->dependence = dependence;
    stream->dependence_of = stream->last;
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
                     given.extra, nullptr, out);
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
