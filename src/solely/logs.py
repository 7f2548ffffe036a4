"""The log of the library: no text that came from elsewhere forges a line of it, or reaches a terminal as a command."""

from __future__ import annotations

import logging
import traceback

_INDENT = "    "


def printable(text: str, keep: str = "") -> str:
    """The text with control characters escaped, except those to `keep`: it may come from strangers."""
    if text.isprintable():
        return text
    return "".join(
        s if s.isprintable() or s in keep else s.encode("unicode_escape", "surrogatepass").decode() for s in text
    )


def indented_traceback(error: BaseException) -> str:
    """The traceback, each line of which is indented and printable: none looks like a record of its own."""
    lines = "".join(traceback.format_exception(error)).splitlines()
    return "\n".join(_INDENT + printable(line) for line in lines)


class OneLine(logging.Filter):
    """Escapes control characters of a message, and indents a traceback, since the text of an error may have lines."""

    def filter(self, record: logging.LogRecord) -> bool:
        """True always: no record is left out."""
        message = record.getMessage()
        if not message.isprintable():
            record.msg, record.args = printable(message), None
        if record.exc_info and record.exc_info[1] is not None and not record.exc_text:
            record.exc_text = indented_traceback(record.exc_info[1])
        return True


_ONE_LINE = OneLine()


def get_logger(name: str = "solely") -> logging.Logger:
    """The logger of this name, `solely` or below, each of whose messages is one line, whatever a formatter does."""
    found = logging.getLogger(name)
    found.addFilter(_ONE_LINE)  # once: the same filter is not added again
    return found
