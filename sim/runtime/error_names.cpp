// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds the names of all error codes of the runtime API; the sentence is the name in
// words.
#include <array>
#include <cstring>
#include <string>

#include "sim/model/letters.h"
#include "sim/runtime/entry.h"

namespace sim::runtime {
namespace {

struct Entry {
  cudaError_t code;
  const char* name;
};

#define SIM_ERROR(code) \
  { code, #code }
constexpr Entry kErrors[] = {
    SIM_ERROR(cudaSuccess),
    SIM_ERROR(cudaErrorInvalidValue),
    SIM_ERROR(cudaErrorMemoryAllocation),
    SIM_ERROR(cudaErrorInitializationError),
    SIM_ERROR(cudaErrorCudartUnloading),
    SIM_ERROR(cudaErrorProfilerDisabled),
    SIM_ERROR(cudaErrorProfilerNotInitialized),
    SIM_ERROR(cudaErrorProfilerAlreadyStarted),
    SIM_ERROR(cudaErrorProfilerAlreadyStopped),
    SIM_ERROR(cudaErrorInvalidConfiguration),
    SIM_ERROR(cudaErrorInvalidPitchValue),
    SIM_ERROR(cudaErrorInvalidSymbol),
    SIM_ERROR(cudaErrorInvalidHostPointer),
    SIM_ERROR(cudaErrorInvalidDevicePointer),
    SIM_ERROR(cudaErrorInvalidTexture),
    SIM_ERROR(cudaErrorInvalidTextureBinding),
    SIM_ERROR(cudaErrorInvalidChannelDescriptor),
    SIM_ERROR(cudaErrorInvalidMemcpyDirection),
    SIM_ERROR(cudaErrorAddressOfConstant),
    SIM_ERROR(cudaErrorTextureFetchFailed),
    SIM_ERROR(cudaErrorTextureNotBound),
    SIM_ERROR(cudaErrorSynchronizationError),
    SIM_ERROR(cudaErrorInvalidFilterSetting),
    SIM_ERROR(cudaErrorInvalidNormSetting),
    SIM_ERROR(cudaErrorMixedDeviceExecution),
    SIM_ERROR(cudaErrorNotYetImplemented),
    SIM_ERROR(cudaErrorMemoryValueTooLarge),
    SIM_ERROR(cudaErrorStubLibrary),
    SIM_ERROR(cudaErrorInsufficientDriver),
    SIM_ERROR(cudaErrorCallRequiresNewerDriver),
    SIM_ERROR(cudaErrorInvalidSurface),
    SIM_ERROR(cudaErrorDuplicateVariableName),
    SIM_ERROR(cudaErrorDuplicateTextureName),
    SIM_ERROR(cudaErrorDuplicateSurfaceName),
    SIM_ERROR(cudaErrorDevicesUnavailable),
    SIM_ERROR(cudaErrorIncompatibleDriverContext),
    SIM_ERROR(cudaErrorMissingConfiguration),
    SIM_ERROR(cudaErrorPriorLaunchFailure),
    SIM_ERROR(cudaErrorLaunchMaxDepthExceeded),
    SIM_ERROR(cudaErrorLaunchFileScopedTex),
    SIM_ERROR(cudaErrorLaunchFileScopedSurf),
    SIM_ERROR(cudaErrorSyncDepthExceeded),
    SIM_ERROR(cudaErrorLaunchPendingCountExceeded),
    SIM_ERROR(cudaErrorInvalidDeviceFunction),
    SIM_ERROR(cudaErrorNoDevice),
    SIM_ERROR(cudaErrorInvalidDevice),
    SIM_ERROR(cudaErrorDeviceNotLicensed),
    SIM_ERROR(cudaErrorSoftwareValidityNotEstablished),
    SIM_ERROR(cudaErrorStartupFailure),
    SIM_ERROR(cudaErrorInvalidKernelImage),
    SIM_ERROR(cudaErrorDeviceUninitialized),
    SIM_ERROR(cudaErrorMapBufferObjectFailed),
    SIM_ERROR(cudaErrorUnmapBufferObjectFailed),
    SIM_ERROR(cudaErrorArrayIsMapped),
    SIM_ERROR(cudaErrorAlreadyMapped),
    SIM_ERROR(cudaErrorNoKernelImageForDevice),
    SIM_ERROR(cudaErrorAlreadyAcquired),
    SIM_ERROR(cudaErrorNotMapped),
    SIM_ERROR(cudaErrorNotMappedAsArray),
    SIM_ERROR(cudaErrorNotMappedAsPointer),
    SIM_ERROR(cudaErrorECCUncorrectable),
    SIM_ERROR(cudaErrorUnsupportedLimit),
    SIM_ERROR(cudaErrorDeviceAlreadyInUse),
    SIM_ERROR(cudaErrorPeerAccessUnsupported),
    SIM_ERROR(cudaErrorInvalidPtx),
    SIM_ERROR(cudaErrorInvalidGraphicsContext),
    SIM_ERROR(cudaErrorNvlinkUncorrectable),
    SIM_ERROR(cudaErrorJitCompilerNotFound),
    SIM_ERROR(cudaErrorUnsupportedPtxVersion),
    SIM_ERROR(cudaErrorJitCompilationDisabled),
    SIM_ERROR(cudaErrorUnsupportedExecAffinity),
    SIM_ERROR(cudaErrorUnsupportedDevSideSync),
    SIM_ERROR(cudaErrorContained),
    SIM_ERROR(cudaErrorInvalidSource),
    SIM_ERROR(cudaErrorFileNotFound),
    SIM_ERROR(cudaErrorSharedObjectSymbolNotFound),
    SIM_ERROR(cudaErrorSharedObjectInitFailed),
    SIM_ERROR(cudaErrorOperatingSystem),
    SIM_ERROR(cudaErrorInvalidResourceHandle),
    SIM_ERROR(cudaErrorIllegalState),
    SIM_ERROR(cudaErrorLossyQuery),
    SIM_ERROR(cudaErrorSymbolNotFound),
    SIM_ERROR(cudaErrorNotReady),
    SIM_ERROR(cudaErrorIllegalAddress),
    SIM_ERROR(cudaErrorLaunchOutOfResources),
    SIM_ERROR(cudaErrorLaunchTimeout),
    SIM_ERROR(cudaErrorLaunchIncompatibleTexturing),
    SIM_ERROR(cudaErrorPeerAccessAlreadyEnabled),
    SIM_ERROR(cudaErrorPeerAccessNotEnabled),
    SIM_ERROR(cudaErrorSetOnActiveProcess),
    SIM_ERROR(cudaErrorContextIsDestroyed),
    SIM_ERROR(cudaErrorAssert),
    SIM_ERROR(cudaErrorTooManyPeers),
    SIM_ERROR(cudaErrorHostMemoryAlreadyRegistered),
    SIM_ERROR(cudaErrorHostMemoryNotRegistered),
    SIM_ERROR(cudaErrorHardwareStackError),
    SIM_ERROR(cudaErrorIllegalInstruction),
    SIM_ERROR(cudaErrorMisalignedAddress),
    SIM_ERROR(cudaErrorInvalidAddressSpace),
    SIM_ERROR(cudaErrorInvalidPc),
    SIM_ERROR(cudaErrorLaunchFailure),
    SIM_ERROR(cudaErrorCooperativeLaunchTooLarge),
    SIM_ERROR(cudaErrorTensorMemoryLeak),
    SIM_ERROR(cudaErrorNotPermitted),
    SIM_ERROR(cudaErrorNotSupported),
    SIM_ERROR(cudaErrorSystemNotReady),
    SIM_ERROR(cudaErrorSystemDriverMismatch),
    SIM_ERROR(cudaErrorCompatNotSupportedOnDevice),
    SIM_ERROR(cudaErrorMpsConnectionFailed),
    SIM_ERROR(cudaErrorMpsRpcFailure),
    SIM_ERROR(cudaErrorMpsServerNotReady),
    SIM_ERROR(cudaErrorMpsMaxClientsReached),
    SIM_ERROR(cudaErrorMpsMaxConnectionsReached),
    SIM_ERROR(cudaErrorMpsClientTerminated),
    SIM_ERROR(cudaErrorCdpNotSupported),
    SIM_ERROR(cudaErrorCdpVersionMismatch),
    SIM_ERROR(cudaErrorStreamCaptureUnsupported),
    SIM_ERROR(cudaErrorStreamCaptureInvalidated),
    SIM_ERROR(cudaErrorStreamCaptureMerge),
    SIM_ERROR(cudaErrorStreamCaptureUnmatched),
    SIM_ERROR(cudaErrorStreamCaptureUnjoined),
    SIM_ERROR(cudaErrorStreamCaptureIsolation),
    SIM_ERROR(cudaErrorStreamCaptureImplicit),
    SIM_ERROR(cudaErrorCapturedEvent),
    SIM_ERROR(cudaErrorStreamCaptureWrongThread),
    SIM_ERROR(cudaErrorTimeout),
    SIM_ERROR(cudaErrorGraphExecUpdateFailure),
    SIM_ERROR(cudaErrorExternalDevice),
    SIM_ERROR(cudaErrorInvalidClusterSize),
    SIM_ERROR(cudaErrorFunctionNotLoaded),
    SIM_ERROR(cudaErrorInvalidResourceType),
    SIM_ERROR(cudaErrorInvalidResourceConfiguration),
    SIM_ERROR(cudaErrorUnknown),
};
#undef SIM_ERROR

constexpr size_t kCount = sizeof(kErrors) / sizeof(kErrors[0]);
constexpr char kUnrecognized[] = "unrecognized error code";

size_t index_of(int error) {
  size_t at = 0;
  while (at < kCount && kErrors[at].code != error) ++at;
  return at;
}

// "cudaErrorECCUncorrectable" -> "ecc uncorrectable"
std::string in_words(const char* name) {
  if (std::strcmp(name, "cudaSuccess") == 0) return "no error";
  std::string words;
  for (const char* at = name + std::strlen("cudaError"); *at != 0; ++at) {
    const bool starts = is_upper(*at) && (is_lower(at[-1]) || is_lower(at[1]));
    if (starts && !words.empty()) words += ' ';
    words += to_lower(*at);
  }
  return words;
}

}  // namespace

bool is_known(int error) { return index_of(error) < kCount; }

}  // namespace sim::runtime

using namespace sim::runtime;

SIM_RUNTIME const char* cudaGetErrorName(cudaError_t error) {
  const size_t at = index_of(error);
  return at < kCount ? kErrors[at].name : kUnrecognized;
}

SIM_RUNTIME const char* cudaGetErrorString(cudaError_t error) {
  static const auto* texts = [] {
    auto* made = new std::array<std::string, kCount>;
    for (size_t at = 0; at < kCount; ++at) (*made)[at] = in_words(kErrors[at].name);
    return made;
  }();
  const size_t at = index_of(error);
  return at < kCount ? (*texts)[at].c_str() : kUnrecognized;
}
