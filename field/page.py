"""One HTML page with figures that opens from disk: nothing in its data can run, and it asks nothing of any network.

Data stand in a JSON block that is never executed. A content security policy lets only the two scripts run whose hashes it
names (CSP level 3, 2.3.1), and forbids all connections.
"""

import base64
import hashlib
import html
import json
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
UNSAFE = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}  # in JSON inside of HTML


def html_page(title: str, above: str, figures: list[dict[str, Any]], below: str) -> str:
    """The whole page.

    Args:
        title: plain text.
        above, below: HTML around the figures, whose texts the caller has escaped.
        figures: each with a `title`, plotly's `data` and `layout`.
    """
    from plotly.offline import get_plotlyjs  # five megabytes that only a page needs

    plotly = get_plotlyjs().replace("\r\n", "\n")  # as a browser hashes it
    hashes = " ".join(f"'sha256-{_sha256(script)}'" for script in (plotly, DRAW))
    return PAGE.substitute(
        title=html.escape(title),
        policy=html.escape(POLICY.format(hashes=hashes)),
        above=above,
        figures=json.dumps(figures).translate(UNSAFE),
        below=below,
        plotly=plotly,
        draw=DRAW,
    )


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
