// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover random mixes of use, faults, damage, clocks and other processes' doings on one
// directory. After each step: the right kernel or a clean answer, no leaked descriptor; after each
// round the next run is healthy and no temporary file is there that a later trim would not sweep.
//
// LATHE_TEST_SEED repeats a run, LATHE_TEST_STEPS makes it longer.
#include <random>

#include "codegen/base/text.h"
#include "tests/cache/sweeps.h"

using namespace lathe;
using namespace lathe::test;
namespace files = std::filesystem;

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kSteps = 10'000;
#else
constexpr int kSteps = 100'000;
#endif
constexpr int kStepsOfARound = 500;
constexpr int kErrors[] = {EIO,    ENOSPC, EDQUOT, EACCES, EROFS,  EMFILE,
                           ENOMEM, ESTALE, EBUSY,  ENOLCK, ENOENT, EINTR};

uint64_t number_from(const char* name, uint64_t fallback) {
  const char* given = std::getenv(name);
  return given ? std::strtoull(given, nullptr, 10) : fallback;
}

// One directory, a few processes' worth of stores in it, and what may happen next.
class Mix {
 public:
  Mix(uint64_t seed, const FileSystem& fs) : random_(seed), fs_(fs) {
    for (int i = 0; i < 8; ++i) entries_.push_back(sample_entry(text("e", i), 20 + 60 * i));
    for (auto& store : stores_) store = Store::open(root(), fs_);
  }

  std::string root() const { return place_ / "cache"; }
  const std::vector<Entry>& entries() const { return entries_; }
  bool wrong() const { return wrong_; }

  // Takes a step and returns what was done, for the message if it went wrong.
  std::string step() {
    switch (below(16)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return look();
      case 4:
      case 5:
      case 6:
        store().put(entry());
        return "put";
      case 7:
        return miss_path();
      case 8:
        store().trim(static_cast<uint64_t>(below(3000)), below(4) == 0);
        return "trim";
      case 9:
        return whole_cache();
      case 10:
        stores_[below(std::size(stores_))] = Store::open(root(), fs_);
        return "a new process";
      case 11:
        return damage();
      case 12:
        return swap_or_link();
      case 13:
        return turn_clock();
      case 14:
        return litter();
      default:
        return take_away();
    }
  }

 private:
  int below(size_t n) {
    return static_cast<int>(std::uniform_int_distribution<size_t>(0, n - 1)(random_));
  }
  Store& store() { return *stores_[below(std::size(stores_))]; }
  const Entry& entry() { return entries_[below(entries_.size())]; }
  std::string file() { return path_of(root(), entry().key); }

