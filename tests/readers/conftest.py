"""Files are read in threads where the process that reads them is not the subject."""

from tests.readers.threaded_readers import threaded_readers

__all__ = ["threaded_readers"]
