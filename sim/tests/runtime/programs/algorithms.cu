// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Algorithms of the tool kit's own libraries, which call much of the runtime themselves.
#include <thrust/device_vector.h>
#include <thrust/host_vector.h>
#include <thrust/sort.h>

#include <algorithm>
#include <cub/cub.cuh>
#include <numeric>

#include "check.h"

int main() {
  constexpr int kCount = 20000;
  thrust::host_vector<int> keys(kCount);
  unsigned state = 5;
  for (int& key : keys) key = next_number(&state) % 100000;

  thrust::device_vector<int> there = keys;
  thrust::sort(there.begin(), there.end());
  const thrust::host_vector<int> sorted = there;
  std::sort(keys.begin(), keys.end());
  compare("places of the sorted keys that differ",
          kCount - std::inner_product(keys.begin(), keys.end(), sorted.begin(), 0, std::plus<>(),
                                      std::equal_to<>()),
          0);

  const long long expected = std::accumulate(keys.begin(), keys.end(), 0LL);
  thrust::device_vector<long long> sum(1);
  const auto reduce = [&](void* workspace, size_t* bytes) {
    return cub::DeviceReduce::Reduce(workspace, *bytes, there.begin(), sum.begin(), kCount,
                                     cuda::std::plus<>(), 0LL);
  };
  size_t bytes = 0;
  CHECK(reduce(nullptr, &bytes));
  thrust::device_vector<char> workspace(bytes);
  CHECK(reduce(thrust::raw_pointer_cast(workspace.data()), &bytes));
  compare("sum", sum[0], expected);

  thrust::device_vector<int> running(kCount);
  thrust::inclusive_scan(there.begin(), there.end(), running.begin());
  compare("last running sum", running[kCount - 1], static_cast<int>(expected));
}
