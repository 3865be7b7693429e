"""What a step would take over another network or method."""
