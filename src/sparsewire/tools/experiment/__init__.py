"""How experiments run: workers here or in the lab, their events, progress, reports and files."""
