"""`python -m sparsewire` runs the command if scripts are not on PATH."""

from sparsewire.tools.cli.main import app

if __name__ == "__main__":
    app(prog_name="python -m sparsewire")
