// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/harness/session.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "tests/numbers.h"

namespace apitest {
namespace {

std::string variable(const char* name, const std::string& fallback) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : fallback;
}

// A child that was forked has a copy of its parent's list, whose files are not its own.
struct OwnFile {
  std::string path;
  pid_t owner;
};
std::vector<OwnFile>& process_files() {
  static std::vector<OwnFile> files;
  return files;
}

// Returns a file the simulator writes lines to: the variable's, else one of this process.
std::string output_path(const char* name, const char* what) {
  const std::string given = variable(name, "");
  if (!given.empty()) return given;
  const std::string own = process_file(what);
  setenv(name, own.c_str(), 1);
  return own;
}

struct Outputs {
  std::string findings, launches;
};

// The simulator reads its environment once, when the first context opens it.
const Outputs& outputs() {
  static const Outputs paths = [] {
    setenv("LATHE_SIM_CHECK", variable("LATHE_SIM_CHECK", "all").c_str(), 1);
    return Outputs{output_path("LATHE_SIM_REPORT", "report"),
                   output_path("LATHE_SIM_COUNTERS", "counters")};
  }();
  return paths;
}

// Returns the lines after `seen`, which moves on.
std::vector<std::string> new_lines(const std::string& path, std::streamoff* seen) {
  std::vector<std::string> lines;
  std::ifstream file(path, std::ios::binary);
  if (!file) return lines;
  file.seekg(*seen);
  for (std::string line; std::getline(file, line); lines.push_back(line)) {
    *seen += static_cast<std::streamoff>(line.size()) + 1;
  }
  return lines;
}

}  // namespace

void check(lathe_status status, const char* call) {
  if (status == LATHE_OK) return;
  throw std::runtime_error(std::string(call) + ": " + lathe_status_name(status) + ": " +
                           lathe_last_error());
}

std::string process_file(const std::string& what) {
  if (process_files().empty()) std::atexit(remove_process_files);
  const auto path = std::filesystem::temp_directory_path() /
                    ("lathe-test-" + what + "-" + std::to_string(getpid()) + ".jsonl");
  // A process of the same number may have been killed, and what it wrote is none of this one's.
  std::remove(path.c_str());
  process_files().push_back({path.string(), getpid()});
  return path.string();
}

void remove_process_files() {
  for (const OwnFile& file : process_files()) {
    if (file.owner == getpid()) std::remove(file.path.c_str());
  }
}

bool on_simulator() { return variable("LATHE_TEST_DEVICE", "sim") == "sim"; }

Context make_context() {
  static const std::string arch = variable("LATHE_TEST_ARCH", on_simulator() ? "sm_90a" : "");
  static const std::string cache = variable("LATHE_TEST_CACHE", LATHE_TEST_CACHE_DIR);
  outputs();
  lathe_context_options options = LATHE_CONTEXT_OPTIONS_INIT;
  options.device = on_simulator() ? LATHE_DEVICE_SIM : LATHE_DEVICE_CUDA;
  options.arch = arch.empty() ? nullptr : arch.c_str();
  options.cache_dir = cache.c_str();
  options.family = family;
  lathe_context* context = nullptr;
  API(lathe_context_create(&context, &options));
  return Context(context);
}

Report take_report() {
  static std::streamoff findings = 0, launches = 0;
  Report report;
  report.findings = new_lines(outputs().findings, &findings);
  report.launches = new_lines(outputs().launches, &launches);
  return report;
}

std::vector<std::string> counted_launches(const std::function<void()>& work) {
  take_report();
  work();
  const Report report = take_report();
  if (!report.findings.empty()) throw std::runtime_error(report.findings[0]);
  return report.launches;
}

void check_no_findings() {
  std::string all;
  for (const std::string& finding : take_report().findings) all += finding + "\n";
  if (!all.empty()) throw std::runtime_error(all);
}

Memory::Memory(lathe_context* context, size_t bytes) : context_(context), bytes_(bytes) {
  API(lathe_malloc(context, &data_, std::max<size_t>(bytes, 1)));
}

Memory::~Memory() { (void)lathe_free(context_, data_); }

