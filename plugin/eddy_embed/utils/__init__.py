"""What every package may use: files, interrupts, progress, dtypes, memory."""
