"""`python -m reaper`: the `reaper` command."""

from reaper.cli import main

if __name__ == "__main__":
    main(prog_name="reaper")