DLTensor describe(void* data, lathe_dtype dtype, const std::vector<int64_t>& shape) {
  const bool real = dtype == LATHE_F32 || dtype == LATHE_F16 || dtype == LATHE_BF16;
  const bool byte = dtype == LATHE_F8_E4M3 || dtype == LATHE_U8;
  const auto code = byte ? kDLUInt : dtype == LATHE_BF16 ? kDLBfloat : real ? kDLFloat : kDLInt;
  DLTensor tensor{};
  tensor.data = data;
  tensor.device = {kDLCUDA, 0};
  tensor.ndim = static_cast<int32_t>(shape.size());
  tensor.dtype = {static_cast<uint8_t>(code), static_cast<uint8_t>(8 * numbers::bytes_of(dtype)),
                  1};
  tensor.shape = const_cast<int64_t*>(shape.data());
  return tensor;
}

Stream::Stream(lathe_context* context) : context_(context) {
  API(lathe_stream_create(context, &stream_));
}

Stream::~Stream() { (void)lathe_stream_destroy(context_, stream_); }

Tensor::Tensor(lathe_context* context, lathe_dtype dtype, std::vector<int64_t> shape,
               const Placement& placement, void* stream)
    : context_(context),
      stream_(stream),
      dtype_(dtype),
      shape_(std::move(shape)),
      strides_(shape_.size()),
      poison_(placement.poison) {
  int64_t stride = 1, last = 0;
  for (size_t each = shape_.size(); each-- > 0;) {
    const size_t from_right = shape_.size() - each;
    const size_t i = placement.turned && from_right <= 2 ? each - 3 + 2 * from_right : each;
    if (from_right == 2) stride += placement.token_gap;
    if (from_right == 3) stride += placement.batch_gap;
    strides_[i] = stride;
    stride *= std::max<int64_t>(shape_[i], 1);
    count_ *= static_cast<size_t>(shape_[i]);
    last += (shape_[i] - 1) * strides_[i];
  }
  first_ = placement.guard + placement.offset;
  const int64_t elements = first_ + (count_ > 0 ? last + 1 : 0) + placement.guard;
  image_.assign(static_cast<size_t>(elements) * numbers::bytes_of(dtype), poison_);
  memory_ = std::make_unique<Memory>(context, image_.size());

  dl_ = describe(static_cast<char*>(memory_->data()) +
                     static_cast<size_t>(placement.guard) * numbers::bytes_of(dtype),
                 dtype, shape_);
  dl_.byte_offset = static_cast<uint64_t>(placement.offset) * numbers::bytes_of(dtype);
  // Contiguous tensors go without strides, as DLPack allows.
  const bool plain = placement.token_gap == 0 && placement.batch_gap == 0 && !placement.turned;
  dl_.strides = plain ? nullptr : strides_.data();
}

size_t Tensor::index(size_t flat) const {
  size_t at = static_cast<size_t>(first_);
  for (size_t i = shape_.size(); i-- > 0;) {
    const size_t extent = static_cast<size_t>(shape_[i]);
    at += flat % extent * static_cast<size_t>(strides_[i]);
    flat /= extent;
  }
  return at;
}

void Tensor::upload(const std::vector<double>& values) {
  if (values.size() != count_) throw std::logic_error("values do not fit the shape");
  const size_t bytes = numbers::bytes_of(dtype_);
  for (size_t i = 0; i < count_; ++i) numbers::encode(dtype_, values[i], &image_[index(i) * bytes]);
  API(lathe_copy_to_device(context_, memory_->data(), image_.data(), image_.size(), stream_));
}

void Tensor::poison() {
  std::fill(image_.begin(), image_.end(), poison_);
  API(lathe_copy_to_device(context_, memory_->data(), image_.data(), image_.size(), stream_));
}

std::vector<double> Tensor::download() const {
  std::vector<unsigned char> now(image_.size());
  API(lathe_copy_to_host(context_, now.data(), memory_->data(), now.size(), stream_));
  const size_t bytes = numbers::bytes_of(dtype_);
  std::vector<double> values(count_);
  for (size_t i = 0; i < count_; ++i) {
    values[i] = numbers::decode(dtype_, &now[index(i) * bytes]);
    std::memset(&now[index(i) * bytes], poison_, bytes);
  }
  const auto changed =
      std::find_if(now.begin(), now.end(), [this](unsigned char byte) { return byte != poison_; });
  if (changed != now.end()) {
    throw std::runtime_error("byte " + std::to_string(changed - now.begin()) +
                             " of a buffer was written, which is outside the tensor");
  }
  return values;
}

}  // namespace apitest
