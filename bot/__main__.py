"""`python -m bot` is `countersign`."""

from bot.cli import main

if __name__ == "__main__":
    main()
