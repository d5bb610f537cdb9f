// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Sends keys to their readers and gradients back. The number of pieces depends on the documents, so
// messages are posted one by one and not stored: the run path allocates nothing.
#include "collective/exchange.h"
#include "collective/plans/key_gather.h"

namespace lathe {
namespace {

template <typename Tell>
Status post_group(Group& group, const Collective& what, const Tell& tell) {
  return post(group, what,
              [&](const Nccl&, ncclComm_t, CUstream) { return in_group(group, tell); });
}

// Counts bytes for the message of a timeout.
template <typename Tensors>
uint64_t rows_bytes(const Tensors& tensors, int64_t rows) {
  int64_t sum = 0;
  for (const auto& tensor : tensors) sum += rows * tensor.row_bytes;
  return static_cast<uint64_t>(sum);
}

Status copy_own(Group& group, const KeyPieces& pieces, const GatheredTensor& tensor, char* own,
                char* gathered, CUstream stream) {
  const Driver& driver = group.device().driver();
  const auto address = [](const char* data) { return reinterpret_cast<CUdeviceptr>(data); };
  for (const KeyPiece& piece : pieces) {
    const auto bytes = static_cast<size_t>(piece.tokens * tensor.row_bytes);
    if (bytes == 0) continue;
    LATHE_TRY(check(
        driver,
        driver.cuMemcpyDtoDAsync(address(gathered + piece.at_reader * tensor.row_bytes),
                                 address(own + piece.at_owner * tensor.row_bytes), bytes, stream),
        "cuMemcpyDtoDAsync"));
  }
  return {};
}

}  // namespace

Status gather_keys(Group& group, const KeyGather& plan, std::span<const GatheredTensor> tensors,
                   int64_t batch, CUstream stream) {
  const int world = static_cast<int>(plan.from.size());
  LATHE_TRY(group.usable());
  LATHE_TRY(group.exchange_after(stream));
  if (batch > 0 && plan.received() + plan.sent() > 0) {
    const Collective what{"the gathering of keys", 0, rows_bytes(tensors, plan.sent() * batch)};
    LATHE_TRY(post_group(group, what, [&](Messages& messages) {
      for (const GatheredTensor& tensor : tensors) {
        for (int64_t b = 0; b < batch; ++b) {
          const char* own = tensor.own + b * tensor.own_batch_bytes;
          char* gathered = tensor.gathered + b * plan.keys * tensor.row_bytes;
          for (int peer = 0; peer < world; ++peer) {
            if (peer == plan.rank) continue;
            for (const KeyPiece& piece : plan.from[peer]) {
              messages.receive(peer, gathered + piece.at_reader * tensor.row_bytes,
                               piece.tokens * tensor.row_bytes);
            }
            for (const KeyPiece& piece : plan.to[peer]) {
              messages.send(peer, own + piece.at_owner * tensor.row_bytes,
                            piece.tokens * tensor.row_bytes);
            }
          }
        }
      }
    }));
  }
  for (const GatheredTensor& tensor : tensors) {
    for (int64_t b = 0; b < batch; ++b) {
      LATHE_TRY(copy_own(group, plan.from[plan.rank], tensor,
                         tensor.own + b * tensor.own_batch_bytes,
                         tensor.gathered + b * plan.keys * tensor.row_bytes, stream));
    }
  }
  return {};
}

Status return_gradients(Group& group, const KeyGather& plan,
                        std::span<const ReturnedTensor> tensors, int64_t batch,
                        const SharedBytes& shared, CUstream stream) {
  const int world = static_cast<int>(plan.from.size());
  LATHE_TRY(group.usable());
  LATHE_TRY(group.exchange_after(stream));
  const bool rows = !tensors.empty() && batch > 0 && plan.received() + plan.sent() > 0;
  if (!rows && shared.bytes == 0) return {};
  const Collective what{"the return of key gradients", 0,
                        rows_bytes(tensors, plan.received() * batch)};
  return post_group(group, what, [&](Messages& messages) {
    for (const ReturnedTensor& tensor : tensors) {
      for (int64_t b = 0; b < batch; ++b) {
        const char* gathered = tensor.gathered + b * plan.keys * tensor.row_bytes;
        char* returned = tensor.returned + b * plan.returned.back() * tensor.row_bytes;
        for (int peer = 0; peer < world; ++peer) {
          if (peer == plan.rank) continue;
          char* next = returned + plan.returned[peer] * tensor.row_bytes;
          for (const KeyPiece& piece : plan.to[peer]) {
            messages.receive(peer, next, piece.tokens * tensor.row_bytes);
            next += piece.tokens * tensor.row_bytes;
          }
          for (const KeyPiece& piece : plan.from[peer]) {
            messages.send(peer, gathered + piece.at_reader * tensor.row_bytes,
                          piece.tokens * tensor.row_bytes);
          }
        }
      }
    }
    for (int peer = 0; peer < world; ++peer) {
      if (peer == plan.rank) continue;
      messages.receive(peer, shared.data + peer * shared.bytes, shared.bytes);
      messages.send(peer, shared.data + plan.rank * shared.bytes, shared.bytes);
    }
  });
}

}  // namespace lathe
