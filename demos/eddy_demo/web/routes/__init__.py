"""Routes of the server: its pages, and the API that their scripts call."""
