"""HTTP parts that know no library: access control, concurrency, event streams."""
