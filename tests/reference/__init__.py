"""The methods once more, written for reading and not for speed.

One text at a time, no padding, no hooks, loops, float64. Nothing here imports the library: where the two agree, they
agree because both follow the definitions.
"""
