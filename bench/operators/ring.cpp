// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// `lathe_bench ring` shows calls over ranks on the simulator's timeline in model time. Ranks are
// threads, the executor is the real one, a sample of each grid's blocks runs; so results are wrong
// and nothing is checked here: the tests do that. The table shows when each thing would begin and
// end on devices whose kernels take what the simulator's clock says, joined by links.
#include <dlfcn.h>
#include <unistd.h>

#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "bench/timeline.h"
#include "bench/verbs.h"
#include "tests/harness/session.h"

namespace bench {
namespace {

constexpr int64_t kTokens = 8192;  // of each rank
constexpr const char* kSampledBlocks = "4";
constexpr int kPatience = 3600000;  // milliseconds: a rank waits while others are simulated

struct Piece {
  const char* name;
  lathe_dtype dtype;
  std::vector<int64_t> shape;  // -1: the rank's tokens
  bool gradient = false;       // of the backward alone
};

struct Job {
  std::string name, op;
  std::vector<Piece> pieces;
  std::vector<std::pair<const char*, int>> options;
};

// Calls of one shard, one after another.
struct Layers {
  Layers(const Job& job) : name(job.name), jobs{job} {}
  Layers(std::string its_name, std::vector<Job> its_jobs)
      : name(std::move(its_name)), jobs(std::move(its_jobs)) {}
  std::string name;
  std::vector<Job> jobs;
};

struct Variant {
  const char* rotate;
  unsigned flags;
  const char* balance_word;
  lathe_balance balance;
};

Job attention(const char* name, int64_t heads, int64_t kv_heads) {
  const int64_t width = 128;
  const auto rows = [&](const char* tensor, int64_t h, bool gradient) {
    return Piece{tensor, LATHE_BF16, {1, -1, h, width}, gradient};
  };
  return {name,
          "flash_attention",
          {rows("q", heads, false),
           rows("k", kv_heads, false),
           rows("v", kv_heads, false),
           rows("out", heads, false),
           {"lse", LATHE_F32, {1, heads, -1}},
           rows("dout", heads, true),
           rows("dq", heads, true),
           rows("dk", kv_heads, true),
           rows("dv", kv_heads, true)},
          {{"causal", 1}}};
}

Job conv(int64_t channels) {
  const std::vector<int64_t> x = {1, -1, channels}, taps = {channels, 4};
  return {"conv1d D" + std::to_string(channels),
          "causal_conv1d",
          {{"x", LATHE_BF16, x},
           {"weight", LATHE_BF16, taps},
           {"y", LATHE_BF16, x},
           {"dy", LATHE_BF16, x, true},
           {"dx", LATHE_BF16, x, true},
           {"dweight", LATHE_BF16, taps, true}},
          {}};
}

// A layer of Kimi Delta Attention behind its convolution, which is a job of its own.
Job kda() {
  const std::vector<int64_t> rows = {1, -1, 32, 128}, numbers = {1, -1, 32};
  return {"kda 32 d128",
          "kda",
          {{"q", LATHE_BF16, rows},
           {"k", LATHE_BF16, rows},
           {"v", LATHE_BF16, rows},
           {"g", LATHE_F32, rows},
           {"beta", LATHE_BF16, numbers},
           {"o", LATHE_BF16, rows},
           {"do", LATHE_BF16, rows, true},
           {"dq", LATHE_BF16, rows, true},
           {"dk", LATHE_BF16, rows, true},
           {"dv", LATHE_BF16, rows, true},
           {"dg", LATHE_F32, rows, true},
           {"dbeta", LATHE_BF16, numbers, true}},
          {{"use_qk_l2norm_in_kernel", 1}, {"use_beta_sigmoid_in_kernel", 1}}};
}

// Returns the file that the simulator writes; the name is made before the file is opened.
std::string timeline_path() {
  static const std::string path = [] {
    const auto chosen = std::filesystem::temp_directory_path() /
                        ("lathe-ring-" + std::to_string(getpid()) + ".jsonl");
    setenv("LATHE_SIM_TIMELINE", chosen.c_str(), 1);
    setenv("LATHE_SIM_SAMPLE_BLOCKS", kSampledBlocks, 0);
    setenv("LATHE_SIM_CHECK", "memcheck", 0);
    setenv("LATHE_SIM_GPU", "h100", 0);
    setenv("LATHE_SIM_CLOCK", "/dev/null",
           0);  // kernels last as long as it says; its lines are lost
    setenv("LATHE_SIM_NCCL_TIMEOUT_MS", std::to_string(kPatience).c_str(), 0);
    std::atexit([] { std::remove(timeline_path().c_str()); });
    return chosen.string();
  }();
  return path;
}

void restart_clocks(const std::string& name) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  auto* restart =
      driver == nullptr
          ? nullptr
          : reinterpret_cast<void (*)(const char*)>(dlsym(driver, "lathe_sim_restart_timeline"));
  if (restart == nullptr) throw std::runtime_error("ring runs on the simulator alone");
  restart(name.c_str());
}

// Where one rank of a world stands.
struct Place {
  lathe_context* context;
  const char* id;
  int world, rank;
  int64_t tokens;
};

// One rank's call of a job, ready to be made again and again.
class RankCall {
 public:
  RankCall(const Place& place, const Job& job, unsigned flags, bool backward, lathe_group* group,
           lathe_shard* shard, void* stream)
      : place_(place), shard_(shard), stream_(stream) {
    lathe_problem* problem = nullptr;
    API(lathe_problem_create(&problem, job.op.c_str()));
    const apitest::Problem owner(problem);
    for (const auto& [name, value] : job.options) {
      API(lathe_problem_set_int(problem, name, value));
    }
    for (const Piece& piece : job.pieces) {
      if (piece.gradient && !backward) continue;
      API(lathe_problem_tensor(problem, piece.name, piece.dtype,
                               static_cast<int>(piece.shape.size()), piece.shape.data()));
    }
    API(lathe_problem_group(problem, group, flags));
    lathe_plan* plan = nullptr;
    API(lathe_plan_create(&plan, place.context, problem));
    plan_.reset(plan);
    API(lathe_shard_prepare(shard, plan));
    order_.assign(lathe_plan_slot_count(plan), nullptr);
    for (const Piece& piece : job.pieces) {
      if (piece.gradient && !backward) continue;
      put(piece);
    }
    size_t bytes = 0;
    API(lathe_plan_workspace(plan, order_.data(), shard, &bytes));
    workspace_ = std::make_unique<apitest::Memory>(place.context, bytes);
  }

