"""Who takes part in rounds, by a store, by torchft's Manager, or by torch's own groups."""
