"""Training across slow links: replicas work alone for some steps, and then add up what changed."""