  void judge(const std::optional<Entry>& found, const Entry& wanted) {
    if (found && !same(*found, wanted)) wrong_ = true;
  }
  std::string look() {
    const Entry& wanted = entry();
    judge(store().get(wanted.key), wanted);
    return "get";
  }
  std::string miss_path() {
    const Entry& wanted = entry();
    Store& mine = store();
    if (const auto found = mine.get(wanted.key)) return judge(found, wanted), "hit";
    const Store::Lock lock = mine.lock(wanted.key);
    if (const auto found = mine.get(wanted.key, true)) return judge(found, wanted), "late hit";
    mine.put(wanted);
    return "compile";
  }
  std::string whole_cache() {
    Store& mine = store();
    if (mine.stat().entries > entries_.size()) wrong_ = true;
    if (mine.verify().checked > entries_.size()) wrong_ = true;
    mine.compilers();
    mine.nearest_difference(sample_key("other"));
    return "stat, verify, compilers, nearest";
  }
  std::string damage() {
    const std::string path = file();
    std::error_code ignored;
    std::string bytes = files::is_regular_file(path, ignored) ? read_file(path) : "";
    if (bytes.empty()) return "nothing to damage";
    const auto at = static_cast<size_t>(below(bytes.size()));
    switch (below(4)) {
      case 0:
        bytes[at] ^= static_cast<char>(1 << below(8));
        break;
      case 1:
        bytes.resize(at);
        break;
      case 2:
        bytes += bytes.substr(at);
        break;
      default:
        bytes.assign(bytes.size(), '\0');
    }
    write_file(path, bytes);
    return "damage";
  }
  std::string swap_or_link() {
    const std::string one = file(), two = file();
    std::error_code ignored;
    if (below(2) == 0) {
      files::rename(one, place_ / "swap", ignored);
      files::rename(two, one, ignored);
      files::rename(place_ / "swap", two, ignored);
      return "swap";
    }
    files::remove_all(one, ignored);
    if (below(2) == 0)
      files::create_symlink(two, one, ignored);
    else if (mkfifo(one.c_str(), 0600) != 0)
      return "no pipe";
    return "link or pipe";
  }
  std::string turn_clock() {
    const int64_t seconds = (below(2) == 0 ? 1 : -1) * below(200'000);
    struct timespec now = {};
    clock_gettime(CLOCK_REALTIME, &now);
    const struct timespec times[2] = {{0, UTIME_OMIT}, {now.tv_sec + seconds, 0}};
    utimensat(AT_FDCWD, file().c_str(), times, AT_SYMLINK_NOFOLLOW);
    return "clock";
  }
  std::string litter() {
    const std::string shard = files::path(file()).parent_path();
    std::error_code ignored;
    if (files::is_directory(shard, ignored)) write_file(text(shard, "/.tmp.1.", below(5)), "half");
    return "a killed publisher";
  }
  std::string take_away() {
    std::error_code ignored;
    switch (below(6)) {
      case 0:
        files::remove_all(root(), ignored);
        return "rm -rf";
      case 1:
        files::remove_all(root() + "/v1", ignored);
        return "rm -rf v1";
      case 2:
        files::remove(root() + "/v1/lock", ignored);
        return "no lock file";
      case 3:
        write_file(root() + "/v1/compilers", "half a li");
        return "a torn list";
      default:
        files::remove(file(), ignored);
        return "rm";
    }
  }

  TemporaryDirectory place_;
  std::mt19937_64 random_;
  const FileSystem& fs_;
  std::vector<Entry> entries_;
  std::shared_ptr<Store> stores_[3];
  bool wrong_ = false;
};

// The real calls, of which one in `one_in` fails with any of the errors, or moves a single byte.
struct Chance {
  static std::mt19937_64& random() {
    static std::mt19937_64 generator;
    return generator;
  }
  static unsigned& one_in() {
    static unsigned value = 0;
    return value;
  }
  static bool fails() {
    if (one_in() == 0 || random()() % one_in() != 0) return false;
    errno = kErrors[random()() % std::size(kErrors)];
    return true;
  }
  static size_t some(size_t bytes) { return one_in() && random()() % 8 == 0 ? 1 : bytes; }
};

const FileSystem& chancy_fs() {
  static const FileSystem table = {
      [](const char* path, int flags, mode_t mode) {
        return Chance::fails() ? -1 : real_fs().open(path, flags, mode);
      },
      [](int dir, const char* path, int flags, mode_t mode) {
        return Chance::fails() ? -1 : real_fs().openat(dir, path, flags, mode);
      },
      [](int fd) {
        real_fs().close(fd);
        return Chance::fails() ? -1 : 0;
      },
      [](int fd, void* to, size_t bytes) -> ssize_t {
        return Chance::fails() ? -1 : real_fs().read(fd, to, Chance::some(bytes));
      },
      [](int fd, const void* from, size_t bytes) -> ssize_t {
        return Chance::fails() ? -1 : real_fs().write(fd, from, Chance::some(bytes));
      },
      [](int) { return Chance::fails() ? -1 : 0; },
      [](int fd, struct stat* out) { return Chance::fails() ? -1 : real_fs().fstat(fd, out); },
      [](int dir, const char* path, struct stat* out, int flags) {
        return Chance::fails() ? -1 : real_fs().fstatat(dir, path, out, flags);
      },
      [](int dir, const char* path, mode_t mode) {
        return Chance::fails() ? -1 : real_fs().mkdirat(dir, path, mode);
      },
      [](int from_dir, const char* from, int to_dir, const char* to) {
        return Chance::fails() ? -1 : real_fs().renameat(from_dir, from, to_dir, to);
      },
      [](int dir, const char* path, int flags) {
        return Chance::fails() ? -1 : real_fs().unlinkat(dir, path, flags);
      },
      [](int fd, const struct timespec times[2]) {
        return Chance::fails() ? -1 : real_fs().futimens(fd, times);
      },
      [](int fd, int command, struct flock* what) {
        return Chance::fails() ? -1 : real_fs().lock(fd, command, what);
      },
      [](int fd, void* to, size_t bytes) -> ssize_t {
        return Chance::fails() ? -1 : real_fs().getdents(fd, to, bytes);
      },
      [](int fd, void* to, size_t bytes, off_t at) -> ssize_t {
        return Chance::fails() ? -1 : real_fs().pread(fd, to, Chance::some(bytes), at);
      },
  };
  return table;
}

}  // namespace

TEST_CASE("random mixes: the right kernel or a clean answer, and a healthy next run") {
  const uint64_t seed = number_from("LATHE_TEST_SEED", 20261122);
  const auto steps = static_cast<int>(number_from("LATHE_TEST_STEPS", kSteps));
  MESSAGE("seed " << seed << ", " << steps << " steps");
  // An unlock that fails keeps a lock until its file is closed: nobody here waits long for it.
  const Environment limit("LATHE_LOCK_TIMEOUT_MS", "2");
  const size_t before = open_descriptors();
  for (int round = 0; round < (steps + kStepsOfARound - 1) / kStepsOfARound; ++round) {
    CAPTURE(seed);
    CAPTURE(round);
    Log log;
    // Rounds without faults, with a few, and with many of them.
    Chance::one_in() = round % 3 == 0 ? 0 : round % 3 == 1 ? 60 : 6;
    Chance::random().seed(seed + static_cast<uint64_t>(round));
    {
      Mix mix(seed ^ static_cast<uint64_t>(round) * 0x9e3779b97f4a7c15, chancy_fs());
      for (int i = 0; i < kStepsOfARound; ++i) {
        const std::string what = mix.step();
        if (!mix.wrong()) continue;
        FAIL("step " << i << " of round " << round << ": " << what);
      }
      Chance::one_in() = 0;
      std::error_code ignored;
      for (const auto& item : files::recursive_directory_iterator(mix.root(), ignored))
        if (item.path().filename().string().substr(0, 5) == ".tmp.") age(item.path(), 4000);
      files::remove_all(mix.root() + "/v1/compilers", ignored);
      Store::open(mix.root(), quick_fs())->verify();
      check_next_run(mix.root(), mix.entries());
      CHECK(count_files(mix.root(), ".tmp.") == 0);
    }
    REQUIRE(open_descriptors() == before);
  }
}
