// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This is the one table of NCCL entry points. dlopen finds the real libnccl.so.2, or the drop-in
// whose ranks are threads of one process.
#pragma once

#include <memory>
#include <string>

#include "abi/nccl.h"
#include "codegen/base/status.h"

namespace lathe {

#define LATHE_NCCL_FUNCTIONS(X) \
  X(ncclGetVersion)             \
  X(ncclGetUniqueId)            \
  X(ncclCommInitRankConfig)     \
  X(ncclCommFinalize)           \
  X(ncclCommDestroy)            \
  X(ncclCommAbort)              \
  X(ncclCommGetAsyncError)      \
  X(ncclCommCount)              \
  X(ncclCommUserRank)           \
  X(ncclCommCuDevice)           \
  X(ncclGetErrorString)         \
  X(ncclGetLastError)           \
  X(ncclGroupStart)             \
  X(ncclGroupEnd)               \
  X(ncclSend)                   \
  X(ncclRecv)                   \
  X(ncclAllReduce)              \
  X(ncclAllGather)              \
  X(ncclReduceScatter)

struct Nccl {
#define LATHE_NCCL_MEMBER(name) decltype(&::name) name = nullptr;
  LATHE_NCCL_FUNCTIONS(LATHE_NCCL_MEMBER)
  LATHE_NCCL_MEMBER(ncclCommSplit)  // NCCL has it from 2.18.1 on; null where the library lacks it
#undef LATHE_NCCL_MEMBER
  std::string path;
  int version = 0;  // 22809
};

enum class NcclChoice { real, threads };  // threads: the drop-in beside the simulator

// Opens the library once per process and choice. `LATHE_NCCL` names the file to use as the real
// one, which may be the drop-in; without it the drop-in is never taken for real.
Result<std::shared_ptr<const Nccl>> open_nccl(NcclChoice choice);

// Returns ok for ncclSuccess, else NCCL with the call, the error's sentence and the communicator's
// last error.
Status check(const Nccl& nccl, ncclComm_t comm, ncclResult_t result, const char* call);

}  // namespace lathe
