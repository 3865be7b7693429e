"""What commands show live, as tables and as metrics."""
