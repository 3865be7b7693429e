"""The command line: each file has commands that belong together; heavy imports are inside them."""
