"""A character GPT trained across slow links, by each way to average: losses, wire bytes, time."""
