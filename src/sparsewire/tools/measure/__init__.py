"""Parts of every measurement: conditions, usage, the wire limit, sizes."""
