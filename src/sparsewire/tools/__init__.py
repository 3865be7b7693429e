"""Tools around the library: commands, benchmarks, the lab, diagnosis, advice, trainings."""
