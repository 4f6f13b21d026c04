"""What a method is made of: layout, copy edges, attention, readout, post-processing."""
