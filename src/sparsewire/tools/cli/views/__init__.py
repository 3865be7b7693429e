"""Live views of commands, as tables and as metrics."""
