// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles stream memory operations: values that a stream writes or waits for.
#include "sim/driver/entry.h"
#include "sim/driver/graph/capture.h"
#include "sim/driver/work.h"

#undef cuStreamWaitValue32
#undef cuStreamWriteValue32

using namespace sim::driver;

namespace {

template <typename T>
bool holds(T value, T wanted, unsigned condition) {
  using Signed = std::make_signed_t<T>;
  switch (condition) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return static_cast<Signed>(value - wanted) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return value == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
      return (value & wanted) != 0;
    default:
      return static_cast<T>(~(value | wanted)) != 0;
  }
}

template <typename T>
CUresult check_write(Driver& driver, CUdeviceptr address, unsigned flags) {
  const bool good = flags <= CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER && address % sizeof(T) == 0 &&
                    driver.find_block(address, sizeof(T)) != nullptr;
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

template <typename T>
CUresult check_wait(Driver& driver, CUdeviceptr address, unsigned flags) {
  const unsigned condition = flags & ~static_cast<unsigned>(CU_STREAM_WAIT_VALUE_FLUSH);
  const bool good = condition <= CU_STREAM_WAIT_VALUE_NOR && address % sizeof(T) == 0 &&
                    driver.find_block(address, sizeof(T)) != nullptr;
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Notes that the newest work of the stream, or the newest node of its capture, uses a value.
void note_value(Stream& stream, const CompletionPtr& completion, uint64_t address, bool writes) {
  if (completion) {
    completion->value = address;
    completion->writes = writes;
  } else if (stream.capture && !stream.capture->graph->nodes.empty()) {
    Node& node = stream.capture->graph->nodes.back();
    node.value = address;
    node.writes = writes;
  }
}

template <typename T>
CUresult submit_write(Driver& driver, Stream& stream, CUdeviceptr address, T value) {
  sim::Memory* memory = stream.context->device->memory.get();
  CompletionPtr completion;
  auto write = [address, value, memory] {
    __atomic_store_n(reinterpret_cast<T*>(address), value, __ATOMIC_RELEASE);
    memory->define(address, sizeof(T));
    return CUDA_SUCCESS;
  };
  const CUresult result = submit(driver, stream, write, {}, &completion);
  note_value(stream, completion, address, true);
  return result;
}

template <typename T>
CUresult submit_wait(Driver& driver, Stream& stream, CUdeviceptr address, T value, unsigned flags) {
  const unsigned condition = flags & ~static_cast<unsigned>(CU_STREAM_WAIT_VALUE_FLUSH);
  auto ready = [&driver, address, value, condition] {
    // Freed under a waiting stream: nothing can be read any more, the stream goes on.
    if (driver.find_block(address, sizeof(T)) == nullptr) return true;
    return holds<T>(__atomic_load_n(reinterpret_cast<T*>(address), __ATOMIC_ACQUIRE), value,
                    condition);
  };
  CompletionPtr completion;
  const CUresult result = submit(driver, stream, nullptr, {}, &completion, ready);
  note_value(stream, completion, address, false);
  return result;
}

template <typename T>
CUresult write_value(CUstream handle, CUdeviceptr address, T value, unsigned flags) {
  return with_stream(handle, [&](Driver& driver, Lock&, Stream& stream) -> CUresult {
    const CUresult result = check_write<T>(driver, address, flags);
    return result != CUDA_SUCCESS ? result : submit_write<T>(driver, stream, address, value);
  });
}

template <typename T>
CUresult wait_value(CUstream handle, CUdeviceptr address, T value, unsigned flags) {
  return with_stream(handle, [&](Driver& driver, Lock&, Stream& stream) -> CUresult {
    const CUresult result = check_wait<T>(driver, address, flags);
    return result != CUDA_SUCCESS ? result : submit_wait<T>(driver, stream, address, value, flags);
  });
}

using Operations = CUstreamBatchMemOpParams;

CUresult check_one(Driver& driver, const Operations& each) {
  switch (each.operation) {
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return check_write<uint32_t>(driver, each.writeValue.address, each.writeValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return check_write<uint64_t>(driver, each.writeValue.address, each.writeValue.flags);
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return check_wait<uint32_t>(driver, each.waitValue.address, each.waitValue.flags);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return check_wait<uint64_t>(driver, each.waitValue.address, each.waitValue.flags);
    case CU_STREAM_MEM_OP_BARRIER:
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult submit_one(Driver& driver, Stream& stream, const Operations& each) {
  const auto& write = each.writeValue;
  const auto& wait = each.waitValue;
  switch (each.operation) {
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return submit_write<uint32_t>(driver, stream, write.address, write.value);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return submit_write<uint64_t>(driver, stream, write.address, write.value64);
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return submit_wait<uint32_t>(driver, stream, wait.address, wait.value, wait.flags);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return submit_wait<uint64_t>(driver, stream, wait.address, wait.value64, wait.flags);
    default:
      return CUDA_SUCCESS;  // memory is consistent here
  }
}

}  // namespace

// SIM_VALUE(name, twin, function, type): a call that writes a value or waits for one, and its twin
// whose stream 0 is the thread's own.
#define SIM_VALUE(name, twin, function, type)                                      \
  SIM_API name(CUstream stream, CUdeviceptr address, type value, unsigned flags) { \
    return function<type>(stream, address, value, flags);                          \
  }                                                                                \
  SIM_API twin(CUstream stream, CUdeviceptr address, type value, unsigned flags) { \
    return function<type>(own(stream), address, value, flags);                     \
  }

SIM_VALUE(cuStreamWriteValue32_v2, cuStreamWriteValue32_v2_ptsz, write_value, cuuint32_t)
SIM_VALUE(cuStreamWaitValue32_v2, cuStreamWaitValue32_v2_ptsz, wait_value, cuuint32_t)
SIM_VALUE(cuStreamWriteValue64_v2, cuStreamWriteValue64_v2_ptsz, write_value, cuuint64_t)
SIM_VALUE(cuStreamWaitValue64_v2, cuStreamWaitValue64_v2_ptsz, wait_value, cuuint64_t)

// All are checked before the first is enqueued.
SIM_API cuStreamBatchMemOp_v2(CUstream handle, unsigned count, Operations* all, unsigned flags) {
  return with_stream(handle, [&](Driver& driver, Lock&, Stream& stream) -> CUresult {
    if (count == 0 || count > 256 || all == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    for (unsigned at = 0; at < count && result == CUDA_SUCCESS; ++at) {
      result = check_one(driver, all[at]);
    }
    for (unsigned at = 0; at < count && result == CUDA_SUCCESS; ++at) {
      result = submit_one(driver, stream, all[at]);
    }
    return result;
  });
}

SIM_API cuStreamBatchMemOp_v2_ptsz(CUstream stream, unsigned count, Operations* all,
                                   unsigned flags) {
  return cuStreamBatchMemOp_v2(own(stream), count, all, flags);
}
