"""The words of an HTML page, for a message that people read.

Gateways answer in pages: with a title (nginx, Apache, Cloudflare, the clouds' load balancers) or without one (HAProxy).
One pass that no page can make slow; a parser for well-formed documents would reject half of them.
"""

from __future__ import annotations

import re
from html import unescape
from typing import Final

# What opens a page, also behind words of somebody who passes it on.
_START: Final = re.compile(r"<(?:!doctype\s|(?:html|head|body)[\s>])", re.IGNORECASE | re.ASCII)
# What a page may start with as well, also one that is cut; `<unk>` is a token and no page.
_FIRST: Final = re.compile(r"<(?:!|\?xml\s|(?:title|meta|center|div|p|h[1-6])[\s>])", re.IGNORECASE | re.ASCII)
_NAME: Final = re.compile(r"[a-z][a-z0-9:_-]*", re.IGNORECASE | re.ASCII)
# A `>` in a quoted attribute does not end a tag. The alternatives exclude each other, so nothing is tried twice.
_REST: Final = re.compile(r"""(?:[^>"']|"[^"]*"|'[^']*')*>""")
# Their text is not for reading; the title of a drawing is not that of the page.
_SILENT: Final = frozenset({"script", "style", "svg", "template"})
_INLINE: Final = frozenset({"a", "abbr", "b", "code", "em", "font", "i", "small", "span", "strong", "tt", "u"})
_CLOSING: Final = {name: re.compile(f"</{name}", re.IGNORECASE | re.ASCII) for name in (*_SILENT, "title")}


def readable(text: str) -> str:
    """Return a message without markup: a page becomes its words, and what stood before it is kept.

    Text that holds no page comes back as it is, whatever signs it contains.
    """
    text = text.strip()
    whole = text.startswith("<") and (text.endswith(">") or _FIRST.match(text) is not None)
    start = None if whole else _START.search(text)
    if whole:
        return words_of(text)
    return text if start is None else f"{text[: start.start()]}{words_of(text[start.start() :])}".strip()


def words_of(page: str) -> str:
    """Return the title of a page, or else its text, on one line; empty when it has neither."""
    parts: list[str] = []
    at = 0
    while (start := page.find("<", at)) >= 0:
        parts.append(page[at:start])
        name = _NAME.match(page, start + 1)
        if name is None and page[start + 1 : start + 2] not in {"/", "!", "?"}:
            parts.append("<")
            at = start + 1
            continue
        if page.startswith("<!--", start):
            at = _after(page, page.find("-->", start), 3)
            continue
        at = _end_of_tag(page, start)
        tag = name[0].lower() if name is not None else _closed(page, start)
        parts.append("" if tag in _INLINE else " ")
        closing = _CLOSING.get(tag) if name is not None else None
        if closing is None:
            continue
        close = closing.search(page, at)
        if tag == "title":
            end = page.find("<", at) if close is None else close.start()  # a page may be cut
            if title := _line(page[at : end if end >= 0 else len(page)]):
                return title
        at = len(page) if close is None else _end_of_tag(page, close.start())
    parts.append(page[at:])
    return _line("".join(parts))


def _closed(page: str, start: int) -> str:
    name = _NAME.match(page, start + 2)
    return name[0].lower() if name is not None else ""


def _end_of_tag(page: str, start: int) -> int:
    whole = _REST.match(page, start)
    return whole.end() if whole is not None else _after(page, page.find(">", start), 1)


def _after(page: str, found: int, length: int) -> int:
    return found + length if found >= 0 else len(page)


def _line(text: str) -> str:
    return " ".join(unescape(text).split())
