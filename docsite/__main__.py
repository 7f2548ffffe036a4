"""`scripts/docs` builds the site; `scripts/docs serve` also serves it on loopback."""

from __future__ import annotations

import argparse
import functools
import http.server
import shutil
import subprocess
import sys

import click

from .generated import pages
from .links import broken
from .staging import BUILD, CONFIG, SITE, stage


def build() -> int:
    """Builds the site and checks its links; returns the number of errors, which it prints."""
    BUILD.mkdir(exist_ok=True)
    for note in stage(pages()):
        click.echo(f"docs: {note}")
    shutil.rmtree(SITE, ignore_errors=True)
    zensical = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "--config-file", str(CONFIG)]
    built = subprocess.run(zensical, capture_output=True, text=True, check=False)
    if built.returncode:
        click.echo(built.stdout + built.stderr)
        return 1
    errors = list(broken(SITE))
    for error in errors:
        click.echo(f"docs: {error}")
    click.echo(f"docs: {sum(1 for _ in SITE.rglob('*.html'))} pages in {SITE}, {len(errors)} broken links")
    return len(errors)


def server_of_site(port: int) -> http.server.ThreadingHTTPServer:
    """A server of the built site on loopback."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(SITE))
    return http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)


def serve(port: int) -> None:
    """Serves the built site until it is interrupted."""
    with server_of_site(port) as server:
        click.echo(f"docs: http://127.0.0.1:{server.server_port}/index.html")
        server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/docs", description=__doc__)
    parser.add_argument("command", nargs="?", choices=["build", "serve"], default="build")
    parser.add_argument("--port", type=int, default=8000, help="of serve; 0 chooses a free one")
    given = parser.parse_args()
    if errors := build():
        sys.exit(min(errors, 1))
    if given.command == "serve":
        serve(given.port)


if __name__ == "__main__":
    main()
