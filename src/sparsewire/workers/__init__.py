"""Worker processes on this machine: started together, followed by their events, ended together."""
