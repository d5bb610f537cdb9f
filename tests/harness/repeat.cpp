// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/harness/repeat.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "tests/harness/check.h"
#include "tests/harness/session.h"

namespace apitest {
namespace {

// An answer as bytes: numbers and texts one after another, each text and list behind its length.
class Writer {
 public:
  void number(uint64_t value) { raw(&value, sizeof value); }
  void text(const std::string& value) {
    number(value.size());
    raw(value.data(), value.size());
  }
  void raw(const void* from, size_t size) { bytes.append(static_cast<const char*>(from), size); }
  std::string bytes;
};
class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}
  bool ends() const { return at_ >= bytes_.size(); }
  uint64_t number() {
    uint64_t value = 0;
    raw(&value, sizeof value);
    return value;
  }
  std::string text() {
    std::string value(number(), ' ');
    raw(value.data(), value.size());
    return value;
  }
  void raw(void* to, size_t size) {
    if (size > bytes_.size() - at_) throw std::runtime_error("a child's answer is cut short");
    std::memcpy(to, bytes_.data() + at_, size);
    at_ += size;
  }

 private:
  const std::string& bytes_;
  size_t at_ = 0;
};

std::string bytes_of(const Answer& answer) {
  Writer out;
  out.number(answer.outputs.size());
  for (const auto& [name, values] : answer.outputs) {
    out.text(name);
    out.number(values.size());
    out.raw(values.data(), values.size() * sizeof(double));
  }
  out.number(answer.kernels.size());
  for (const Kernel& kernel : answer.kernels) {
    out.text(kernel.spec);
    for (const int each : {kernel.registers, kernel.spill_bytes, kernel.stack_bytes}) {
      out.number(static_cast<uint64_t>(static_cast<int64_t>(each)));
    }
  }
  out.number(answer.launches.size());
  for (const auto& launch : answer.launches) out.text(launch.dump());
  out.number(answer.findings.size());
  for (const std::string& finding : answer.findings) out.text(finding);
  out.number(answer.compiled);
  out.text(answer.error);
  return out.bytes;
}

Answer answer_in(Reader* in) {
  Answer answer;
  for (uint64_t left = in->number(); left > 0; --left) {
    Values& values = answer.outputs[in->text()];
    values.resize(in->number());
    in->raw(values.data(), values.size() * sizeof(double));
  }
  for (uint64_t left = in->number(); left > 0; --left) {
    Kernel kernel{in->text()};
    for (int* each : {&kernel.registers, &kernel.spill_bytes, &kernel.stack_bytes}) {
      *each = static_cast<int>(static_cast<int64_t>(in->number()));
    }
    answer.kernels.push_back(kernel);
  }
  for (uint64_t left = in->number(); left > 0; --left) {
    answer.launches.push_back(nlohmann::json::parse(in->text()));
  }
  for (uint64_t left = in->number(); left > 0; --left) answer.findings.push_back(in->text());
  answer.compiled = in->number();
  answer.error = in->text();
  return answer;
}

void write_all(int to, const std::string& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t written = write(to, bytes.data() + done, bytes.size() - done);
    if (written <= 0) return;
    done += static_cast<size_t>(written);
  }
}

void apply(const Schedule& schedule) {
  setenv("LATHE_SIM_SEED", std::to_string(schedule.seed).c_str(), 1);
  setenv("LATHE_SIM_ASYNC", schedule.async, 1);
  setenv("LATHE_SIM_TENSOR_SUM", schedule.sum, 1);
  if (schedule.threads > 0) {
    setenv("LATHE_SIM_THREADS", std::to_string(schedule.threads).c_str(), 1);
  }
  if (*schedule.arch == '\0' || !on_simulator()) return;
  setenv("LATHE_SIM_ARCH", schedule.arch, 1);
  setenv("LATHE_TEST_ARCH", schedule.arch, 1);
}

[[noreturn]] void be_child(const Schedule& schedule, const std::function<void(const Give&)>& work,
                           int to) {
  apply(schedule);
  work([to](const std::function<Answer()>& one) {
    Answer answer;
    try {
      answer = one();
    } catch (const std::exception& error) {
      answer.error = error.what();
    }
    write_all(to, bytes_of(answer));
  });
  remove_process_files();
  _exit(0);
}

}  // namespace

Schedule schedule_number(uint64_t number, const char* arch) {
  static const char* const kAsync[] = {"lazy", "eager", "random"};
  return {number, kAsync[number % 3], "exact", 1 << (number / 3 % 3), arch};
}

std::vector<Answer> in_child(const Schedule& schedule,
                             const std::function<void(const Give&)>& work) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    close(ends[0]);
    be_child(schedule, work, ends[1]);
  }
  close(ends[1]);
  std::string bytes;
  char buffer[65536];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;) {
    bytes.append(buffer, static_cast<size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  std::vector<Answer> answers;
  for (Reader in(bytes); !in.ends();) answers.push_back(answer_in(&in));
  return answers;
}

void under_schedules(size_t count, const std::function<Answer(size_t)>& work,
                     const std::function<void(size_t, const Answer&)>& check, const char* arch,
                     bool sums) {
  static const char* const kSums[] = {"exact", "sequential", "coarse"};
  for (size_t part = 0; part < std::min<size_t>(count, 3); ++part) {
    CAPTURE(part);
    Schedule schedule = schedule_number(part, arch);
    if (sums) schedule.sum = kSums[part];
    const std::vector<Answer> answers = in_child(schedule, [&](const Give& give) {
      for (size_t i = part; i < count; i += 3) give([&] { return work(i); });
    });
    REQUIRE(answers.size() == (count - part + 2) / 3);
    for (size_t i = 0; i < answers.size(); ++i) check(part + 3 * i, answers[i]);
  }
}

Answer check_repeats(int count, const std::function<Answer()>& work, const std::string& but,
                     const std::function<bool(const Values&, const Values&)>& near) {
  Answer first;
  for (int number = 0; number < count; ++number) {
    CAPTURE(number);
    const Schedule schedule = schedule_number(static_cast<uint64_t>(number));
    const auto answers = in_child(schedule, [&](const Give& give) { give(work); });
    REQUIRE(answers.size() == 1);
    const Answer& answer = answers.front();
    check_clean(answer);
    if (number == 0) {
      first = answer;
      REQUIRE_FALSE(first.outputs.empty());
      continue;
    }
    REQUIRE(answer.outputs.size() == first.outputs.size());
    for (const auto& [name, values] : first.outputs) {
      const Values& again = answer.at(name);
      const bool same = again.size() == values.size() &&
                        (name == but ? near(values, again) : same_bits(values, again));
      CHECK_MESSAGE(same, name, " differs under schedule ", number);
    }
  }
  return first;
}

}  // namespace apitest
