// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The grammar of tuned records, and which of two holds.
#include "cache/tuned.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <tuple>

#include "codegen/base/printable.h"
#include "codegen/base/text.h"
#include "codegen/choice.h"

namespace lathe {
namespace {

constexpr size_t kMostLine = 4096;
constexpr std::string_view kBar = " | ";

Status wrong(std::string what) { return Status(Code::invalid_argument, std::move(what)); }

std::vector<std::string_view> split(std::string_view text, std::string_view by) {
  std::vector<std::string_view> parts;
  for (size_t end = text.find(by); end != text.npos; end = text.find(by)) {
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end + by.size());
  }
  parts.push_back(text);
  return parts;
}

bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char character) {
    return (character >= 'a' && character <= 'z') || (character >= 'A' && character <= 'Z') ||
           (character >= '0' && character <= '9') || character == '_';
  });
}

// "name=value" without blanks or bars inside.
bool is_word(std::string_view text) {
  const size_t equals = text.find('=');
  return equals != text.npos && is_name(text.substr(0, equals)) && equals + 1 < text.size() &&
         std::all_of(text.begin(), text.end(), [](char character) {
           return character > ' ' && character < 127 && character != '|';
         });
}

bool are_words(std::string_view text) {
  const auto words = split(text, " ");
  return std::all_of(words.begin(), words.end(), is_word);
}

std::string number(double value) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof(text), value, std::chars_format::fixed, 3);
  return {text, end.ptr};
}

template <typename T>
bool read(std::string_view text, T* out) {
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, *out);
  return error == std::errc() && at == end;
}

bool read_us(std::string_view text, double* out) {
  return read(text, out) && std::isfinite(*out) && *out >= 0 && *out < 1e12;
}

bool read_count(std::string_view text, int* out) { return read(text, out) && *out > 0; }

bool read_by(std::string_view text, bool* measured) {
  *measured = text == "events";
  return *measured || text == "model";
}

Status read_field(std::string_view name, std::string_view value, TunedRecord* record) {
  const auto keep = [&](std::string* to) {
    *to = value;
    return true;
  };
  const bool good = name == "gpu"          ? keep(&record->gpu)
                    : name == "arch"       ? keep(&record->arch)
                    : name == "sms"        ? read_count(value, &record->multiprocessors)
                    : name == "shape"      ? keep(&record->shape)
                    : name == "us"         ? read_us(value, &record->us)
                    : name == "default_us" ? read_us(value, &record->default_us)
                    : name == "by"         ? read_by(value, &record->measured)
                    : name == "tried"      ? read_count(value, &record->tried)
                    : name == "lathe"      ? keep(&record->lathe)
                    : name == "driver"     ? keep(&record->driver)
                    : name == "nvrtc"      ? keep(&record->nvrtc)
                    : name == "sources"    ? keep(&record->sources)
                                           : keep(&record->others[std::string(name)]);
  return good ? Status() : wrong(text(name, " is ", in_quotes(value)));
}

std::string field(const char* name, const std::string& value) {
  return value.empty() ? "" : text(' ', name, '=', value);
}

auto order_of(const TunedRecord& record) {
  return std::tie(record.gpu, record.arch, record.multiprocessors, record.kernel,
                  record.problem_class, record.shape);
}

