"""The web page of a library: a local server, and the thread that writes uploads."""
