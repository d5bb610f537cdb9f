// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// From a shard to the tables that sparse attention reads on it: runs of rows, positions, and where
// the parts of key gradients lie.
#include <cstring>

#include "codegen/base/invalid.h"
#include "ops/group.h"
#include "ops/sparse/ranks.h"

namespace lathe {
namespace {

constexpr int64_t kMostKeys = int64_t{1} << 30;  // positions are added in 32 bits

// Arrays one behind the other, as they will lie on the device.
class Image {
 public:
  template <typename T>
  size_t add(const std::vector<T>& values) {
    const size_t at = bytes_.size(), bytes = values.size() * sizeof(T);
    bytes_.resize((at + bytes + 15) / 16 * 16);
    if (bytes > 0) std::memcpy(bytes_.data() + at, values.data(), bytes);
    return at;
  }
  size_t add_offsets(const std::vector<int64_t>& values, Dtype dtype) {
    if (dtype == Dtype::i64) return add(values);
    return add(std::vector<int32_t>(values.begin(), values.end()));
  }
  const std::vector<char>& bytes() const { return bytes_; }

 private:
  std::vector<char> bytes_;
};

Status check_layout(const SparseRequest& request, const Layout& layout) {
  LATHE_TRY(check_shard_form(layout, request.problem.packed, "cu_seqlens_q"));
  if (layout.key_length <= kMostKeys) return {};
  return Status(Code::unsupported, text("the shard has key_length ", layout.key_length,
                                        "; sparse_flash_attention allows 0 to ", kMostKeys));
}

struct RunTables {
  std::vector<int64_t> rows = {0}, starts, ends, origins;
  explicit RunTables(const std::vector<KeyRun>& runs) {
    for (const KeyRun& run : runs) {
      rows.push_back(run.rows_end);
      starts.push_back(run.keys_begin), ends.push_back(run.keys_end);
      origins.push_back(run.origin);
    }
  }
};

}  // namespace

Result<std::unique_ptr<const SparseShardState>> SparseShardState::make(const SparseRequest& request,
                                                                       const lathe_shard& shard,
                                                                       const Device& device) {
  const Layout& layout = shard.layout;
  LATHE_TRY(check_layout(request, layout));
  // Positions of the caller's may be anything: then no key of a sequence can be left out.
  const bool derived = request.causal && !request.positions;
  auto out = std::make_unique<SparseShardState>();
  out->gather = key_gather(layout, shard.rank, derived);
  out->sequences = static_cast<int64_t>(layout.cu_seqlens.size()) - 1;
  SparsePlaces& places = out->places;
  places.runs = static_cast<int64_t>(out->gather.runs.size());
  places.whole_keys = layout.key_length;

  Image image;
  const RunTables runs(out->gather.runs);
  const Dtype offsets = request.problem.cu_seqlens;
  const size_t rows_at = image.add_offsets(runs.rows, offsets);
  const size_t starts_at = image.add_offsets(runs.starts, offsets);
  const size_t ends_at = image.add_offsets(runs.ends, offsets);
  const size_t origins_at = image.add_offsets(runs.origins, offsets);
  const size_t positions_at =
      derived ? image.add(row_positions(layout, shard.rank)) : image.bytes().size();
  const bool sums = request.gradients.dk || request.gradients.dv;
  const size_t sources_at = image.bytes().size();
  if (sums) image.add(gradient_sources(out->gather));
  LATHE_ASSIGN(out->table_, DeviceTable::upload(device, std::as_bytes(std::span(image.bytes()))));
  const char* const table = out->table_.data();
  places.cu_seqlens_q = table + rows_at;
  places.key_starts = table + starts_at, places.key_ends = table + ends_at;
  places.key_origins = table + origins_at;
  if (derived) places.q_pos = table + positions_at;
  out->sources = table + sources_at;
  return std::unique_ptr<const SparseShardState>(std::move(out));
}

}  // namespace lathe
