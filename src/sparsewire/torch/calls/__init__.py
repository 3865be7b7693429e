"""One call of a process group: the engine or backend that serves it, its work, its future."""
