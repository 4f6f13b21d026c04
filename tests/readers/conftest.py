"""Files are read in threads where the process that reads them is not the subject."""

from tests.readers.threaded_readers import real_processes, threaded_readers  # noqa: F401  (fixtures)
