/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What calls.py needs of C: it lends torch's CPU tensors as tensors of a GPU, and it times
 * lathe_plan_run alone. */
#include <string.h>
#include <time.h>

#include "lathe.h"
#include "python/src/core/dlpack_exchange.h"

static ExchangeTable lent;
static const ExchangeTable* own;

static int tensor_from_object(void* object, DLTensor* out) {
  const int failed = own->tensor_from_object(object, out);
  out->device = (DLDevice){kDLCUDA, 0};
  return failed;
}

/* Torch without a GPU has no stream, and the null driver takes any. */
static int current_work_stream(DLDeviceType device, int32_t ordinal, void** out) {
  (void)device, (void)ordinal;
  return *out = NULL, 0;
}

/* Returns an exchange table that is torch's `table`, but whose tensors are on GPU 0; NULL if torch
 * has none that borrows tensors without an allocation. */
__attribute__((visibility("default"))) ExchangeTable* lend(const ExchangeTable* table) {
  if (table->version.major != 1 || !table->tensor_from_object) return NULL;
  own = table;
  lent = *table;
  lent.tensor_from_object = tensor_from_object;
  lent.current_work_stream = current_work_stream;
  return &lent;
}

/* Makes the plan of a manifest's line and runs it `calls` times. Returns processor seconds per run;
 * -1 if something failed, of which lathe_last_error tells. */
__attribute__((visibility("default"))) double time_runs(const char* line, int device,
                                                        const DLTensor* const* slots, int calls) {
  lathe_context_options options = LATHE_CONTEXT_OPTIONS_INIT;
  lathe_context* context = NULL;
  lathe_problem* problem = NULL;
  lathe_plan* plan = NULL;
  void* workspace = NULL;
  size_t bytes = 0;
  double seconds = -1;
  struct timespec begin, end;
  options.device = (lathe_device_kind)device;
  if (lathe_context_create(&context, &options) != LATHE_OK ||
      lathe_problem_parse(&problem, line, strlen(line)) != LATHE_OK ||
      lathe_plan_create(&plan, context, problem) != LATHE_OK ||
      lathe_plan_workspace(plan, slots, NULL, &bytes) != LATHE_OK ||
      lathe_malloc(context, &workspace, bytes) != LATHE_OK) {
    goto done;
  }
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
  for (int i = 0; i < calls; ++i) {
    if (lathe_plan_run(plan, slots, workspace, bytes, NULL) != LATHE_OK) goto done;
  }
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
  seconds =
      ((double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec)) / calls;
done:
  if (context) lathe_free(context, workspace);
  lathe_plan_destroy(plan);
  lathe_problem_destroy(problem);
  lathe_context_destroy(context);
  return seconds;
}
