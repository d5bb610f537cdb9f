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

// Each entry is X(name, the first version that has it). The pointer is null where the library lacks
// it.
#define LATHE_NCCL_OPTIONAL(X) X(ncclCommSplit, NCCL_VERSION(2, 18, 1))

struct Nccl {
#define LATHE_NCCL_MEMBER(name, ...) decltype(&::name) name = nullptr;
  LATHE_NCCL_FUNCTIONS(LATHE_NCCL_MEMBER)
  LATHE_NCCL_OPTIONAL(LATHE_NCCL_MEMBER)
#undef LATHE_NCCL_MEMBER
  std::string path;
  int version = 0;  // 22809
};

enum class NcclChoice { real, threads };  // threads: the drop-in beside the simulator

// Opens the library once per process and choice. `LATHE_NCCL` names the file to use as the real
// one, which may be the drop-in; without it the drop-in is never taken for real.
Result<std::shared_ptr<const Nccl>> open_nccl(NcclChoice choice);

// Returns NCCL if the optional function `name` is missing; the message has the library's version
// and the first version that has `name`. Returns ok otherwise.
Status require(const Nccl& nccl, const char* name);

// Returns ok for ncclSuccess, else NCCL with the call, the error's sentence and the communicator's
// last error.
Status check(const Nccl& nccl, ncclComm_t comm, ncclResult_t result, const char* call);

}  // namespace lathe
