// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover clocks that are wrong, change, or are another machine's; and file systems of
// other machines, which lose track of files. Order of use is kept as far as it can be told, nothing
// is deleted in heaps, and no time is compared with the local clock.
#include "codegen/base/text.h"
#include "tests/cache/sweeps.h"

using namespace lathe;
using namespace lathe::test;
namespace files = std::filesystem;

namespace {

// The clock of the machine that keeps the files: all that it stamps is off by so many seconds.
int64_t& server_clock() {
  static int64_t offset = 0;
  return offset;
}

int stamp(int fd) {
  struct timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  const struct timespec times[2] = {{0, UTIME_OMIT}, {now.tv_sec + server_clock(), now.tv_nsec}};
  return ::futimens(fd, times);
}

const FileSystem& server_fs() {
  static const FileSystem table = [] {
    FileSystem server = real_fs();
    server.fsync = [](int fd) {
      const bool file = (fcntl(fd, F_GETFL) & O_DIRECTORY) == 0;
      return file ? stamp(fd) : 0;
    };
    server.futimens = [](int fd, const struct timespec*) { return stamp(fd); };
    return server;
  }();
  return table;
}

struct ClockAt {
  explicit ClockAt(int64_t offset) { server_clock() = offset; }
  ~ClockAt() { server_clock() = 0; }
};

void put_at(Store& store, int64_t clock, const Entry& entry) {
  const ClockAt server(clock);
  store.put(entry);
}

constexpr int64_t kHour = 3600, kDay = 24 * kHour;

}  // namespace

TEST_CASE("a server whose clock is hours away evicts in the order of use") {
  for (const int64_t clock : {-10 * kDay, -kHour, int64_t{0}, kHour, 10 * kDay}) {
    CAPTURE(clock);
    const TemporaryDirectory place;
    const auto store = Store::open(place.path(), server_fs());
    std::vector<Entry> entries;
    for (int i = 0; i < 8; ++i) {
      entries.push_back(sample_entry(std::to_string(i), 1000));
      put_at(*store, clock - (8 - i) * kHour, entries.back());
    }
    const std::string temporary = place.path() + "/v1/ab/.tmp.1.2";
    write_file(temporary, "being written");
    chmod((place / "v1/ab").c_str(), 0700);
    age(temporary, -clock);
    const ClockAt server(clock);
    const uint64_t one = encode_entry(entries[0]).size();
    const TrimReport report = store->trim(6 * one, false);
    CHECK(report.removed == 3);
    for (int i = 0; i < 8; ++i) CHECK(there(place.path(), entries[i]) == (i >= 3));
    CHECK(files::exists(temporary));  // by the server's clock it is new
    age(temporary, -clock + 2 * kHour);
    CHECK(store->trim(6 * one, false).temporaries == 1);
  }
}

TEST_CASE("a clock set back an hour while publishing keeps order and deletes no heaps") {
  const TemporaryDirectory place;
  const uint64_t one = encode_entry(sample_entry("00", 1000)).size();
  const Environment cap("LATHE_CACHE_MAX_BYTES", std::to_string(10 * one + 5));
  std::vector<Entry> entries;
  for (int i = 10; i < 40; ++i) entries.push_back(sample_entry(std::to_string(i), 1000));
  int64_t clock = -2 * kDay;
  size_t fewest = entries.size();
  for (size_t i = 0; i < entries.size(); ++i) {
    // A process for each, so that each publish looks at the cap; half an hour later each time, but
    // an hour back at every fifth.
    clock += i % 5 == 4 ? -kHour : kHour / 2;
    const auto store = Store::open(place.path(), server_fs());
    put_at(*store, clock, entries[i]);
    CHECK(there(place.path(), entries[i]));
    CHECK(store->stat().bytes <= 10 * one + 5);
    if (i >= 9) fewest = std::min<size_t>(fewest, store->stat().entries);
  }
  CHECK(fewest >= 8);  // nine tenths of ten, and no cascade
}

TEST_CASE("entries from the future go after all others, and do not keep the cache over its cap") {
  const TemporaryDirectory place;
  const auto store = Store::open(place.path(), server_fs());
  std::vector<Entry> future, past;
  for (int i = 0; i < 4; ++i) {
    future.push_back(sample_entry("f" + std::to_string(i), 1000));
    past.push_back(sample_entry("p" + std::to_string(i), 1000));
    put_at(*store, 30 * kDay, future.back());
    put_at(*store, -kDay, past.back());
  }
  const uint64_t one = encode_entry(future[0]).size();
  const Environment cap("LATHE_CACHE_MAX_BYTES", std::to_string(6 * one));
  Store::open(place.path(), server_fs())->put(sample_entry("n0", 1000));
  for (const Entry& entry : past) CHECK_FALSE(there(place.path(), entry));
  for (const Entry& entry : future) CHECK(there(place.path(), entry));
  const Environment small("LATHE_CACHE_MAX_BYTES", std::to_string(3 * one));
  Store::open(place.path(), server_fs())->put(sample_entry("n1", 1000));
  CHECK(Store::open(place.path())->stat().bytes <= 3 * one);
}