  void enqueue() {
    API(lathe_plan_run_sharded(plan_.get(), shard_, order_.data(), workspace_->data(),
                               workspace_->bytes(), stream_));
  }

 private:
  void put(const Piece& piece) {
    std::vector<int64_t> shape = piece.shape;
    for (int64_t& extent : shape) extent = extent < 0 ? place_.tokens : extent;
    const auto& tensor = tensors_.emplace(
        piece.name, std::make_unique<apitest::Tensor>(place_.context, piece.dtype, shape,
                                                      apitest::Placement{}, stream_));
    size_t slot = 0;
    API(lathe_plan_slot(plan_.get(), piece.name, &slot));
    order_.at(slot) = tensor.first->second->dl();
  }

  const Place place_;
  lathe_shard* const shard_;
  void* const stream_;
  apitest::Plan plan_;
  std::map<std::string, std::unique_ptr<apitest::Tensor>> tensors_;
  std::vector<const DLTensor*> order_;
  std::unique_ptr<apitest::Memory> workspace_;
};

// One rank with the calls of some layers, one after another on one stream, over one group and one
// shard.
class Rank {
 public:
  Rank(const Place& place, const std::vector<Job>& jobs, const Variant& variant, bool backward)
      : context_(place.context), stream_(place.context) {
    lathe_group* group = nullptr;
    API(lathe_group_create(&group, context_, place.id, place.world, place.rank, kPatience));
    group_.reset(group);
    lathe_shard_options options = LATHE_SHARD_OPTIONS_INIT;
    options.world = place.world, options.rank = place.rank, options.balance = variant.balance;
    options.length = place.tokens * place.world;
    lathe_shard* shard = nullptr;
    API(lathe_shard_create_with(&shard, &options));
    shard_.reset(shard);
    for (const Job& job : jobs) {
      calls_.push_back(std::make_unique<RankCall>(place, job, variant.flags, backward, group, shard,
                                                  stream_.get()));
    }
  }

  void run() {
    for (const auto& call : calls_) call->enqueue();
    API(lathe_stream_synchronize(context_, stream_.get()));
    API(lathe_group_error(group_.get()));
  }