// The value of a word of this name among `words`.
std::optional<std::string_view> value_of(const std::vector<std::string_view>& words,
                                         std::string_view name) {
  for (const std::string_view word : words) {
    if (word.size() > name.size() && word[name.size()] == '=' && word.starts_with(name)) {
      return word.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

}  // namespace

std::string TunedRecord::place() const {
  return text(gpu, '|', arch, '|', multiprocessors, '|', kernel, '|', problem_class, '|', shape);
}

bool TunedRecord::stale(const std::string& lathe_now, const std::string& sources_now) const {
  return lathe != lathe_now || sources != sources_now;
}

std::string text_of(const TunedRecord& record) {
  std::string line = text(record.kernel, kBar, record.problem_class, kBar, record.choice, kBar);
  line +=
      text("gpu=", record.gpu, " arch=", record.arch, " sms=", record.multiprocessors,
           " shape=", record.shape, " us=", number(record.us),
           " default_us=", number(record.default_us), " by=", record.measured ? "events" : "model");
  if (record.tried > 0) line += text(" tried=", record.tried);
  line += field("lathe", record.lathe) + field("driver", record.driver) +
          field("nvrtc", record.nvrtc) + field("sources", record.sources);
  for (const auto& [name, value] : record.others) line += field(name.c_str(), value);
  return line;
}

Result<TunedRecord> parse_tuned_record(std::string_view line) {
  if (line.size() > kMostLine) {
    return wrong(text("it has ", line.size(), " characters; allowed are ", kMostLine));
  }
  const auto parts = split(line, kBar);
  if (parts.size() != 4) {
    return wrong("it is not KERNEL | PROBLEM CLASS | CHOICE | NAME=VALUE ...");
  }
  if (!is_name(parts[0])) return wrong("the kernel is no name");
  for (const size_t i : {1, 2, 3}) {
    if (!are_words(parts[i])) {
      return wrong(text(in_quotes(parts[i]), " is not a list of NAME=VALUE"));
    }
  }
  TunedRecord record;
  record.kernel = parts[0], record.problem_class = parts[1], record.choice = parts[2];
  std::vector<std::string_view> seen;
  for (const std::string_view word : split(parts[3], " ")) {
    const std::string_view name = word.substr(0, word.find('='));
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) {
      return wrong(text(name, " is there twice"));
    }
    seen.push_back(name);
    LATHE_TRY(read_field(name, word.substr(name.size() + 1), &record));
  }
  for (const char* name : {"gpu", "arch", "sms", "shape", "us", "default_us", "by"}) {
    if (std::find(seen.begin(), seen.end(), name) == seen.end()) {
      return wrong(text(name, " is missing"));
    }
  }
  return record;
}

Result<TunedText> parse_tuned(std::string_view all) {
  const std::string_view header = all.substr(0, all.find('\n'));
  if (header != kTunedHeader || header.size() == all.size()) {
    const std::string_view stem = kTunedHeader.substr(0, kTunedHeader.size() - 1);
    int version = 0;
    if (header.starts_with(stem) && read(header.substr(stem.size()), &version) && version > 1) {
      return Status(Code::unsupported,
                    text("it has version ", version, "; this library reads version 1"));
    }
    return wrong(text("it does not begin with a line '", kTunedHeader, "'"));
  }
  all.remove_prefix(header.size() + 1);
  TunedText out;
  const auto skip = [&](size_t number, const std::string& why) {
    if (out.skipped++ == 0) out.problem = text("line ", number, ": ", why);
  };
  for (size_t number = 2; !all.empty(); ++number) {
    const size_t end = all.find('\n');
    const std::string_view line = all.substr(0, end);
    all.remove_prefix(end == all.npos ? all.size() : end + 1);
    if (line.empty()) continue;
    // A line that was cut could be a shorter one that is whole.
    Result<TunedRecord> record =
        end == all.npos ? wrong("it has no end") : parse_tuned_record(line);
    if (record.ok()) {
      out.records.push_back(std::move(*record));
    } else {
      skip(number, record.status().text());
    }
  }
  return out;
}

bool is_better(const TunedRecord& a, const TunedRecord& b) {
  if (a.measured != b.measured) return a.measured;
  if (a.us != b.us) return a.us < b.us;
  return text_of(a) < text_of(b);
}

std::vector<TunedRecord> merged(std::vector<TunedRecord> records) {
  std::sort(records.begin(), records.end(), [](const TunedRecord& a, const TunedRecord& b) {
    if (order_of(a) != order_of(b)) return order_of(a) < order_of(b);
    return is_better(a, b);
  });
  const auto end = std::unique(
      records.begin(), records.end(),
      [](const TunedRecord& a, const TunedRecord& b) { return order_of(a) == order_of(b); });
  records.erase(end, records.end());
  return records;
}

std::string tuned_text(const std::vector<TunedRecord>& records) {
  std::string all = std::string(kTunedHeader) + '\n';
  for (const TunedRecord& record : records) all += text_of(record) + '\n';
  return all;
}

std::string safe_word(std::string_view name) {
  std::string word;
  for (const char character : name.substr(0, 64)) {
    const char lower =
        character >= 'A' && character <= 'Z' ? static_cast<char>(character - 'A' + 'a') : character;
    const bool good = is_name(std::string_view(&lower, 1)) || lower == '.' || lower == '-';
    word += good ? lower : '-';
  }
  // Neither a hidden file nor the directory above.
  if (word.empty() || word.front() == '.') word.insert(0, "gpu");
  return word;
}

// Words of a class that are no constants of the kernel (which walks share its tile) say nothing
// about one spec.
bool is_choice_of(const TunedRecord& record, std::string_view spec_text) {
  const auto words = split(spec_text, " ");
  TuningKey tuning_key;
  tuning_key.kernel = record.kernel;
  if (words.front() != kernel_of(tuning_key, record.choice)) return false;
  for (const std::string_view word : split(record.problem_class, " ")) {
    const size_t equals = word.find('=');
    const auto found = value_of(words, word.substr(0, equals));
    if (found && *found != word.substr(equals + 1)) return false;
  }
  for (const std::string_view word : split(record.choice, " ")) {
    const size_t equals = word.find('=');
    const std::string_view name = word.substr(0, equals), value = word.substr(equals + 1);
    int warps = 0;
    if (name == "kernel") continue;
    if (name == "warps") {
      if (!read(value, &warps) || value_of(words, "threads") != std::to_string(32ll * warps)) {
        return false;
      }
    } else if (value_of(words, name) != value) {
      return false;
    }
  }
  return true;
}

}  // namespace lathe
