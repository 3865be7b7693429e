"""What a reader has, and how a version is made ready and written to it."""
