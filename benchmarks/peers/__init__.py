"""Other libraries that embed, beside Eddy."""
