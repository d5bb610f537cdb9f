// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the reports of the simulator, from processes of their own: variables are read
// once.
#include "sim/tests/child.h"
#include "sim/tests/driver/driver_client.h"
#include "sim/tests/driver/driver_kernels.h"
#include "sim/tests/driver/nccl_client.h"

using namespace sim::tests;

namespace {

CUdeviceptr some(size_t bytes) {
  CUdeviceptr address = 0;
  cuda().mem_alloc(&address, bytes);
  return address;
}

// add() over 1000 elements; `short_by` bytes are missing at the end of the result.
int run_add(size_t short_by, bool leak = false) {
  if (cuda().init(0) != CUDA_SUCCESS) return 100;
  CUfunction add = load_kernel("add");
  CUdeviceptr a = some(4000), b = some(4000), c = some(4000 - short_by);
  cuda().memset_d8(a, 0, 4000);
  cuda().memset_d8(b, 0, 4000);
  int count = 1000;
  void* params[] = {&a, &b, &c, &count};
  cuda().launch_kernel(add, 4, 1, 1, 256, 1, 1, 0, nullptr, params, nullptr);
  const CUresult result = cuda().ctx_synchronize();
  if (result == CUDA_SUCCESS) {
    cuda().mem_free(a);
    cuda().mem_free(b);
    if (!leak) cuda().mem_free(c);
  }
  cuda().device_primary_ctx_release(0);
  return result == CUDA_SUCCESS ? 0 : 3;
}

}  // namespace

TEST_CASE("a file that cannot be written is told once") {
  const struct {
    const char *name, *path, *says;
  } cases[] = {
      {"LATHE_SIM_COUNTERS", "/nope/x", "No such file"},
      {"LATHE_SIM_COUNTERS", "/dev/full", "No space left"},
      {"LATHE_SIM_TIMELINE", "/dev/full", "No space left"},
  };
  for (const auto& each : cases) {
    CAPTURE(each.name);
    const Child child = in_child({{each.name, each.path}}, [] { return run_add(0); });
    CHECK(child.status == 0);
    const std::string note = std::string("lathe sim: ") + each.name + ": " + each.path +
                             " cannot be written: " + each.says;
    const size_t at = child.error.find(note);
    CHECK_MESSAGE(at != std::string::npos, child.error);
    CHECK(child.error.find("cannot be written", at + note.size()) == std::string::npos);
  }
}

// One rank that reduces with itself.
int run_alone() {
  const int device = 0;
  ncclComm_t comm = nullptr;
  if (nccl().comm_init_all(&comm, 1, &device) != ncclSuccess) {
    std::fprintf(stderr, "%s\n", nccl().get_last_error(nullptr));
    return 1;
  }
  CUcontext context = nullptr;
  cuda().device_primary_ctx_retain(&context, 0);
  cuda().ctx_push_current(context);
  void* const data = pointer(some(64));
  for (int turn = 0; turn < 2; ++turn) {
    nccl().all_reduce(data, data, 4, ncclFloat32, ncclSum, comm, nullptr);
    cuda().ctx_synchronize();
  }
  nccl().comm_destroy(comm);
  return 0;
}

TEST_CASE("NCCL's variables are looked at in the same way") {
  const Child unwritable = in_child({{"LATHE_SIM_NCCL_COUNTERS", "/nope/x"}}, run_alone);
  CHECK(unwritable.status == 0);
  const std::string note = "lathe sim: LATHE_SIM_NCCL_COUNTERS: /nope/x cannot be written";
  CHECK(has(unwritable.error, note));
  CHECK(lines(unwritable.error) == 1);
  const Child late = in_child({{"LATHE_SIM_NCCL_TIMEOUT_MS", "soon"}}, run_alone);
  CHECK(late.status == 1);
  CHECK(has(late.error, "LATHE_SIM_NCCL_TIMEOUT_MS is \"soon\"; allowed: 1 to "));
}

TEST_CASE("a clean run writes nothing but counters") {
  const std::string report = path_of("clean"), counters = path_of("clean_counters");
  const Child child = in_child({{"LATHE_SIM_REPORT", report},
                                {"LATHE_SIM_COUNTERS", counters},
                                {"LATHE_SIM_CHECK", "all"},
                                {"LATHE_SIM_ERROR_EXITCODE", "77"}},
                               [] { return run_add(0); });
  CHECK(child.status == 0);
  CHECK(child.error.empty());
  CHECK_FALSE(exists(report));
  const std::string text = content(counters);
  CHECK(lines(text) == 1);
  CHECK(has(text, "\"kernel\":\"add\""));
  CHECK(has(text, "\"global_load_bytes\":8000,"));
  CHECK(has(text, "\"global_store_bytes\":4000,"));
  CHECK_FALSE(has(text, "\"lines\""));
}

