// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file prints for kernels: vprintf as CUDA has it, and the words of a failed assertion.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "sim/exec/grid_state.h"
#include "sim/model/letters.h"

namespace sim {
namespace {

constexpr size_t kLongestText = 1 << 16;

// Returns where a generic address of `bytes` bytes lies in the host's memory; null if it is none.
const uint8_t* host_bytes(const Warp& w, unsigned lane, uint64_t address, uint64_t bytes) {
  const Windows& n = windows();
  const LaunchView& v = view(*w.worker);
  auto inside = [&](const uint8_t* base, uint64_t from, uint64_t end) -> const uint8_t* {
    return from <= end && bytes <= end - from ? base + from : nullptr;
  };
  if (address < n.shared || address >= n.end) {
    if (!v.check_memory) return reinterpret_cast<const uint8_t*>(address);
    const auto found = w.worker->launch->memory->find_live(address, bytes);
    return found ? reinterpret_cast<const uint8_t*>(address) : nullptr;
  }
  if (address < n.local) return inside(w.block->shared, address - n.shared, w.block->shared_bytes);
  if (address < n.param) {
    const uint8_t* depot = w.local + static_cast<uint64_t>(lane) * v.depot_bytes;
    return inside(depot, address - n.local, v.depot_bytes);
  }
  return inside(v.params, address - n.param - kKernelParams, v.param_bytes);
}

bool read_text(const Warp& w, unsigned lane, uint64_t address, std::string* out) {
  out->clear();
  for (; out->size() < kLongestText; ++address) {
    const uint8_t* c = host_bytes(w, lane, address, 1);
    if (!c) return false;
    if (!*c) return true;
    out->push_back(static_cast<char>(*c));
  }
  return true;
}

// One %... of a format: flags, width, precision, length, conversion.
struct Conversion {
  std::string spec;  // without length, ready for one
  char letter = 0;
  bool wide = false;  // 64 bits
  int stars = 0;

  // From text[at] == '%'; false if it is none that CUDA knows. Moves `at` past it.
  bool parse(const std::string& text, size_t* at) {
    size_t k = *at + 1;
    auto skip = [&](const char* set) {
      while (k < text.size() && std::strchr(set, text[k])) ++k;
    };
    auto number = [&] {
      if (k < text.size() && text[k] == '*') {
        ++stars;
        ++k;
      } else {
        const size_t from = k;
        skip("0123456789");
        if (k - from > 4) stars = 9;  // no field is that wide: not a conversion
      }
    };
    skip("-+ #0");
    number();
    if (k < text.size() && text[k] == '.') {
      ++k;
      number();
    }
    spec = text.substr(*at, k - *at);
    const size_t length = k;
    skip("hlLjzt");
    const std::string_view size = std::string_view(text).substr(length, k - length);
    wide = size == "l" || size == "ll" || size == "j" || size == "z" || size == "t";
    short_bytes = size == "h" ? 2 : size == "hh" ? 1 : 0;
    if (k >= text.size() || stars > 2 || !std::strchr("diouxXfFeEgGaAcsp", text[k])) return false;
    letter = text[k];
    *at = k + 1;
    return true;
  }
  int short_bytes = 0;
};

class Printer {
 public:
  Printer(Warp& w, const Inst& in, unsigned lane, uint64_t arguments)
      : w_(w), in_(in), lane_(lane), at_(arguments) {}

  // Returns the number of arguments, or -1.
  int run(const std::string& format, std::string* out) {
    for (size_t k = 0; k < format.size() && ok_;) {
      if (format[k] != '%') {
        out->push_back(format[k++]);
      } else if (format.compare(k, 2, "%%") == 0) {
        out->push_back('%');
        k += 2;
      } else {
        Conversion c;
        const size_t from = k;
        if (c.parse(format, &k)) {
          convert(c, out);
        } else {
          out->push_back(format[k = from]);  // not a conversion: as it stands
          ++k;
        }
      }
    }
    return ok_ ? count_ : -1;
  }

