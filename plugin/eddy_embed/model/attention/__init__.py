"""Inside attention: kernels, temperature, sinks, extra entries, a watcher."""
