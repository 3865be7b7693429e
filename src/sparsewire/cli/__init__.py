"""The command line: one command per file, heavy imports only inside the commands."""
