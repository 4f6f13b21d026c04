"""Read the files of office programs: Word files, slides, sheets."""