 private:
  template <class T>
  T next() {
    at_ = (at_ + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    T value{};
    const uint8_t* p = host_bytes(w_, lane_, at_, sizeof(T));
    if (p) {
      std::memcpy(&value, p, sizeof(T));
    } else if (ok_) {
      ok_ = false;
      report(w_, in_, Fault::out_of_bounds, lane_, at_, sizeof(T), Space::generic, false);
    }
    at_ += sizeof(T);
    ++count_;
    return value;
  }

  template <class T>
  void put(const std::string& spec, const int* stars, int n, T value, std::string* out) {
    char text[8300];
    const char* f = spec.c_str();
    const PlainNumbers plain;
    const int length = n == 0   ? std::snprintf(text, sizeof(text), f, value)
                       : n == 1 ? std::snprintf(text, sizeof(text), f, stars[0], value)
                                : std::snprintf(text, sizeof(text), f, stars[0], stars[1], value);
    if (length > 0) out->append(text, std::min<size_t>(static_cast<size_t>(length), 8299));
  }

  void convert(const Conversion& c, std::string* out) {
    int stars[2] = {0, 0};
    for (int k = 0; k < c.stars; ++k) stars[k] = std::max(-8000, std::min(8000, next<int>()));
    auto put_as = [&](const char* tail, auto value) {
      put(c.spec + tail, stars, c.stars, value, out);
    };
    const std::string tail(1, c.letter);
    if (std::strchr("fFeEgGaA", c.letter)) return put_as(tail.c_str(), next<double>());
    if (c.letter == 'c') return put_as("c", next<int>() & 0xFF);
    if (c.letter == 'p') return put_as("p", reinterpret_cast<void*>(next<uint64_t>()));
    if (c.letter == 's') {
      const uint64_t address = next<uint64_t>();
      std::string text;
      if (ok_ && !read_text(w_, lane_, address, &text)) {
        ok_ = false;
        report(w_, in_, Fault::out_of_bounds, lane_, address, 1, Space::generic, false);
      }
      return put_as("s", text.c_str());
    }
    const bool is_signed = c.letter == 'd' || c.letter == 'i';
    if (c.wide) return put_as(("ll" + tail).c_str(), next<long long>());
    const uint32_t value = next<uint32_t>();
    if (is_signed) {
      const int v = static_cast<int>(value);
      return put_as(tail.c_str(), c.short_bytes == 1   ? static_cast<signed char>(v)
                                  : c.short_bytes == 2 ? static_cast<short>(v)
                                                       : v);
    }
    put_as(tail.c_str(), c.short_bytes == 1   ? value & 0xFF
                         : c.short_bytes == 2 ? value & 0xFFFF
                                              : value);
  }

  Warp& w_;
  const Inst& in_;
  unsigned lane_;
  uint64_t at_;
  int count_ = 0;
  bool ok_ = true;
};

}  // namespace

int print(Warp& w, const Inst& in, unsigned lane, uint64_t format, uint64_t arguments) {
  std::string pattern, text;
  if (!read_text(w, lane, format, &pattern)) {
    report(w, in, Fault::out_of_bounds, lane, format, 1, Space::generic, false);
    return -1;
  }
  const int count = Printer(w, in, lane, arguments).run(pattern, &text);
  if (count < 0) return count;
  Launch& launch = *w.worker->launch;
  const std::lock_guard lock(launch.mutex);
  launch.printed[w.block->linear].push_back(std::move(text));
  return count;
}

namespace {

uint64_t cluster_of(const LaunchView& v, uint64_t block) {
  const uint64_t x = block % v.grid[0], y = block / v.grid[0] % v.grid[1];
  const uint64_t z = block / v.grid[0] / v.grid[1];
  const uint64_t across = v.grid[0] / v.cluster[0], down = v.grid[1] / v.cluster[1];
  return (z / v.cluster[2] * down + y / v.cluster[1]) * across + x / v.cluster[0];
}

}  // namespace

void flush_prints(Launch& launch) {
  const uint64_t last = launch.timed_out ? kNoCluster : launch.fault_cluster.load();
  for (const auto& [block, calls] : launch.printed) {
    if (cluster_of(launch.view, block) > last) continue;  // it came after a fault
    for (const std::string& text : calls) {
      if (launch.settings->print) {
        launch.settings->print(text);
      } else {
        std::fwrite(text.data(), 1, text.size(), stdout);
      }
    }
  }
  if (!launch.printed.empty() && !launch.settings->print) std::fflush(stdout);
}

std::string assertion_text(const Warp& w, const Inst& in, unsigned lane) {
  const uint16_t* list = w.function->list_data + in.aux;
  const size_t count = w.function->infos[in.info].arguments;
  if (count < 4) return "a device assertion failed";
  auto wide = [&](size_t k) {
    return reinterpret_cast<const uint64_t*>(w.regs + list[k] * size_t{kSlotBytes})[lane];
  };
  std::string message, file, function;
  if (!read_text(w, lane, wide(0), &message)) message = "?";
  if (!read_text(w, lane, wide(1), &file)) file = "?";
  if (!read_text(w, lane, wide(3), &function)) function = "?";
  const uint32_t line =
      reinterpret_cast<const uint32_t*>(w.regs + list[2] * size_t{kSlotBytes})[lane];
  return file + ":" + std::to_string(line) + ": " + function + ": Assertion `" + message +
         "` failed";
}

}  // namespace sim
