"""`python -m scenarios`: the command line, as the `railbed` script starts it."""

from scenarios.cli.commands import main

if __name__ == "__main__":
    main()
