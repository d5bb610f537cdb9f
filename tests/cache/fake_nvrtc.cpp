// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A compiler library that compiles everything to the same few bytes. Built twice, with two build
// ids.
#include <cstring>

#include "abi/nvrtc.h"

#define FAKE_API extern "C" __attribute__((visibility("default"))) nvrtcResult

namespace {
constexpr char kBytes[] = "compiled by a fake";
}

FAKE_API nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 7;
  return NVRTC_SUCCESS;
}
extern "C" __attribute__((visibility("default"))) const char* nvrtcGetErrorString(nvrtcResult) {
  return "fake";
}
FAKE_API nvrtcGetNumSupportedArchs(int* count) { return *count = 0, NVRTC_SUCCESS; }
FAKE_API nvrtcGetSupportedArchs(int*) { return NVRTC_SUCCESS; }
FAKE_API nvrtcCreateProgram(nvrtcProgram* program, const char*, const char*, int,
                            const char* const*, const char* const*) {
  static int object;
  *program = reinterpret_cast<nvrtcProgram>(&object);
  return NVRTC_SUCCESS;
}
FAKE_API nvrtcDestroyProgram(nvrtcProgram*) { return NVRTC_SUCCESS; }
FAKE_API nvrtcCompileProgram(nvrtcProgram, int, const char* const*) { return NVRTC_SUCCESS; }
FAKE_API nvrtcGetProgramLogSize(nvrtcProgram, size_t* size) { return *size = 0, NVRTC_SUCCESS; }
FAKE_API nvrtcGetProgramLog(nvrtcProgram, char*) { return NVRTC_SUCCESS; }
FAKE_API nvrtcGetPTXSize(nvrtcProgram, size_t* size) {
  return *size = sizeof(kBytes), NVRTC_SUCCESS;
}
FAKE_API nvrtcGetPTX(nvrtcProgram, char* to) {
  return std::memcpy(to, kBytes, sizeof(kBytes)), NVRTC_SUCCESS;
}
FAKE_API nvrtcGetCUBINSize(nvrtcProgram, size_t* size) {
  return *size = sizeof(kBytes), NVRTC_SUCCESS;
}
FAKE_API nvrtcGetCUBIN(nvrtcProgram, char* to) {
  return std::memcpy(to, kBytes, sizeof(kBytes)), NVRTC_SUCCESS;
}
