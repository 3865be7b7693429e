"""One call of a process group: who serves it, its work, its future."""
