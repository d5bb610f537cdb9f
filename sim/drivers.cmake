# build/sim/libcuda.so.1 and build/sim/libnccl.so.2 (sim/driver, sim/nccl) and their tests.