TEST_CASE("times at the ends of what a file can have are only times") {
  const TemporaryDirectory place;
  const auto entries = fill(place.path(), 5);
  const int64_t ends[] = {-(int64_t{1} << 31), 0, (int64_t{1} << 31), (int64_t{1} << 34) - 1,
                          int64_t{9'000'000'000'000}};
  for (int i = 0; i < 5; ++i) {
    const struct timespec times[2] = {{0, UTIME_OMIT}, {ends[i], 999'999'999}};
    REQUIRE(utimensat(AT_FDCWD, path_of(place.path(), entries[i].key).c_str(), times, 0) == 0);
  }
  const auto store = Store::open(place.path(), quick_fs());
  for (const Entry& entry : entries) CHECK(store->get(entry.key).has_value());
  CHECK(store->trim(3500, false).removed >= 2);
  CHECK(store->trim(0, false).entries == 0);
}

TEST_CASE("removals that a network file system refuses are skipped, and the next trim does them") {
  for (const int error : {EBUSY, ESTALE, ENOENT, EACCES, EIO}) {
    CAPTURE(error);
    const TemporaryDirectory place;
    const auto entries = fill(place.path(), 6);
    static int answer, refusals;
    answer = error;
    refusals = 2;
    FileSystem table = quick_fs();
    table.unlinkat = [](int dir, const char* path, int flags) {
      if (refusals-- > 0) return errno = answer, -1;
      return real_fs().unlinkat(dir, path, flags);
    };
    Log log;
    const uint64_t one = encode_entry(entries[0]).size();
    const TrimReport report = Store::open(place.path(), table)->trim(4 * one, false);
    CHECK(report.removed == 3);  // the next ones in their place
    CHECK(report.bytes == 3 * one);
    for (int i = 0; i < 6; ++i) CHECK(there(place.path(), entries[i]) == (i < 2 || i == 5));
    CHECK(log.warnings().empty());
    CHECK(Store::open(place.path(), table)->trim(2 * one, false).removed == 2);
    CHECK_FALSE(there(place.path(), entries[0]));
  }
}

TEST_CASE("a listing that goes stale half way loses nothing but the rest of that trim") {
  for (int at = 1; at < 12; ++at) {
    const TemporaryDirectory place;
    const auto entries = fill(place.path(), 4);
    static int calls;
    calls = at;
    FileSystem table = quick_fs();
    table.getdents = [](int fd, void* to, size_t bytes) -> ssize_t {
      if (--calls == 0) return errno = ESTALE, -1;
      return real_fs().getdents(fd, to, bytes);
    };
    Log log;
    const auto store = Store::open(place.path(), table);
    const TrimReport report = store->trim(2500, false);
    CHECK(report.removed <= 3);
    CHECK(there(place.path(), entries[3]));
    CHECK(log.warnings().empty());
    check_next_run(place.path(), entries);
  }
}

TEST_CASE("files that other machines hold open (.nfs) are neither entries nor swept nor counted") {
  const TemporaryDirectory place;
  const auto entries = fill(place.path(), 2);
  const std::string held = files::path(path_of(place.path(), entries[0].key)).parent_path() /
                           ".nfs000000000000123400000001";
  write_file(held, encode_entry(entries[0]));
  age(held, 99999);
  const auto store = Store::open(place.path(), quick_fs());
  CHECK(store->stat().entries == 2);
  CHECK(store->verify().checked == 2);
  CHECK(store->trim(0, false).removed == 2);
  CHECK(files::exists(held));
}

TEST_CASE("a rename whose answer was lost is a warning, and the entry is there") {
  const TemporaryDirectory place;
  FileSystem table = quick_fs();
  table.renameat = [](int from_dir, const char* from, int to_dir, const char* to) {
    real_fs().renameat(from_dir, from, to_dir, to);
    return errno = ENOENT, -1;
  };
  Log log;
  const Entry entry = sample_entry("a");
  Store::open(place.path(), table)->put(entry);
  CHECK(log.warnings().size() == 1);
  CHECK(Store::open(place.path())->get(entry.key).has_value());
  CHECK(count_files(place.path(), ".tmp.") == 0);
}
