// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Reads and writes safetensors. A file is hostile until every number in its header has been
// compared with the size of the file; no memory is taken on its word.
#include "api/cli/inputs/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "api/cli/failure.h"
#include "api/cli/output.h"
#include "codegen/base/json.h"

namespace lathe::cli {
namespace {

using Json = nlohmann::json;
static_assert(std::endian::native == std::endian::little, "tensors are stored little-endian");

constexpr uint64_t kMostHeaderBytes = 100'000'000;
constexpr size_t kMostDimensions = 64;

struct Placed {
  TensorSpec spec;
  uint64_t begin = 0, end = 0;  // in the data section
};

struct Header {
  std::map<std::string, Placed> tensors;
  uint64_t data_start = 0;
};

// Refusals that begin with the file's name.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& path) : path_(path) {
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    if (!std::filesystem::exists(status)) reject("there is no such file");
    if (!std::filesystem::is_regular_file(status)) reject("this is not a regular file");
    size_ = std::filesystem::file_size(path, error);
    file_.open(path, std::ios::binary);
    if (error || !file_) reject("it cannot be read");
  }

  Header header() {
    if (size_ < 8) {
      reject("a safetensors file begins with 8 bytes of header length, it has ", size_, " bytes");
    }
    uint64_t length = 0;
    read(0, &length, 8);
    if (length > size_ - 8 || length > kMostHeaderBytes) {
      reject("the header length is ", length, ", allowed: at most ",
             std::min(size_ - 8, kMostHeaderBytes));
    }
    std::string text(length, '\0');
    read(8, text.data(), length);
    Header out;
    out.data_start = 8 + length;
    const Json json = parse(text);
    for (const auto& [name, entry] : json.items()) {
      if (name == "__metadata__") {
        check_metadata(entry);
      } else {
        out.tensors[name] = placed(name, entry);
      }
    }
    check_places(out);
    return out;
  }

