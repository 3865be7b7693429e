"""Meeting places: where every rank gets a record of each."""
