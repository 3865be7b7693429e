"""Linear models, trained over the sparse collectives."""
