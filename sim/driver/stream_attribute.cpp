// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles attributes of streams: hints, answered as they were set.
#include "sim/driver/entry.h"
#include "sim/driver/work.h"

using namespace sim::driver;

namespace {

CUresult set(Stream& stream, CUstreamAttrID attribute, const CUstreamAttrValue& value) {
  switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      stream.attributes[attribute] = value;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      stream.priority = std::min(0, std::max(value.priority, -5));
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

SIM_API cuStreamSetAttribute(CUstream handle, CUstreamAttrID attribute,
                             const CUstreamAttrValue* value) {
  return with_stream(handle, [&](Driver&, Lock&, Stream& stream) -> CUresult {
    return value != nullptr ? set(stream, attribute, *value) : CUDA_ERROR_INVALID_VALUE;
  });
}

SIM_API cuStreamGetAttribute(CUstream handle, CUstreamAttrID attribute, CUstreamAttrValue* value) {
  return with_stream(handle, [&](Driver&, Lock&, const Stream& stream) -> CUresult {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUstreamAttrValue answer = {};
    if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
      answer.priority = stream.priority;
    } else if (const auto it = stream.attributes.find(attribute); it != stream.attributes.end()) {
      answer = it->second;
    } else {  // unset: all zero, if there is such an attribute
      Stream trial;
      const CUresult known = set(trial, attribute, answer);
      if (known != CUDA_SUCCESS) return known;
    }
    *value = answer;
    return CUDA_SUCCESS;
  });
}

SIM_API cuStreamCopyAttributes(CUstream to_handle, CUstream from_handle) {
  return with_context([&](Driver& driver, Lock&, Context& context) -> CUresult {
    std::shared_ptr<Stream> to, from;
    CUresult result = resolve_stream(driver, context, to_handle, &to);
    if (result == CUDA_SUCCESS) result = resolve_stream(driver, context, from_handle, &from);
    if (result == CUDA_SUCCESS) to->attributes = from->attributes;
    return result;
  });
}

SIM_API cuStreamSetAttribute_ptsz(CUstream stream, CUstreamAttrID attribute,
                                  const CUstreamAttrValue* value) {
  return cuStreamSetAttribute(own(stream), attribute, value);
}

SIM_API cuStreamGetAttribute_ptsz(CUstream stream, CUstreamAttrID attribute,
                                  CUstreamAttrValue* value) {
  return cuStreamGetAttribute(own(stream), attribute, value);
}

SIM_API cuStreamCopyAttributes_ptsz(CUstream to, CUstream from) {
  return cuStreamCopyAttributes(own(to), own(from));
}
