"""The language model: loading, a view of it that methods may touch, hooks, attention kernels."""
