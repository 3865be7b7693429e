"""How two processes first talk: listening, dialling, proving their identity."""
