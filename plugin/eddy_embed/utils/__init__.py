"""What every package may use: files, differences, interrupts, progress, memory, types of arrays."""
