"""CUDA's variables that say what a copy has of a GPU, as MPS, Slurm's plugin of it and simulated servers read them."""

SM_PERCENT_VARIABLE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MEMORY_LIMIT_VARIABLE = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
VISIBLE_DEVICES_VARIABLE = "CUDA_VISIBLE_DEVICES"
