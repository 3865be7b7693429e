"""Connecting the ranks of a job, and lending these connections to groups."""
