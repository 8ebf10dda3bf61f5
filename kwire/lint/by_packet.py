"""Findings by the exchange that shows them: for rows of exchanges with what `kwire lint` says of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from kwire.capture import Exchange
from kwire.lint.rule import Finding


def finding_to_dict(finding: Finding) -> dict[str, Any]:
    """Return what a row says of a finding."""
    rule = finding.rule
    return {
        "rule": rule.id, "name": rule.name, "level": rule.level.label, "subject": finding.subject, "text": finding.text,
        "count": finding.count, "packets": list(finding.packets), "fix": rule.fix, "at_ns": finding.at_ns,
    }  # fmt: skip


class FindingsByPacket:
    """Looks up findings by the packets of an exchange. A finding names its first packets only (PACKETS_MAX)."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self._by_packet: dict[int, list[Finding]] = defaultdict(list)
        for finding in findings:
            for packet in finding.packets:
                self._by_packet[packet].append(finding)

    def of(self, exchange: Exchange) -> list[Finding]:
        """Return the findings that name a packet of the exchange, each once."""
        found: list[Finding] = []
        for packet in exchange.packets:
            found += [one for one in self._by_packet.get(packet, ()) if one not in found]
        return found
