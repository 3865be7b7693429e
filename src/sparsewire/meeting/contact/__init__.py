"""How two processes first talk: listening, dialling, proving who they are."""
