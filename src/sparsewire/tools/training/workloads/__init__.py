"""The six workloads of OmniReduce's evaluation: models, seeded data, measurements."""
