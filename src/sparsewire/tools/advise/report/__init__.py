"""The answer as text, tables, plots and a page."""
