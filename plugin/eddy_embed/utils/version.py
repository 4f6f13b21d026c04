"""The version, in a file of its own: who needs it alone does not open the front door."""

__version__ = "0.1.0"
