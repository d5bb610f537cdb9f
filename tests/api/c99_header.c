/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* lathe.h as strict C99, linked against the library alone. */
#include <stdio.h>
#include <string.h>

#include "lathe.h"

int main(void) {
  lathe_context_options options = LATHE_CONTEXT_OPTIONS_INIT;
  const lathe_operator_info* op = lathe_operator_find("causal_conv1d");
  lathe_problem* problem = NULL;
  const int64_t shape[] = {-1, -1, 64};
  size_t i, found = 0;

  if (op == NULL || options.size != sizeof(options) || options.device != LATHE_DEVICE_DEFAULT) {
    return 1;
  }
  for (i = 0; i < op->tensor_count; ++i) found += strcmp(op->tensors[i].name, "weight") == 0;
  if (found != 1) return 2;
  if (lathe_problem_create(&problem, "causal_conv1d") != LATHE_OK) return 3;
  if (lathe_problem_tensor(problem, "x", LATHE_BF16, 3, shape) != LATHE_OK) return 4;
  if (lathe_problem_tensor(problem, "x", LATHE_BF16, 3, shape) != LATHE_INVALID_ARGUMENT) return 5;
  if (strcmp(lathe_last_error(), "x is declared twice") != 0) return 6;
  lathe_problem_destroy(problem);
  printf("lathe %s from C99: %s\n", lathe_version(), lathe_status_name(LATHE_OK));
  return 0;
}
