"""Examine a cluster from where a client runs: 30 checks from the name to the round trip of a record.

    report = diagnose(Target("kafka:9092", topic="orders", group="billing"))
    for result in report.results:
        print(result.status.label, result.check.id, result.check.name)

`examine` gathers facts with a time limit for each step; a check judges facts and touches nothing. Only the probe of D29
writes, and only if the target says so.

    facts        what is examined, and what was found
    visit        one address: name, TCP, TLS, ApiVersions, SASL, Metadata
    link         a connection that carries one request at a time
    examination  all addresses at the same time, then topic, group and transaction
    round_trip   the record of D29
    check        a check, its findings and its result
    addresses, security, brokers, usage   the checks D01 to D30
    report       all results together

Imports: admin, cluster, session, net, protocol, records, wire.
"""

from kwire.doctor.check import Check, Finding, Result, Status
from kwire.doctor.examination import examine
from kwire.doctor.facts import Endpoint, Facts, Target
from kwire.doctor.report import CHECKS, Report, diagnose, judge

__all__ = [
    "CHECKS",
    "Check",
    "Endpoint",
    "Facts",
    "Finding",
    "Report",
    "Result",
    "Status",
    "Target",
    "diagnose",
    "examine",
    "judge",
]