 private:
  lathe_context* context_;
  apitest::Stream stream_;
  apitest::Group group_;
  apitest::Shard shard_;
  std::vector<std::unique_ptr<RankCall>> calls_;
};

// Runs all ranks once to connect and load, once more on clocks that begin at 0.
std::vector<Span> run_world(lathe_context* context, const Layers& layers, const Variant& variant,
                            bool backward, int world, int64_t tokens) {
  char id[LATHE_UNIQUE_ID_BYTES];
  API(lathe_unique_id(context, id));
  std::barrier barrier(world);
  std::mutex mutex;
  std::exception_ptr failure;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      std::unique_ptr<Rank> call;
      const auto guarded = [&](auto body) {
        try {
          if (!failure) body();
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (!failure) failure = std::current_exception();
        }
        barrier.arrive_and_wait();
      };
      guarded([&] {
        const Place place = {context, id, world, rank, tokens};
        call = std::make_unique<Rank>(place, layers.jobs, variant, backward);
      });
      guarded([&] { call->run(); });
      guarded([&] {
        if (rank == 0) restart_clocks(layers.name);
      });
      guarded([&] { call->run(); });
      call.reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
  std::ifstream file(timeline_path());
  std::ostringstream text;
  text << file.rdbuf();
  std::ofstream(timeline_path(), std::ios::trunc);
  return read_timeline(text.str());
}

void add_row(Table* table, const Layers& job, const Variant& variant, bool backward, int world,
             const std::vector<Span>& spans) {
  Usage sum;  // the slowest rank's times, and all transfers together
  double transfer = 0, exposed = 0;
  for (int rank = 0; rank < world; ++rank) {
    const Usage one = usage_of(spans, rank);
    transfer += one.transfer, exposed += one.exposed;
    sum.end = std::max(sum.end, one.end), sum.compute = std::max(sum.compute, one.compute);
    sum.transfer = std::max(sum.transfer, one.transfer);
    sum.exposed = std::max(sum.exposed, one.exposed);
    sum.groups = std::max(sum.groups, one.groups), sum.bytes = std::max(sum.bytes, one.bytes);
  }
  const double hidden = transfer > 0 ? 1 - exposed / transfer : 1;
  table->add({job.name, std::to_string(world), variant.rotate, variant.balance_word,
              backward ? "fwd+bwd" : "fwd", std::to_string(sum.groups),
              number(static_cast<double>(sum.bytes) / 1e6, 1), number(sum.end, 1),
              number(sum.compute, 1), number(sum.transfer, 1), number(sum.exposed, 1),
              number(100 * hidden, 1)});
}

bool wanted(const Settings& settings, const std::string& text) {
  return settings.only.empty() || text.find(settings.only) != std::string::npos;
}

}  // namespace

Table bench_ring(const Settings& settings) {
  timeline_path();
  const int64_t tokens = settings.tokens > 0 ? settings.tokens : kTokens;
  const auto context = apitest::make_context();
  const Variant ring{"ring", 0, "none", LATHE_BALANCE_NONE};
  const Variant balanced{"ring", 0, "head_tail", LATHE_BALANCE_HEAD_TAIL};
  const Variant gather{"allgather", LATHE_ALLGATHER, "none", LATHE_BALANCE_NONE};
  const Variant fair{"allgather", LATHE_ALLGATHER, "head_tail", LATHE_BALANCE_HEAD_TAIL};
  const Variant halo{"halo", LATHE_REDUCE_PARAMETER_GRADS, "none", LATHE_BALANCE_NONE};
  const Variant pieces{"pieces", LATHE_REDUCE_PARAMETER_GRADS, "head_tail",
                       LATHE_BALANCE_HEAD_TAIL};
  const Variant same{"invariant", LATHE_RANK_INVARIANT | LATHE_REDUCE_PARAMETER_GRADS, "head_tail",
                     LATHE_BALANCE_HEAD_TAIL};
  // Two layers of a hybrid model in one layout: KDA behind the convolution of its q, k and v, and
  // attention around a ring.
  const Layers hybrid("hybrid 32/8 d128", {conv(3 * 4096), kda(), attention("", 32, 8)});
  const std::vector<std::pair<Layers, std::vector<Variant>>> all = {
      {attention("32/8 d128", 32, 8), {ring, balanced, gather, fair, same}},
      {attention("64/8 d128", 64, 8), {ring, balanced, gather, fair}},
      {conv(4096), {halo, pieces, same}},
      {kda(), {halo, pieces, same}},
      {hybrid, {halo, pieces, same}}};
  Table table({"shape", "ranks", "rotate", "balance", "pass", "groups", "MB", "time_us",
               "compute_us", "transfer_us", "exposed_us", "hidden_percent"});
  for (const auto& [job, variants] : all) {
    for (const int world : {1, 2, 4, 8}) {
      for (const Variant& variant : variants) {
        for (const bool backward : {false, true}) {
          const std::string name = job.name + " W" + std::to_string(world) + " " + variant.rotate +
                                   " " + variant.balance_word + (backward ? " bwd" : " fwd");
          // One rank alone is what the others are measured against, by name.
          if (!wanted(settings, name) || (world == 1 && settings.only.empty())) continue;
          const auto spans = run_world(context.get(), job, variant, backward, world, tokens);
          add_row(&table, job, variant, backward, world, spans);
          std::cerr << name << ": " << draw_timeline(spans, 100) << "\n";
        }
      }
    }
  }
  return table;
}

}  // namespace bench
