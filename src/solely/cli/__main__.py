"""`python -m solely.cli` is `solely`."""

from . import main

main()