TEST_CASE("a finding is a JSON line, a line for people, and the exit status") {
  const std::string report = path_of("fault");
  const Child child = in_child({{"LATHE_SIM_REPORT", report}, {"LATHE_SIM_ERROR_EXITCODE", "77"}},
                               [] { return run_add(400); });
  CHECK(child.status == 77);
  const std::string text = content(report);
  REQUIRE(lines(text) == 1);
  CHECK(
      has(text, "{\"check\":\"memcheck\",\"kind\":\"out_of_bounds\",\"kernel\":\"add\",\"cta\":["));
  CHECK(has(text, "],\"thread\":["));
  CHECK(has(text, ",\"ptx_line\":4"));
  CHECK(has(text, ",\"source\":\"\",\"text\":\"4-byte store to global address "));
  CHECK(has(text, ",\"address\":\"0x"));
  CHECK(has(text, ",\"bytes\":4}\n"));
  CHECK(lines(child.error) == 1);
  CHECK(child.error.rfind("lathe sim: memcheck out_of_bounds: 4-byte store to global", 0) == 0);
  CHECK(has(child.error, "; in add, cta ("));
  CHECK(has(child.error, ", PTX line 4"));
}

TEST_CASE("quiet, and the report on stderr") {
  const Child quiet = in_child({{"LATHE_SIM_QUIET", "1"}}, [] { return run_add(400); });
  CHECK(quiet.status == 3);  // the program's own: no other was asked for
  CHECK(quiet.error.empty());
  const Child here =
      in_child({{"LATHE_SIM_QUIET", "1"}, {"LATHE_SIM_REPORT", "-"}}, [] { return run_add(400); });
  CHECK(lines(here.error) == 1);
  CHECK(here.error.rfind("{\"check\":\"memcheck\"", 0) == 0);
}

TEST_CASE("a race names both parties") {
  const std::string report = path_of("race");
  const Child child =
      in_child({{"LATHE_SIM_REPORT", report}, {"LATHE_SIM_CHECK", "racecheck"}}, [] {
        if (cuda().init(0) != CUDA_SUCCESS) return 100;
        CUcontext context = nullptr;
        cuda().device_primary_ctx_retain(&context, 0);
        cuda().ctx_push_current(context);
        std::string text = kernels();
        text.replace(text.find("bar.sync"), 8, "// no ba");  // nothing orders the two halves
        CUmodule module = nullptr;
        CUfunction reverse = nullptr;
        cuda().module_load_data(&module, text.c_str());
        cuda().module_get_function(&reverse, module, "reverse");
        CUdeviceptr data = some(256);
        cuda().memset_d8(data, 0, 256);
        void* params[] = {&data};
        cuda().launch_kernel(reverse, 1, 1, 1, 64, 1, 1, 256, nullptr, params, nullptr);
        return static_cast<int>(cuda().ctx_synchronize());
      });
  CHECK(child.status == 0);
  const std::string text = content(report);
  CHECK(has(text,
            "{\"check\":\"racecheck\",\"kind\":\"race\",\"kernel\":\"reverse\",\"cta\":[0,0,0]"));
  CHECK(has(text, "\"other\":{\"cta\":[0,0,0],\"thread\":["));
  const bool loads = has(text, "\"source\":\"\",\"access\":\"load\"}}");
  const bool stores = has(text, "\"source\":\"\",\"access\":\"store\"}}");
  CHECK((loads || stores));
  CHECK(has(child.error, "lathe sim: racecheck race: "));
}

TEST_CASE("a leak belongs to memcheck and to no kernel") {
  const std::string report = path_of("leak");
  const Child child = in_child({{"LATHE_SIM_REPORT", report}, {"LATHE_SIM_ERROR_EXITCODE", "9"}},
                               [] { return run_add(0, true); });
  CHECK(child.status == 9);
  const std::string text = content(report);
  CHECK(has(text, "{\"check\":\"memcheck\",\"kind\":\"leak\",\"kernel\":\"\""));
  CHECK(has(text, "\"bytes\":4000"));
  CHECK(child.error ==
        "lathe sim: memcheck leak: 4000 bytes of memory of device 0 were never freed\n");
}

TEST_CASE("counters by PTX line add up to those of the launch") {
  const std::string counters = path_of("profile");
  const Child child = in_child({{"LATHE_SIM_COUNTERS", counters}, {"LATHE_SIM_PROFILE", "1"}},
                               [] { return run_add(0); });
  CHECK(child.status == 0);
  const std::string text = content(counters);
  // 32 warps of 1024 threads; the loads and the store run in those 1000 that have work.
  CHECK(has(text, "\"text\":\"setp.ge.s32"));
  CHECK(has(text,
            "\"executions\":32,\"thread_instructions\":1000,\"global_requests\":32,"
            "\"global_bytes\":4000,\"global_sectors\":125,"));
  CHECK(has(text, "\"class\":\"memory\""));
}
