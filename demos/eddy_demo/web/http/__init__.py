"""What the server shares between its routes: access, concurrency, event streams."""
