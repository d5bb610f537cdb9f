# lathe_sim_core: the PTX interpreter (sim/ptx, sim/exec, sim/check) and its tests.
