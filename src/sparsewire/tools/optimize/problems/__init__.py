"""Functions that distributed methods minimise, with their constants, splits and solutions."""
