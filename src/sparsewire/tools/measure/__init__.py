"""What measurements need wherever they are made: conditions, usage, the wire limit, sizes."""
