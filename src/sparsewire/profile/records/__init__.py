"""The files of a profile: written, and read back."""
