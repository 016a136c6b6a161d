"""NVIDIA's GPUs through NVML: `device.NvmlDevice` over the nvidia-ml-py binding.

Nothing is imported here, because the binding takes 3 MB and `writer.Writer` is used without it.
"""