  void read(uint64_t offset, void* to, uint64_t bytes) {
    file_.seekg(static_cast<std::streamoff>(offset));
    file_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes));
    if (!file_) reject("it cannot be read to its end");
  }

 private:
  template <typename... Why>
  [[noreturn]] void reject(const Why&... why) const {
    refuse("input file ", in_quotes(path_.string()), ": ", why...);
  }
  template <typename... Why>
  [[noreturn]] void reject_tensor(const std::string& name, const Why&... why) const {
    reject("tensor ", in_quotes(name), ": ", why...);
  }

  Json parse(const std::string& text) const {
    // The parser takes a byte 0 for the end, and passes over a byte order mark.
    const bool whole = !text.empty() && text.find('\0') == text.npos;
    if (whole && text.front() != '{') {
      reject("the header is not a JSON object that begins with {");
    }
    constexpr int kMostDepth = 3;  // the header, a tensor, its shape
    Json json;
    const auto fault = read_json(text, {kMostDepth}, &json);
    if (fault && fault->kind == JsonFault::Kind::name_twice) {
      reject("the name " + in_quotes(fault->detail) + " stands twice in the header");
    }
    if (fault && fault->kind == JsonFault::Kind::too_deep) {
      reject("the header's values lie more than ", kMostDepth, " deep in each other");
    }
    if (fault || !whole) reject("the header is not valid JSON");
    return json;
  }

  void check_metadata(const Json& entry) const {
    bool good = entry.is_object();
    for (const auto& item : entry) good = good && item.is_string();
    if (!good) reject("__metadata__ must map names to texts");
  }

  Placed placed(const std::string& name, const Json& entry) const {
    if (!entry.is_object()) reject_tensor(name, "its entry is not a JSON object");
    for (const auto& [field, unused] : entry.items()) {
      if (field != "dtype" && field != "shape" && field != "data_offsets") {
        reject_tensor(name, "its entry has the field ", in_quotes(field),
                      ", allowed: dtype, shape, data_offsets");
      }
    }
    Placed out;
    const std::string allowed = ", allowed: " + comma_list(kDtypes, &DtypeInfo::stored);
    if (!entry.contains("dtype") || !entry["dtype"].is_string()) {
      reject_tensor(name, "it has no dtype", allowed);
    }
    const auto word = entry["dtype"].get<std::string>();
    const DtypeInfo* dtype = find_dtype(&DtypeInfo::stored, word);
    if (!dtype) reject_tensor(name, "dtype is ", in_quotes(word), allowed);
    out.spec.dtype = dtype->dtype;
    for (uint64_t extent : naturals(name, entry, "shape")) {
      out.spec.shape.push_back(static_cast<int64_t>(extent));
    }
    if (out.spec.shape.size() > kMostDimensions) {
      reject_tensor(name, "it has ", out.spec.shape.size(), " dimensions, allowed: at most ",
                    kMostDimensions);
    }
    const std::vector<uint64_t> offsets = naturals(name, entry, "data_offsets");
    if (offsets.size() != 2 || offsets[0] > offsets[1]) {
      reject_tensor(name, "data_offsets must be [begin, end] with begin <= end");
    }
    out.begin = offsets[0];
    out.end = offsets[1];
    check_size(name, out);
    return out;
  }

  std::vector<uint64_t> naturals(const std::string& name, const Json& entry,
                                 const char* field) const {
    std::vector<uint64_t> out;
    bool good = entry.contains(field) && entry[field].is_array();
    if (good) {
      for (const auto& item : entry[field]) {
        good = good && item.is_number_unsigned() && item.get<uint64_t>() <= INT64_MAX;
        if (good) out.push_back(item.get<uint64_t>());
      }
    }
    if (!good) {
      reject_tensor(name, field, " must be a list of whole numbers from 0 to 2^63-1");
    }
    return out;
  }

  void check_size(const std::string& name, const Placed& tensor) const {
    uint64_t bytes = info(tensor.spec.dtype).bytes;
    bool overflow = false;
    // All factors are looked at, so that a zero does not hide extents that no tensor can have.
    for (int64_t extent : tensor.spec.shape) {
      if (extent != 0) overflow = overflow || __builtin_mul_overflow(bytes, extent, &bytes);
    }
    overflow = overflow || bytes > INT64_MAX;
    const std::string shape = shape_text(tensor.spec.shape);
    if (overflow) reject_tensor(name, "shape ", shape, " is too large");
    if (std::ranges::count(tensor.spec.shape, 0) > 0) bytes = 0;
    if (bytes != tensor.end - tensor.begin) {
      reject_tensor(name, info(tensor.spec.dtype).stored, " of shape ", shape, " takes ", bytes,
                    " bytes, data_offsets give it ", tensor.end - tensor.begin);
    }
  }

  // The tensors cover the data section exactly: nothing twice, nothing left over.
  void check_places(const Header& header) const {
    const uint64_t data_bytes = size_ - header.data_start;
    std::vector<std::tuple<uint64_t, uint64_t, std::string>> order;
    for (const auto& [name, tensor] : header.tensors) {
      if (tensor.end > data_bytes) {
        reject_tensor(name, "data_offsets end at ", tensor.end, ", the file has ", data_bytes,
                      " bytes of data");
      }
      order.emplace_back(tensor.begin, tensor.end, name);
    }
    std::ranges::sort(order);
    uint64_t position = 0;
    for (const auto& [begin, end, name] : order) {
      if (begin != position) {
        reject_tensor(name, "data_offsets begin at ", begin,
                      begin < position ? ", overlapping the tensor before it, which ends at "
                                       : ", leaving a gap after ",
                      position);
      }
      position = end;
    }
    if (position != data_bytes) {
      reject("the tensors take ", position, " bytes, the file has ", data_bytes, " bytes of data");
    }
  }

  std::filesystem::path path_;
  std::ifstream file_;
  uint64_t size_ = 0;
};

// The length of the header and the header, filled up so that the data begins at 8 bytes.
std::string head_of(const TensorMap& tensors) {
  auto header = nlohmann::ordered_json::object();
  uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    const uint64_t end = offset + tensor.data.size();
    header[name] = {{"dtype", info(tensor.spec.dtype).stored},
                    {"shape", tensor.spec.shape},
                    {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

}  // namespace

TensorMap read_safetensors(const std::filesystem::path& path) {
  Reader reader(path);
  const Header header = reader.header();
  TensorMap out;
  for (const auto& [name, place] : header.tensors) {
    HostTensor tensor{place.spec, std::vector<std::byte>(place.end - place.begin)};
    reader.read(header.data_start + place.begin, tensor.data.data(), tensor.data.size());
    out.emplace(name, std::move(tensor));
  }
  return out;
}

Specs read_safetensors_header(const std::filesystem::path& path) {
  Specs out;
  for (const auto& [name, place] : Reader(path).header().tensors) out[name] = place.spec;
  return out;
}

void write_safetensors(std::ostream& out, const TensorMap& tensors) {
  out << head_of(tensors);
  for (const auto& [name, tensor] : tensors) {
    out.write(reinterpret_cast<const char*>(tensor.data.data()),
              static_cast<std::streamsize>(tensor.data.size()));
  }
}

void write_safetensors_file(const std::filesystem::path& path, const TensorMap& tensors) {
  const std::string head = head_of(tensors);
  std::vector<const void*> pieces = {head.data()};
  std::vector<size_t> bytes = {head.size()};
  for (const auto& [name, tensor] : tensors) {
    pieces.push_back(tensor.data.data());
    bytes.push_back(tensor.data.size());
  }
  write_output("--output", path.string(), pieces, bytes);
}

}  // namespace lathe::cli
