"""A capture drawn over time: one HTML page that needs nothing else, or text for a terminal.

    from kwire.timeline import collect_timeline, timeline_page

    Path("page.html").write_text(timeline_page(collect_timeline("traffic.pcapng")))

    collect.py   the exchanges of a capture with their lanes, ribbons and findings: `collect_timeline`
    ribbons.py   what groups and transactions went through
    details.py   both messages of an exchange as JSON, long parts cut
    families.py  which APIs share a colour and a letter
    page.py      the page: `timeline_page`; its parts are page.html, page.css, filter.js and page.js
    text.py      the text: `timeline_text`

Passwords and tokens are masked as everywhere. The page loads nothing and sends nothing.

Imports: capture, lint, protocol.
"""

from kwire.timeline.collect import Timeline, collect_timeline
from kwire.timeline.page import timeline_page
from kwire.timeline.text import timeline_text

__all__ = ["Timeline", "collect_timeline", "timeline_page", "timeline_text"]
