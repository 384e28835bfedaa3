"""A self-contained HTML page with figures: its data cannot execute, and it makes no network request.

Data and Plotly, the largest part of a page, are deflated and encoded in base 64. A content security policy permits only
scripts with the listed hashes (CSP level 3, 2.3.1), and forbids all connections.
"""

import base64
import hashlib
import html
import json
import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

FOLDER = Path(__file__).parent
PAGE = Template((FOLDER / "page.html").read_text(encoding="utf-8"))
DRAW = (FOLDER / "page.js").read_text(encoding="utf-8")
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src {hashes}",
        "style-src 'unsafe-inline'",  # plotly sets styles on its elements
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
    )
)


def html_page(
    title: str,
    above: str,
    figures: list[dict[str, Any]],
    below: str,
    more: dict[str, Any] | None = None,
    scripts: Sequence[str] = (),
) -> str:
    """Return the whole page.

    Args:
        title: plain text.
        above, below: HTML around the figures, with texts escaped by the caller.
        figures: each with a `title`, plotly's `data` and `layout`; with a `box`, drawn in the element of that id.
        more: further data for `scripts`, as `page.more`; the promise `drawn` resolves to the drawn figures.
    """
    plotly, packed_plotly = _plotly()
    own = "\n".join((DRAW, *scripts))
    sums = (hashlib.sha256(script.encode()).digest() for script in (plotly, own))
    hashes = " ".join(f"'sha256-{base64.b64encode(one).decode()}'" for one in sums)
    return PAGE.substitute(
        title=html.escape(title),
        policy=html.escape(POLICY.format(hashes=hashes)),
        above=above,
        data=packed(json.dumps({"figures": figures, "more": more or {}}, separators=(",", ":"))),
        below=below,
        plotly=packed_plotly,
        scripts=own,
    )


def html_table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    """Return a table that scrolls sideways where it is wide, and is sorted by a click on a head; its cells are escaped."""
    lines = [f"<tr>{''.join(f'<th>{html.escape(str(cell))}</th>' for cell in head)}</tr>"]
    lines += [f"<tr>{''.join(f'<td>{html.escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows]
    return f"<div style='overflow-x: auto'><table class='sorts'>{''.join(lines)}</table></div>"


def packed(text: str) -> str:
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


@cache
def _plotly() -> tuple[str, str]:
    from plotly.offline import get_plotlyjs  # five megabytes that only a page needs

    script = get_plotlyjs()
    return script, packed(script)
