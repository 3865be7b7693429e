"""New weights for engines that serve models, and from trainings: adapters to their own interfaces.

Nothing of an engine is imported before it is used.
"""
