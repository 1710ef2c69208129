"""`python -m manyheads`, which is also how torchrun starts it."""

from manyheads.cli import main

if __name__ == "__main__":
    main()
