"""The library as a web page on this machine: upload, ask, read, and see why."""
